# shellcheck shell=bash
# Sourced by mutations.sh: a copy of the tree, in which one patch at a time is applied and reverted,
# and the report of a run.
#
#   root    the repository (set here)
#   tree    the copy, build its build folder (set by run_mutants)
#   crates  the folders in crates/ that are copied (set by who sources this)
#   checks  `model` or `test`, the field of a patch's head that names its checks (likewise)
# shellcheck disable=SC2154

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Locks the copy for this run: a second run would replace the code under the first one.
lock_tree() {
    mkdir -p "${tree%/*}"
    if command -v flock >/dev/null; then
        exec 9>"$tree.lock"
        flock -n 9 || { echo "another run uses $tree" >&2; exit 1; }
    fi
}

# Copies what the tests are built from, once: an edit meanwhile does not disturb the run.
copy_tree() {
    local members
    members=$(printf ', "crates/%s"' "${crates[@]}")
    rm -rf "$tree"
    mkdir -p "$tree/crates"
    cp -p "$root"/{Cargo.toml,Cargo.lock,rust-toolchain.toml,README.md,API.md} "$tree/"
    cp -rp "${crates[@]/#/$root/crates/}" "$tree/crates/"
    sed -i "s|^members = .*|members = [${members:2}]|" "$tree/Cargo.toml"
    # The run before has built its last mutant, and cargo compares times only.
    if [[ -f $tree.changed ]]; then
        (cd "$tree" && xargs touch -c) <"$tree.changed"
    fi
}

# Applies a patch to the copy, or with -R reverts it, and makes cargo build the changed files.
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

# The message of the last panic in a log; fails if there is none.
last_panic() {
    grep -A1 -E '^thread .* panicked at' "$1" | grep -vE '^(thread|--)' | tail -n 1 | cut -c1-70
}

# Reports that a mutant does not compile, and why; always fails.
compile_errors() {
    grep -E '^error' -A 5 "$1" >&2 || true
    echo "DOES NOT COMPILE"
    return 1
}

# Reports and fails if a check with the exit status $1 has not killed the mutant.
passes_or_late() {
    case $1 in
    0) echo "PASSES" ;;
    124) echo "NOT DONE IN $limit_seconds s" ;;
    *) return 0 ;;
    esac
    return 1
}

# Runs the checks that a patch names on its mutant, and prints how each ended. Returns 1 if one of
# them does not kill the mutant, and 2 if one cannot run.
run_checks() {
    local patch=$1 check how rc result=0
    [[ -n $(field "$checks" "$patch") ]] || { echo "NAMES NO ${checks^^}"; return 2; }
    while IFS= read -r check; do
        rc=0
        how=$("run_$checks" "$check" </dev/null) || rc=$?
        ((rc <= result)) || result=$rc
        printf '    %s: %s\n' "${check##* }" "$how"
    done < <(field "$checks" "$patch")
    return "$result"
}

# The patches of the folder $1 whose name contains one of the other arguments, or all, sorted. Fails
# if an argument selects none.
select_patches() {
    local folder=$1 name found
    shift
    (($# > 0)) || set -- ''
    for name in "$@"; do
        name=${name##*/}
        found=$(compgen -G "$folder/*${name%.patch}*.patch") || {
            echo "no mutation in ${folder#"$root/"} has a name that contains ${name%.patch}" >&2
            return 1
        }
        echo "$found"
    done | sort -u
}

# Runs the mutants of verification/mutations/$1 that the other arguments select. Fails unless all of
# them are killed.
run_mutants() {
    local kind=$1 patch patches name result details rc began
    local killed=0 survivors=() unusable=()
    patches=$(select_patches "$root/verification/mutations/$kind" "${@:2}")
    mapfile -t patches <<<"$patches"
    tree=$root/target/mutations/$kind/tree
    export CARGO_TARGET_DIR=${MUTATIONS_TARGET_DIR:-$root/target/mutations/$kind/build}
    lock_tree
    copy_tree
    # The builds run offline, so that they leave the copy's lock file as it is.
    (cd "$root" && cargo fetch --quiet --locked)
    for patch in "${patches[@]}"; do
        name=$(basename "$patch" .patch) began=$SECONDS rc=0 details=
        if change_tree "$patch"; then
            # Without the lock: a process that a test leaves behind would hold it.
            details=$(run_checks "$patch" 9>&-) || rc=$?
            change_tree "$patch" -R
        else
            rc=2 details="    THE PATCH DOES NOT APPLY"
        fi
        case $rc in
        0) result=killed killed=$((killed + 1)) ;;
        1) result=SURVIVES survivors+=("$name") ;;
        *) result=UNUSABLE unusable+=("$name") ;;
        esac
        printf '%d/%d, %d s: %s: %s\n%s\n' $((killed + ${#survivors[@]} + ${#unusable[@]})) \
            ${#patches[@]} $((SECONDS - began)) "$name" "$result" "$details"
    done
    printf '%d of %d mutants killed in %d s\n' "$killed" ${#patches[@]} "$SECONDS"
    ((${#survivors[@]} == 0)) || printf 'survivors: %s\n' "${survivors[*]}" >&2
    ((${#unusable[@]} == 0)) || printf 'not run: %s\n' "${unusable[*]}" >&2
    ((killed == ${#patches[@]}))
}
