# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the scripts that source this
# Sourced by devices.sh: a device that fails on demand, and the oracle process that uses it.
#
# The device is an ext4 or XFS image on a tmpfs of limited size, mounted through a loop device.
# Blocks that the file system does not use are holes in the image. While a filler occupies the rest
# of the tmpfs, each write-back to a hole fails. When the filler is removed, the device works again.
# All mounts are in a private namespace, so they end with the script.
#
# The loop driver (seen in Linux 6.18) reports a short write to the tmpfs as a complete one. Such a
# device breaks assumption M2, so a lost record would prove nothing. Each request is therefore
# limited to one aligned page: the tmpfs takes all of it, or the request fails.
#
# The caller sets `work` (a folder) and `ORACLE` (the binary), and calls `device_begin` first.

limit=20          # seconds that a command may take
verdict=""        # the first violation, hang or signal of the run
is_failing=false  # whether the device fails right now
log=""            # the folder of the log
control=()        # (--control) runs the control log instead of Palisade
declare -A oracle_pid=() oracle_in=() oracle_out=()

# With TRACE=1: prints what happens to the device.
note() {
    [[ -z ${TRACE:-} ]] || echo "    device: $*" >&2
}

# Mounts a healthy tmpfs for ledgers, copies of images and pipes, and another for log buffers.
device_begin() {
    mount -t tmpfs -o size=4g none "$work"
    mount -t tmpfs -o size=64m none /dev/shm
    mkdir "$work/disk" "$work/mnt"
    trap '' PIPE
}

# Ends all processes and mounts.
device_end() {
    local name
    for name in "${!oracle_pid[@]}"; do
        oracle_kill "$name"
    done
    device_drop
    umount "$work" 2>/dev/null || umount --lazy "$work" 2>/dev/null || true
    [[ -z ${cgroup:-} ]] || rmdir "$cgroup" 2>/dev/null || true
}

# Records a failure of the run. The first one counts.
fail_run() {
    [[ -n $verdict ]] || verdict=$1
}

# --- The device --------------------------------------------------------------------------------

# Copies an image of kind $1 with $2 MiB into the tmpfs. The first call formats it.
make_image() {
    local kind=$1 mib=$2 template=$work/template-$1-$2
    if [[ ! -f $template ]]; then
        truncate -s "${mib}M" "$template"
        case $kind in
            ext4) mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0 "$template" ;;
            xfs) TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 mkfs.xfs -q -K -s size=4096 "$template" ||
                mkfs.xfs -q -K -s size=4096 --unsupported "$template" ;;
        esac >"$work/mkfs.log" 2>&1 || return 1
    fi
    cp --sparse=always "$template" "$work/disk/image"
}

# Makes a device of kind $1 and mounts it with the options $2. There are no log buffers.
device_make() {
    rm -f /dev/shm/*
    local kind=$1 mib=64
    mount_options=noatime${2:+,$2}
    [[ $kind == ext4 ]] || mib=96
    mount -t tmpfs -o "size=$((mib + 16))m" none "$work/disk"
    make_image "$kind" "$mib" || return 1
    device_mount || return 1
    log=$work/mnt/log
}

# Mounts the image. Every block is backed by the tmpfs, so the file system's own writes succeed.
device_mount() {
    local size mounted=true
    size=$(stat -c %s "$work/disk/image")
    fallocate -l "$size" "$work/disk/image"
    loop_begin
    mount -o "$mount_options" "/dev/$loop" "$work/mnt" 2>"$work/mount.log" || mounted=false
    loop_end
    $mounted
}

# Attaches a loop device whose requests are single aligned pages (see above).
loop_begin() {
    loop=$(losetup --find --show --sector-size 4096 "$work/disk/image")
    loop=${loop##*/}
    request_kib=$(<"/sys/block/$loop/queue/max_sectors_kb")
    echo 4 >"/sys/block/$loop/queue/max_sectors_kb"
}

# Detaches the loop device: at once, or when it is unmounted.
loop_end() {
    losetup --detach "/dev/$loop"
}

