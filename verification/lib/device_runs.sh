# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables are shared with the scripts that source this
# Sourced by devices.sh: random runs. A seed chooses the options of the log, the phase in which the
# device fails, what it fails to write, how the log goes on in the same boot, and how the file
# system ends. Then the oracle checks the log. A seed fixes this plan, not the timing of the
# threads, so a failing seed may hold when it is run again.

phases=(zeroing rotation commit recovery truncation close first_open)
# What the device fails to write:
#   growth     blocks that no file uses yet
#   overwrite  these, and blocks of segments that contain zeros
#   header     these, and blocks of spares that contain zeros
#   memory     these, and there is no space for log buffers in memory
#   journal    these, and all other blocks that contain zeros, including the journal
#   shutdown   nothing can be written: the file system is shut down
#   full       the file system is full; on XFS a reflink copy shares the blocks of the log
targets=(growth growth overwrite header memory journal shutdown full)
run_ends=(umount reboot power image shutdown)

# --- Chance ------------------------------------------------------------------------------------

chance_begin() {
    local i
    state=$(($1 * 2654435761 + 97))
    for ((i = 0; i < 4; i++)); do draw 2; done
}

# Draws a number below $1 into `drawn`: the high bits of Knuth's linear congruential generator.
draw() {
    state=$((state * 6364136223846793005 + 1442695040888963407))
    drawn=$((((state >> 33) & 0x7fffffff) % $1))
}

# Returns true with a probability of $1 percent.
chance() {
    draw 100
    ((drawn < $1))
}

# Stores one of the other arguments in the variable $1.
pick() {
    local name=$1
    shift
    draw $#
    shift "$drawn"
    printf -v "$name" %s "$1"
}

# --- The log -----------------------------------------------------------------------------------

# Sends a command to the log, if it is open. Drops the log if it has failed.
tell() {
    local result=0
    $is_open || return 2
    ask a "$1" || result=$?
    if [[ $1 == close || $result == 9 ]]; then
        is_open=false
    elif ((result == 2)); then
        ask a drop || true
        is_open=false
    fi
    return $result
}

# Opens the log if it is not open. Starts an oracle if there is none.
open_log() {
    $is_open && return 0
    is_running a || oracle_start a --ledger "$work/ledger-a" "${log_options[@]}"
    ask a open && is_open=true
}

# Closes, drops or kills ($1) the log.
leave_log() {
    case $1 in
        kill) oracle_kill a ;;
        *) tell "$1" || true ;;
    esac
    is_open=false
}

# Writes between 4 KiB and three segments.
write_some() {
    local bytes count way
    pick bytes 4096 65536 $((segment / 2)) $((segment * 3 / 2)) $((segment * 3))
    count=$((bytes / (record + 24) + 1))
    ((count <= 3000)) || count=3000
    pick way commit append both
    case $way in
        commit) tell "commit $count" || return $? ;;
        append) tell "append $count" || return $? ;;
        both) tell "append $count" && tell sync || return $? ;;
    esac
    written=$((written + count * (record + 24)))
    # The log must stay small enough for the file system.
    if ((written > 6 << 20)) || chance 25; then
        pick bytes 50 90 100
        tell "truncate $bytes" && written=0
    fi
}

# --- The device --------------------------------------------------------------------------------

# Punches the holes of `target`. Nothing may be written meanwhile.
dig_target() {
    [[ $target != shutdown && $target != full ]] || return 0
    dig_free
    case $target in
        overwrite) dig_files "$log"/segment-* "$log"/log ;;
        header) dig_files "$log"/spare-* ;;
        journal) dig_all ;;
    esac
}

break_device() {
    local spare=0
    case $target in
        shutdown)
            # A clean page asks the file system before the next write to it.
            ! chance 50 || { write_back && reclaim; }
            device_shutdown ;;
        full)
            cp -r --reflink=always "$log" "$work/mnt/clone" 2>/dev/null || true
            fill_file_system ;;
        *)
            [[ $target != memory ]] || fill_memory
            ! chance 30 || { draw 40 && spare=$drawn; }
            device_fail "$spare" ;;
    esac
}

# Makes the device work again. A file system that was shut down is mounted again.
repair_device() {
    case $target in
        shutdown)
            pick way drop kill
            leave_log "$way"
            end_umount ;;
        full) empty_file_system ;;
        *)
            empty_memory
            device_heal ;;
    esac
}

# Simulates memory pressure and write-back while the device fails.
trouble() {
    local what
    pick what none none write_back reclaim both
    case $what in
        write_back) write_back ;;
        reclaim) reclaim ;;
        both) write_back && reclaim ;;
    esac
}

