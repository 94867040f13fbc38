//! Log storage for `openraft` over Palisade: many Raft groups in one log, with one sync.
//!
//! [`v09::LogStore`] and [`v010::LogStore`] implement `RaftLogStorage` of the lines 0.9 and 0.10 of
//! openraft. Each group is a stream of `palisade_streams`. All groups that wait at the same time
//! share one device sync, whatever their type.
//!
//! ```
//! # #[cfg(feature = "v09")] {
//! use palisade_openraft::v09::LogStore;
//! use palisade_streams::Streams;
//! # use openraft_09 as openraft;
//!
//! openraft::declare_raft_types!(
//!     pub Types: D = String, R = (), SnapshotData = std::io::Cursor<Vec<u8>>,
//! );
//!
//! # fn main() -> palisade::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path().join("log");
//! let streams = Streams::open(folder)?; // one log for all groups of this node
//! let accounts = LogStore::<Types>::open(&streams, "accounts")?;
//! let orders = LogStore::<Types>::open(&streams, "orders")?;
//! // openraft::Raft::new(1, config, network, accounts, state_machine).await
//! # drop((accounts, orders));
//! # Ok(()) }
//! # main().unwrap() }
//! ```

#[cfg(any(feature = "v09", feature = "v010"))]
mod group;
#[cfg(feature = "v010")]
pub mod v010;
#[cfg(feature = "v09")]
pub mod v09;

/// The examples of the page, compiled and run.
#[cfg(all(doctest, feature = "v09"))]
#[doc = include_str!("../README.md")]
struct Page;
