//! A log on a simulated disk beside its oracle: each piece of work tells the oracle what it
//! appended and what was promised.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use palisade::sim::{Fate, Loss, SimDisk};
use palisade::{Error, ErrorKind, Lsn, Result, SyncPolicy, Ticket, Verify, Wal, framed_bytes};

use crate::cursors::Cursors;
use crate::device::{Failures, has_bytes};
use crate::held::assert_truncated;
use crate::kept::Kept;
use crate::oracle::{Crash, Oracle, contents_until};
use crate::shape::{Opening, Shape};

/// Far above what a sync takes on a loaded machine; it only bounds a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log's disk, and what has to be true of it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shape: Shape,
    pub(crate) disk: SimDisk,
    /// The released segments, if the shape keeps them.
    kept: Kept,
    pub(crate) oracle: Oracle,
    pub(crate) cursors: Cursors,
    /// How the log is opened next.
    pub(crate) opening: Opening,
    pub(crate) failures: Failures,
    /// What was going on at each crash: which work, which call.
    pub(crate) crash_points: BTreeSet<String>,
    pub(crate) working_on: &'static str,
}

impl Session {
    pub(crate) fn new(shape: Shape, seed: u64) -> Session {
        let disk = shape.disk(seed);
        let begin = shape.first_lsn.next_multiple_of(shape.segment_bytes);
        Session {
            oracle: Oracle::beginning_at(Lsn::new(begin), shape.codec),
            shape,
            disk,
            kept: Kept::default(),
            cursors: Cursors::default(),
            opening: Opening::default(),
            failures: Failures::default(),
            crash_points: BTreeSet::new(),
            working_on: "open",
        }
    }

    /// What a failing test prints: the log's shape and every call that the disk saw.
    pub(crate) fn describe(&self) -> String {
        let (trace, files) = (self.disk.trace().join("\n"), self.disk.files());
        format!("{:?}\n{trace}\n{files:?}", self.shape)
    }

    /// Opens the log, or makes it.
    pub(crate) fn open(&mut self) -> Result<Wal> {
        self.failures.opens(&self.disk);
        let mut files = self.shape.files();
        if self.shape.keeps_released {
            files.on_release = Some(Arc::new(self.kept.clone()));
        }
        let store = self.disk.open(&files)?;
        Wal::with_store(store, self.shape.log(&self.opening))
    }

    /// Opens the log, which no crash is planned for, and checks what is there after `crash`.
    pub(crate) fn open_and_check(&mut self, crash: Option<Crash>) -> Wal {
        self.working_on = "open";
        let wal = self.open_until_reported();
        match crash {
            Some(crash) => self.check_recovered(&wal, crash),
            None => self.oracle.check_all(&wal),
        }
        self.check_released();
        self.note_watermark(&wal);
        wal
    }

    /// G1 to G5 for what an open found.
    pub(crate) fn check_recovered(&mut self, wal: &Wal, crash: Crash) {
        self.forget_failed_pages();
        self.oracle.check_recovered(wal, crash);
        self.check_cursors(wal);
        self.failures.has_opened();
        let report = wal.recovery_report();
        assert_eq!(report.verified, self.opening.verify == Verify::Full);
        let count = self.oracle.entries().len() as u64;
        assert!(!report.verified || report.records == count, "{count} records: {report:?}");
    }

    /// What the head has passed is in the log's folder still, or the callback got it.
    fn check_released(&self) {
        if !self.shape.keeps_released {
            return;
        }
        let segment_bytes = self.shape.segment_bytes;
        for gone in &self.oracle.gone {
            let lsn = gone.lsn.as_u64();
            let is_there = has_bytes(&self.disk, &self.kept, segment_bytes, lsn, &gone.stored);
            assert!(is_there, "the record at {} is neither in the log nor kept", gone.lsn);
        }
    }

    /// Opens the log, which may die on the way after the crash `before`.
    pub(crate) fn open_and_die(&mut self, before: Crash) {
        self.working_on = "recovery";
        let unreported = self.disk.unreported_failures();
        match self.open() {
            Ok(wal) => {
                self.reported(&wal, before);
                self.disk.kill();
            }
            Err(error) => {
                assert!(self.disk.is_dead() || self.is_report(&error, unreported), "open: {error}");
            }
        }
    }

