//! The promises of one log, by theme: its tests inject failing, full, panicking and slow stores,
//! deaths of the process, losses of power at bad moments, damage, bad input, and futures that are
//! dropped, moved and starved.
//!
//! `verification/mutations.sh table` prints the tests of each protection, and the mutation that
//! removes it. The helpers
//! that make a log start a watchdog, so that a test that hangs fails.

#[path = "../common/again.rs"]
mod again;
#[path = "../common/content.rs"]
mod content;
#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/epoch_list.rs"]
mod epoch_list;
#[path = "../common/executor.rs"]
mod executor;
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/folder.rs"]
mod folder;
#[path = "../common/held_release.rs"]
mod held_release;
#[path = "../common/hole.rs"]
mod hole;
#[path = "../common/masked.rs"]
mod masked;
#[path = "../common/on_disk.rs"]
mod on_disk;
#[path = "../common/prelude.rs"]
mod prelude;
#[path = "../common/repaired.rs"]
mod repaired;
#[path = "../common/stored_bytes.rs"]
mod stored_bytes;
#[path = "../common/two_epochs.rs"]
mod two_epochs;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod api {
    mod bad_input;
    mod calls;
    mod many;
    mod shapes;
    mod small;
    mod snapshots;
    mod typed;
    mod writers;
}

mod codecs {
    mod opening;
    mod readers;
    mod stored_bytes;
    mod tools;
    mod undecodable;
}

mod durability {
    mod clean_kills;
    mod copies;
    mod leftovers;
    mod padding;
    mod page_cache;
    mod power;
}

mod failures {
    mod device;
    mod foreign_code;
    mod panic_sweep;
    mod panics;
}

mod processes {
    #[cfg(unix)]
    mod folders;
    #[cfg(target_os = "linux")]
    mod forks;
    #[cfg(target_os = "linux")]
    mod namespaces;
    #[cfg(unix)]
    mod owners;
    mod second_process;
}

mod reading {
    mod cursor_faults;
    mod cursors;
    mod inspected_cursors;
    mod lost_segments;
    mod positions;
    mod ranges;
    mod readers;
    mod replay;
    mod rot;
    mod salvage;
    mod tools;
    mod unreadable;
    mod unreadable_archive;
}

mod recovery {
    mod abandoned;
    mod closed;
    mod damage;
    mod earlier_state;
    mod forgeries;
    mod full_verification;
    mod holes;
    mod hostile;
    mod kills;
    mod lost_meta;
    mod move_tail;
    mod next_boot;
    mod old_bytes;
    mod refusals;
    mod repair;
    mod repair_from_a_store;
    mod strays;
    mod torn;
}

mod space {
    mod anew;
    mod archive;
    mod archive_strays;
    mod background_release;
    mod backup;
    #[expect(clippy::print_stdout, reason = "the counts of its long form")]
    mod beside_replacements;
    mod during_truncation;
    mod full_disk;
    #[cfg(unix)]
    mod limits;
    #[cfg(target_os = "linux")]
    mod mounts;
    mod no_space;
    mod released;
    mod replacements;
    mod restore;
    mod room;
    mod small_memory;
    mod sources;
    mod space_taken;
    mod truncations;
}

mod waiting {
    mod futures;
    mod polled_cursors;
    mod polled_tails;
    mod tickets;
    mod wake_ups;
}
