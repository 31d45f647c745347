#!/bin/sh
# What an idle relay costs in a minute: statements, CPU time, memory, and that nothing is written. Runs the test of the
# same promise, with the release build and for longer.
set -eu
cd "$(dirname "$0")/.."
IDLE_SECONDS=${1:-60} cargo test --quiet --release --test it -- --nocapture --exact \
    doorbell::idle::an_idle_relay_writes_nothing_and_asks_once_a_poll | grep -E '^idle|test result'
