#!/usr/bin/env bash
# Runs redb's own tests, as its crate publishes them, over this backend and over redb's file
# backend. Prints how many pass, and wall times.
#
#   suites.sh [rounds]     default: 1 round
#
# The exit status is 1 if a build or a test failed, or if the number of tests that passed is not
# `expected`, which the README has, too.
#
# The sources come from the registry, by `cargo fetch`. They are copied into a build folder, where
# each open of a path becomes an open of the backend. `left_out` names the tests that cannot work
# on another backend: they read, write, lock or measure the database's file.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
rounds=${1:-1}
version=4.6.0
expected=305
build=${CARGO_TARGET_DIR:-$here/../target}/redb-suites
suites=(basic_tests cursor_tests integration_tests multimap_tests multithreading_tests)

left_out() {
    cat << 'NAMES'
commit_with_a_leaked_table_is_refused
compaction
corrupted_persistent_savepoint_record
does_not_exist
dynamic_growth
file_backend_custom_open_respects_file_locks
invalid_database_file
read_only
read_only_backend_preserves_bytes
read_only_file_keeps_opened_file_after_path_replacement
read_only_file_refuses_recovery_without_modifying_bytes
NAMES
}

# Makes the package of one side: `log` or `file`. Both have the same sources.
make_side() {
    local side=$build/$1 from=$build/fetch/vendored
    rm -rf "$side"
    mkdir -p "$side/src" "$side/tests"
    cat > "$side/Cargo.toml" << TOML
[workspace]
[package]
name = "redb-suite-$1"
version = "0.0.0"
edition = "2024"
[dependencies]
palisade = { path = "$here/../../crates/palisade" }
palisade-redb = { path = "$here" }
redb = "=$version"
tempfile = "3"
[dev-dependencies]
rand = "0.10"
uuid = { version = "1.17", features = ["v4"] }
[features]
experimental-api-5 = []
experimental-niches = []
[lib]
name = "opening"
[profile.dev.package."*"]
opt-level = 2
TOML
    "opening_on_$1" > "$side/src/lib.rs"
    for suite in "${suites[@]}"; do
        perl -0pe '
            s/\b(?:redb::)?Database::create\(/opening::create(/g;
            s/\b(?:redb::)?Database::open\(/opening::open(/g;
            s/\b(?:redb::)?ReadOnlyDatabase::open\(/opening::open_read_only(/g;
            s/\.create\(tmpfile/.create_here(tmpfile/g;
            s/((?:Database::builder|Builder::new)\(\)(?:(?!;).)*?)
                \.(create|open|open_read_only)\(/$1.$2_here(/gsx;
            $_ .= "#[allow(unused_imports)]\nuse opening::Opening as _;\n";
        ' "$from/tests/$suite.rs" > "$side/tests/$suite.rs"
    done
}

opening_on_log() {
    opening_head
    cat << 'RUST'
fn backend(path: &Path) -> Result<palisade_redb::PalisadeBackend, DatabaseError> {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".palisade");
    let log = palisade::Options::new().segment_bytes(1 << 20).buffer_bytes(1 << 20);
    let opened = palisade_redb::Options::new().log(log).open(folder);
    opened.map_err(|error| match error.kind() {
        palisade::ErrorKind::Locked => DatabaseError::DatabaseAlreadyOpen,
        _ => std::io::Error::from(error).into(),
    })
}
impl Opening for Builder {
    fn create_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
        self.create_with_backend(backend(path.as_ref())?)
    }
    fn open_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
        self.create_with_backend(backend(path.as_ref())?)
    }
    fn open_read_only_here(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<ReadOnlyDatabase, DatabaseError> {
        self.open_read_only_with_backend(backend(path.as_ref())?)
    }
}
RUST
}

opening_on_file() {
    opening_head
    cat << 'RUST'
impl Opening for Builder {
    fn create_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
        self.create(path)
    }
    fn open_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
        self.open(path)
    }
    fn open_read_only_here(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<ReadOnlyDatabase, DatabaseError> {
        self.open_read_only(path)
    }
}
RUST
}

opening_head() {
    cat << 'RUST'
use redb::{Builder, Database, DatabaseError, ReadOnlyDatabase};
use std::path::Path;
pub trait Opening {
    fn create_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError>;
    fn open_here(&self, path: impl AsRef<Path>) -> Result<Database, DatabaseError>;
    fn open_read_only_here(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<ReadOnlyDatabase, DatabaseError>;
}
pub fn create(path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
    Builder::new().create_here(path)
}
pub fn open(path: impl AsRef<Path>) -> Result<Database, DatabaseError> {
    Builder::new().open_here(path)
}
pub fn open_read_only(path: impl AsRef<Path>) -> Result<ReadOnlyDatabase, DatabaseError> {
    Builder::new().open_read_only_here(path)
}
RUST
}

fetch() {
    mkdir -p "$build/fetch/src"
    : > "$build/fetch/src/lib.rs"
    printf '[workspace]\n[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n' \
        > "$build/fetch/Cargo.toml"
    printf '[dependencies]\nredb = "=%s"\n' "$version" >> "$build/fetch/Cargo.toml"
    (cd "$build/fetch" && cargo fetch --quiet)
    local manifest
    manifest=$(cargo metadata --manifest-path "$build/fetch/Cargo.toml" --format-version 1 |
        grep -oE "\"manifest_path\":\"[^\"]*/redb-$version/Cargo.toml\"" | head -n 1 |
        sed -E 's/.*:"(.*)\/Cargo.toml"/\1/')
    rm -rf "$build/fetch/vendored"
    cp -r "$manifest" "$build/fetch/vendored"
}

# Runs all suites of one side. Prints passed, failed, seconds. Instead of the number of those that
# failed prints `error` if none did and cargo has failed.
run_tests() {
    local log=$build/$1.log skip=() start rc=0
    while read -r name; do skip+=(--skip "$name"); done < <(left_out)
    (cd "$build/$1" && cargo test --quiet --tests --no-run) > "$log" 2>&1 || rc=$?
    start=$(date +%s.%N)
    if [[ $rc == 0 ]]; then
        (cd "$build/$1" && TMPDIR=$build/tmp cargo test --quiet --no-fail-fast --tests -- \
            --exact "${skip[@]}") > "$log" 2>&1 || rc=$?
    fi
    [[ $rc == 0 ]] || cat "$log" >&2
    awk -v from="$start" -v to="$(date +%s.%N)" -v rc="$rc" '
        /^test result/ { ok += $4; bad += $6 }
        END { printf "%d %s %.1f\n", ok, rc != 0 && !bad ? "error" : bad + 0, to - from }' "$log"
}

fetch
make_side log
make_side file
status=0
printf '%-8s %7s %7s %8s\n' backend passed failed seconds
for _ in $(seq "$rounds"); do
    for side in log file; do
        mkdir -p "$build/tmp"
        read -r passed failed seconds <<< "$(run_tests "$side")"
        note=''
        if [[ $passed != "$expected" || $failed != 0 ]]; then
            note="  expected: $expected passed"
            status=1
        fi
        printf '%-8s %7s %7s %8s%s\n' "$side" "$passed" "$failed" "$seconds" "$note"
        rm -rf "$build/tmp"
    done
done
exit "$status"
