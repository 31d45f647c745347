#!/bin/bash
# Whether a relay whose connections are reset again and again keeps anything of the old ones: 600 resets, or as many as
# given, of the broker's connection and of the database's. Runs the tests of the same promise, with the release build.
set -euo pipefail
cd "$(dirname "$0")/.."
RESETS=${1:-600} cargo test --quiet --release --test it -- --nocapture --test-threads 1 resets::broker resets::postgres |
    grep -E 'resets|test result|panicked'