# Checks that a write fails if the tmpfs has space for its first page only.
device_is_honest() {
    local ok=true
    mount -t tmpfs -o size=64k none "$work/disk"
    truncate -s 32k "$work/disk/image"
    loop_begin
    device_fail 1
    ! dd if=/dev/zero of="/dev/$loop" bs=8k count=1 oflag=direct 2>/dev/null || ok=false
    device_heal
    requests_as_before
    loop_end
    umount "$work/disk"
    $ok
}

# Restores the request size, which the kernel keeps for the next user of the loop device.
requests_as_before() {
    echo "$request_kib" >"/sys/block/$loop/queue/max_sectors_kb"
}

# Does not use mountpoint(1), which calls stat: that fails after a shutdown of the file system.
is_mounted() {
    grep -qF " $1 " /proc/self/mounts
}

# Unmounts the image. A process that was just killed may keep the mount busy for a moment.
device_umount() {
    local tries
    device_heal
    ! is_mounted "$work/mnt" || requests_as_before
    for ((tries = 0; tries < 100; tries++)); do
        is_mounted "$work/mnt" || return 0
        timeout 30 umount "$work/mnt" 2>/dev/null || sleep 0.05
    done
    fail_run "hang: the file system cannot be unmounted"
    umount --lazy "$work/mnt"
}

device_drop() {
    device_umount
    umount "$work/disk" 2>/dev/null || umount --lazy "$work/disk" 2>/dev/null || true
}

# Punches holes into the image where the file system is free, so that growth can fail.
dig_free() {
    note dig free
    local before="" tries
    write_back
    # XFS skips busy extents, and discards after the call returns.
    for ((tries = 0; tries < 5; tries++)); do
        fstrim "$work/mnt"
        [[ $(stat -f -c %f "$work/disk") != "$before" ]] || return 0
        before=$(stat -f -c %f "$work/disk")
        sleep 0.01
    done
}

# Punches holes where the files $@ contain zeros, so that overwriting these blocks can fail.
dig_files() {
    note dig files
    local file start length
    freeze
    for file in "$@"; do
        [[ -f $file ]] || continue
        while read -r start length; do
            punch_zeros "$start" "$length"
        done < <(extents "$file")
    done
    thaw
}

# Writes everything back and stops all writes to the device, also those of the journal: a block that
# was zero when it was read must still be zero when it is punched. A file system that has become
# read-only writes nothing and cannot be frozen.
freeze() {
    fsfreeze --freeze "$work/mnt" 2>/dev/null || true
}

thaw() {
    fsfreeze --unfreeze "$work/mnt" 2>/dev/null || true
}

# Punches the blocks of zeros among $2 KiB of the image from $1 KiB on. Does not use the --dig-holes
# of fallocate(1), which was seen to take a block of data behind the range.
punch_zeros() {
    local first=$1 at length
    while read -r at length; do
        fallocate --punch-hole -o $((first * 1024 + at)) -l "$length" "$work/disk/image"
    done < <(dd if="$work/disk/image" bs=1024 skip="$first" count="$2" 2>/dev/null |
        od -A d -t x8 -v -w4096 | zero_runs)
}

# Reads blocks as od(1) prints them. Prints start and length of each run of zeros, in bytes.
zero_runs() {
    awk 'NF < 2 { next }
        { is_zero = NF == 513 && $0 ~ /^[0-9]+( +0000000000000000)+$/ }
        is_zero && !length_ { start = $1 }
        is_zero { length_ += 4096 }
        !is_zero && length_ { printf "%d %d\n", start, length_; length_ = 0 }
        END { if (length_) printf "%d %d\n", start, length_ }'
}

# Prints start and length of each extent of the file $1 on its device, in KiB.
extents() {
    filefrag -b1024 -e "$1" 2>/dev/null |
        sed -n 's/^ *[0-9]*: *[0-9]*\.\. *[0-9]*: *\([0-9]*\)\.\. *[0-9]*: *\([0-9]*\):.*/\1 \2/p'
}

# Punches holes into all blocks that contain zeros, including the journal.
dig_all() {
    note dig all
    dig_free
    freeze
    punch_zeros 0 $(($(stat -c %s "$work/disk/image") / 1024))
    thaw
}

