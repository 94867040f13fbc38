#!/usr/bin/env bash
# Removes one defence at a time, in a copy of the tree, and expects the attacks that are named for
# it to succeed: their tests have to fail. Prints a table: defence, test, how it failed.
#
#   verification/defences.sh            all of verification/defences
#   verification/defences.sh FILTER     those whose file name contains FILTER
#
# A patch begins with `defence: TEXT` and one line or more of `test: PACKAGE TARGET NAME`, as in
# `test: palisade --test attacks torn::a_name`. Exits non-zero if an attack fails although its
# defence is gone, if the code does not compile without it, if there is no such test, or if a
# patch does not fit the code any more.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
copy=$root/target/defences/tree
export CARGO_TARGET_DIR=${DEFENCES_TARGET_DIR:-$root/target/defences/build}
export CARGO_PROFILE_TEST_DEBUG=false RUST_BACKTRACE=0
# Without `|| true` and the like in the patches, they would be much longer.
export RUSTFLAGS="-A warnings"
# A test that hangs has a watchdog of 60 s; the rest is for a busy machine.
limit_seconds=200

# Copies what the tests are built from, once: an edit meanwhile does not disturb the run.
copy_tree() {
    rm -rf "$copy"
    mkdir -p "$copy/crates"
    cp -p Cargo.toml Cargo.lock rust-toolchain.toml README.md API.md "$copy/"
    cp -rp crates/core crates/store crates/palisade "$copy/crates/"
    sed -i 's|^members = .*|members = ["crates/core", "crates/store", "crates/palisade"]|' \
        "$copy/Cargo.toml"
}

# Applies a patch to the copy, or with -R takes it back, and makes cargo see it.
change_tree() {
    local patch=$1
    (
        cd "$copy"
        GIT_CEILING_DIRECTORIES=$root/target/defences git apply -C1 "${@:2}" "$patch"
        sed -n 's|^+++ b/||p' "$patch" | xargs touch
    )
}

# What a failed run says about itself, in a few words.
reason() {
    if grep -q 'a call hangs' "$1"; then
        echo "hangs"
        return
    fi
    grep -A1 -E "^thread .* panicked at" "$1" | grep -vE '^(thread|--)' | tail -n 1 | cut -c1-70
}

# Runs one test, `PACKAGE TARGET NAME`, and prints a line; fails if the test passes.
attack() {
    local name=$1 package=$2 test=${!#} log=$copy/test.log rc=0
    local target=("${@:3:$#-3}")
    (cd "$copy" && timeout "$limit_seconds" cargo test --quiet --offline -p "$package" \
        "${target[@]}" -- --exact "$test") >"$log" 2>&1 || rc=$?
    if grep -qE '^error(\[|:).*(could not compile|cannot|expected|mismatched)' "$log" &&
        ! grep -q 'running 1 test' "$log"; then
        printf '%-38s %s\n' "$name" "DOES NOT COMPILE"
        grep -E '^error' -A 5 "$log" >&2 || true
        return 1
    fi
    if ! grep -q 'running 1 test' "$log"; then
        printf '%-38s %-90s %s\n' "$name" "$test" "NO SUCH TEST"
        return 1
    fi
    if ((rc == 0)); then
        printf '%-38s %-90s %s\n' "$name" "$test" "NOT FOUND"
        return 1
    fi
    if ((rc == 124)); then
        printf '%-38s %-90s %s\n' "$name" "$test" "hangs"
        return 0
    fi
    printf '%-38s %-90s %s\n' "$name" "$test" "$(reason "$log")"
}

run_one() {
    local patch=$1 name failures=0 line
    name=$(basename "$patch" .patch)
    if ! change_tree "$patch"; then
        printf '%-38s %s\n' "$name" "THE PATCH DOES NOT FIT"
        return 1
    fi
    while IFS= read -r line; do
        # Words on purpose: package, target options, name.
        # shellcheck disable=SC2086
        attack "$name" $line || failures=1
    done < <(sed -n 's/^test: //p' "$patch")
    change_tree "$patch" -R
    return $failures
}

copy_tree
total=0
bad=0
for patch in "$root"/verification/defences/*"${1:-}"*.patch; do
    [[ -f $patch ]] || { echo "no defence matches ${1:-}" >&2; exit 1; }
    total=$((total + 1))
    run_one "$patch" </dev/null || bad=$((bad + 1))
done
printf '%d defences removed, %d of them not missed; %d s\n' "$total" "$bad" "$SECONDS"
((bad == 0))
