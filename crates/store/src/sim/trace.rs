//! What happened on the disk, call by call, for the reader of a failing test.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::fault::CallKind;

/// Entries that are kept; of more, the oldest are left out.
const MAX_ENTRIES: usize = 4096;

/// One line of a trace. The texts are shared, so that copies cost little.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Call { index: u64, kind: CallKind, what: Arc<str>, outcome: &'static str },
    Event(Arc<str>),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Call { index, kind, what, outcome } => {
                write!(f, "{index:>5} {kind:?} {what}{outcome}")
            }
            Entry::Event(text) => write!(f, "      {text}"),
        }
    }
}

/// The last things that happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    entries: VecDeque<Entry>,
}

impl Trace {
    pub(super) fn call(&mut self, index: u64, kind: CallKind, what: &str, outcome: &'static str) {
        self.push(Entry::Call { index, kind, what: what.into(), outcome });
    }

    pub(super) fn event(&mut self, text: &str) {
        self.push(Entry::Event(text.into()));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.entries.iter().map(Entry::to_string).collect()
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}
