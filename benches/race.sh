#!/bin/bash
# Payments, eight closers and two sweeps at the moment at which orders fall due: 10,000 orders, or as many as given. Runs
# the test of the promise that none ends paid and closed, with the release build.
set -euo pipefail
cd "$(dirname "$0")/.."
RACE_ORDERS=${1:-10000} cargo test --quiet --release --test it -- --nocapture closer::race | grep -E 'paid|test result|panicked'