    /// An open came through, and the log cannot be read any more.
    pub(crate) fn reported(&mut self, wal: &Wal, crash: Crash) {
        self.forget_failed_pages();
        self.oracle.reported(wal.recovery_report().end, crash);
        self.failures.has_opened();
    }

    /// The system may drop pages that it could not write back: of what no sync has covered, a kill
    /// leaves what the ring has.
    fn forget_failed_pages(&mut self) {
        if self.has_failed() {
            self.oracle.forget_what_the_ring_lacks();
        }
    }

    /// The process dies, if it has not, and where it died is noted.
    fn end_run(&mut self) {
        self.disk.kill();
        if let Some(call) = self.disk.trace().iter().rev().find_map(|line| place_of_death(line)) {
            self.crash_points.insert(format!("{}: {call}", self.working_on));
        }
    }

    /// The process dies, and then the system shuts down in good order: what a failed write-back has
    /// forgotten is gone, and so is what only the log buffer held, which lies in memory.
    pub(crate) fn reboot(&mut self) -> Crash {
        self.end_run();
        self.disk.reboot();
        self.oracle.forget_kill_promise();
        Crash::PowerLoss
    }

    /// The run is over; the next one finds what this crash leaves.
    pub(crate) fn crash(&mut self, crash: Crash) -> Crash {
        self.end_run();
        match crash {
            Crash::Kill => self.disk.restart(),
            Crash::PowerLoss => {
                self.disk.lose_power();
                self.oracle.forget_kill_promise();
            }
        }
        crash
    }

    /// The file system is mounted again in the same boot, after an orderly end.
    pub(crate) fn remount(&mut self) {
        self.end_run();
        self.disk.remount();
    }

    /// The file system goes without a word and is mounted again in the same boot.
    pub(crate) fn crash_file_system(&mut self) {
        self.end_run();
        self.disk.crash_file_system();
        self.oracle.forget_kill_promise();
    }

    /// Power is lost, and `choice` says what the medium kept.
    pub(crate) fn lose_power_choosing(&mut self, choice: &mut dyn FnMut(Loss) -> Fate) {
        self.disk.lose_power_choosing(choice);
        self.oracle.forget_kill_promise();
    }

    /// A copy of everything, after the end of a run; `seed` is for the disk's further fates.
    pub(crate) fn fork(&self, seed: u64) -> Session {
        Session {
            shape: self.shape.clone(),
            disk: self.disk.fork(seed),
            kept: self.kept.fork(),
            oracle: self.oracle.clone(),
            cursors: self.cursors.clone(),
            opening: self.opening,
            failures: self.failures,
            crash_points: BTreeSet::new(),
            working_on: self.working_on,
        }
    }

    pub(crate) fn append(&mut self, wal: &Wal, len: usize) -> Result<()> {
        self.append_for_ticket(wal, len).map(drop)
    }

