//! Calls that fail on purpose: which, how, and when.

use crate::chance::Chance;

/// What a file system does with the pages that it could not write back.
///
/// In each case the failure is reported once, to the sync that meets it or to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteBackFailure {
    /// They read as they were written until the system drops them, at any time. What is written to
    /// a block that was never on the medium before does not reach it until then, although its sync
    /// returns `Ok`. As ext4.
    #[default]
    KeepsPages,
    /// The file system shuts down: every call fails until it is mounted again, with the medium's
    /// bytes. As XFS.
    ShutsDown,
    /// The medium's bytes come back at once. As btrfs.
    DropsPages,
}

/// Kinds of calls to the simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// Reading bytes, a file's length or the names in a folder. Has no index.
    Read,
    /// Opening a file that is there, as it is. Has no index.
    Open,
    /// Mapping a file. Has no index.
    Map,
    /// Asking for a file's length or owner, for what lies at a path, or for random bits: only a
    /// [`FaultDisk`](super::FaultDisk) knows these calls. Has no index.
    Look,
    /// Taking or freeing a lock, as `Look`. Has no index.
    Lock,
    /// Freeing blocks of a file, as `Look`. Has no index.
    Discard,
    /// Making a folder.
    CreateFolder,
    /// Opening a file in a way that makes or empties it.
    Create,
    /// Writing bytes.
    Write,
    /// Getting blocks ahead of the writes.
    Allocate,
    /// Syncing a file.
    Sync,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Syncing the names in a folder.
    SyncFolder,
}

impl CallKind {
    /// Returns whether calls of this kind have an index. All do that change something or sync,
    /// except `Discard`.
    pub(super) fn is_counted(self) -> bool {
        use CallKind::{Discard, Lock, Look, Map, Open, Read};
        !matches!(self, Read | Open | Map | Look | Lock | Discard)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An I/O error. A write may have been done in part; a sync may have reached some sectors,
    /// and what becomes of the others the file system says
    /// ([`WriteBackFailure`](super::WriteBackFailure)).
    Eio,
    /// No space is left, in any call that may need some. A sync that meets it loses as one that
    /// meets `Eio` does.
    NoSpace,
    /// A read or a write does less than it was asked for.
    ShortWrite,
    /// A read or a write is interrupted by a signal, never twice in a row. (The standard library
    /// repeats every other call itself.)
    Interrupted,
    /// A sync takes long: other threads run meanwhile, and what they write is not covered.
    SlowSync,
    /// Before the call, write-back of some file fails in the background. The call itself is done;
    /// the next sync of that file reports the failure.
    WriteBack,
    /// Before the call, the system drops all pages that a failed write-back left clean. The call
    /// itself is done. Hits reads, too.
    DropPages,
}

impl FaultKind {
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
    /// So many fitting calls go by before.
    After(u64),
    OneIn(u64),
}

impl Fault {
    /// Makes a fault at the call with the index `call`, if that is of a kind that it can hit.
    #[must_use]
    pub fn at(call: u64, kind: FaultKind) -> Fault {
        Fault { kind, only: None, when: When::At(call), times_left: 1 }
    }

    /// Makes a fault at the call of kind `only` before which `skipped` others of that kind come.
    #[must_use]
    pub fn nth(only: CallKind, skipped: u64, kind: FaultKind) -> Fault {
        Fault { kind, only: Some(only), when: When::After(skipped), times_left: 1 }
    }

    /// Makes a fault at every call of kind `only`.
    #[must_use]
    pub fn all(only: CallKind, kind: FaultKind) -> Fault {
        Fault { kind, only: Some(only), when: When::After(0), times_left: u64::MAX }
    }

    /// Makes a fault at one in `one_in` of the calls that it can hit, by the disk's generator; 0
    /// counts as 1.
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

    /// Returns what goes wrong in this call, if the fault hits it. Counts the call.
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
