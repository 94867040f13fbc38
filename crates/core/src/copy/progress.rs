//! The progress of a repair or a restore.

/// Bytes between two reports of progress.
pub(crate) const PROGRESS_BYTES: u64 = 4 << 20;

pub(crate) type OnProgress<'a> = &'a mut dyn FnMut(CopyProgress);

/// The step that a repair or a restore is in: a plan checks, and a write copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyStep {
    /// Checks the part that is kept.
    Check,
    /// Counts the records of the rest that validate. Only a repair does.
    Count,
    /// Copies the part that is kept.
    Copy,
}

/// The progress of a step, in bytes of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// The step.
    pub step: CopyStep,
    /// Bytes that the step has processed.
    pub done: u64,
    /// All bytes of the step.
    pub total: u64,
}
