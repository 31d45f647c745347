#!/bin/sh
# How late messages of a 2 s tier arrive, of kind queue and of kind hold: p50, p99 and the worst, under a steady stream of
# 200 and 1,000 rows a second (or the rates given), and of 20,000 (BURST) due at one instant. Runs the tests of the same
# promise, with the release build and for longer.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 200 1000
run() { cargo test --quiet --release --test it -- --nocapture --test-threads 1 "$@" | grep '^lateness'; }
for rate; do
    LATENESS_RATE=$rate LATENESS_SECONDS=${LATENESS_SECONDS:-20} run delivery::on_time::none
done
BURST=${BURST:-20000} run delivery::on_time::of_thousands
