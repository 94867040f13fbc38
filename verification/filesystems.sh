#!/usr/bin/env bash
# Runs the demonstrations on small file systems of their own, loop-mounted: kills with both
# promises, then a disk that is full, gets space again, and is full again. Segments of 4 MiB, a
# ring of 1 MiB. Needs root, losetup and mkfs.*; says so and skips what it cannot do.
#
#   verification/filesystems.sh                 ext4, xfs, btrfs
#   verification/filesystems.sh ext4 btrfs      those
#
# PALISADE and FILL name the binaries `palisade` and `disk-fill` (of verification/programs); without
# them, release builds are made. ROUNDS (3) is the number of kills.
# An image has 512 MiB: on a fast or busy machine a round of appends takes more than 64 MiB.
set -euo pipefail
# Binaries that are named from where the caller stands.
[[ ${PALISADE:-} != */* || $PALISADE == /* ]] || PALISADE=$PWD/$PALISADE
[[ ${FILL:-} != */* || $FILL == /* ]] || FILL=$PWD/$FILL
cd "$(dirname "$0")/.."
# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"

rounds=${ROUNDS:-3}
sizes=(--segment-bytes $((4 << 20)) --buffer-bytes $((1 << 20)))
work=$(mktemp -d)
mounted=""

# Called by the trap.
# shellcheck disable=SC2317
clean_up() {
    # Whoever was interrupted may still have files open there.
    [[ -z $mounted ]] || umount "$mounted" || umount --lazy "$mounted" || true
    rm -rf "$work"
}
trap clean_up EXIT

make_file_system() {
    local kind=$1 image=$2
    case $kind in
        ext4) mkfs.ext4 -q "$image" ;;
        xfs) mkfs.xfs -q "$image" ;;
        btrfs) mkfs.btrfs -q "$image" ;;
    esac
}

# The demonstrations in the folder $2, which lies on $1.
demonstrate() {
    local kind=$1 folder=$2 promise
    for promise in commit append; do
        echo "-- $kind: $rounds kills, promise $promise"
        # Appends are fast, half a gigabyte a second: three rounds of them have to fit.
        local load=(--seconds 1 --threads 4 --record-bytes 2048)
        [[ $promise == commit ]] || load=(--seconds 0.05 --threads 2 --record-bytes 128)
        "$PALISADE" demo --dir "$folder/$promise" --rounds "$rounds" --promise "$promise" \
            "${load[@]}" "${sizes[@]}" || return 1
        "$PALISADE" verify "$folder/$promise" | head -n 1 || return 1
        rm -rf "${folder:?}/$promise"
    done
    echo "-- $kind: full, space again, full again"
    "$FILL" "$folder/fill" "${sizes[@]}" || return 1
    "$PALISADE" verify "$folder/fill" | head -n 1 || return 1
}

run_one() {
    local kind=$1 image=$work/$1.img folder=$work/$1 rc=0
    if ! command -v "mkfs.$kind" >/dev/null; then
        echo "skipped $kind: there is no mkfs.$kind"
        return 0
    fi
    truncate -s 512M "$image"
    make_file_system "$kind" "$image" >"$work/mkfs.log" 2>&1 || {
        echo "skipped $kind: mkfs.$kind does not make one of 512 MiB: $(tail -n 1 "$work/mkfs.log")"
        return 0
    }
    mkdir "$folder"
    if ! mount -o loop "$image" "$folder" 2>"$work/mount.log"; then
        echo "skipped $kind: it cannot be mounted here: $(head -n 1 "$work/mount.log")"
        return 0
    fi
    mounted=$folder
    demonstrate "$kind" "$folder" || rc=1
    umount "$folder"
    mounted=""
    rm -f "$image"
    ((rc == 0)) && echo "$kind: held" || echo "$kind: FAILED"
    return $rc
}

kinds=("$@")
((${#kinds[@]} > 0)) || kinds=(ext4 xfs btrfs)
for kind in "${kinds[@]}"; do
    [[ $kind == ext4 || $kind == xfs || $kind == btrfs ]] ||
        wrong_usage "$kind is none of ext4, xfs, btrfs"
done
[[ $rounds =~ ^[1-9][0-9]{0,4}$ ]] || wrong_usage "ROUNDS is $rounds, expected a number from 1 on"
if ((EUID != 0)); then
    echo "skipped: loop mounts need root"
    exit 0
fi
if [[ -z ${PALISADE:-} || -z ${FILL:-} ]]; then
    cargo build --locked --release -p palisade-cli -p palisade-verification --bin palisade \
        --bin disk-fill
    built=$PWD/${CARGO_TARGET_DIR:-target}/release
    [[ -d $built ]] || built=${CARGO_TARGET_DIR:-target}/release
    PALISADE=${PALISADE:-$built/palisade} FILL=${FILL:-$built/disk-fill}
fi

failed=0
for kind in "${kinds[@]}"; do
    run_one "$kind" || failed=1
done
exit $failed
