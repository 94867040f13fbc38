//! Attacks on what the log promises: failing, full, panicking and slow stores; death of the
//! process and loss of power at bad moments; futures that are dropped, moved and starved;
//! arguments and folders that are wrong.
//!
//! Every test that could hang if a promise were broken runs under a watchdog, so that it fails
//! instead.

#[path = "../common/epoch_list.rs"]
mod epoch_list;
#[path = "../common/executor.rs"]
mod executor;
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/folder.rs"]
mod folder;
#[path = "../common/numbered.rs"]
mod numbered;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod anew;
mod archive;
mod async_commit;
mod bad_input;
mod blocks;
mod closed;
mod damage;
mod ends;
mod failures;
mod full_disk;
mod histories;
mod holes;
mod hostile;
mod last_lsns;
mod lives;
mod meanwhile;
mod move_tail;
mod panics;
mod policies;
mod readers;
mod recovery;
mod released;
mod repair;
mod replay;
mod rot;
mod salvage;
mod small;
mod tickets;