    /// As `append`, with the ticket to keep.
    pub(crate) fn append_for_ticket(&mut self, wal: &Wal, len: usize) -> Result<Ticket<'static>> {
        self.working_on = "append";
        let data = self.oracle.data(len);
        let ticket = wal.append(&data).map(Ticket::detach);
        let appended = ticket.as_ref().map(|ticket| (ticket.lsn(), ticket.end_lsn()));
        self.note(wal, appended.map_err(Clone::clone), vec![data])?;
        ticket
    }

    /// Appends and lets the log's own thread sync, as the interval policy says: nobody asks.
    ///
    /// While the thread works this one only waits, so the disk sees the same calls each time.
    pub(crate) fn append_and_idle(&mut self, wal: &Wal, len: usize) -> Result<()> {
        let mut tail = wal.tail_from(wal.reserved_lsn())?;
        self.append(wal, len)?;
        self.working_on = "idle";
        let synced = tail.next(PATIENCE)?;
        let appended = self.oracle.entries().last().expect("it was appended");
        let record = synced.expect("an idle log syncs within the interval");
        assert_eq!((record.lsn(), record.data()), (appended.lsn, &appended.data[..]));
        self.oracle.promise(appended.end);
        Ok(())
    }

    pub(crate) fn commit(&mut self, wal: &Wal, len: usize) -> Result<()> {
        self.working_on = "commit";
        let data = self.oracle.data(len);
        let bytes = self.shape.codec.framed(0, &data);
        let end = |lsn: Lsn| lsn.plus(bytes);
        let committed = wal.commit(&data);
        let appended = committed.as_ref().map(|&lsn| (lsn, end(lsn))).map_err(Clone::clone);
        self.note(wal, appended, vec![data])?;
        self.oracle.promise(end(committed?));
        Ok(())
    }

    /// Appends in place; the process may die in the middle of it, between reserve and publish.
    pub(crate) fn append_in_place(&mut self, wal: &Wal, len: usize, dies: bool) -> Result<()> {
        if self.shape.codec.encodes_all() {
            return self.append(wal, len);
        }
        self.working_on = "append_with";
        let data = self.oracle.data(len);
        let half = len / 2;
        let disk = self.disk.clone();
        let appended = wal.append_with(len, |_, bytes| {
            bytes[..half].copy_from_slice(&data[..half]);
            if dies {
                disk.kill();
            }
            bytes[half..].copy_from_slice(&data[half..]);
        });
        if dies && self.disk.is_dead() {
            // It was never published: it must not come back.
            return Ok(());
        }
        let (lsn, result) = match appended {
            Ok(ticket) => (ticket.lsn(), Ok(())),
            Err(error) => (error.appended_lsn().ok_or_else(|| error.clone())?, Err(error)),
        };
        self.oracle.append_in_place(lsn, data);
        self.note_promises(wal, lsn.plus(framed_bytes(len)), result)
    }

    pub(crate) fn append_batch(&mut self, wal: &Wal, lens: &[usize]) -> Result<()> {
        self.working_on = "append_batch";
        let datas: Vec<Vec<u8>> = lens.iter().map(|&len| self.oracle.data(len)).collect();
        let records: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
        let appended = wal.append_batch(&records).map(|ticket| (ticket.lsn(), ticket.end_lsn()));
        self.note(wal, appended, datas)
    }

    /// Appends records that are recovered one by one.
    pub(crate) fn append_many(&mut self, wal: &Wal, lens: &[usize]) -> Result<()> {
        self.working_on = "append_many";
        let datas: Vec<Vec<u8>> = lens.iter().map(|&len| self.oracle.data(len)).collect();
        let appended = wal.append_many(&datas).map(|ticket| ticket.lsn());
        let mut at = match &appended {
            Ok(first) => *first,
            Err(error) => error.appended_lsn().ok_or_else(|| error.clone())?,
        };
        for data in datas {
            let end = at.plus(self.shape.codec.framed(0, &data));
            let one = appended.clone().map(|_| (at, end)).map_err(|error| error.after_append(at));
            // All of them are noted, also if one failed.
            let _ = self.note(wal, one, vec![data]);
            at = end;
        }
        appended.map(drop)
    }

    pub(crate) fn sync(&mut self, wal: &Wal) -> Result<()> {
        self.working_on = "sync";
        wal.sync()?;
        self.oracle.promise(self.oracle.highest);
        assert!(wal.durable_lsn() >= self.oracle.highest, "G1: sync returned below the end");
        Ok(())
    }

    pub(crate) fn flush(&mut self, wal: &Wal) -> Result<()> {
        self.working_on = "flush_to_os";
        let Some(last) = self.oracle.entries().last() else { return Ok(()) };
        let end = last.end;
        wal.flush_to_os(last.lsn)?;
        if !self.disk.is_dead() {
            self.oracle.promise_kill(end);
        }
        Ok(())
    }

    pub(crate) fn checkpoint(&mut self, wal: &Wal, index: usize) -> Result<()> {
        self.working_on = "checkpoint";
        let Some(lsn) = self.oracle.entries().get(index).map(|entry| entry.lsn) else {
            return Ok(());
        };
        self.oracle.may_checkpoint(lsn);
        wal.checkpoint(lsn)?;
        self.oracle.checkpointed(lsn);
        self.oracle.promise(lsn);
        Ok(())
    }

    /// A look at the record at `index`, one that is there or one that was truncated.
    pub(crate) fn look(&mut self, wal: &Wal, index: usize, at_cut: bool) -> Result<()> {
        self.working_on = "get";
        if at_cut {
            let truncated_lsns = &self.oracle.truncated_lsns;
            if let Some(&lsn) = truncated_lsns.iter().nth(index % truncated_lsns.len().max(1)) {
                assert_truncated(lsn, wal.get(lsn).map(drop));
                // Below the head nothing tells what an earlier run truncated from what is gone.
                if lsn >= wal.head_lsn() {
                    assert_truncated(lsn, wal.wait_durable(lsn));
                    assert_truncated(lsn, wal.flush_to_os(lsn));
                }
            }
            return Ok(());
        }
        let Some(entry) = self.oracle.entries().get(index) else { return Ok(()) };
        match wal.get(entry.lsn) {
            Ok(record) => assert_eq!((record.lsn(), record.data()), (entry.lsn, &entry.data[..])),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The running log shows what was appended, no more and no less.
    pub(crate) fn read(&mut self, wal: &Wal) -> Result<()> {
        self.working_on = "read";
        // Reading hands the rest to the operating system, also a mark above the last record. That
        // may fail.
        if let (_, Some(error)) = contents_until(wal) {
            return Err(error);
        }
        if !self.disk.is_dead() {
            self.check_running(wal);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, wal: Wal) -> Result<()> {
        self.working_on = "close";
        wal.close()?;
        self.oracle.promise(self.oracle.highest);
        Ok(())
    }

    /// G6: a poisoned log takes and acknowledges nothing.
    pub(crate) fn check_poisoned(&self, wal: &Wal) {
        let durable = wal.durable_lsn();
        let is_poison = |error: &Error| error.kind() == ErrorKind::Poisoned;
        let appended = wal.append(b"more").map(drop);
        assert!(appended.is_err_and(|error| is_poison(&error)), "G6: append on a poisoned log");
        if durable < self.oracle.highest {
            assert!(wal.sync().is_err_and(|error| is_poison(&error)), "G6: sync on a poisoned log");
            let waited = wal.barrier().wait_timeout(PATIENCE);
            assert!(waited.is_err_and(|error| is_poison(&error)), "G6: a wait on a poisoned log");
        }
        assert_eq!(wal.durable_lsn(), durable, "G6: a poisoned log acknowledges");
    }

    /// What an append means for the oracle: an error with an LSN came after the record was in.
    fn note(&mut self, wal: &Wal, appended: Result<(Lsn, Lsn)>, datas: Vec<Vec<u8>>) -> Result<()> {
        let (lsn, end, result) = match appended {
            Ok((lsn, end)) => (lsn, end, Ok(())),
            Err(error) => match error.appended_lsn() {
                Some(lsn) => (lsn, lsn.plus(self.oracle.framed(&datas)), Err(error)),
                None => return Err(error),
            },
        };
        self.oracle.append(lsn, end, datas);
        self.note_promises(wal, end, result)
    }

    /// What the return of an append whose records end at `end` promises.
    fn note_promises(&mut self, wal: &Wal, end: Lsn, result: Result<()>) -> Result<()> {
        if !self.disk.is_dead() {
            let in_buffer = wal.stats().appends_survive_kill;
            self.oracle.promise_kill(if in_buffer { end } else { wal.written_lsn().min(end) });
            if self.shape.policy == SyncPolicy::Always && result.is_ok() {
                self.oracle.promise(end);
            }
        }
        result
    }
}

/// A check that failed says what had happened on the disk.
impl Drop for Session {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.describe());
        }
    }
}

/// The call at which the process died, less the numbers in it: the same place in the code,
/// whichever segment it was.
fn place_of_death(line: &str) -> Option<String> {
    let call = line.strip_suffix(" -> the process dies")?;
    Some(call.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().trim().to_owned())
}
