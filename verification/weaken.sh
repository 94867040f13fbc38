#!/usr/bin/env bash
# Weakens one ordering or one step of the protocol at a time, in a copy of the tree, and expects
# the models that are named for it to fail. Prints a table: weakening, model, how it failed.
#
#   verification/weaken.sh            all of verification/weakenings
#   verification/weaken.sh FILTER     those whose file name contains FILTER
#
# Exits non-zero if a weakened log passes its models, does not compile, or if a patch does not
# fit the code any more.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
copy=$root/target/weaken/tree
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR=$root/target/weaken/build
# Quick builds: a model that fails does so early.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_DEBUG=false
# The models end by themselves; one that has found nothing by then does not count.
limit_seconds=300

# Copies what the core is built from, once: an edit meanwhile does not disturb the run.
copy_tree() {
    mkdir -p "$copy"
    rm -rf "$copy/crates/core"
    cp -p Cargo.toml Cargo.lock rust-toolchain.toml "$copy/"
    mkdir -p "$copy/crates"
    cp -rp crates/core "$copy/crates/"
    sed -i 's|^members = .*|members = ["crates/core"]|' "$copy/Cargo.toml"
}

# Applies a patch to the copy, or with -R takes it back, and makes cargo see it.
change_tree() {
    local patch=$1
    (
        cd "$copy"
        GIT_CEILING_DIRECTORIES=$root/target/weaken git apply -C1 "${@:2}" "$patch"
        sed -n 's|^+++ b/||p' "$patch" | xargs touch
    )
}

# Prints the test binary of the copy, built as it stands.
build() {
    (cd "$copy" && cargo test --quiet -p palisade-core --release --lib --no-run \
        --message-format=json 2>"$copy/build.log") |
        grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4
}

# What a failed run says about itself, in a few words.
reason() {
    grep -oE 'deadlock|Model exceeded maximum number of branches|Causality violation[^.]*' "$1" |
        head -n 1 | grep . && return
    grep -A1 -E "^thread .* panicked at" "$1" | sed -n 2p | cut -c1-60
}

run_one() {
    local patch=$1 name models binary model log rc failures=0
    name=$(basename "$patch" .patch)
    models=$(sed -n 's/^models: //p' "$patch")
    if ! change_tree "$patch"; then
        printf '%-42s %s\n' "$name" "THE PATCH DOES NOT FIT"
        return 1
    fi
    binary=$(build) || true
    if [[ -z $binary ]]; then
        printf '%-42s %s\n' "$name" "DOES NOT COMPILE"
        grep -E '^error' -A 5 "$copy/build.log" >&2 || true
        change_tree "$patch" -R
        return 1
    fi
    for model in $models; do
        log=$copy/$model.log
        rc=0
        timeout "$limit_seconds" "$binary" "::$model" --nocapture >"$log" 2>&1 || rc=$?
        if ((rc == 0 || rc == 124)); then
            printf '%-42s %-52s %s\n' "$name" "$model" "NOT FOUND (rc $rc)"
            failures=1
        else
            printf '%-42s %-52s %s\n' "$name" "$model" "$(reason "$log")"
        fi
    done
    change_tree "$patch" -R
    return $failures
}

copy_tree
total=0
bad=0
for patch in "$root"/verification/weakenings/*"${1:-}"*.patch; do
    [[ -f $patch ]] || { echo "no weakening matches ${1:-}" >&2; exit 1; }
    total=$((total + 1))
    run_one "$patch" || bad=$((bad + 1))
done
printf '%d weakenings, %d of them not found; %d s\n' "$total" "$bad" "$SECONDS"
((bad == 0))
