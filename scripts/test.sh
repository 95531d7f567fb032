#!/bin/bash
# Runs every test of the workspace, and ends with the slowest suites and then the test runners' own
# summary lines.
# ESKER_TEST_BUDGET (default 1) multiplies the sizes of the crash, fault and property suites.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target"
target=$(cd "$target" && pwd)
export ESKER_COUNTS_DIR="${ESKER_COUNTS_DIR:-$target/esker-counts}"
log="$target/esker-test.log"

# Counts of an earlier run would be taken for this one's.
rm -rf "$ESKER_COUNTS_DIR"
mkdir -p "$ESKER_COUNTS_DIR"

status=0
cargo test --workspace --features esker-cli/lab --locked --no-fail-fast 2>&1 |
    tee "$log" || status=$?
# The protocol of views and merges, and whole stores, under controlled schedules: another build of
# the same code.
cargo test --package esker-index --package esker --test shuttle --locked --no-fail-fast \
    --features esker-index/_shuttle,esker-index/_planted,esker/_shuttle,esker/_planted 2>&1 |
    tee -a "$log" || status=$?
# The Python package, in a virtualenv.
python_log="$target/esker-pytest.log"
scripts/pytest.sh 2>&1 | tee "$python_log" || status=$?

# Which runner it was stands on a line before its results.
summary=$(awk '
    /^ *Running |^ *Doc-tests / { runner = $0; sub(/^ */, "", runner) }
    /^test result: / { print runner; print }' "$log")
failed=$(grep -c '^test result: FAILED' <<<"$summary" || true)
total=$(grep -c '^test result: ' <<<"$summary" || true)
[ "$total" -gt 0 ] || status=1
[ "$failed" = 0 ] || status=1
python=$(grep -E '[0-9]+ (passed|failed|errors?).* in [0-9.]+s' "$python_log" | tail -n 1 || true)
[ -n "$python" ] || status=1

# Of all scenarios together. Fewer would be a suite that has been cut short.
schedules=$(awk -F '"schedules":' 'NF == 2 { sum += $2 } END { print sum + 0 }' \
    "$ESKER_COUNTS_DIR/shuttle.jsonl") || schedules=0
[ "$schedules" -ge 200000 ] || status=1

echo
# No result of the tests: a failure changes nothing.
cargo xtask slowest "$log" || true
printf '\n%s schedules under shuttle\n' "$schedules"
printf '%s test runners, %s failed, exit status %s\n' "$total" "$failed" "$status"
printf '%s\n' "$summary"
printf 'pytest: %s\n' "${python:-no summary}"
exit "$status"
