# shellcheck shell=bash
# Sourced by mutations.sh, which says what `apply` checks and what `table` prints. Needs bash, git,
# grep, sed.
# shellcheck disable=SC2154

mutants_of_tests=verification/mutations/tests
mutants_of_models=verification/mutations/models
wrong=0

complain() {
    echo "$*" >&2
    wrong=$((wrong + 1))
}

# The file of test MODULE::NAME of `PACKAGE TARGET`, as a patch names it. A unit test's module
# `tests` is a file of its own, or part of the file that it tests.
file_of_test() {
    local package=$1 target=$2 test=$3 module=${3%::*} file
    local folder=crates/palisade
    if [[ $package == palisade-* ]]; then
        folder=crates/${package#palisade-}
    fi
    if [[ $target == --lib ]]; then
        file=$folder/src/${module//:://}.rs
        [[ -f $file ]] || file=${file%/tests.rs}
        # The tests of a long file are in a file beside it.
        [[ ! -f ${file}_tests.rs ]] || file=${file}_tests.rs
        echo "${file%.rs}.rs"
    elif [[ $module == "$test" ]]; then
        echo "$folder/tests/${target#--test }.rs"
    else
        echo "$folder/tests/${target#--test }/${module//:://}.rs"
    fi
}

# Complains unless `PACKAGE TARGET NAME` is a test; $1 says who names it.
check_test() {
    local who=$1 package target test file
    package=${2%% *} test=${2##* }
    target=${2#* } target=${target% *}
    file=$(file_of_test "$package" "$target" "$test")
    # No `grep -q` at the end of a pipe: the first grep would fail when it writes on.
    if [[ ! -f $file ]] ||
        ! grep -A 3 -F '#[test]' "$file" | grep -F "fn ${test##*::}()" >/dev/null; then
        complain "$who names the test $test, which is not in $file: name what took its place"
    fi
}

check_patches() {
    local patch name line output models='crates/*/src/models'
    for patch in "$mutants_of_tests"/*.patch "$mutants_of_models"/*.patch; do
        if ! output=$(git apply --check -C1 "$patch" 2>&1); then
            echo "$output" >&2
            complain "$patch does not apply: put the same fault into the code as it is now," \
                "as verification/README.md says, and run mutations.sh with the patch's name"
        fi
    done
    for patch in "$mutants_of_tests"/*.patch; do
        [[ -n $(field fault "$patch") ]] || complain "$patch does not say what fault it lets through"
        [[ -n $(field protection "$patch") ]] || complain "$patch does not say what it removes"
        [[ -n $(field test "$patch") ]] || complain "$patch names no test"
        while IFS= read -r line; do
            check_test "$patch" "$line"
        done < <(field test "$patch")
    done
    for patch in "$mutants_of_models"/*.patch; do
        [[ -n $(field mutation "$patch") ]] || complain "$patch does not say what it changes"
        [[ -n $(field model "$patch") ]] || complain "$patch names no model"
        while IFS= read -r name; do
            grep -rqF "fn $name()" $models ||
                complain "$patch names the model $name, which is not in $models"
        done < <(field model "$patch")
    done
}

# Complains about each name in backticks with a slash in a document that is no path.
check_paths() {
    local page name
    for page in docs/durability.md verification/README.md; do
        while IFS= read -r name; do
            [[ $name != */* ]] || compgen -G "$name" >/dev/null ||
                complain "$page names $name, which does not exist"
        done < <(grep -oE '`[a-z0-9_/.*-]+`' "$page" | tr -d '`')
    done
}

check_mutations() {
    cd "$root"
    check_patches
    check_paths
    ((wrong == 0))
}

# The values of the field $1 in the head of the patch $2, each in quotes $3, as a cell of a table.
cell() {
    field "$1" "$2" |
        awk -v quote="${3-}" '{ gsub(/\|/, "\\|"); printf "%s%s", sep, quote $0 quote; sep = "; " }'
}

print_tables() {
    local patch
    cd "$root"
    printf '# Faults of the tests\n\n| fault | what prevents the loss | mutation | tests that kill it |\n'
    printf '|---|---|---|---|\n'
    for patch in "$mutants_of_tests"/*.patch; do
        printf '| %s | %s | `%s` | %s |\n' "$(cell fault "$patch")" "$(cell protection "$patch")" \
            "$(basename "$patch" .patch)" "$(cell test "$patch" '`')"
    done
    printf '\n# Faults of the models\n\n| fault | mutation | models that kill it |\n|---|---|---|\n'
    for patch in "$mutants_of_models"/*.patch; do
        printf '| %s | `%s` | %s |\n' "$(cell mutation "$patch")" "$(basename "$patch" .patch)" \
            "$(cell model "$patch" '`')"
    done
}
