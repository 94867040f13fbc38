#!/usr/bin/env bash
# Runs the tests of published crates over this crate and over the published wal-db, in turns: those
# of wal-db 1.1.0 itself, and those of three engines on it. Prints how many pass, and wall times.
#
#   suites.sh [rounds]     default: 1 round
#
# The exit status is 1 if a build or a test failed, or if the number of tests that passed is not the
# one that `expected` and the README have.
#
# The sources come from the registry, by `cargo fetch`. They are copied into a build folder, with
# a `[patch]` line for this crate. Benches are left out, and so are, on both sides, the tests that
# `left_out` names: the README has the reasons.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
rounds=${1:-1}
build=${CARGO_TARGET_DIR:-$here/../target}/wal-db-suites
engines=(lsm-db-1.1.0 txn-db-1.0.1 raft-io-1.0.0)

# Prints the names of tests that read or write the files of the published crate, or that need the
# length of its frames.
left_out() {
    case $1 in
        wal-db) cat << 'NAMES' ;;
all_zeros_recovers_nothing
any_damage_before_the_last_record_is_refused
any_truncation_opens_the_same_under_both_policies
append_sync_reopen_across_many_segments
append_sync_reopen_reads_back_all_records
corrupt_middle_record_truncates_from_there
damaged_final_record_is_cut_under_both_policies
default_policy_still_cuts_mid_log_damage
garbage_prefix_recovers_nothing
implausible_length_is_rejected_without_allocating
incomplete_final_record_is_cut_under_both_policies
large_record_after_damage_is_found
len_and_is_empty_track_the_log
segmented_strict_refuses_a_missing_middle_segment
segmented_strict_refuses_a_torn_head_marker_after_prefix_compaction
segmented_strict_refuses_many_missing_middle_segments
segmented_strict_refuses_mid_log_damage_and_leaves_segments_unchanged
segmented_torn_tail_is_cut_under_strict
stray_bytes_after_the_last_record_are_cut_under_both_policies
strict_refusal_can_be_overridden_by_reopening_with_the_default
strict_refusal_is_a_fatal_corruption_error
strict_refuses_a_record_longer_than_the_configured_maximum
strict_refuses_damage_in_the_checksum_field
strict_refuses_mid_log_length_damage
strict_refuses_mid_log_payload_damage_and_leaves_the_file_unchanged
the_on_disk_image_is_byte_for_byte_stable
truncate_before_drops_leading_segments_and_survives_reopen
truncated_mid_header_drops_the_partial_record
truncated_mid_payload_drops_the_partial_record
truncation_at_any_offset_recovers_a_clean_prefix
valid_records_then_garbage_tail_keeps_the_valid_ones
NAMES
        txn-db) echo recovery_from_truncated_log_is_a_clean_prefix ;;
    esac
}

# Prints how many tests of a suite, of its documentation, or examples pass.
expected() {
    case $1 in
        wal-db) echo 18 ;;
        lsm-db) echo 141 ;;
        txn-db) echo 83 ;;
        raft-io) echo 144 ;;
        'lsm-db doc') echo 30 ;;
        'txn-db doc') echo 36 ;;
        'raft-io doc') echo 60 ;;
        examples) echo 5 ;;
    esac
}

fetch() {
    mkdir -p "$build/fetch/src"
    : > "$build/fetch/src/lib.rs"
    {
        printf '[workspace]\n[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n'
        printf '[dependencies]\n'
        for crate in wal-db-1.1.0 "${engines[@]}"; do
            printf '%s = "=%s"\n' "${crate%-*}" "${crate##*-}"
        done
    } > "$build/fetch/Cargo.toml"
    (cd "$build/fetch" && cargo fetch --quiet)
}

# Prints where the sources of a crate are.
source_of() {
    cargo metadata --manifest-path "$build/fetch/Cargo.toml" --format-version 1 |
        grep -oE "\"manifest_path\":\"[^\"]*/$1/Cargo.toml\"" | head -n 1 |
        sed -E 's/.*:"(.*)\/Cargo.toml"/\1/'
}

# Copies an engine without its benches and what only they need.
copy_engine() {
    local to=$2/${1%-*}
    cp -r "$(source_of "$1")" "$to"
    rm -rf "$to/benches" "$to/Cargo.lock"
    awk '/^\[/ { drop = /^\[\[bench\]\]/ || /dev-dependencies\.(criterion|sled|redb)\]/ }
        !drop' "$to/Cargo.toml" > "$to/Cargo.toml.new"
    mv "$to/Cargo.toml.new" "$to/Cargo.toml"
}

