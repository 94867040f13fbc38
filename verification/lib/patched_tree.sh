# shellcheck shell=bash
# Sourced by scripts that run tests against patched code: a copy of the tree, in which one patch at
# a time is applied and taken back, and the table's totals.
#
#   root    the repository (set here)
#   tree    where the copy goes (set by who sources this, below $root/target)
#   crates  what is copied, the names of folders in crates/ (set by who sources this)
#
# A tree is for one run at a time.
# shellcheck disable=SC2154

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Copies what the tests are built from, once: an edit meanwhile does not disturb the run.
copy_tree() {
    local members
    members=$(printf ', "crates/%s"' "${crates[@]}")
    rm -rf "$tree"
    mkdir -p "$tree/crates"
    cp -p "$root"/{Cargo.toml,Cargo.lock,rust-toolchain.toml,README.md,API.md} "$tree/"
    cp -rp "${crates[@]/#/$root/crates/}" "$tree/crates/"
    sed -i "s|^members = .*|members = [${members:2}]|" "$tree/Cargo.toml"
    # The run before has built what its last patch left; cargo looks at times only.
    if [[ -f $tree.changed ]]; then
        (cd "$tree" && xargs touch -c) <"$tree.changed"
    fi
}

# Applies a patch to the copy, or with -R takes it back, and makes cargo see it.
change_tree() {
    local patch=$1
    sed -n 's|^+++ b/||p' "$patch" >"$tree.changed"
    # One chain: within an `if`, no failure ends the script.
    (
        cd "$tree" &&
            GIT_CEILING_DIRECTORIES=$root/target git apply -C1 "${@:2}" "$patch" &&
            xargs touch <"$tree.changed"
    )
}

# The values of a patch's head: the text of each line `FIELD: TEXT`.
field() {
    sed -n "s/^$1: //p" "$2"
}

# What the last panic in a log says.
last_panic() {
    grep -A1 -E '^thread .* panicked at' "$1" | grep -vE '^(thread|--)' | tail -n 1 | cut -c1-70
}

# Runs the function `run_patched NAME PATCH` with each patch of the folder $1 whose file name
# contains $2 applied. Fails if one of them fails, or does not fit the code any more.
run_all() {
    local patch name total=0 bad=0
    copy_tree
    for patch in "$1"/*"$2"*.patch; do
        [[ -f $patch ]] || { echo "no patch matches $2" >&2; return 1; }
        name=$(basename "$patch" .patch)
        total=$((total + 1))
        if ! change_tree "$patch"; then
            printf '%-38s %s\n' "$name" "THE PATCH DOES NOT FIT"
            bad=$((bad + 1))
            continue
        fi
        run_patched "$name" "$patch" </dev/null || bad=$((bad + 1))
        change_tree "$patch" -R
    done
    printf '%d patches, %d of them not missed; %d s\n' "$total" "$bad" "$SECONDS"
    ((bad == 0))
}
