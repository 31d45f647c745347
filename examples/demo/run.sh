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
    end watch_due && end watch_events && end duebox
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

wait_for() { # wait_for SECONDS WHAT COMMAND...
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || give_up "$what is not there in time; the daemon's last words:" "$dir/duebox.log"
        sleep 0.1
    done
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

# The consumers: a message about an order is decided by looking at the order; an event is noted.
watch_queues() {
    watch watch_due duebox-demo.due 'select due(&)'
    watch watch_events duebox-demo.events "insert into arrived (queue, id) values ('events', &)"
}

place() { # place COUNT: each order and its message in one transaction
    for ((n = 0; n < $1; n++)); do
        sql "with placed as (insert into orders default values returning id)
             select enqueue('order-5s', id::text, 'order.created', json_build_object('order', id)::text) from placed" >/dev/null
    done
}
pay() { sql "update orders set status = 'paid', paid_at = clock_timestamp() where id in ($1)"; }

# Prints a line for each of COUNT messages as it arrives.
shown=0
arrivals() { # arrivals COUNT SECONDS
    local left=$1 deadline=$((SECONDS + $2)) seq line
    while ((left > 0)); do
        ((SECONDS < deadline)) || give_up "$left of $1 messages did not arrive" "$dir/duebox.log"
        while read -r seq line; do
            say "$line"
            shown=$seq left=$((left - 1))
        done < <(sql "
            select a.seq, format('order %-3s arrived after %6s s   %s', a.id,
                                 to_char(extract(epoch from a.at - o.created_at), 'FM990.000'),
                                 case a.found when 'paid' then 'it is paid: kept'
                                      when 'unpaid' then 'still unpaid: closed by the consumer'
                                      else 'already closed: nothing to do' end)
              from arrived a join orders o using (id) where a.queue = 'due' and a.seq > $shown order by a.seq" | tr '|' ' ')
        sleep 0.1
    done
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
watch_queues

phase '2. Six orders, each with its message in the same transaction; two of them are paid'
place 6
pay '2, 5'
wait_for 10 'a confirm for each message' holds 'count(*) = 6 from outbox where sent_at is not null'
lines "select format('order %-3s placed %s   claimed, published and confirmed after %s ms   held by RabbitMQ until %s%s',
              o.id, to_char(m.created_at, 'HH24:MI:SS.MS'), to_char(1000 * extract(epoch from m.sent_at - m.created_at), 'FM9990'),
              to_char(m.created_at + interval '5 s', 'HH24:MI:SS.MS'), case o.status when 'paid' then '   paid' else '' end)
         from orders o join outbox m on m.key = o.id::text order by o.id"

phase '3. Five seconds later the messages reach their queue, and a consumer looks at each order'
arrivals 6 20
holds "count(*) = 0 from outbox where type = 'order.closed'" && say 'the sweep had nothing to close'

if [[ ${DEMO_AMQP_URL:-} ]]; then
    phase '4. RabbitMQ is gone: duebox is pointed to a port where nobody listens, your broker is left alone'
    end watch_due && end watch_events && end duebox
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
lines "select format('order %-3s %s', o.id, case o.status
              when 'paid' then 'paid: kept'
              else format('unpaid: closed by the sweep %s s after it was placed (5 s, and 2 s of grace); its event is in the outbox',
                          to_char(extract(epoch from m.created_at - o.created_at), 'FM990.0')) end)
         from orders o left join outbox m on m.key = o.id::text and m.type = 'order.closed'
        where o.id > 6 order by o.id"

phase '5. RabbitMQ is back: what waited goes out, and nothing happens twice'
if [[ ${DEMO_AMQP_URL:-} ]]; then
    end duebox
    start_duebox "$amqp_url"
else
    end watch_due && end watch_events
    start_rabbitmq
fi
wait_for 60 'duebox' ready
watch_queues
arrivals 4 60
wait_for 30 'each event' holds "count(*) = 3 from arrived where queue = 'events'"
lines "select format('order %-3s order.closed arrived', id) from arrived where queue = 'events' order by seq"
wait_for 30 'every row' holds "not exists (select from outbox where sent_at is null)"

phase '6. Every order, checked'
# What must hold of each order, and a line for each that it does not hold of.
wrong=$(sql "
    with checked as (
        select o.id,
               o.status = case when o.id in (2, 5, 8) then 'paid' else 'closed' end as ended_right,
               (select count(*) = 1 and bool_and(o.id > 6 or a.at - o.created_at between interval '5 s' and interval '6 s')
                  from arrived a where a.queue = 'due' and a.id = o.id) as arrived_once_and_on_time,
               (select count(*) from arrived a where a.queue = 'events' and a.id = o.id)
                   = case when o.id in (7, 9, 10) then 1 else 0 end as event_if_swept
          from orders o)
    select format('order %s: ended right %s, arrived once and on time %s, event %s', id, ended_right, arrived_once_and_on_time, event_if_swept)
      from checked where (ended_right and arrived_once_and_on_time and event_if_swept) is not true
    union all select 'there are not ten orders' where (select count(*) from orders) <> 10")
if [[ $wrong ]]; then
    printf '%s\n' "$wrong" >&2
    give_up 'an order ended wrong; the daemon said:' "$dir/duebox.log"
fi
say '10 orders: 3 paid and kept, 4 closed by their consumer on time, 3 closed by the sweep. None twice, none lost.'

if [[ ${DEMO_HOLD:-} == 1 ]]; then
    phase 'Left running (DEMO_HOLD=1); Ctrl-C ends it'
    say "PostgreSQL  $postgres_url   schemas duebox_demo and duebox_demo_shop"
    say "RabbitMQ    $amqp_url"
    say "duebox      http://127.0.0.1:$admin_port/metrics   log $dir/duebox.log"
    wait "${pids[duebox]}" || true
fi