# Makes writes to holes fail, except for the first $1 (default 0) pages.
device_fail() {
    note fail "$@"
    local spare=${1:-0} free piece
    is_failing=true
    # The log may take pages meanwhile, and then the call fails.
    for piece in 1 2 3 4 5 6 7 8 9; do
        free=$(stat -f -c %a "$work/disk")
        ((free > spare)) || return 0
        fallocate -l $(((free - spare) * 4096)) "$work/disk/filler$piece" 2>/dev/null || true
    done
}

# Makes the device work again.
device_heal() {
    note heal
    is_failing=false
    rm -f "$work"/disk/filler*
}

# Fills the file system itself.
fill_file_system() {
    note fill file system
    dd if=/dev/zero of="$work/mnt/ballast" bs=64k 2>/dev/null || true
    dd if=/dev/zero of="$work/mnt/ballast2" bs=4k 2>/dev/null || true
}

# Fills the memory file system for log buffers, so that a log that is opened has none there.
fill_memory() {
    note fill memory
    dd if=/dev/zero of=/dev/shm/ballast bs=64k 2>/dev/null || true
}

empty_memory() {
    note empty memory
    rm -f /dev/shm/ballast
}

# Frees the space of the file system, and removes the clone of the log.
empty_file_system() {
    note empty file system
    rm -rf "$work/mnt/ballast" "$work/mnt/ballast2" "$work/mnt/clone"
    write_back
}

# Writes the page cache back as far as possible. Errors reach the log through its own files.
write_back() {
    note write back
    timeout 10 sync -f "$work/mnt" 2>/dev/null || true
}

# Reclaims clean pages of the oracle from the page cache, including mapped ones. Without a memory
# control group: drops unmapped clean pages of the whole machine.
reclaim() {
    note reclaim
    if [[ -n ${cgroup:-} && -e $cgroup/memory.force_empty ]]; then
        echo 0 >"$cgroup/memory.force_empty" 2>/dev/null || true
    elif [[ -n ${cgroup:-} && -e $cgroup/memory.reclaim ]]; then
        echo 1G >"$cgroup/memory.reclaim" 2>/dev/null || true
    else
        echo 3 >/proc/sys/vm/drop_caches
    fi
}

# Makes a memory control group for the oracle, if the system has such groups.
cgroup_begin() {
    local at
    at=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    [[ -e $at/memory.force_empty ]] || at=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    cgroup=$at/palisade-devices-$$
    if mkdir "$cgroup" 2>/dev/null; then
        [[ -e $cgroup/memory.force_empty || -e $cgroup/memory.reclaim ]] && return 0
        rmdir "$cgroup"
    fi
    cgroup=""
    return 1
}

# --- Ends --------------------------------------------------------------------------------------

# Kills the oracle, unmounts and mounts: all dirty pages reach the device.
end_umount() {
    note end umount
    oracle_kill_all
    device_umount
    device_mount || fail_run "the device cannot be mounted again: $(head -n 1 "$work/mount.log")"
}

# Simulates a loss of power: mounts a copy of the image, without what only the page cache has.
end_power() {
    note end power
    local copy=$work/copy
    oracle_signal_all STOP
    device_heal
    copy_image "$copy"
    oracle_kill_all
    device_umount
    rm -f "$work/disk/image"
    mv "$copy" "$work/disk/image"
    device_mount || fail_run "the image cannot be mounted: $(head -n 1 "$work/mount.log")"
}

# Copies the image to $1. Copies again if a request completed meanwhile.
copy_image() {
    local before after="" tries=0
    while ((tries++ < 200)); do
        before=$(writes_so_far)
        if [[ $before == "$after" ]]; then
            cp --sparse=always "$work/disk/image" "$1"
            [[ $(writes_so_far) != "$before" ]] || return 0
        fi
        after=$before
        sleep 0.01
    done
    fail_run "hang: the device does not come to rest"
}

# Prints completed writes and discards, and requests in flight.
writes_so_far() {
    local -a stat
    read -r -a stat <"/sys/block/$loop/stat"
    echo "${stat[4]} ${stat[8]} ${stat[11]}"
}

# Shuts the file system down, as it does after an error of its own; then unmounts and mounts.
end_shutdown() {
    device_shutdown
    end_umount
}

# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN have the same number.
device_shutdown() {
    note shutdown
    xfs_io -x -c shutdown "$work/mnt" >/dev/null
}

