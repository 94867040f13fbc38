#!/usr/bin/env bash
# Runs what judges the integrations: their tests, the suites of the engines and the benches. Needs
# the Rust toolchain; cargo fetches the engines.
#
#   integrations/run.sh          format, clippy, tests, documents, and a short run of the cluster
#   integrations/run.sh long     also 10 000 seeds of each power-loss test, the suites that the
#                                engines publish, 10 000 writes to the cluster with 33 kills, and
#                                the benches, those of SSTables in their short form: some hours
#
# Prints each step, and its time at the end. The exit status is that of the first step that fails.
set -euo pipefail
case ${1:-} in
'' | long) ;;
-h | --help)
    sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
*)
    echo "run.sh: the argument is $1, expected none or long; see run.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")"

start=$SECONDS
summary=()

step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n== integrations: %s\n' "$name"
    "$@"
    summary+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
}

cluster=(cargo run --locked --quiet --profile test --all-features -p palisade-openraft
    --example kv --)
step "format" cargo fmt --all --check
step "clippy" cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
step "tests" cargo test --locked --workspace --all-features
step "documents" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps \
    --all-features
step "a cluster of three nodes, 6 kills" "${cluster[@]}" 500 6
if [[ ${1:-} == long ]]; then
    step "10 000 seeds of power loss each" env PALISADE_SEEDS=10000 \
        cargo test --locked --workspace --all-features --release -- --nocapture crash histories
    step "published suites over wal-db" wal-db/suites.sh 3
    step "published suites over redb" redb/suites.sh
    step "a cluster of three nodes, 33 kills" "${cluster[@]}"
    step "benches" cargo bench --locked --workspace --all-features
fi

printf '\n== integrations: all steps passed\n'
printf '%s\n' "${summary[@]}"
printf '%5d s  in all\n' $((SECONDS - start))