# Makes a package of the tests and examples of wal-db, which use the crate as any other does.
copy_wal_db() {
    local from to=$1/wal-db
    from=$(source_of wal-db-1.1.0)
    mkdir -p "$to/src"
    : > "$to/src/lib.rs"
    cp -r "$from/tests" "$from/examples" "$to/"
    # These implement the store of the published crate, or call it.
    rm "$to/tests/faults.rs" "$to/tests/loom_wal.rs"
    sed -i -z 's/#\[test\]\nfn recovery_truncates_a_torn_tail.*//' "$to/tests/segmented.rs"
    cat > "$to/Cargo.toml" <<'TOML'
[package]
name = "wal-db-suite"
version = "0.0.0"
edition = "2024"
[features]
pack-io = ["wal-db/pack-io"]
[dependencies]
wal-db = "1.1"
error-forge = { version = "1.0", default-features = false }
pack-io = { version = "1.0", features = ["derive"] }
proptest = "1"
tempfile = "3"
[[example]]
name = "typed"
required-features = ["pack-io"]
TOML
}

# Makes the workspace of one side: `ours` or `published`.
make_side() {
    local side=$build/$1
    rm -rf "$side"
    mkdir -p "$side"
    for crate in "${engines[@]}"; do copy_engine "$crate" "$side"; done
    copy_wal_db "$side"
    {
        printf '[workspace]\nresolver = "2"\nmembers = ["*-db", "raft-io"]\n'
        printf '[profile.dev.package."*"]\nopt-level = 3\n'
        if [[ $1 == ours ]]; then
            printf '[patch.crates-io]\nwal-db = { path = "%s" }\n' "$here"
        fi
    } > "$side/Cargo.toml"
}

package() { [[ $1 == wal-db ]] && echo wal-db-suite || echo "$1"; }

# Prints how many tests passed, and how many failed: `error` if none did and cargo has failed.
count() {
    local log=$1 rc=$2
    [[ $rc == 0 ]] || cat "$log" >&2
    awk -v rc="$rc" '/^test result/ { ok += $4; bad += $6 }
        END { print ok + 0, rc != 0 && !bad ? "error" : bad + 0 }' "$log"
}

# Runs the tests of a suite, but not its documentation's. Prints passed, failed, seconds.
run_tests() {
    local side=$1 suite=$2 start rc=0 log=$build/$1-$2.log
    local skip=()
    while read -r name; do skip+=(--skip "$name"); done < <(left_out "$suite")
    local cargo=(cargo test --quiet --no-fail-fast -p "$(package "$suite")" --all-features --lib
        --tests)
    (cd "$build/$side" && "${cargo[@]}" --no-run) > "$log" 2>&1 || rc=$?
    start=$(date +%s.%N)
    if [[ $rc == 0 ]]; then
        (cd "$build/$side" && "${cargo[@]}" -- "${skip[@]}") > "$log" 2>&1 || rc=$?
    fi
    echo "$(count "$log" "$rc")" "$(awk -v from="$start" -v to="$(date +%s.%N)" \
        'BEGIN { printf "%.1f", to - from }')"
}

# Runs the documentation's tests. Prints passed, failed.
run_docs() {
    local rc=0 log=$build/$1-$2-doc.log
    (cd "$build/$1" && cargo test --quiet --no-fail-fast -p "$(package "$2")" --all-features --doc
    ) > "$log" 2>&1 || rc=$?
    count "$log" "$rc"
}

run_examples() {
    local example passed=0 failed=0
    for example in "$build/$1/wal-db/examples/"*.rs; do
        example=$(basename "$example" .rs)
        if (cd "$build/$1" && cargo run --quiet -p wal-db-suite --all-features \
            --example "$example") > "$build/$1-$example.log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            cat "$build/$1-$example.log" >&2
        fi
    done
    echo "$passed $failed"
}

# Prints a row: suite, side, passed, failed, seconds. Sets the exit status if it is not as expected.
status=0
row() {
    local note=''
    if [[ $3 != "$(expected "$1")" || $4 != 0 ]]; then
        note="  expected: $(expected "$1") passed"
        status=1
    fi
    printf '%-11s %-10s %7s %7s %8s%s\n' "$1" "$2" "$3" "$4" "${5:-}" "$note"
}

fetch
make_side ours
make_side published
printf '%-11s %-10s %7s %7s %8s\n' suite wal-db passed failed seconds
for _ in $(seq "$rounds"); do
    for suite in wal-db lsm-db txn-db raft-io; do
        for side in ours published; do
            read -r passed failed seconds <<< "$(run_tests "$side" "$suite")"
            row "$suite" "$side" "$passed" "$failed" "$seconds"
        done
    done
done
for side in ours published; do
    for suite in lsm-db txn-db raft-io; do
        read -r passed failed <<< "$(run_docs "$side" "$suite")"
        row "$suite doc" "$side" "$passed" "$failed"
    done
    read -r passed failed <<< "$(run_examples "$side")"
    row examples "$side" "$passed" "$failed"
done
exit "$status"
