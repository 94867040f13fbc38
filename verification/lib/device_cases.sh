# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the scripts that source this
# Sourced by devices.sh: one case for each known way to lose acknowledged records on a real device.
# devices.sh makes a fresh device for each case and reads `verdict` when the case returns. After the
# first failure `ask` of device.sh does nothing.

case_names=(A1 A2 A3 B C D1 D2 D3 E1 E2 F1 F2 G1 G2 G3 H1 H2 H3 H4 J1 J2)

case_titles() {
    cat <<'END'
A1 A spare whose header sync failed is used again, in the same process.
A2 A spare whose header sync failed is used again by the next process in the same boot.
A3 A segment whose zeroing failed is recycled.
B  Recovery rewrites in place what a sync failed to write.
C  Write-back fails and pages are reclaimed while records are in the log buffer only.
D1 The folder of the open log is moved, and another log takes its path.
D2 The path of the open log is a symbolic link, which is changed to another log.
D3 The folder comes from the image of a container: overlayfs copies it at the first change.
E1 The log's files share their blocks with a reflink copy, and the file system is full.
E2 The file system is shut down under an open log.
F1 An image of the device is mounted in the same boot.
F2 The file system is shut down and mounted again in the same boot.
G1 A child process drops the inherited handle.
G2 A child process commits through the inherited handle.
G3 A child process closes the inherited handle.
H1 File names of the log are symbolic links to a file outside.
H2 File names of the log are FIFOs.
H3 Headers have forged fields and a valid checksum.
H4 The header of the log buffer's file has forged fields and a valid checksum.
J1 A closed log is copied to the device and opened; then power is lost.
J2 A killed log is copied to the device and opened; then power is lost.
END
}

# --- Shared steps -----------------------------------------------------------------------------

# Asks, and fails the run unless the answer is ok.
must() {
    ask "$@" || fail_run "\`$2\`: $reply"
}

# Starts the oracle $1 with segments of $2 KiB, a buffer of $3 KiB and a ledger of its own.
start() {
    local name=$1 segment=$2 buffer=$3
    shift 3
    oracle_start "$name" --ledger "$work/ledger-$name" --segment-bytes $((segment << 10)) \
        --buffer-bytes $((buffer << 10)) "$@"
}

# Commits $2 records with the oracle $1 after the device was repaired. Opens the log again if it
# failed. A refusal is no failure of the case: what counts is the check after the end.
go_on() {
    local name=$1 count=$2 tries
    for ((tries = 0; tries < 20; tries++)); do
        ask "$name" "commit $count" && return 0
        case $? in
            1) sleep 0.05 ;;
            2) ask "$name" drop || true
                ask "$name" open || return 0 ;;
            *) return 0 ;;
        esac
    done
    fail_run "the device works again, the log does not: $reply"
}

# Checks the log after the file system was ended: open, commit, close, and open again.
check_after() {
    local what=$1 name=$2
    shift
    start "$@"
    ask "$name" open || fail_run "after $what: $reply"
    [[ $verdict != "\`open\`"* ]] || verdict="after $what: $verdict"
    must "$name" "commit 100"
    must "$name" close
    must "$name" open
    must "$name" close
    oracle_kill "$name"
}

# --- A: files whose blocks were never written --------------------------------------------------

case_A1() {
    start a 64 64
    must a open
    must a "commit 1000"
    dig_free
    device_fail
    ask a "commit 2000" || true
    device_heal
    go_on a 1501
    ask a close || true
    end_umount
    check_after "an orderly end" a 64 64
}

case_A2() {
    start a 64 64
    must a open
    must a "commit 1000"
    dig_free
    device_fail
    ask a "commit 2000" || true
    ask a drop || true
    oracle_kill a
    device_heal
    start a 64 64
    must a open
    go_on a 8000
    ask a close || true
    end_umount
    check_after "an orderly end" a 64 64
}

case_A3() {
    local run
    start a 4096 256 --record-bytes 1000
    must a open
    must a "commit 20"
    dig_free
    device_fail
    # The zeros ahead of the tail fail first; commits overwrite blocks that were zeroed before.
    ask a "commit 2000" || true
    sleep 0.3
    ask a "commit 1" || true
    device_heal
    go_on a 4000
    # The bad segment becomes a spare. The last spare is kept for an open after a crash.
    ask a "truncate 100" || true
    for ((run = 0; run < 3; run++)); do
        go_on a 4000
        ask a drop || true
        ask a open || true
    done
    ask a close || true
    end_umount
    check_after "an orderly end" a 4096 256 --record-bytes 1000
}

# --- B, C: what the page cache shows and the device does not have ------------------------------

