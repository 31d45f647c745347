#!/usr/bin/python3
"""Closes orders that are still unpaid when their message arrives. Needs python3-psycopg and python3-pika.

    consumer.py POSTGRES_URL AMQP_URL QUEUE

The rules that make it safe are in the README beside it.
"""

import json
import sys
import time

import pika
import psycopg

# A second's grace: RabbitMQ's clock and the database's are two. Both statements see what was committed before the order was locked, and nobody can pay in between.
LOCK = "select status = 'unpaid' and due_at <= now() + interval '1 s' from orders where id = %s for update"
CLOSE = """
    with closed as (update orders set status = 'closed', closed_at = now() where id = %s returning item_id)
    update items set stock = stock + 1 where id = (select item_id from closed)"""


def look_at(db, order):
    """True if the order was closed. A message that comes early, late or twice finds nothing to do."""
    with db.transaction():
        found = db.execute(LOCK, [order]).fetchone()
        if found is None or not found[0]:
            return False
        db.execute(CLOSE, [order])
        return True


def consume(postgres_url, amqp_url, queue):
    with psycopg.connect(postgres_url, autocommit=True) as db, pika.BlockingConnection(pika.URLParameters(amqp_url)) as broker:
        channel = broker.channel()
        channel.basic_qos(prefetch_count=20)
        for method, _, body in channel.consume(queue):
            try:
                order = int(json.loads(body)["order"])
            except (ValueError, KeyError, TypeError):
                # No order is behind it: keeping it would only bring it back for ever.
                print(f"not a message about an order: {body[:200]!r}", file=sys.stderr, flush=True)
            else:
                print(f"order {order}: {'closed' if look_at(db, order) else 'nothing to do'}", flush=True)
            # Only now, after the commit: whatever dies before gets the message again.
            channel.basic_ack(method.delivery_tag)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    while True:
        try:
            consume(*sys.argv[1:])
        except (psycopg.OperationalError, pika.exceptions.AMQPError, OSError) as error:
            print(f"{type(error).__name__}: {error}; again in a second", file=sys.stderr, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
