#!/bin/sh
# How late messages of a 2 s tier arrive under a steady stream: p50, p99 and the worst, at 200 and 1,000 rows a second
# or at the rates given. Runs the test of the same promise, with the release build and for longer.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 200 1000
for rate; do
    LATENESS_RATE=$rate LATENESS_SECONDS=${LATENESS_SECONDS:-20} \
        cargo test --quiet --release --test it -- --nocapture --exact \
        delivery::on_time::none_arrives_before_its_due_time_and_all_within_a_second_of_it | grep '^lateness'
done
