//! Tests of the store on files, on a disk that they control.

mod full_disk;
mod last_lsns;
mod no_descriptor;
mod no_space;
mod opening;
mod panics;
mod recycling;
mod reopen;
pub(crate) mod support;
pub(crate) mod test_disk;
mod zeros;