case_B() {
    start a 4096 1024 --record-bytes 200
    must a open
    must a "commit 20"
    dig_free
    device_fail
    ask a "append 12000" || true
    ask a sync || true
    ask a drop || true
    device_heal
    ask a open || true
    go_on a 10
    ask a close || true
    end_umount
    check_after "an orderly end" a 4096 1024 --record-bytes 200
}

case_C() {
    start a 1024 1024 --record-bytes 1000
    must a open
    must a "commit 10"
    dig_free
    device_fail
    ask a "append 190" || true
    write_back
    reclaim
    device_heal
    ask a sync || ask a drop || true
    end_umount
    check_after "an orderly end" a 1024 1024 --record-bytes 1000
}

# --- D: another folder under the same path -----------------------------------------------------

# Opens a log, replaces its folder with `turn`, opens another log at the same path, uses both.
two_logs() {
    local turn=$1 first=$2 second=$3
    start a 64 64
    must a open
    must a "commit 500"
    "$turn"
    # Larger segments: only the first log needs more of them, and must not make them here.
    start b 1024 64 --seed 2
    must b open
    must b "commit 500"
    # What the first log acknowledges must be in its own folder. It may also refuse.
    ask a "commit 3000" || true
    ask b "commit 3000" || true
    ask a "truncate 50" || true
    ask a "commit 1000" || true
    ask a close || true
    ask b close || true
    end_umount
    log=$first check_after "the folder was replaced, the first log" a 64 64
    log=$second check_after "the folder was replaced, the second log" b 1024 64 --seed 2
}

move_folder() {
    mv "$log" "$work/mnt/moved"
}

case_D1() {
    two_logs move_folder "$work/mnt/moved" "$log"
}

turn_link() {
    ln -sfn second "$log"
}

case_D2() {
    mkdir "$work/mnt/first" "$work/mnt/second"
    ln -s first "$log"
    two_logs turn_link "$work/mnt/first" "$work/mnt/second"
}

case_D3() {
    local layers=$work/mnt name
    mkdir -p "$layers"/{lower/empty,upper,work} "$work/merged"
    log=$layers/lower/log start log 64 64
    must log open
    must log "commit 500"
    must log close
    oracle_kill log
    mount -t overlay overlay "$work/merged" \
        -o "lowerdir=$layers/lower,upperdir=$layers/upper,workdir=$layers/work" || return
    for name in log empty; do
        log=$work/merged/$name start "$name" 64 64
        must "$name" open
        must "$name" "commit 500"
        must "$name" "append 50"
        oracle_kill "$name"
        log=$work/merged/$name check_after "a kill" "$name" 64 64
    done
    # A process that was just killed may keep it busy for a moment.
    umount "$work/merged" 2>/dev/null || umount --lazy "$work/merged"
}

# --- E: SIGBUS ---------------------------------------------------------------------------------

case_E1() {
    start a 1024 1024 --record-bytes 1000
    must a open
    must a "commit 100"
    write_back
    cp --reflink=always -r "$log" "$work/mnt/clone" || fail_run "nothing could be cloned"
    fill_file_system
    ask a "append 900" || true
    ask a sync || true
    empty_file_system
    go_on a 100
    ask a close || true
    end_umount
    check_after "the disk was full" a 1024 1024 --record-bytes 1000
}

case_E2() {
    start a 1024 1024 --record-bytes 1000
    must a open
    must a "append 100"
    # The next access to each page of the log's files asks the file system.
    write_back
    reclaim
    device_shutdown
    ask a "append 900" || true
    ask a sync || true
    ask a drop || true
    end_umount
    check_after "a shutdown" a 1024 1024 --record-bytes 1000
}

# --- F: the same boot, another page cache ------------------------------------------------------

# Drops the log, which writes 100 records and does not sync them; the device gets the second half
# of their bytes only.
half_of_what_was_written() {
    start a 1024 256 --record-bytes 1000
    must a open
    must a "commit 50"
    write_back
    must a "append 100"
    must a drop
    xfs_io -c "sync_range 106496 163840" -c "sync_range -a 106496 163840" \
        "$log/segment-00000000000000000000"
}

case_F1() {
    half_of_what_was_written
    end_power
    check_after "an image in the same boot" a 1024 256 --record-bytes 1000
}

case_F2() {
    half_of_what_was_written
    end_shutdown
    check_after "a shutdown in the same boot" a 1024 256 --record-bytes 1000
}

# --- G: a child process ------------------------------------------------------------------------

inherited() {
    local what=$1
    start a 64 64
    must a open
    must a "commit 500"
    must a "fork $what"
    # Parent and child answer in any order.
    limit=10 listen a "fork $what, the other process" || true
    start b 64 64
    cp "$work/ledger-a" "$work/ledger-b"
    ask b open && fail_run "after the child's $what another process can open the log"
    oracle_kill b
    ask a "commit 1000" || true
    ask a close || true
    end_umount
    check_after "a child's $what" a 64 64
}

