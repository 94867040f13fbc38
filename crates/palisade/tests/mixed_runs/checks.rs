//! What has to hold: after an open, in what a tool sees, and after each step.

use std::sync::atomic::Ordering;

use palisade::{ErrorKind, Result, Wal};
use palisade_core::inspect::{Inspector, Outcome};

use crate::device::{self, Snapshot};
use crate::model::{Crash, Rec};
use crate::run::Run;

impl Run {
    /// Everything that a recovered log has to be.
    pub(crate) fn check_open(&mut self, wal: &Wal, crash: Crash) {
        let report = wal.recovery_report().clone();
        if self.clean {
            assert!(report.clean, "closed cleanly, opened as unclean: {report:?}");
        }
        let head = wal.head_lsn().as_u64();
        let m = &mut self.model;
        assert!(
            m.head_lo <= head && head <= m.head_hi,
            "head {head}: {}..{}",
            m.head_lo,
            m.head_hi
        );
        m.head(head);
        m.head_hi = head;
        let ck = wal.checkpoint_lsn().as_u64();
        assert!(ck <= m.ckpt_hi, "checkpoint {ck} above {}", m.ckpt_hi);
        let between = m.recs.iter().any(|r| ck < r.end && r.lsn < m.ckpt_lo);
        assert!(
            ck >= m.ckpt_lo || !between || m.new_end_may_be.is_some(),
            "checkpoint {ck} below {}",
            m.ckpt_lo
        );
        m.ckpt_lo = ck;
        let found = contents(wal);
        for (i, rec) in found.iter().enumerate() {
            let want = m.recs.get(i);
            let same = want.is_some_and(|w| w.lsn == rec.0 && w.data == rec.2 && w.tag == rec.1);
            assert!(
                same,
                "record {i} at {} ({} bytes), want {:?}",
                rec.0,
                rec.2.len(),
                want.map(|w| (w.lsn, w.end, w.data.len()))
            );
        }
        let n = found.len();
        self.forget_failed_pages();
        self.model.found(n, crash);
        self.has_opened();
        let m = &mut self.model;
        if report.verified {
            assert_eq!(report.records, n as u64, "{report:?}");
        }
        let tail = wal.reserved_lsn().as_u64();
        assert!(tail >= m.top_durable, "tail {tail} below {}", m.top_durable);
        if crash == Crash::Power {
            m.top = tail;
        }
        assert!(tail >= m.top, "tail {tail} below a given LSN {}", m.top);
        if self.fixed.keeps_released {
            self.check_released();
        }
    }

    /// What lies below the head is in the log still, or the callback got it.
    fn check_released(&self) {
        for r in &self.model.gone {
            assert!(self.has_bytes(r), "{} neither in log nor kept", r.lsn);
        }
    }

    /// Whether the record is in the log's files, or in a released segment that was kept.
    pub(crate) fn has_bytes(&self, r: &Rec) -> bool {
        device::has_bytes(&self.disk, &self.kept, self.fixed.segment_bytes, r.lsn, &r.stored)
    }

    /// What a tool sees that reads the files.
    pub(crate) fn look(&self, promised: u64) {
        let Ok(reader) = self.disk.reader() else { return };
        let inspector = Inspector::new(reader);
        let verdict = inspector.verify().unwrap_or_else(|e| panic!("verify: {e}"));
        assert_ne!(verdict.outcome, Outcome::Corrupt, "false alarm: {verdict:?}");
        let deep = inspector.verify_deep(1).unwrap_or_else(|e| panic!("verify: {e}"));
        assert_ne!(deep.outcome, Outcome::Corrupt, "false alarm: {deep:?}");
        let head = inspector.state().expect("state").head.as_u64();
        let m = &self.model;
        assert!(m.head_lo <= head && head <= m.head_hi.max(m.head_lo), "tool's head {head}");
        let mut want = m.all().filter(|r| r.lsn >= head);
        let mut records = inspector.records(None).expect("records");
        while let Some(r) = records.next().unwrap_or_else(|e| panic!("tool: {e}")) {
            let w = want.next();
            let same = w.is_some_and(|w| {
                (w.lsn, w.tag, &w.stored[..]) == (r.lsn().as_u64(), r.tag(), r.data())
            });
            assert!(same, "tool gives {}, want {:?}", r.lsn(), w.map(|w| (w.lsn, w.end)));
        }
        if m.new_end_may_be.is_none()
            && let Some(missing) = want.next()
        {
            assert!(missing.end > promised, "tool: {} missing, promised {promised}", missing.lsn);
        }
    }

    /// Whether the log goes on.
    pub(crate) fn took(&mut self, wal: &Wal, result: Result<()>) -> bool {
        self.note(wal);
        let Err(e) = result else { return true };
        if self.disk.is_dead() {
            return false;
        }
        let what = &self.what;
        match e.kind() {
            ErrorKind::NoSpace => {
                assert!(self.capped || self.faults, "{what}: {e}");
                true
            }
            ErrorKind::Io => {
                assert!(self.faults, "{what}: {e}");
                true
            }
            ErrorKind::Poisoned => {
                assert!(
                    self.faults || self.truncates_on_full,
                    "poisoned for no reason: {what}: {e}"
                );
                let again = wal.append(b"x").map(drop).expect_err("append on poisoned");
                assert_eq!(again.kind(), ErrorKind::Poisoned);
                assert_eq!(again.to_string(), wal.append(b"y").map(drop).unwrap_err().to_string());
                false
            }
            _ if self.is_unreadable(&e) => true,
            _ => panic!("{what}: {e:?}"),
        }
    }

    /// What the watermarks and the callbacks promise.
    pub(crate) fn note(&mut self, wal: &Wal) {
        if self.model.new_end_may_be.is_some() {
            return;
        }
        self.model.is_durable(wal.durable_lsn().as_u64().min(self.model.top));
        let acked = self.acked.load(Ordering::SeqCst);
        let end = self.model.recs.iter().find(|r| r.lsn + 1 == acked).map(|r| r.end);
        if let Some(end) = end {
            assert!(end <= self.model.durable, "callback before durable");
        }
        let (written, alive) = (wal.written_lsn().as_u64(), !self.disk.is_dead());
        if alive {
            self.model.is_os(written.min(self.model.top));
        }
        let stats = wal.stats();
        assert!(stats.durable <= stats.reserved && stats.filled <= stats.reserved, "{stats:?}");
    }
}

/// Each record: LSN, tag, payload.
pub(crate) fn contents(wal: &Wal) -> Vec<(u64, u16, Vec<u8>)> {
    let mut records = wal.records().expect("records");
    let mut found = Vec::new();
    while let Some(r) = records.next().expect("read") {
        found.push((r.lsn().as_u64(), r.tag(), r.data().to_vec()));
    }
    found
}

/// Fails where a file but the lock differs.
pub(crate) fn same_files(a: &Snapshot, b: &Snapshot, what: &str) {
    let names = |m: &Snapshot| m.keys().filter(|k| *k != "lock").cloned().collect::<Vec<_>>();
    assert_eq!(names(a), names(b), "{what}: files changed");
    for (k, v) in a {
        assert!(b.get(k) == Some(v), "{what}: {k} changed");
    }
}
