#!/usr/bin/env bash
# Checks what Cargo.toml promises about versions: the library builds with the lowest versions that
# its manifests allow, and with the Rust version that they declare.
#
#   verification/versions.sh
#
# Works on a copy with a target folder of its own, target/versions. Needs the crate registry. If
# the declared Rust version is not installed (rustup toolchain install VERSION), says so and checks
# only that no dependency of the library declares a later one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 0 "$@"
declared=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
export CARGO_TARGET_DIR=$PWD/target/versions
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z -- Cargo.toml Cargo.lock crates |
    tar --null --create --files-from=- | tar --extract --directory="$copy"
cd "$copy"
# The library alone: tools and benches are not built by its users.
sed -i 's#^members = .*#members = ["crates/core", "crates/store", "crates/palisade", "crates/streams"]#' \
    Cargo.toml

# The option is unstable. It changes only how the versions are chosen.
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
library=(-p palisade -p palisade-streams --all-features)
cargo check --quiet --locked "${library[@]}"
echo "palisade and palisade-streams build with the lowest versions of their dependencies"

if rustup toolchain list 2>/dev/null | grep -q "^$declared"; then
    cargo "+$declared" check --quiet --locked "${library[@]}"
    echo "palisade and palisade-streams build with Rust $declared"
    exit 0
fi
echo "Rust $declared is not installed: only the declared versions of dependencies are compared"
home=${CARGO_HOME:-$HOME/.cargo}/registry/src
late=0
while read -r name version; do
    manifest=$(find "$home" -path "*/$name-${version#v}/Cargo.toml" -print -quit)
    needs=$(sed -n '/^rust-version = /{s/.*"\(.*\)".*/\1/p;q}' "$manifest")
    if [[ -n $needs && $(printf '%s\n' "$declared" "$needs" | sort -V | tail -n 1) != "$declared" ]]
    then
        echo "$name $version needs Rust $needs, and Cargo.toml declares $declared" >&2
        late=1
    fi
done < <(cargo tree --locked "${library[@]}" -e normal --prefix none |
    awk 'NF && $1 !~ /^palisade/ { print $1, $2 }' | sort -u)
exit $late
