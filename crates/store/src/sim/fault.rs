//! Calls that fail on purpose.

use std::io;

use crate::chance::Chance;

const EIO: i32 = if cfg!(windows) { 1117 } else { 5 };

/// What a file system does with pages that it could not write back. A sync reports the failure
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteBackFailure {
    /// They read as written until the system drops them, at any time, and later syncs succeed
    /// without them. No write reaches a new block until then. As ext4.
    #[default]
    KeepsPages,
    /// Every call fails until the next mount. As XFS.
    ShutsDown,
    /// The medium's bytes come back at once. As btrfs.
    DropsPages,
}

/// Kinds of calls. `Read` to `Discard` have no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// Reading bytes, a length or a folder's names.
    Read,
    /// Opening a file as it is.
    Open,
    /// Mapping a file.
    Map,
    /// Asking for a length, an owner, what lies at a path, or random bits. Only a
    /// [`FaultDisk`](super::FaultDisk) knows `Look`, `Lock` and `Discard`.
    Look,
    /// Taking or freeing a lock.
    Lock,
    /// Freeing blocks of a file.
    Discard,
    /// Making a folder.
    CreateFolder,
    /// Making or emptying a file.
    Create,
    /// Writing bytes.
    Write,
    /// Getting blocks ahead of writes.
    Allocate,
    /// Syncing a file.
    Sync,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Syncing a folder's names.
    SyncFolder,
}

impl CallKind {
    pub(super) fn is_counted(self) -> bool {
        use CallKind::{Discard, Lock, Look, Map, Open, Read};
        !matches!(self, Read | Open | Map | Look | Lock | Discard)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An I/O error. A write may be done in part, a sync as
    /// [`WriteBackFailure`](super::WriteBackFailure) says.
    Eio,
    /// No space, in calls that may need some; a sync as `Eio`.
    NoSpace,
    /// A read or a write does less than it should.
    ShortWrite,
    /// A signal interrupts a read or a write, never twice in a row.
    Interrupted,
    /// A sync does not cover what other threads write meanwhile.
    SlowSync,
    /// The call is done after write-back of some file has failed in the background.
    WriteBack,
    /// The call, also a read, is done after the system has dropped all pages that a failed
    /// write-back left clean.
    DropPages,
}

impl FaultKind {
    /// Returns the error of a call that this fault ends.
    #[doc(hidden)]
    #[must_use]
    pub fn error(self) -> io::Error {
        match self {
            FaultKind::NoSpace => {
                io::Error::new(io::ErrorKind::StorageFull, "the simulated disk is full")
            }
            FaultKind::Interrupted => io::ErrorKind::Interrupted.into(),
            _ => io::Error::from_raw_os_error(EIO),
        }
    }

    /// Returns what a trace shows of a call that meets this fault.
    pub(super) fn outcome(self) -> &'static str {
        match self {
            FaultKind::Eio => " -> EIO",
            FaultKind::NoSpace => " -> ENOSPC",
            FaultKind::ShortWrite => " -> short",
            FaultKind::Interrupted => " -> EINTR",
            FaultKind::SlowSync => " -> slow",
            FaultKind::WriteBack | FaultKind::DropPages => "",
        }
    }

    fn can_hit(self, call: CallKind) -> bool {
        use CallKind::{Map, Open, Read, Remove, Sync, Write};
        match self {
            FaultKind::Eio => true,
            FaultKind::NoSpace => !matches!(call, Read | Open | Map | Remove),
            FaultKind::ShortWrite | FaultKind::Interrupted => matches!(call, Read | Write),
            FaultKind::SlowSync => call == Sync,
            FaultKind::WriteBack => call.is_counted(),
            FaultKind::DropPages => call == Read || call.is_counted(),
        }
    }
}

/// A fault that waits for its calls; give it to [`SimDisk::fail`](super::SimDisk::fail).
///
/// ```
/// use palisade::sim::{CallKind, Fault, FaultKind};
/// let third_write = Fault::nth(CallKind::Write, 2, FaultKind::Eio);
/// let now_and_then = Fault::rate(100, FaultKind::Interrupted);
/// let full = Fault::all(CallKind::Create, FaultKind::NoSpace).times(5);
/// # let _ = (third_write, now_and_then, full);
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    kind: FaultKind,
    only: Option<CallKind>,
    when: When,
    times_left: u64,
}

#[derive(Clone, Copy, Debug)]
enum When {
    At(u64),
    After(u64),
    OneIn(u64),
}

impl Fault {
    /// Makes a fault at the call with the index `call`, if it can hit that.
    #[must_use]
    pub fn at(call: u64, kind: FaultKind) -> Fault {
        Fault { kind, only: None, when: When::At(call), times_left: 1 }
    }

    /// Makes a fault at the call of kind `only` after `skipped` others.
    #[must_use]
    pub fn nth(only: CallKind, skipped: u64, kind: FaultKind) -> Fault {
        Fault { kind, only: Some(only), when: When::After(skipped), times_left: 1 }
    }

    /// Makes a fault at every call of kind `only`.
    #[must_use]
    pub fn all(only: CallKind, kind: FaultKind) -> Fault {
        Fault { kind, only: Some(only), when: When::After(0), times_left: u64::MAX }
    }

    /// Makes a fault at one in `one_in` (0 as 1) of the calls that it can hit, by the disk's
    /// generator.
    #[must_use]
    pub fn rate(one_in: u64, kind: FaultKind) -> Fault {
        Fault { kind, only: None, when: When::OneIn(one_in), times_left: u64::MAX }
    }

    /// Limits the fault to calls of kind `only`.
    #[must_use]
    pub fn only(self, only: CallKind) -> Fault {
        Fault { only: Some(only), ..self }
    }

    /// Limits the fault to `count` calls.
    #[must_use]
    pub fn times(self, count: u64) -> Fault {
        Fault { times_left: count, ..self }
    }

    /// Counts the call. Returns what goes wrong in it.
    pub(super) fn hits(
        &mut self,
        call: CallKind,
        index: Option<u64>,
        chance: &mut Chance,
    ) -> Option<FaultKind> {
        let fits = self.kind.can_hit(call) && self.only.is_none_or(|only| only == call);
        if !fits || self.times_left == 0 {
            return None;
        }
        let is_due = match &mut self.when {
            When::At(at) => index == Some(*at),
            When::After(skipped) if *skipped > 0 => {
                *skipped -= 1;
                false
            }
            When::After(_) => true,
            When::OneIn(one_in) => chance.is(1, *one_in),
        };
        self.times_left -= u64::from(is_due);
        is_due.then_some(self.kind)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.times_left == 0
    }
}
