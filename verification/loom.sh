#!/usr/bin/env bash
# Runs the loom models of the core and prints for each its bound, its schedules and its time.
#
#   verification/loom.sh            all models
#   verification/loom.sh FILTER     those whose path contains FILTER
#
# LOOM_MAX_PREEMPTIONS=N replaces the bounds that the models bring (see README.md). Exits
# non-zero if a model fails, or if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

filter=models::${1:-}
if [[ ${1:-} == models::* ]]; then filter=$1; fi

# Fat link-time optimisation would triple the build and gain the models nothing.
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${LOOM_TARGET_DIR:-target/loom}"
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

output=$(mktemp)
trap 'rm -f "$output"' EXIT
cargo test --locked -p palisade-core --release --lib --no-run
rc=0
cargo test --locked --quiet -p palisade-core --release --lib -- "$filter" --nocapture \
    >"$output" 2>&1 || rc=$?

grep -E '^model ' "$output" | sort || true
if ((rc != 0)); then
    echo
    grep -vE '^model ' "$output" | head -n 80 >&2
    echo "loom: a model failed" >&2
    exit "$rc"
fi
if ! grep -qE '^model ' "$output"; then
    echo "loom: no model matches ${1:-}" >&2
    exit 1
fi
printf 'loom: %d models passed in %d s\n' "$(grep -cE '^model ' "$output")" "$SECONDS"
