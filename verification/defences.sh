#!/usr/bin/env bash
# Removes one defence at a time, in a copy of the tree, and expects the attacks that are named for
# it to succeed: their tests have to fail. Prints a table: defence, test, how it failed.
#
#   verification/defences.sh            all of verification/defences
#   verification/defences.sh FILTER     those whose file name contains FILTER
#
# A patch begins with `defence: TEXT` and one line or more of `test: PACKAGE TARGET NAME`, as in
# `test: palisade --test log recovery::torn::a_name`. Exits non-zero if an attack fails although its
# defence is gone or is not done in time, if the code does not compile without it, if there is no
# such test, or if a patch does not fit the code any more.
set -euo pipefail
# shellcheck source=lib/patched_tree.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/patched_tree.sh"
# shellcheck source=lib/usage.sh
source "${root:?}/verification/lib/usage.sh"
help_if_asked "$@"
at_most 1 "$@"

tree=$root/target/defences/tree
# shellcheck disable=SC2034
crates=(core store palisade)
export CARGO_TARGET_DIR=${DEFENCES_TARGET_DIR:-$root/target/defences/build}
export CARGO_PROFILE_TEST_DEBUG=false RUST_BACKTRACE=0
# Without `|| true` and the like in the patches, they would be much longer.
export RUSTFLAGS="-A warnings"
# A call that hangs is ended by the test's own watchdog after 60 s. A test that takes longer than
# this shows nothing.
limit_seconds=200

# Builds and runs one test, `PACKAGE TARGET NAME`; prints what became of it.
attack() {
    local package=$1 test=${!#} log=$tree/test.log rc=0
    local target=("${@:2:$#-2}")
    cd "$tree" || return
    if ! cargo test --quiet --offline -p "$package" "${target[@]}" --no-run >"$log" 2>&1; then
        grep -E '^error' -A 5 "$log" >&2 || true
        echo "DOES NOT COMPILE"
        return 1
    fi
    timeout "$limit_seconds" cargo test --quiet --offline -p "$package" "${target[@]}" -- \
        --exact "$test" >"$log" 2>&1 || rc=$?
    if ! grep -q 'running 1 test' "$log"; then
        echo "NO SUCH TEST"
        return 1
    fi
    if grep -q 'a call hangs' "$log"; then
        echo "hangs"
    elif ((rc == 124)); then
        echo "NOT DONE IN $limit_seconds s"
        return 1
    elif ((rc == 0)); then
        echo "NOT FOUND"
        return 1
    else
        last_panic "$log"
    fi
}

run_patched() {
    local name=$1 patch=$2 line outcome failures=0
    while IFS= read -r line; do
        # Words on purpose: package, target options, name.
        # shellcheck disable=SC2086
        outcome=$(attack $line) || failures=1
        printf '%-38s %-90s %s\n' "$name" "${line##* }" "$outcome"
    done < <(field test "$patch")
    return $failures
}

run_all "$root/verification/defences" "${1:-}"
