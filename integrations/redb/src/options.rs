use std::path::Path;
use std::sync::Arc;

use palisade::Result;
use palisade::disk::{Disk, OsDisk};

use crate::PalisadeBackend;

/// How a [`PalisadeBackend`] is opened. Each option may differ at each open.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) log: palisade::Options,
    pub(crate) memory_bytes: u64,
    pub(crate) log_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { log: palisade::Options::new(), memory_bytes: 64 << 20, log_bytes: 256 << 20 }
    }
}

impl Options {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the options of the log, for example its segment size, its limit or a codec. With
    /// `OpenMode::MustExist` a missing database is an error, but the open may make its folder. With
    /// a limit (`max_bytes`) the backend makes a checkpoint before the log is full. No commit fails
    /// for a limit of at least twice [`memory_bytes`](Options::memory_bytes) and four segments.
    /// Default: those of [`palisade::Options`].
    #[must_use]
    pub fn log(mut self, log: palisade::Options) -> Options {
        self.log = log;
        self
    }

    /// Sets how many bytes of synced pages the backend keeps in memory before it makes a
    /// checkpoint. The pages of one transaction may take as much again. Default: 64 MiB.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Options {
        self.memory_bytes = bytes;
        self
    }

    /// Sets how long the log, or all of its segments, may get before the backend makes a
    /// checkpoint. An open after a crash reads the whole log. Default: 256 MiB.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Options {
        self.log_bytes = bytes;
        self
    }

    /// Opens the storage in the folder `path`, or makes it. The parent of the folder exists. Blocks
    /// for the device, and reads the log. Makes a checkpoint if the log has too many segments, as
    /// after many crashes, or is at its limit.
    ///
    /// # Durability
    /// The folder, and all changes that the open found, survive power loss.
    ///
    /// # Errors
    /// As [`palisade::Options::open`] and, for the checkpoint,
    /// [`PalisadeBackend::checkpoint`], and:
    /// - `Locked`: another backend, in this process or another one, has the folder open. Close it.
    /// - `NotFound`: the log, its records or the base file are missing. Restore both from a backup.
    /// - `Corrupt`: the base file is too short or not that of the log, or a record is none of this
    ///   crate. Restore both from one backup.
    /// - `InvalidArgument`: the log's longest record is below 16 KiB. Set `buffer_bytes` and
    ///   `segment_bytes` of the log to 64 KiB at least.
    pub fn open(self, path: impl AsRef<Path>) -> Result<PalisadeBackend> {
        self.open_on(Arc::new(OsDisk), path)
    }

    /// Opens the storage on a disk of your own, for example on the simulated disk
    /// `palisade::sim::SimDisk` in tests. Else as [`open`](Options::open).
    ///
    /// # Durability
    /// As [`open`](Options::open).
    ///
    /// # Errors
    /// As [`open`](Options::open).
    pub fn open_on(self, disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<PalisadeBackend> {
        PalisadeBackend::open_on(self, disk, path.as_ref())
    }
}
