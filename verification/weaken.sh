#!/usr/bin/env bash
# Weakens one ordering or one step of the protocol at a time, in a copy of the tree, and expects
# the models that are named for it to fail. Prints a table: weakening, model, how it failed.
#
#   verification/weaken.sh            all of verification/weakenings
#   verification/weaken.sh FILTER     those whose file name contains FILTER
#
# A patch begins with what is weaker and a line `models: NAME...`. Exits non-zero if a weakened log
# passes its models, does not compile, or if a patch does not fit the code any more.
set -euo pipefail
# shellcheck source=lib/patched_tree.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/patched_tree.sh"
# shellcheck source=lib/usage.sh
source "${root:?}/verification/lib/usage.sh"
help_if_asked "$@"
at_most 1 "$@"

tree=$root/target/weaken/tree
# shellcheck disable=SC2034
crates=(core store)
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR=$root/target/weaken/build
# Quick builds: a model that fails does so early.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false
# The models end by themselves; one that has found nothing by then does not count.
limit_seconds=300

# Prints the test binary of the crate $1 of the copy, built as it stands.
build() {
    (cd "$tree" && cargo test --quiet -p "palisade-$1" --release --lib --no-run \
        --message-format=json 2>"$tree/build.log") |
        grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4
}

# What a failed model says about itself, in a few words.
reason() {
    grep -oE 'deadlock|Model exceeded maximum number of branches|Causality violation[^.]*' "$1" |
        head -n 1 | grep . || last_panic "$1"
}

run_patched() {
    local name=$1 patch=$2 crate binary model log rc failures=0
    crate=$(sed -n 's|^+++ b/crates/\([a-z]*\)/.*|\1|p' "$patch" | head -n 1)
    binary=$(build "$crate") || true
    if [[ -z $binary ]]; then
        printf '%-42s %s\n' "$name" "DOES NOT COMPILE"
        grep -E '^error' -A 5 "$tree/build.log" >&2 || true
        return 1
    fi
    for model in $(field models "$patch"); do
        log=$tree/$model.log
        rc=0
        timeout "$limit_seconds" "$binary" "::$model" --nocapture >"$log" 2>&1 || rc=$?
        if ((rc == 0 || rc == 124)); then
            printf '%-42s %-52s %s\n' "$name" "$model" "NOT FOUND (rc $rc)"
            failures=1
        else
            printf '%-42s %-52s %s\n' "$name" "$model" "$(reason "$log")"
        fi
    done
    return $failures
}

run_all "$root/verification/weakenings" "${1:-}"
