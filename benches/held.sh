#!/bin/sh
# What a million held rows (or as many as given) cost: the pages that a claim and a look touch, and how long counting them
# for the metrics takes. Runs the test of the same promise with the release build; half a gigabyte of disk, some minutes.
set -eu
cd "$(dirname "$0")/.."
HELD_ROWS=${1:-1000000} cargo test --quiet --release --test it -- --nocapture flat::held | grep -E '^held|test result|panicked'
