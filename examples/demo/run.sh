#!/bin/bash
# The way of ten orders through duebox, to look at and to check: places them, pays some, takes the broker away, and
# exits 0 only if every order ended as it must.
#
#   DEMO_HOLD=1          leaves everything running at the end, until Ctrl-C
#   DEMO_POSTGRES_URL    your PostgreSQL instead of a private one: a role that may create schemas (two, duebox_demo and
#                        duebox_demo_shop; dropped at the end)
#   DEMO_AMQP_URL        your RabbitMQ instead of a private one (queues duebox-demo.* and duebox.order-5s.* stay there)
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -A pids=()
dir=$(mktemp -d "${TMPDIR:-/tmp}/duebox-demo.XXXXXX")
chmod 755 "$dir"
. examples/demo/servers.sh

bold='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
phase() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '  %s\n' "$*"; }

clean_up() {
    local code=$?
    trap - EXIT
    end watch_events && end duebox
    if [[ ${postgres_url:-} && -n ${DEMO_POSTGRES_URL:-} ]]; then
        sql 'drop schema if exists duebox_demo, duebox_demo_shop cascade' >/dev/null 2>&1 || true
    fi
    end rabbitmq KILL && end epmd && end postgres INT
    rm -rf -- "$dir"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

give_up() { # give_up REASON [LOG]
    printf '\nThe demo cannot go on: %s\n' "$1" >&2
    if [[ ${2:-} ]]; then tail -n 20 "$2" >&2; fi
    exit 1
}

session() {
    PGOPTIONS='-c search_path=duebox_demo_shop,duebox_demo -c client_min_messages=warning' \
        psql -XAtq -v ON_ERROR_STOP=1 "$@" "$postgres_url"
}
sql() { session -c "$1"; }
postgres_version() { sql "select split_part(current_setting('server_version'), ' ', 1)"; }
holds() { [[ $(sql "select $1") == t ]]; }
lines() { sql "$1" | while IFS= read -r line; do say "$line"; done; }
ready() { curl -fs "http://127.0.0.1:$admin_port/readyz"; }
not_ready() { ! ready; }

start_duebox() { # start_duebox AMQP_URL
    DUEBOX_POSTGRES__URL=$postgres_url DUEBOX_RABBITMQ__URLS="[\"$1\"]" DUEBOX_ADMIN__LISTEN=127.0.0.1:$admin_port \
        setpriv --pdeathsig TERM "$duebox" run --config examples/demo/relay.toml >>"$dir/duebox.log" 2>&1 </dev/null &
    pids[duebox]=$!
}

watch() { # watch NAME QUEUE SQL: runs SQL, with & for the business id, for each message that reaches the queue
    setpriv --pdeathsig TERM "$watcher" "$amqp_url" "$2" 2>>"$dir/watch.log" \
        > >(sed -un "s/^[0-9][0-9]*$/$3;/p" | session >/dev/null) &
    pids[$1]=$!
}

# Whoever wants to know what was closed: each event is noted.
watch_events() {
    watch watch_events duebox-demo.events "insert into arrived (id) values (&)"
}

place() { # place COUNT: each order and its message in one transaction
    for ((n = 0; n < $1; n++)); do
        sql "with taken as (update items set stock = stock - 1),
             placed as (insert into orders default values returning id)
             select enqueue('order-5s', id::text, 'order.created', json_build_object('order', id)::text) from placed" >/dev/null
    done
}
pay() { sql "update orders set status = 'paid', paid_at = clock_timestamp() where id in ($1)"; }

closed() { holds "count(*) = $1 from orders where status = 'closed'"; }
kept() { # kept COUNT: so many messages found their order paid or closed
    curl -fs "http://127.0.0.1:$admin_port/metrics" |
        grep -q "^duebox_rule_refused_total{rule=\"order-timeout\",by=\"closer\",reason=\"status\"} $1\$"
}
arrived() { holds "count(*) = $1 from arrived"; }

# A line for each order from FIRST on: what became of it, when, and by whom.
ends() { # ends FIRST
    lines "select format('order %-3s %s', o.id, case o.status
              when 'paid' then 'paid: kept'
              else format('unpaid: closed by the %s %s s after it was placed; its item is back in stock; its event %s',
                          m.payload ->> 'by', to_char(extract(epoch from o.closed_at - o.created_at), 'FM990.000'),
                          case when a.id is null then 'waits in the outbox' else 'arrived' end) end)
             from orders o
             left join outbox m on m.key = o.id::text and m.type = 'order.closed'
             left join arrived a on a.id = o.id
            where o.id >= $1 order by o.id"
}

phase 'duebox: from an order to its due moment'
say 'building (debug; the first time takes minutes) ...'
cargo build --quiet --bin duebox --example watch
duebox=$PWD/target/debug/duebox watcher=$PWD/target/debug/examples/watch
for tool in psql curl; do command -v "$tool" >/dev/null || give_up "$tool is missing"; done
admin_port=$(free_port)

phase '1. Servers'
if [[ ${DEMO_POSTGRES_URL:-} ]]; then
    postgres_url=$DEMO_POSTGRES_URL
    say "PostgreSQL $(postgres_version), yours"
