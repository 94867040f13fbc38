#!/usr/bin/env bash
# Runs the loom models of the core and the store, and prints for each its bound, its schedules and
# its time.
#
#   verification/loom.sh            all models
#   verification/loom.sh FILTER     those whose path contains FILTER
#
# LOOM_MAX_PREEMPTIONS=N replaces the bounds that the models bring (see README.md). Exits
# non-zero if a model fails, or if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 1 "$@"

# Fat link-time optimisation would triple the build and gain the models nothing.
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${LOOM_TARGET_DIR:-target/loom}"
export CARGO_PROFILE_RELEASE_LTO=off

output=$(mktemp)
trap 'rm -f "$output" "$output.models"' EXIT
test=(cargo test --locked --quiet -p palisade-core -p palisade-store -p palisade-streams --release --lib)
"${test[@]}" --no-run
# By their full names: the other unit tests do not run under the checker.
mapfile -t models < <("${test[@]}" -- --list 2>/dev/null |
    sed -n 's/^\(models::.*\): test$/\1/p' | grep -F -- "${1:-models::}")
if ((${#models[@]} == 0)); then
    echo "loom: no model matches ${1:-}" >&2
    exit 1
fi
rc=0
"${test[@]}" -- --exact "${models[@]}" --nocapture >"$output" 2>&1 || rc=$?

grep -oE 'model [a-z_]+: preemptions .*' "$output" | sort >"$output.models" || true
cat "$output.models"
if ((rc != 0)); then
    echo
    grep -vE 'model [a-z_]+: preemptions' "$output" | head -n 80 >&2
    echo "loom: a model failed" >&2
    exit "$rc"
fi
printf 'loom: %d models passed in %d s\n' "$(wc -l <"$output.models")" "$SECONDS"