pause() {
    draw "$1"
    sleep "$(printf '0.%03d' "$drawn")"
}

# --- Phases ------------------------------------------------------------------------------------

fail_zeroing() {
    local call
    pick call commit append
    tell "load $call $(((4 << 20) / (record + 24)))" || return 0
    written=$((written + (4 << 20)))
    pause 60
    break_device
    pause 100
    trouble
    [[ $target == shutdown ]] || ! chance 50 || repair_device
    tell halt || true
}

fail_rotation() {
    local count=$((segment * 2 / (record + 24)))
    break_device
    tell "commit $((count < 3000 ? count : 3000))" || true
    trouble
    tell "commit 10" || true
}

fail_commit() {
    tell "append 40" || true
    break_device
    tell "commit 30" || true
    trouble
    tell "append 40" || true
    tell sync || true
}

fail_recovery() {
    local way
    write_some || true
    tell "append 100" || true
    pick way drop kill
    leave_log "$way"
    ! chance 30 || dig_target
    break_device
    open_log || true
    trouble
    tell "commit 10" || true
    open_log || true
}

fail_truncation() {
    write_some || true
    break_device
    tell "truncate 80" || true
    tell "commit 50" || true
    trouble
    tell "truncate 100" || true
}

fail_close() {
    tell "append 100" || true
    break_device
    tell close || true
    trouble
}

fail_first_open() {
    break_device
    open_log || true
    tell "commit 50" || true
    trouble
    open_log || true
}

# --- A run -------------------------------------------------------------------------------------

# Chooses the options of the device and of the log.
choose_run() {
    pick phase "${phases[@]}"
    phase=${only:-$phase}
    pick target "${targets[@]}"
    pick options "" discard
    pick segment 65536 131072 262144 1048576 2097152
    pick buffer 65536 131072 262144
    pick record 48 200 1000 4000
    pick threads 1 2 4
    log_options=(--seed "$seed" --segment-bytes "$segment" --buffer-bytes "$buffer")
    log_options+=(--record-bytes "$record" --threads "$threads")
}

# Uses the log after the repair. The device may fail briefly once more.
go_on_in_the_same_boot() {
    local rounds way
    draw 3
    for ((rounds = drawn + 1; rounds > 0; rounds--)); do
        open_log || true
        write_some || true
        if chance 25 && [[ $target != shutdown ]]; then
            dig_target
            break_device
            write_some || true
            trouble
            repair_device
        fi
        if chance 50; then
            pick way close drop kill
            leave_log "$way"
        fi
    done
    open_log || true
    tell "commit 20" || true
}

# Ends the file system in the way $1, while the log is open, closed or dropped.
end_run() {
    local way
    pick way none none close drop
    [[ $way == none ]] || leave_log "$way"
    case $1 in
        umount) end_umount ;;
        reboot) end_umount && new_boot ;;
        power) end_power && new_boot ;;
        image) end_power ;;
        shutdown) end_shutdown ;;
    esac
    is_open=false
}

# Checks the log on a working device with a fresh page cache: it must open and go on.
check_run() {
    [[ -z $verdict ]] || return 0
    open_log || fail_run "$reply"
    [[ -z $verdict ]] || verdict="after the end by $1: $verdict"
    tell "commit 50" || fail_run "after the end by $1, \`commit\`: $reply"
}

# Runs seed $2 on a device of the kind $1, and leaves a failure in `verdict`.
one_run() {
    local kind=$1 seed=$2 way
    verdict="" is_open=false written=0 phase="" target="" run_end=""
    rm -f "$work"/ledger-* "$work/stderr"
    chance_begin "$seed"
    choose_run
    pick run_end "${run_ends[@]}"
    if ! device_make "$kind" "$options"; then
        fail_run "the device could not be made"
        return 0
    fi
    # Some logs have their buffer on the heap.
    ! chance 15 || fill_memory
    if [[ $phase != first_open ]]; then
        open_log
        draw 4
        for ((way = drawn; way > 0; way--)); do
            write_some || true
        done
    fi
    dig_target
    "fail_$phase"
    repair_device
    go_on_in_the_same_boot
    end_run "$run_end"
    check_run "$run_end"
    if [[ -z $verdict ]] && chance 50; then
        pick way "${run_ends[@]}"
        run_end="$run_end,$way"
        end_run "$way"
        check_run "$way"
    fi
    leave_log close
    open_log || fail_run "after a close: $reply"
    return 0
}
