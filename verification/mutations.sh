#!/usr/bin/env bash
# Checks the checks. A mutation is a patch with one deliberate fault. The mutant, a copy of the code
# with that patch, must fail each model or test that the patch names: the check kills the mutant. A
# mutant that passes one of its checks survives.
#
#   verification/mutations.sh table              prints all faults, and what finds them, as Markdown
#   verification/mutations.sh apply              checks, without a build, that each patch applies
#   verification/mutations.sh models [NAME...]   builds mutants and runs their loom models
#   verification/mutations.sh tests [NAME...]    builds mutants and runs their tests
#
# NAME selects each mutation whose name contains it; a path of a patch will do. Without a NAME, all
# mutations run. For example:
#
#   verification/mutations.sh models relaxed
#   verification/mutations.sh tests no_lock no_floor
#   verification/mutations.sh tests verification/mutations/tests/any_folder.patch
#
# table reads the heads of the patches. apply also checks that each head names its fault and existing
# models or tests, and that docs/durability.md and README.md name existing files only. It prints
# what is wrong and what to do, a line each.
#
# models and tests print for each mutant how many are done, its time and its result, and below it
# how each check ended. They end with the names of the survivors. MUTATIONS_TARGET_DIR replaces the
# build folder, target/mutations/COMMAND/build.
#
# Exit status: 0 if every mutant is killed, or every patch is right; 2 after wrong usage; otherwise
# 1, also if a patch does not apply, does not compile or names a test that does not exist.
set -euo pipefail
# shellcheck source=lib/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/usage.sh"
# shellcheck source=lib/mutants.sh
source "${script%/*}/lib/mutants.sh"

# Prepares a run of models: quick builds, because a model that fails does so early.
use_models() {
    checks=model crates=(core store palisade streams)
    export RUSTFLAGS="--cfg loom"
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1
    export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false
    # The models end by themselves. One that runs for longer has found nothing.
    limit_seconds=300
}

# Builds the unit tests of the crate that has the model, and runs the model. It need not be the
# crate that the patch changes.
run_model() {
    local log=$tree/$1.log rc=0 crate binary
    crate=$(cd "$tree/crates" && grep -rlE "^ *fn $1\(" ./*/src | head -n 1 | cut -d/ -f2) || true
    if [[ -z $crate ]]; then
        echo "NO SUCH MODEL"
        return 2
    fi
    binary=$(cd "$tree" && cargo test --quiet --offline -p "palisade-$crate" --release --lib \
        --no-run --message-format=json 2>"$tree/build.log" |
        grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4) || binary=
    if [[ -z $binary ]]; then
        compile_errors "$tree/build.log"
        return 2
    fi
    timeout "$limit_seconds" "$binary" "::$1" --nocapture >"$log" 2>&1 || rc=$?
    if ! grep -qE 'running [1-9]' "$log"; then
        echo "NO SUCH MODEL"
        return 2
    fi
    passes_or_late "$rc" || return 1
    grep -oE 'deadlock|Model exceeded maximum number of branches|Causality violation[^.]*' "$log" |
        head -n 1 | grep . || last_panic "$log" || echo "exit status $rc"
}

# Prepares a run of tests.
use_tests() {
    checks=test crates=(core store palisade streams)
    export CARGO_PROFILE_TEST_DEBUG=false RUST_BACKTRACE=0
    # So a patch need not remove what nobody uses any more.
    export RUSTFLAGS="-A warnings"
    # The watchdog of a test ends a call that hangs after 60 s. A test that runs for longer shows
    # nothing.
    limit_seconds=200
}

# Builds and runs one test, `PACKAGE TARGET NAME`.
run_test() {
    local log=$tree/test.log rc=0 words cargo
    read -ra words <<<"$1"
    cargo=(cargo test --quiet --offline -p "${words[@]:0:${#words[@]}-1}")
    cd "$tree" || return 2
    if ! "${cargo[@]}" --no-run >"$log" 2>&1; then
        compile_errors "$log"
        return 2
    fi
    timeout "$limit_seconds" "${cargo[@]}" -- --exact "${words[-1]}" >"$log" 2>&1 || rc=$?
    if ! grep -q 'running 1 test' "$log"; then
        echo "NO SUCH TEST"
        return 2
    elif grep -q 'a call hangs' "$log"; then
        echo "hangs"
        return 0
    fi
    passes_or_late "$rc" || return 1
    last_panic "$log" || echo "exit status $rc"
}

help_if_asked "$@"
(($# > 0)) || wrong_usage "no command, expected table, apply, models or tests"
command=$1
shift
help_if_asked "$@"
case $command in
table | apply)
    at_most 0 "$@"
    # shellcheck source=lib/mutation_tables.sh
    source "${script%/*}/lib/mutation_tables.sh"
    if [[ $command == table ]]; then print_tables; else check_mutations; fi
    ;;
models | tests)
    "use_$command"
    run_mutants "$command" "$@"
    ;;
*) wrong_usage "the command is $command, expected table, apply, models or tests" ;;
esac