# Takes away what only memory has, that is every log buffer.
forget_memory() {
    oracle_kill_all
    rm -f /dev/shm/*
}

# Starts the system anew: empties the memory file system.
new_boot() {
    note new boot
    forget_memory
}

# --- The oracle --------------------------------------------------------------------------------

# Starts an oracle named $1 with the other arguments as its options.
oracle_start() {
    local name=$1 in=$work/in-$1 to from fd
    shift
    rm -f "$in"
    mkfifo "$in"
    # Opened for reading, too, so that neither process blocks in the open.
    exec {to}<>"$in"
    exec {from}< <(
        exec <"$in"
        # The oracle's input must end when this script ends.
        for fd in "$to" "${oracle_in[@]}" "${oracle_out[@]}"; do
            exec {fd}>&-
        done
        [[ -z ${cgroup:-} ]] || echo "$BASHPID" >"$cgroup/cgroup.procs"
        ulimit -c 0 -v "${most_memory:-unlimited}"
        # A process group of its own, so that a forked child can be killed with it.
        exec setsid "$ORACLE" --dir "$log" "${control[@]}" "$@" 2>>"$work/stderr"
    )
    oracle_pid[$name]=$!
    oracle_in[$name]=$to
    oracle_out[$name]=$from
}

is_running() {
    [[ -n ${oracle_pid[$1]:-} ]]
}

# Sends the command $2 to the oracle $1 and reads the answer into `reply`. Returns 0 for ok,
# 1 nospace, 2 failed, 3 refused, 9 violated. Also returns 9, without a command, if the oracle is
# gone or the run has failed before.
ask() {
    local name=$1 command=$2
    reply="dead"
    is_running "$name" && [[ -z $verdict ]] || return 9
    { printf '%s\n' "$command" >&"${oracle_in[$name]}"; } 2>/dev/null || true
    listen "$name" "$command"
}

# Reads the answer of the oracle $1 to the command $2.
listen() {
    local name=$1 command=$2 from=${oracle_out[$1]} ended=0
    reply=""
    IFS= read -r -t "$limit" reply <&"$from" || ended=$?
    if ((ended > 128)) && $is_failing; then
        # XFS retries metadata writes until the device works.
        device_heal
        ended=0
        IFS= read -r -t "$limit" reply <&"$from" || ended=$?
    fi
    [[ -z ${TRACE:-} ]] || echo "    $name: $command -> ${reply:-nothing}" >&2
    if ((ended > 128)); then
        fail_run "hang: \`$command\` has no answer after $limit s"
        oracle_kill "$name"
        return 9
    elif ((ended > 0)); then
        oracle_died "$name" "$command"
        return 9
    fi
    case ${reply%% *} in
        ok | child) return 0 ;;
        nospace) return 1 ;;
        failed) return 2 ;;
        refused) return 3 ;;
        *) fail_run "\`$command\`: $reply" && return 9 ;;
    esac
}

# Records that the oracle $1 ended instead of answering $2.
oracle_died() {
    local name=$1 command=$2 code=0 text
    wait "${oracle_pid[$name]}" 2>/dev/null || code=$?
    text=$(tail -n 1 "$work/stderr" 2>/dev/null)
    case $code in
        135) fail_run "SIGBUS in \`$command\`" ;;
        *) fail_run "died: \`$command\` ended the process with $code: $text" ;;
    esac
    oracle_forget "$name"
}

oracle_forget() {
    local to=${oracle_in[$1]} from=${oracle_out[$1]}
    exec {to}>&- {from}<&-
    unset "oracle_pid[$1]" "oracle_in[$1]" "oracle_out[$1]"
}

# Kills the oracle $1.
oracle_kill() {
    is_running "$1" || return 0
    # Its process group may not exist yet.
    kill -KILL -- "${oracle_pid[$1]}" "-${oracle_pid[$1]}" 2>/dev/null || true
    { wait "${oracle_pid[$1]}" || true; } 2>/dev/null
    oracle_forget "$1"
}

oracle_kill_all() {
    local name
    for name in "${!oracle_pid[@]}"; do
        oracle_kill "$name"
    done
}

oracle_signal_all() {
    local name
    for name in "${!oracle_pid[@]}"; do
        kill "-$1" "${oracle_pid[$name]}" 2>/dev/null || true
    done
}
