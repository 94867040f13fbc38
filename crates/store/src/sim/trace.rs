//! The last calls and events.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fault::CallKind;

const MAX_LINES: usize = 4096;

/// The last things that happened. The lines are shared, so that copies cost little.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    lines: VecDeque<Arc<str>>,
}

impl Trace {
    pub(super) fn call(&mut self, index: u64, kind: CallKind, what: &str, outcome: &str) {
        self.push(format!("{index:>5} {kind:?} {what}{outcome}"));
    }

    pub(super) fn event(&mut self, text: &str) {
        self.push(format!("      {text}"));
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.to_string()).collect()
    }

    fn push(&mut self, line: String) {
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.into());
    }
}
