#!/usr/bin/env bash
# Runs each target of fuzz/ for a while, from the committed corpus on. Needs a nightly toolchain
# and cargo-fuzz; says so and skips without them. Not part of .ci/run: the same bodies run over
# the corpus and over inputs made from it in `cargo test -p palisade-verification` and
# `cargo test -p palisade --test log stored_bytes`.
#
#   verification/fuzz.sh             60 seconds for each target
#   verification/fuzz.sh SECONDS     as long as that for each
#
# New inputs that reach new code stay in target/fuzz-corpus; inputs that crash in fuzz/artifacts.
# Exits non-zero if one did.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 1 "$@"
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]{0,8}$ ]] ||
    wrong_usage "SECONDS is $seconds, expected a number from 1 on"
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "skipped: no nightly toolchain (rustup toolchain install nightly)"
    exit 0
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: no cargo-fuzz (cargo install cargo-fuzz)"
    exit 0
fi

failed=0
for target in frame_decode segment_header open_folder stored_bytes; do
    printf '\n== %s, %s s\n' "$target" "$seconds"
    new=target/fuzz-corpus/$target
    mkdir -p "$new"
    # The first folder takes what is new; the committed one is only read.
    cargo +nightly fuzz run "$target" "$PWD/$new" "$PWD/fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=131072 -timeout=60 -print_final_stats=1 || failed=1
done
exit $failed
