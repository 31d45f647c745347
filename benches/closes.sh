#!/bin/bash
# Orders closed a second: by the closer and by the sweep, each beside psql doing the same with bare statements, which is
# the ceiling. Private servers, release build, without fsync; one order.closed row for each order in all four.
#   benches/closes.sh [ORDERS]        ROUNDS=3
set -euo pipefail
cd "$(dirname "$0")/.."
orders=${1:-10000} rounds=${ROUNDS:-3}
declare -A pids=()
dir=$(mktemp -d "${TMPDIR:-/tmp}/duebox-closes.XXXXXX")
chmod 755 "$dir"
give_up() { echo "$1" >&2; cat "${2:-/dev/null}" >&2; exit 1; }
wait_for() { # wait_for SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || give_up "$what: not in time" "$dir/duebox.log"
        sleep 0.05
    done
}
. examples/demo/servers.sh
trap 'end duebox; end rabbitmq KILL; end epmd; end postgres INT; rm -rf "$dir"' EXIT
cargo build --quiet --release --bin duebox
start_postgres
start_rabbitmq
duebox=$PWD/target/release/duebox
"$duebox" migrate --url "$postgres_url" >/dev/null
sql() { PGOPTIONS="-c client_min_messages=warning" psql -XAtq -v ON_ERROR_STOP=1 "$postgres_url" -c "$1"; }
left() { [[ $(sql "select not exists (select from orders where status = 'unpaid')") == t ]]; }
now() { date +%s%N; }

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
rate() { # rate NAME STARTED: notes how many were closed a second since then
    awk -v n="$orders" -v t="$(($(now) - $2))" 'BEGIN { printf "%.0f\n", n * 1e9 / t }' >>"$dir/$1"
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
    local started
    started=$(now)
    pgbench -n -c 5 -j 1 -t "$((orders / 5))" -f "$dir/one.sql" "$postgres_url" >/dev/null 2>&1
    rate psql_one "$started"
}
closer() {
    fresh
    sql "insert into duebox.outbox (tier, key, payload) select 'due', id::text, '{}' from orders"
    run_duebox '[sweep]
enabled = false'
    wait_for 120 'the messages' sh -c "[ \$(psql -XAtqc 'select count(*) from duebox.outbox where sent_at is null' '$postgres_url') = 0 ]"
    end duebox
    local started
    started=$(now)
    run_duebox '[sweep]
enabled = false
[closer]
enabled = true'
    wait_for 120 'the closer' left
    rate closer "$started"
    end duebox
}
psql_batch() {
    fresh
    local started
    started=$(now)
    psql -XAtq -v ON_ERROR_STOP=1 "$postgres_url" -f "$dir/batch.sql"
    rate psql_batch "$started"
}
sweep() {
    fresh
    local started
    started=$(now)
    run_duebox ''
    wait_for 120 'the sweep' left
    rate sweep "$started"
    end duebox
}
for ((round = 0; round < rounds; round++)); do
    for one in psql_one closer psql_batch sweep; do "$one"; done
done
median() { sort -n "$dir/$1" | sed -n "$(((rounds + 1) / 2))p"; }
awk -v n="$orders" -v a="$(median psql_one)" -v b="$(median closer)" -v c="$(median psql_batch)" -v d="$(median sweep)" 'BEGIN {
    printf "one order a transaction, 5 sessions: psql %d/s, closer %d/s (%.2f)\n", a, b, b/a
    printf "500 orders a transaction, 1 session: psql %d/s, sweep %d/s (%.2f); %d orders, start included\n", c, d, d/c, n }'
