#!/usr/bin/env bash
# Runs logs on devices that really fail: small ext4 and XFS images on a tmpfs that is full for a
# while. Everything that was acknowledged, and everything that an open reported, must survive an
# orderly unmount, a loss of power (a copy of the image) and a shutdown of the file system.
#
#   verification/devices.sh                            300 seeds on ext4, 100 on XFS
#   verification/devices.sh --kind xfs --runs 20       20 seeds on XFS
#   verification/devices.sh --only rotation            only this phase fails
#   verification/devices.sh --kind ext4 --first 17 --runs 1
#                                                      seed 17; TRACE=1 prints every answer
#   verification/devices.sh --control                  the same with a log of 200 lines, which loses
#                                                      records only if the device lies
#   verification/devices.sh cases [--kind K] [ROW...]  directed cases
#   verification/devices.sh cases --list               their titles
#
# Phases: zeroing rotation commit recovery truncation close first_open.
# ORACLE names the binary of verification/programs; without it, a release build is made. Needs root, mount namespaces, loop
# devices, mkfs.*, fstrim, fsfreeze, fallocate, filefrag and xfs_io; prints what it skips.
# Exit codes: 0 held, 1 failed, 2 wrong usage.
set -euo pipefail
# A binary that is named from where the caller stands.
[[ ${ORACLE:-} != */* || $ORACLE == /* ]] || export ORACLE=$PWD/$ORACLE
cd "$(dirname "$0")/.."
# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
# shellcheck source=lib/device.sh
source verification/lib/device.sh
# shellcheck source=lib/device_cases.sh
source verification/lib/device_cases.sh
# shellcheck source=lib/device_runs.sh
source verification/lib/device_runs.sh
help_if_asked "$@"

kinds=(ext4 xfs)
rows=()
runs="" first=1 only="" is_cases=false

is_one_of() {
    local word=$1
    shift
    [[ " $* " == *" $word "* ]]
}

read_arguments() {
    while (($# > 0)); do
        case $1 in
            cases) is_cases=true ;;
            --control) control=(--control) ;;
            --list) case_titles && exit 0 ;;
            --kind | --runs | --first | --only)
                (($# > 1)) || wrong_usage "$1 wants a value"
                take_option "$1" "$2"
                shift ;;
            *) take_row "$1" ;;
        esac
        shift
    done
}

take_row() {
    $is_cases || wrong_usage "what is $1?"
    is_one_of "$1" "${case_names[@]}" || wrong_usage "there is no row $1"
    rows+=("$1")
}

take_option() {
    case $1 in
        --kind) is_one_of "$2" ext4 xfs || wrong_usage "$2 is none of ext4, xfs"
            kinds=("$2") ;;
        --only) is_one_of "$2" "${phases[@]}" || wrong_usage "$2 is no phase"
            only=$2 ;;
        *) [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] || wrong_usage "$1 wants a number, not $2"
            [[ $1 == --runs ]] && runs=$2 || first=$2 ;;
    esac
}

# Exits with success if the script cannot run here at all.
skip_unless_possible() {
    local tool
    if ((EUID != 0)); then
        echo "skipped: loop mounts need root"
        exit 0
    fi
    for tool in unshare setsid losetup findmnt fstrim fsfreeze fallocate filefrag xfs_io; do
        if ! command -v "$tool" >/dev/null; then
            echo "skipped: there is no $tool"
            exit 0
        fi
    done
    if ! unshare --mount --propagation private true 2>/dev/null; then
        echo "skipped: there is no mount namespace to be had"
        exit 0
    fi
}

# Keeps the kinds that can be formatted, mounted and trimmed here.
keep_possible_kinds() {
    local kind free possible=()
    for kind in "${kinds[@]}"; do
        if ! command -v "mkfs.$kind" >/dev/null; then
            echo "skipped $kind: there is no mkfs.$kind"
        elif ! device_make "$kind"; then
            echo "skipped $kind: it cannot be formatted or mounted: $(head -qn 1 "$work"/m*.log)"
        elif free=$(stat -f -c %f "$work/disk") && ! dig_free 2>/dev/null ||
            (($(stat -f -c %f "$work/disk") <= free)); then
            echo "skipped $kind: fstrim punches no holes into the image"
        else
            possible+=("$kind")
        fi
        device_drop
    done
    kinds=("${possible[@]}")
}

# Runs the case $2 on the kind $1.
run_case() {
    local kind=$1 row=$2 log start=$SECONDS
    if [[ $kind != xfs && $row == E1 ]]; then
        echo "$row ($kind): skipped, there are no reflink copies"
        return 0
    fi
    if [[ $row == D3 ]] && ! grep -qw overlay /proc/filesystems && ! modprobe -q overlay; then
        echo "$row ($kind): skipped, there is no overlayfs"
        return 0
    fi
    verdict=""
    rm -f "$work"/ledger-* "$work/stderr"
    if device_make "$kind"; then
        "case_$row" || fail_run "the case itself failed"
    else
        fail_run "the device could not be made"
    fi
    oracle_kill_all
    device_drop
    if [[ -z $verdict ]]; then
        echo "$row ($kind): held"
        return 0
    fi
    echo "$row ($kind): FAILED ($(short "$verdict")) [$((SECONDS - start)) s]"
    return 1
}

run_cases() {
    local kind row failed=0
    ((${#rows[@]} > 0)) || rows=("${case_names[@]}")
    for kind in "${kinds[@]}"; do
        for row in "${rows[@]}"; do
            run_case "$kind" "$row" || failed=$((failed + 1))
        done
    done
    echo "$failed of $((${#kinds[@]} * ${#rows[@]})) cases failed"
    ((failed == 0))
}

# Runs the seeds on the kind $1 and prints a summary.
run_seeds() {
    local kind=$1 count=${runs:-300} seed failed=0 start=$SECONDS replay
    local -A by=()
    [[ $kind == ext4 || -n $runs ]] || count=100
    for ((seed = first; seed < first + count; seed++)); do
        one_run "$kind" "$seed" || true
        oracle_kill_all
        device_drop
        [[ -n $verdict ]] || continue
        failed=$((failed + 1))
        replay="verification/devices.sh --kind $kind --first $seed --runs 1"
        replay+="${only:+ --only $only}${control:+ --control}"
        echo "seed $seed ($kind, $phase, $target, $run_end): $(short "$verdict")"
        echo "    $replay"
        tally "in $phase" "of $target" "end ${run_end##*,}" "${verdict%%[ :]*}"
    done
    echo "$kind: $count runs in $((SECONDS - start)) s, $failed failed"
    ((failed == 0)) || for replay in "${!by[@]}"; do
        printf '    %-28s %d\n' "$replay" "${by[$replay]}"
    done | sort
    ((failed == 0))
}

# Counts one failure under its phase, target, end and category.
tally() {
    local word
    case $4 in
        SIGBUS | hang | died) ;;
        *) set -- "$1" "$2" "$3" "violated" ;;
    esac
    for word in "$@"; do
        by[$word]=$((${by[$word]:-0} + 1))
    done
}

# Shortens an error text: without its advice, and without the temporary folder.
short() {
    local text=${1//"$work/mnt/"/}
    text=${text%; nothing was changed;*}
    echo "${text%; the log accepts nothing more;*}"
}

# Called by the trap.
# shellcheck disable=SC2317,SC2329
clean_up() {
    trap '' INT TERM HUP
    device_end
    rmdir "$work"
}

[[ -n ${DEVICES_NAMESPACE:-} ]] || {
    read_arguments "$@"
    skip_unless_possible
    if [[ -z ${ORACLE:-} ]]; then
        cargo build --locked --release -p palisade-verification
        export ORACLE=$PWD/${CARGO_TARGET_DIR:-target}/release/device-oracle
        [[ -x $ORACLE ]] || ORACLE=${CARGO_TARGET_DIR:-target}/release/device-oracle
    fi
    # The mounts and loop devices end with the last process of the namespace.
    DEVICES_NAMESPACE=1 exec unshare --mount --propagation private verification/devices.sh "$@"
}
read_arguments "$@"
work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
device_begin
if ! device_is_honest; then
    echo "skipped: the loop device reports failed writes as complete"
    exit 0
fi
cgroup_begin || echo "no memory control group: clean pages of the whole machine are dropped"
keep_possible_kinds
((${#kinds[@]} > 0)) || exit 0

failed=0
if $is_cases; then
    run_cases || failed=1
else
    for kind in "${kinds[@]}"; do
        run_seeds "$kind" || failed=1
    done
fi
exit $failed
