#!/bin/sh
# From commit to consumer: p50, p99 and the worst at 100 rows a second, or at the rates given. Runs the test of the same
# promise, with the release build and for longer.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 100
for rate; do
    AT_ONCE_RATE=$rate AT_ONCE_SECONDS=${AT_ONCE_SECONDS:-20} \
        cargo test --quiet --release --test it -- --nocapture --exact \
        doorbell::at_once::a_row_is_with_the_broker_milliseconds_after_its_commit | grep '^commit'
done
