#!/bin/bash
# Few orders overdue among very many, and very many overdue at once: 5,000,000 and 200,000, or as many as given. Runs the
# tests of both promises with the release build; a gigabyte of disk, and some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
ORDERS=${1:-5000000} AT_ONCE=${2:-200000} cargo test --quiet --release --test it -- --nocapture --test-threads 1 sweep::many |
    grep -E 'pages|paid|test result|panicked'
