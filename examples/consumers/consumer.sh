#!/bin/sh
# Closes orders that are still unpaid when their message arrives. Needs psql and amqp-consume (amqp-tools).
#   consumer.sh POSTGRES_URL AMQP_URL QUEUE
# The rules that make it safe are in the README beside it.
set -eu
if [ $# -eq 3 ]; then
    # Runs this script for each message, which is acknowledged when it ends with 0. A lost server ends amqp-consume.
    while :; do
        amqp-consume --url "$2" --queue "$3" --prefetch-count 1 "$0" "$1" || true
        echo 'consuming ended; again in a second' >&2
        sleep 1
    done
fi
[ $# -eq 1 ] || { sed -n '2,4s/^# *//p' "$0" >&2; exit 2; }
body=$(cat)
order=$(printf %s "$body" | sed -n 's/^{ *"order" *: *\([0-9][0-9]*\) *}$/\1/p')
if [ -z "$order" ]; then
    # No order is behind it: keeping it would only bring it back for ever.
    printf 'not a message about an order: %.200s\n' "$body" >&2
    exit 0
fi
# A second's grace: RabbitMQ's clock and the database's are two. Two statements, so that the second sees what was committed before the order was locked; nobody can pay in between.
until psql -XAtq -v ON_ERROR_STOP=1 -v id="$order" "$1" <<'SQL'
begin;
select id from orders where id = :id for update \g /dev/null
with closed as (
    update orders set status = 'closed', closed_at = now()
    where id = :id and status = 'unpaid' and due_at <= now() + interval '1 s' returning id, item_id),
released as (
    update items set stock = stock + 1 where id = (select item_id from closed))
select 'order ' || :id || ': ' || case when exists (select from closed) then 'closed' else 'nothing to do' end;
commit;
SQL
do
    sleep 1   # the message waits with us; it is not acknowledged before the commit
done
