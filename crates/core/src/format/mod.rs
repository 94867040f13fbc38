//! What lies in the log byte by byte: LSNs, frames and their checksum.

pub(crate) mod checksum;
pub mod frame;
mod lsn;

pub use lsn::Lsn;
