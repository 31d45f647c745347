#!/bin/bash
# Orders closed a second: by the closer and by the sweep, each beside psql doing the same with bare statements, which is
# the ceiling. Private servers, release build, without fsync; one order.closed row for each order in all of them. Once
# with the relay paused, so that closing is all there is to do as it is for psql, and once with the events going out.
#   benches/closes.sh [ORDERS]        ROUNDS=3
set -euo pipefail
cd "$(dirname "$0")/.."
orders=${1:-10000} rounds=${ROUNDS:-3}
declare -A pids=()
dir=$(mktemp -d "${TMPDIR:-/tmp}/duebox-closes.XXXXXX")
chmod 755 "$dir"
give_up() { echo "$1" >&2; [[ -z ${2:-} ]] || cat "$2" >&2; exit 1; }
. examples/demo/servers.sh
trap 'end duebox; end rabbitmq KILL; end epmd; end postgres INT; rm -rf "$dir"' EXIT
cargo build --quiet --release --bin duebox
start_postgres
start_rabbitmq
duebox=$PWD/target/release/duebox
"$duebox" migrate --url "$postgres_url" >/dev/null
sql() { PGOPTIONS="-c client_min_messages=warning" psql -XAtq -v ON_ERROR_STOP=1 "$postgres_url" -c "$1"; }
sent() { [[ $(sql 'select not exists (select from duebox.outbox where sent_at is null)') == t ]]; }
left() { [[ $(sql "select not exists (select from orders where status = 'unpaid')") == t ]]; }

sql "create table orders (id bigint primary key, status text not null, due timestamptz not null);
     create index on orders (due) where status = 'unpaid'; create sequence one"
fresh() { # every order unpaid and long overdue, and an outbox with nothing in it
    sql "truncate duebox.outbox, orders; alter sequence one restart"
    sql "insert into orders select i, 'unpaid', now() - interval '1 day' from generate_series(1, $orders) i"
    sql "vacuum analyze orders"
}
run_duebox() { # run_duebox TABLES
    cat >"$dir/relay.toml" <<END
[postgres]
url = "$postgres_url"
[rabbitmq]
urls = ["$amqp_url"]
[admin]
listen = "127.0.0.1:$(free_port)"
[tier.due]
target = { queue = "bench.due" }
[tier.events]
target = { queue = "bench.events" }
[rule.unpaid]
table = "public.orders"
id = "id"
status = "status"
due = "due"
after = "30m"
from = ["unpaid"]
to = "closed"
tier = "due"
event = { tier = "events", type = "order.closed" }
every = "1s"
$1
END
    "$duebox" run --config "$dir/relay.toml" >"$dir/duebox.log" 2>&1 & pids[duebox]=$!
}
pause() { # pause NAME: the relay, unless the events are to go out
    [[ $1 == *_sending ]] || "$duebox" pause relay --config "$dir/relay.toml" >/dev/null
}
resume() {
    end duebox
    "$duebox" resume --all --config "$dir/relay.toml" >/dev/null
}
rate() { # rate NAME: notes how many were closed a second since the first close
    sql "select round($orders / extract(epoch from clock_timestamp() - min(created_at))) from duebox.outbox where type = 'order.closed'" >>"$dir/$1"
}

cat >"$dir/one.sql" <<'END'
select nextval('one') as id \gset
begin;
select status from orders where id = :id for update;
with closed as (
    update orders set status = 'closed' where id = :id and status = 'unpaid' and due <= now() - interval '30 min' returning id)
insert into duebox.outbox (tier, key, type, payload)
select 'events', id::text, 'order.closed', jsonb_build_object('id', id) from closed;
commit;
END
cat >"$dir/batch.sql" <<'END'
do $$
declare ids bigint[];
begin
    loop
        select array_agg(id) into ids from (
            select id from orders where status = 'unpaid' and due <= now() - interval '30 min' order by due, id limit 500
               for update skip locked) o;
        exit when ids is null;
        with closed as (
            update orders set status = 'closed' where id = any (ids) and status = 'unpaid' and due <= now() - interval '30 min' returning id)
        insert into duebox.outbox (tier, key, type, payload)
        select 'events', id::text, 'order.closed', jsonb_build_object('id', id) from closed;
        commit;
    end loop;
end $$;
END
psql_one() {
    fresh
    pgbench -n -c 5 -j 1 -t "$((orders / 5))" -f "$dir/one.sql" "$postgres_url" >/dev/null 2>&1
    rate psql_one
}
closer() { # closer NAME
    fresh
    sql "insert into duebox.outbox (tier, key, payload) select 'due', id::text, '{}' from orders"
    run_duebox '[sweep]
enabled = false'
    wait_for 120 'the messages' sent
    end duebox
    pause "$1"
    run_duebox '[sweep]
enabled = false
[closer]
enabled = true'
    wait_for 120 'the closer' left
    rate "$1"
    resume
}
psql_batch() {
    fresh
    psql -XAtq -v ON_ERROR_STOP=1 "$postgres_url" -f "$dir/batch.sql"
    rate psql_batch
}
sweep() { # sweep NAME
    fresh
    pause "$1"
    run_duebox ''
    wait_for 120 'the sweep' left
    rate "$1"
    resume
}
for ((round = 0; round < rounds; round++)); do
    psql_one
    closer closer
    closer closer_sending
    psql_batch
    sweep sweep
    sweep sweep_sending
done
median() { sort -n "$dir/$1" | sed -n "$(((rounds + 1) / 2))p"; }
show() { # show WHAT CEILING OURS SENDING
    awk -v what="$1" -v psql="$(median "$2")" -v ours="$(median "$3")" -v sending="$(median "$4")" 'BEGIN {
        printf "%s: psql %d/s, duebox %d/s (%.2f), with the events going out %d/s (%.2f)\n",
            what, psql, ours, ours / psql, sending, sending / psql }'
}
show 'one order a transaction, 5 sessions' psql_one closer closer_sending
show '500 orders a transaction, 1 session' psql_batch sweep sweep_sending
