//! The gate that each call of a fault disk passes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::{CallKind, FaultKind};
use crate::folder::{META, META_TEMP, is_segment_name, is_spare_name};
use crate::sync::{Condvar, Mutex};

/// What a call is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Target {
    /// A segment, by the log.
    Segment,
    /// A segment, by the store's own thread: zeros ahead of the tail.
    Zeros,
    /// A file that becomes a segment, or was one.
    Spare,
    /// The meta file or its successor.
    Meta,
    /// The marks in the log buffer's file.
    Marks,
    /// The rest of the log buffer's file.
    Buffer,
    /// A folder.
    Folder,
    /// Any other file.
    Other,
}

/// A kind of call to a kind of file, of a rename the new one.
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
    /// No space, and nothing is done.
    NoSpace,
    /// A panic.
    Panic,
    /// A wait until the calls have another effect, and then that.
    Hold,
    /// For renames and removals: as `Hold`, after the call. Others pass.
    HoldDone,
}

/// A call before it is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Its kind.
    pub kind: CallKind,
    /// Its target.
    pub target: Target,
    /// The file's name or the folder's path.
    pub name: &'a str,
    /// Where a read or a write begins.
    pub offset: u64,
    /// Bytes to read, write or allocate.
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

#[derive(Default)]
pub(super) struct CallState {
    pub(super) effect: Effect,
    pub(super) skipped: usize,
    pub(super) count: usize,
    pub(super) held: usize,
}

#[derive(Default)]
pub(super) struct FaultPlan {
    states: BTreeMap<Calls, CallState>,
    pub(super) watch: Option<Watch>,
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
            Effect::Eio => Err(FaultKind::Eio.error()),
            Effect::NoSpace => Err(FaultKind::NoSpace.error()),
            Effect::Panic => panic!("the disk panics, as the test wants it"),
        }
    }

    pub(super) fn begin_on(&self, kind: CallKind, path: &Path) -> io::Result<Effect> {
        self.begin(&call(kind, Target::Folder, &path.to_string_lossy()))
    }

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

    /// Waits while `calls` have this effect, and returns the next one.
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

/// Makes a call, to `Zeros` if the preparer writes or syncs a segment.
pub(super) fn call(kind: CallKind, target: Target, name: &str) -> Call<'_> {
    let is_background = std::thread::current().name() == Some("palisade-prepare");
    let is_zeros = is_background
        && target == Target::Segment
        && matches!(kind, CallKind::Write | CallKind::Sync);
    let target = if is_zeros { Target::Zeros } else { target };
    Call { kind, target, name, offset: 0, len: 0, pieces: &[], grows: false, is_background }
}

pub(super) fn target(is_memory: bool, name: &str) -> Target {
    match name {
        _ if is_memory => Target::Buffer,
        META | META_TEMP => Target::Meta,
        _ if is_segment_name(name) => Target::Segment,
        _ if is_spare_name(name) => Target::Spare,
        _ => Target::Other,
    }
}
