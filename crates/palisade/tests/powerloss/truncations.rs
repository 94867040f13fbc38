//! Truncations of both ends, and replacements of a suffix.

use palisade::{Error, ErrorKind, Lsn, Result, Wal};

use crate::session::Session;

impl Session {
    /// `truncate_before` with the entry at `index`, if there is one.
    pub(crate) fn truncate_before(&mut self, wal: &Wal, index: usize) -> Result<()> {
        self.working_on = "truncate_before";
        let Some(lsn) = self.oracle.entries().get(index).map(|entry| entry.lsn) else {
            return Ok(());
        };
        self.oracle.may_truncate(lsn);
        let truncated = wal.truncate_before(lsn);
        if !self.disk.is_dead() {
            // A failure may come before or after the head has moved.
            let head = wal.head_lsn();
            assert!(head <= lsn.max(self.oracle.head));
            if truncated.is_ok() {
                self.check_kept(wal, lsn);
            }
            self.oracle.truncated(head);
        }
        if truncated.is_ok() {
            self.oracle.promise(lsn);
        }
        truncated
    }

    /// `truncate_after` with the entry at `index`, or the last of its batch.
    pub(crate) fn truncate_after(&mut self, wal: &Wal, index: usize) -> Result<()> {
        self.working_on = "truncate_after";
        let Some(end) = self.oracle.entries().get(index).map(|entry| entry.end) else {
            return Ok(());
        };
        let last = self.oracle.entries().iter().rfind(|entry| entry.end == end);
        let lsn = last.map_or(end, |last| last.lsn);
        self.truncate_above(end, || wal.truncate_after(lsn))
    }

    /// `truncate_from` with the entry at `index`, or the first of its batch.
    pub(crate) fn truncate_from(&mut self, wal: &Wal, index: usize) -> Result<()> {
        self.working_on = "truncate_from";
        let Some((lsn, end)) = self.first_to_go(index) else { return Ok(()) };
        self.truncate_above(end, || wal.truncate_from(lsn))
    }

    fn truncate_above(&mut self, end: Lsn, truncate: impl FnOnce() -> Result<()>) -> Result<()> {
        self.oracle.may_truncate_above(end);
        let truncated = truncate();
        match &truncated {
            Ok(()) => self.oracle.truncated_after(end),
            Err(error) if self.changed_nothing(error) => self.oracle.not_truncated(),
            Err(_) => {}
        }
        truncated
    }

    /// `replace_from` with the entry at `index`, or the first of its batch, and new records.
    pub(crate) fn replace_from(&mut self, wal: &Wal, index: usize, lens: &[usize]) -> Result<()> {
        self.working_on = "replace_from";
        let Some((lsn, end)) = self.first_to_go(index) else { return Ok(()) };
        let datas: Vec<Vec<u8>> = lens.iter().map(|&len| self.oracle.data(len)).collect();
        self.oracle.may_replace(end, datas.clone());
        let replaced = wal.replace_from(lsn, &datas);
        match &replaced {
            Ok(lsns) => self.oracle.replaced(lsns),
            Err(error) if self.changed_nothing(error) => self.oracle.not_replaced(),
            Err(_) => {}
        }
        replaced.map(drop)
    }

    /// The record that the removal of the entry at `index` begins with, and the end of what stays.
    fn first_to_go(&self, index: usize) -> Option<(Lsn, Lsn)> {
        let entry = self.oracle.entries().get(index)?;
        if self.oracle.is_split(entry) {
            // The first of its batch lies below the head.
            return None;
        }
        let first = self.oracle.entries().iter().find(|other| other.end == entry.end);
        first.map(|first| (first.lsn, self.oracle.end_before(index)))
    }

    fn changed_nothing(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::NoSpace || self.is_unreadable(error)
    }
}