else
    start_postgres
    say "PostgreSQL $(postgres_version), private: $postgres_url"
fi
if [[ ${DEMO_AMQP_URL:-} ]]; then
    amqp_url=$DEMO_AMQP_URL
    say 'RabbitMQ, yours'
else
    start_rabbitmq
    say "RabbitMQ, private: $amqp_url"
fi
sql 'drop schema if exists duebox_demo, duebox_demo_shop cascade'
sql "$(<examples/demo/shop.sql)"
migrated=$("$duebox" migrate --schema duebox_demo --url "$postgres_url")
say "$migrated"
start_duebox "$amqp_url"
wait_for 30 'duebox' ready
say "duebox runs: http://127.0.0.1:$admin_port/readyz says $(ready | head -n 1)"
watch_events

phase '2. Six orders, each with its message in the same transaction; two of them are paid'
place 6
pay '2, 5'
wait_for 10 'a confirm for each message' holds 'count(*) = 6 from outbox where sent_at is not null'
lines "select format('order %-3s placed %s   claimed, published and confirmed after %s ms   held by RabbitMQ until %s%s',
              o.id, to_char(m.created_at, 'HH24:MI:SS.MS'), to_char(1000 * extract(epoch from m.sent_at - m.created_at), 'FM9990'),
              to_char(m.created_at + interval '5 s', 'HH24:MI:SS.MS'), case o.status when 'paid' then '   paid' else '' end)
         from orders o join outbox m on m.key = o.id::text order by o.id"

phase '3. Five seconds later the messages fall due, and duebox looks at each order'
wait_for 30 'every unpaid order' closed 4
wait_for 30 'a look at the paid ones' kept 2
wait_for 30 'each event' arrived 4
ends 1
say ''
say 'duebox trace 1'
DUEBOX_POSTGRES__URL=$postgres_url DUEBOX_RABBITMQ__URLS="[\"$amqp_url\"]" "$duebox" trace 1 --config examples/demo/relay.toml | sed 's/^/    /'

if [[ ${DEMO_AMQP_URL:-} ]]; then
    phase '4. RabbitMQ is gone: duebox is pointed to a port where nobody listens, your broker is left alone'
    end watch_events && end duebox
    start_duebox "amqp://127.0.0.1:$(free_port)"
else
    phase '4. RabbitMQ is killed. Four more orders; one of them is paid'
    end rabbitmq KILL
fi
wait_for 30 'news of the outage' not_ready
place 4
pay 8
say "$(curl -s "http://127.0.0.1:$admin_port/readyz" | grep '^rabbitmq')"
wait_for 30 'the sweep' holds "count(*) = 3 from orders where id > 6 and status = 'closed'"
ends 7

phase '5. RabbitMQ is back: what waited goes out, and nothing happens twice'
if [[ ${DEMO_AMQP_URL:-} ]]; then
    end duebox
    start_duebox "$amqp_url"
    late=4
else
    end watch_events
    start_rabbitmq
    late=6
fi
wait_for 60 'duebox' ready
watch_events
wait_for 60 'a look at the late ones' kept "$late"
say 'the messages of orders 7 to 10 came late, and found them paid or closed: nothing to do'
wait_for 30 'each event' arrived 7
ends 7
wait_for 30 'every row' holds "not exists (select from outbox where sent_at is null)"

phase '6. Every order, checked'
# What must hold of each order, and a line for each that it does not hold of.
wrong=$(sql "
    with checked as (
        select o.id,
               o.status = case when o.id in (2, 5, 8) then 'paid' else 'closed' end as ended_right,
               (o.id > 6 or o.status = 'paid' or o.closed_at - o.created_at between interval '5 s' and interval '7 s') as on_time,
               (select count(*) = case o.status when 'closed' then 1 else 0 end
                   and bool_and(m.payload ->> 'by' = case when o.id > 6 then 'sweep' else 'closer' end) is not false
                  from outbox m where m.key = o.id::text and m.type = 'order.closed') as one_event,
               (select count(*) = case o.status when 'closed' then 1 else 0 end from arrived a where a.id = o.id) as which_arrived
          from orders o)
    select format('order %s: ended right %s, on time %s, one event %s, which arrived %s', id, ended_right, on_time, one_event, which_arrived)
      from checked where (ended_right and on_time and one_event and which_arrived) is not true
    union all select format('%s of 10 items are in stock, not 7', stock) from items where stock <> 7
    union all select 'there are not ten orders' where (select count(*) from orders) <> 10")
if [[ $wrong ]]; then
    printf '%s\n' "$wrong" >&2
    give_up 'an order ended wrong; the daemon said:' "$dir/duebox.log"
fi
say '10 orders: 3 paid and kept, 4 closed on time, 3 closed by the sweep while RabbitMQ was away. None twice, none lost.'

if [[ ${DEMO_HOLD:-} == 1 ]]; then
    phase 'Left running (DEMO_HOLD=1); Ctrl-C ends it'
    say "PostgreSQL  $postgres_url   schemas duebox_demo and duebox_demo_shop"
    say "RabbitMQ    $amqp_url"
    say "duebox      http://127.0.0.1:$admin_port/metrics   log $dir/duebox.log"
    wait "${pids[duebox]}" || true
fi
