# shellcheck shell=bash
# Sourced by mutations.sh for `mutations.sh apply`, which says what is checked. Needs bash, git,
# grep, sed.
# shellcheck disable=SC2154

mutants_of_tests=verification/mutations/tests
mutants_of_models=verification/mutations/models
faults=verification/faults.md
durability=docs/durability.md
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

# The group of tests that a letter of the table stands for, as `PACKAGE TARGET`.
target_of_letter() {
    case $1 in
        l) echo "palisade --test log" ;;
        w) echo "palisade --test powerloss" ;;
        b) echo "palisade --test bit_flips" ;;
        m) echo "palisade --test many_segments" ;;
        x) echo "palisade --test file_shapes" ;;
        a) echo "palisade --test allocations" ;;
        h) echo "palisade-streams --test histories" ;;
        k) echo "palisade-streams --test calls" ;;
        e) echo "palisade-streams --test edges" ;;
        d) echo "palisade-streams --test sharded" ;;
        y) echo "palisade-streams --test memory" ;;
        o) echo "palisade-streams --test consumers" ;;
        p) echo "palisade-streams --test polled" ;;
        t) echo "palisade-streams --test troubles" ;;
        f) echo "palisade-streams --test full" ;;
        g) echo "palisade-streams --test kept" ;;
        r) echo "palisade-streams --test reader" ;;
        u) echo "palisade-streams --lib" ;;
        s) echo "palisade-store --lib" ;;
        c) echo "palisade-core --lib" ;;
    esac
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

# The rows of the table under the heading $2 in $1, without its head.
rows() {
    sed -n "/^## $2\$/,/^## /p" "$1" | grep '^| ' | sed 1d
}

# The words in backticks within $1 that consist of the characters $2.
quoted() {
    grep -oE "\`[$2]+\`" <<<"$1" | tr -d "\`" || true
}

# The tests of a row, as `PACKAGE TARGET NAME`: a letter counts up to the next one.
tests_of_row() {
    local -a words
    local index letter='' word
    read -ra words <<<"$1"
    for ((index = 0; index < ${#words[@]}; index++)); do
        word=${words[index]%,}
        if [[ $word == [lwscbmaxhkedyoprtufg] && ${words[index + 1]:-} == \`* ]]; then
            letter=$word
        elif [[ $word == \`*\` ]]; then
            echo "$(target_of_letter "$letter") ${word//\`/}"
        fi
    done
}

# The patches of a row: the words in backticks before the colon of each of its parts.
patches_of_row() {
    local part
    while IFS= read -r part; do
        quoted "${part%%:*}" a-z0-9_
    done < <(tr ';' '\n' <<<"$1")
}

# Complains if a row names a test or patch that does not exist, or a test that none of its patches
# names.
check_row() {
    local fault tests patches test patch known=
    fault=$(cut -d '|' -f 2 <<<"$1")
    tests=$(tests_of_row "$(cut -d '|' -f 3 <<<"$1")")
    patches=$(patches_of_row "$(cut -d '|' -f 5 <<<"$1")")
    [[ -n $tests && -n $patches ]] || complain "$faults:$fault has no test, or no patch"
    for patch in $patches; do
        if [[ ! -f $mutants_of_tests/$patch.patch ]]; then
            complain "$faults:$fault names the patch $patch, which is not in $mutants_of_tests"
            continue
        fi
        known+=$(field test "$mutants_of_tests/$patch.patch")$'\n'
    done
    while IFS= read -r test; do
        check_test "$faults:$fault" "$test"
        grep -qxF "$test" <<<"$known" ||
            complain "$faults:$fault names ${test##* }, and none of its patches does"
    done <<<"$tests"
}

check_tables() {
    local row page patch name fault_rows model_rows
    fault_rows=$(rows "$faults" Faults)
    model_rows=$(rows verification/README.md 'The mutants of the models')
    while IFS= read -r row; do
        check_row "$row"
    done <<<"$fault_rows"
    for patch in "$mutants_of_tests"/*.patch; do
        for name in "$(basename "$patch" .patch)" $(field test "$patch" | sed 's/.* //'); do
            [[ $fault_rows == *"\`$name\`"* ]] ||
                complain "$faults has no row with $name: add it, with how the test failed"
        done
    done
    for name in "$mutants_of_models"/*.patch; do
        name=$(basename "$name" .patch)
        [[ $model_rows == *"| \`$name\` |"* ]] ||
            complain "verification/README.md has no row for the mutation $name"
    done
    while IFS= read -r name; do
        [[ -f $mutants_of_models/$name.patch ]] ||
            complain "verification/README.md has a row for the mutation $name, which is not there"
    done < <(cut -d '|' -f 2 <<<"$model_rows" | tr -d '` ')
    for page in "$faults" "$durability"; do
        for name in $(quoted "$(<"$page")" 'a-z0-9_/.*-'); do
            [[ $name != */* ]] || compgen -G "$name" >/dev/null ||
                complain "$page names $name, which does not exist"
        done
    done
}

check_mutations() {
    cd "$root"
    check_patches
    check_tables
    ((wrong == 0))
}
