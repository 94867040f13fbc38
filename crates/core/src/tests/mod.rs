//! Tests of a whole log on disks that they control.

mod full_disk;
mod last_lsns;
mod mem;
mod panics;
mod reopen;
mod sim;
mod support;