case_G1() { inherited drop; }
case_G2() { inherited append; }
case_G3() { inherited close; }

# --- H: a hostile folder -----------------------------------------------------------------------

hostile_names=(spare-000000 spare-000001 spare-000002 reserve meta.tmp lock)
hostile_names+=(segment-00000000000000000001 segment-00000000000000000003)

# Makes a closed log with some segments in $work/mnt/model.
make_model() {
    start model 64 64
    must model open
    must model "commit 700"
    must model close
    oracle_kill model
    mv "$log" "$work/mnt/model"
}

# Copies that log and its ledger.
copy_model() {
    rm -rf "$log"
    cp -a "$work/mnt/model" "$log"
    cp "$work/ledger-model" "$work/ledger-a"
}

# Copies that log without the file $1, in a state in which the log makes this file.
copy_model_without() {
    copy_model
    rm -f "${log:?}/$1"
    case $1 in
        meta.tmp) rm "${log:?}"/* "$work/ledger-a" ;;
    esac
}

# Opens a log whose folder was tampered with, and uses it if it opens. It may refuse.
use_changed() {
    if ask_quietly a open; then
        ask_quietly a "commit 2000"
        ask_quietly a "truncate 90"
        ask_quietly a "commit 2000"
        ask_quietly a close
    fi
    oracle_kill a
}

# Asks, and accepts any answer.
ask_quietly() {
    local before=$verdict
    ask "$@" && return 0
    [[ $reply != violated* ]] || verdict=$before
    return 1
}

case_H1() {
    local name victim=$work/mnt/victim written=""
    make_model
    for name in "${hostile_names[@]}"; do
        copy_model_without "$name"
        head -c 300000 /dev/zero | tr '\0' v >"$victim"
        ln -s "$victim" "$log/$name"
        start a 64 64
        use_changed
        [[ $(tr -d v <"$victim" | wc -c) == 0 && $(stat -c %s "$victim") == 300000 ]] ||
            written+=" $name"
    done
    [[ -z $written ]] || fail_run "a file outside was written through a link named$written"
}

case_H2() {
    local name limit=3 hung=""
    make_model
    for name in "${hostile_names[@]}" meta; do
        copy_model_without "$name"
        mkfifo "$log/$name"
        start a 64 64
        use_changed
        [[ $verdict != hang* ]] || { hung+=" $name" && verdict=""; }
    done
    [[ -z $hung ]] || fail_run "hang: the open waits for a FIFO named$hung"
}

# The values that a forged field gets.
forged_values=(0 1 4096 1152921504606846976 18446744073709551615)

# Forges the field at $2 of the file $1, opens the log and uses it. The log may refuse the file. It
# must not crash, hang, or need much memory.
use_forged() {
    local file=$1 at=$2 value=$3
    must a "forge $file $at $value"
    if ask_quietly a open; then
        ask_quietly a "commit 200"
        ask_quietly a close
    fi
    [[ -z $verdict ]] || { verdict+=" (${file##*/}, $value at $at)" && return 1; }
    oracle_kill a
}

# Forges each field of each kind of header in the folder.
case_H3() {
    local file at value limit=10 most_memory=$((4 << 20))
    make_model
    for file in meta segment-00000000000000000000 segment-00000000000000000002; do
        for ((at = 24; at <= 128; at += 8)); do
            for value in "${forged_values[@]}"; do
                copy_model
                start a 64 64
                use_forged "$file" "$at" "$value" || return 0
            done
        done
    done
}

# Forges each field of the header of the buffer that a killed log has left.
case_H4() {
    local at value limit=10 most_memory=$((4 << 20))
    for ((at = 24; at <= 96; at += 8)); do
        for value in "${forged_values[@]}"; do
            rm -rf "$log" "$work/ledger-a" /dev/shm/palisade-*
            start a 64 64
            must a open
            must a "commit 50"
            must a "append 50"
            oracle_kill a
            start a 64 64
            use_forged /dev/shm/palisade-* "$at" "$value" || return 0
        done
    done
}

# --- J: a restored folder ----------------------------------------------------------------------

restored() {
    local how=$1
    log=$work/origin
    start a 64 64
    must a open
    must a "commit 500"
    must a "append 100"
    [[ $how == kill ]] || must a close
    oracle_kill a
    log=$work/mnt/log
    write_back
    cp -a "$work/origin" "$log"
    rm -r "$work/origin"
    start a 64 64
    must a open
    end_power
    new_boot
    check_after "a loss of power" a 64 64
}

case_J1() { restored close; }
case_J2() { restored kill; }
