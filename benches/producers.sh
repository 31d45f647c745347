#!/bin/bash
# What the doorbell costs producers: inserts a second without a trigger, with the doorbell while a relay is awake, and
# with a NOTIFY in every transaction, by clients. Rounds are interleaved on one private PostgreSQL; medians and ratios.
#   benches/producers.sh [CLIENTS...]        ROUNDS=5 SECONDS_EACH=4
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -gt 0 ]] || set -- 1 16 64
rounds=${ROUNDS:-5} each=${SECONDS_EACH:-4}
declare -A pids
dir=$(mktemp -d "${TMPDIR:-/tmp}/duebox-producers.XXXXXX")
chmod 755 "$dir"
give_up() { echo "$1" >&2; [[ -z ${2:-} ]] || cat "$2" >&2; exit 1; }
. examples/demo/servers.sh
trap 'end holder; end postgres; rm -rf "$dir"' EXIT
start_postgres
cargo build --quiet
./target/debug/duebox migrate --url "$postgres_url" --schema duebox >/dev/null
sql() { PGOPTIONS="-c client_min_messages=warning" psql -XAtq -v ON_ERROR_STOP=1 "$postgres_url" -c "$1"; }
bell=$(sql "select pg_get_triggerdef(oid) from pg_trigger where tgname = 'outbox_bell'")
key=$(grep -oE 'try_advisory_lock_shared\([0-9, ]+' <<<"$bell" | cut -d'(' -f2)
echo "insert into duebox.outbox (tier, payload) values ('now', '{\"order\": 1}')" >"$dir/insert.sql"
# K as a relay that is awake holds it.
mkfifo "$dir/holder"
psql -XAtq "$postgres_url" <"$dir/holder" >/dev/null & pids[holder]=$!
exec 7>"$dir/holder"
echo "select pg_advisory_lock($key);" >&7

trigger() { # trigger none|doorbell|notify
    sql "drop trigger if exists outbox_bell on duebox.outbox"
    case $1 in
        doorbell) sql "$bell" ;;
        notify) sql "create trigger outbox_bell after insert on duebox.outbox for each statement execute function duebox.ring_on_insert()" ;;
    esac
}
run() { # run CLIENTS: inserts a second
    sql "truncate duebox.outbox" && sql checkpoint
    pgbench -n -c "$1" -j 2 -T "$each" -f "$dir/insert.sql" "$postgres_url" 2>/dev/null | sed -nE 's/^tps = ([0-9]+).*/\1/p'
}
median() { sort -n | sed -n "$((rounds / 2 + 1))p"; }
for clients; do
    : >"$dir/none" && : >"$dir/doorbell" && : >"$dir/notify"
    for ((round = 0; round < rounds; round++)); do
        for mode in none doorbell notify; do
            trigger "$mode"
            run "$clients" >>"$dir/$mode"
        done
    done
    none=$(median <"$dir/none") doorbell=$(median <"$dir/doorbell") notify=$(median <"$dir/notify")
    awk -v c="$clients" -v a="$none" -v b="$doorbell" -v n="$notify" 'BEGIN {
        printf "%d clients: no trigger %d/s, doorbell %d/s (%.2f), NOTIFY each time %d/s (%.2f)\n", c, a, b, b/a, n, n/a }'
done
