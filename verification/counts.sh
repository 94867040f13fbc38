#!/usr/bin/env bash
# Counts what a newcomer has to read: words, lines of code, names, and the files and functions that
# a commit, an open and a `get` run.
#
#   verification/counts.sh          counts text; needs git and awk
#   verification/counts.sh ways     counts files and functions, under valgrind; skips without it
#
# Code is every line of a library that is neither empty nor a comment. Tests, loom models, the
# simulator and the bodies of the fuzz targets are left out, also tests at the end of a file.
#
# A way is counted in a debug build, so that no function is inlined. A function counts once, with
# all of its closures and types; one of another crate, such as std, does not count. The compiler
# files generic functions of std under lib.rs, which has no functions of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 1 "$@"

# The source files of crates, without tests and what only tests use.
sources() {
    local crate
    for crate in "$@"; do
        git ls-files "crates/$crate/src/*.rs" |
            grep -vE '/(tests|models|sim)/|(tests|/testing|/model)\.rs$'
    done
}

# Prints the code of files: no tests at the end, no comments, no empty lines.
code() {
    xargs awk '
        FNR == 1 { tests = 0 }
        /^#\[cfg\((all\()?test/ { pending = 1; next }
        pending { pending = 0; if (/^(pub\(crate\) )?mod [a-z_]+ \{/) tests = 1 }
        !tests && !/^ *($|\/\/)/' </dev/null "$@"
}

row() {
    printf '%-58s %s\n' "$1" "$2"
}

text() {
    local list=(README.md docs/architecture.md docs/guide.md API.md docs/durability.md docs/format.md)
    local crate files
    row "words of Markdown" "$(git ls-files -z '*.md' | xargs -0 cat | wc -w)"
    row "words that a newcomer reads, ${#list[@]} pages" "$(cat "${list[@]}" | wc -w)"
    files=$(git ls-files 'crates/core/src/*.rs' 'crates/store/src/*.rs' 'crates/palisade/src/*.rs')
    # shellcheck disable=SC2086
    row "words of rustdoc in core, store, palisade" \
        "$(cat $files | sed -nE 's/^ *\/\/[\/!]//p' | wc -w)"
    # shellcheck disable=SC2046
    row "lines of code of core, store, palisade" "$(code $(sources core store palisade) | wc -l)"
    for crate in streams cli bench; do
        # shellcheck disable=SC2046
        row "lines of code of $crate" "$(code $(sources "$crate") | wc -l)"
    done
    for crate in core store palisade cli bench; do
        row "types of one name in $crate" "$(git ls-files "crates/$crate/src/*.rs" |
            grep -v '/sync/' | xargs grep -hoE '^(pub(\([a-z ]+\))? )?(struct|enum|trait|type) [A-Za-z]+' |
            awk '{ print $NF }' | sort | uniq -d | wc -l)"
    done
    files=$(git ls-files 'crates/*.rs' 'benches/*.rs')
    # shellcheck disable=SC2086
    row "names of functions over 60 characters" \
        "$(cat $files | grep -oE '\bfn [a-z0-9_]{61,}' | wc -l)"
    # shellcheck disable=SC2086
    row "lines over 100 columns" "$(awk 'length > 100' $files | wc -l)"
    # shellcheck disable=SC2086
    row "files over 500 lines" "$(wc -l $files | awk '$1 > 500 && $2 != "total"' | wc -l)"
}

# Prints how many files and functions of the library the function $1 of verification/programs/src/bin/ways.rs runs.
way() {
    valgrind --tool=callgrind --toggle-collect="ways::$1" --compress-strings=no \
        --compress-pos=no --callgrind-out-file="$out/callgrind" "$program" 2>"$out/log" ||
        { cat "$out/log" >&2 && return 1; }
    awk '
        /^(fl|fi|fe)=/ { file = substr($0, 4) }
        /^fn=/ { name = substr($0, 4) }
        /^(fl|fi|fe|fn|c[a-z]+|ob|calls)=/ { if (/^calls/) skip = 1; next }
        /^[0-9+*-]/ {
            if (skip) { skip = 0; next }
            if (file !~ /crates\/(core|store|palisade)\/src/ || file ~ /\/lib\.rs$/) next
            files[file] = 1
            gsub(/::\{\{closure\}\}|<[^<>]*>/, "", name)
            while (gsub(/<[^<>]*>/, "", name)) {}
            functions[file " " name] = 1
        }
        END { for (f in files) a++; for (f in functions) b++; print a + 0 " files, " b + 0 " functions" }
    ' "$out/callgrind"
}

ways() {
    if ! command -v valgrind >/dev/null; then
        echo "skipped: no valgrind"
        return
    fi
    program=$(CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo build --locked -p palisade-verification --bin ways \
        --target-dir target/ways --message-format=json |
        sed -n '/"name":"ways"/s/.*"executable":"\([^"]*\)".*/\1/p')
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    row "one commit" "$(way one_commit)"
    row "one get" "$(way one_get)"
    row "one open of a log that was not closed" "$(way one_open)"
}

case ${1-} in
'') text ;;
ways) ways ;;
*) wrong_usage "the argument is $1, expected ways or nothing" ;;
esac
