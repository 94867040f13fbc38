#!/usr/bin/env bash
# Counts the instructions of an append of 256 bytes on its thread. Needs valgrind; says so and skips
# without it. Not part of .ci/run.
#
#   verification/instructions.sh
#
# Runs benches/instructions.rs with two numbers of records under callgrind and divides the
# difference. The pieces that are written to the operating system do not count: no append of the
# program completes one. valgrind offers no 512-bit instructions; RUSTFLAGS must not ask for them.
# The figure depends on the compiler, the C library and the processor.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 0 "$@"
if ! command -v valgrind >/dev/null; then
    echo "skipped: no valgrind"
    exit 0
fi

few=10000 many=25000
program=$(cargo bench --locked -p palisade-bench --bench instructions --no-run \
    --message-format=json | sed -n '/"name":"instructions"/s/.*"executable":"\([^"]*\)".*/\1/p')
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Prints the instructions of the program's function `appends` for $1 records.
count() {
    valgrind --tool=callgrind --toggle-collect='instructions::appends' \
        --callgrind-out-file="$out/callgrind" "$program" "$1" 2>"$out/log" ||
        { cat "$out/log" >&2 && return 1; }
    sed -n 's/^totals: //p' "$out/callgrind"
}

few_ir=$(count $few)
many_ir=$(count $many)
if [[ ! $few_ir =~ ^[1-9][0-9]*$ ]]; then
    echo "callgrind found no function instructions::appends in $program" >&2
    exit 1
fi
echo "$few_ir $many_ir" | awk -v more=$((many - few)) \
    '{ printf "%.1f instructions for an append of 256 bytes\n", ($2 - $1) / more }'
