//! The gate that each call of a fault disk passes: it counts the call, shows it to the watch of a
//! test, and makes it fail, panic or wait.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::CallKind;
use crate::folder::{META, META_TEMP, is_segment_name, is_spare_name};
use crate::sync::{Condvar, Mutex};

/// What a call is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Target {
    /// A file with a segment's name: its writes are the log's.
    Segment,
    /// A segment, by the store's own thread: its writes are the zeros ahead of the tail.
    Zeros,
    /// A file that is to become a segment, or was one.
    Spare,
    /// The meta file, or the one that is to take its place.
    Meta,
    /// The marks in the log buffer's file, which a commit writes.
    Marks,
    /// The rest of the log buffer's file.
    Buffer,
    /// A folder.
    Folder,
    /// Any other file.
    Other,
}

/// A kind of call to a kind of file. A rename counts as one to the new name's file.
pub type Calls = (CallKind, Target);

/// What a call meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The disk below.
    #[default]
    Pass,
    /// EIO, and nothing is done.
    Eio,
    /// A lack of space, and nothing is done.
    NoSpace,
    /// A panic on the calling thread.
    Panic,
    /// A wait until the calls have another effect, which this one has then.
    Hold,
    /// For a rename or a removal: the disk below, and then a wait until the calls have another
    /// effect. Other calls pass.
    HoldDone,
}

/// A call, as a [watch](super::FaultDisk::watch) sees it before it is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The kind of call.
    pub kind: CallKind,
    /// What it is made to.
    pub target: Target,
    /// The name of the file, or the path of the folder.
    pub name: &'a str,
    /// Where a read or a write begins.
    pub offset: u64,
    /// How many bytes it is to read, write or allocate.
    pub len: u64,
    /// What a write writes.
    pub pieces: &'a [IoSlice<'a>],
    /// Whether it makes the file longer.
    #[doc(hidden)]
    pub grows: bool,
    /// Whether the store's own thread makes it.
    #[doc(hidden)]
    pub is_background: bool,
}

pub(super) type Watch = Arc<dyn Fn(&Call<'_>) -> io::Result<()> + Send + Sync>;

/// What is known of calls of one kind.
#[derive(Default)]
pub(super) struct CallState {
    pub(super) effect: Effect,
    /// So many more pass before the effect begins.
    pub(super) skipped: usize,
    pub(super) count: usize,
    pub(super) held: usize,
}

#[derive(Default)]
pub(super) struct FaultPlan {
    states: BTreeMap<Calls, CallState>,
    pub(super) watch: Option<Watch>,
    /// Whether the log buffers belong to another user.
    pub(super) is_disowned: bool,
}

impl FaultPlan {
    pub(super) fn of(&mut self, calls: Calls) -> &mut CallState {
        self.states.entry(calls).or_default()
    }
}

#[derive(Default)]
pub(super) struct Gate {
    pub(super) plan: Mutex<FaultPlan>,
    pub(super) changed: Condvar,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn is_disowned(&self) -> bool {
        self.plan.lock().is_disowned
    }

    pub(super) fn begin(&self, call: &Call<'_>) -> io::Result<Effect> {
        let calls = (call.kind, call.target);
        let mut plan = self.plan.lock();
        plan.of(calls).count += 1;
        let watch = plan.watch.clone();
        drop(plan);
        if let Some(watch) = watch {
            watch(call)?;
        }
        match self.pass(calls) {
            effect @ (Effect::Pass | Effect::Hold | Effect::HoldDone) => Ok(effect),
            Effect::Eio => Err(io::Error::from_raw_os_error(5)),
            Effect::NoSpace => Err(io::ErrorKind::StorageFull.into()),
            Effect::Panic => panic!("the disk panics, as the test wants it"),
        }
    }

    /// Begins a call to the folder at `path`.
    pub(super) fn begin_on(&self, kind: CallKind, path: &Path) -> io::Result<Effect> {
        self.begin(&call(kind, Target::Folder, &path.to_string_lossy()))
    }

    /// Waits while such calls are held, and returns what this one meets.
    fn pass(&self, calls: Calls) -> Effect {
        let mut plan = self.plan.lock();
        let state = plan.of(calls);
        if state.skipped > 0 {
            state.skipped -= 1;
            return Effect::Pass;
        }
        drop(plan);
        self.wait_while(Effect::Hold, calls)
    }

    /// Waits while `calls` have this effect, and returns the one that they have then.
    pub(super) fn wait_while(&self, effect: Effect, calls: Calls) -> Effect {
        let mut plan = self.plan.lock();
        plan.of(calls).held += 1;
        while plan.of(calls).effect == effect {
            plan = self.changed.wait(plan, None);
        }
        let state = plan.of(calls);
        state.held -= 1;
        state.effect
    }
}

/// Makes a call that writes nothing. For a write or sync of a segment by the preparer, the target
/// is `Zeros`.
pub(super) fn call(kind: CallKind, target: Target, name: &str) -> Call<'_> {
    let is_background = std::thread::current().name() == Some("palisade-prepare");
    let is_zeros = is_background
        && target == Target::Segment
        && matches!(kind, CallKind::Write | CallKind::Sync);
    let target = if is_zeros { Target::Zeros } else { target };
    Call { kind, target, name, offset: 0, len: 0, pieces: &[], grows: false, is_background }
}

/// Returns what a call to the file `name` is made to.
pub(super) fn target(is_memory: bool, name: &str) -> Target {
    match name {
        _ if is_memory => Target::Buffer,
        META | META_TEMP => Target::Meta,
        _ if is_segment_name(name) => Target::Segment,
        _ if is_spare_name(name) => Target::Spare,
        _ => Target::Other,
    }
}
