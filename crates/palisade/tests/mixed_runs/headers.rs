//! A closed log with one header that is not what it was: the open refuses it and changes nothing,
//! or does not need it; with the old header everything is there. And a closed log without its list
//! of epochs: its headers tell the same.
//!
//! All of it happens to forks of the disk: the log's own run goes on without it.

use palisade::sim::SimDisk;
use palisade::{Error, ErrorKind, Lsn, RecoveryReport, Wal};

use crate::checks::{contents, same_files};
use crate::device::snapshot;
use crate::epoch_list;
use crate::model::Rec;
use crate::run::Run;

const HEADER_BYTES: usize = 4096;
const FIELDS_END: usize = 104;

impl Run {
    /// Called while the log is closed: an open finds and does the same with the list of epochs as
    /// with all headers.
    pub(crate) fn open_without_the_list(&mut self) {
        self.what = "open without the list".into();
        self.roll();
        let meta = self.disk.file("meta").expect("a closed log has a state");
        assert!(epoch_list::len(&meta) > 0, "a close saves the list");
        let seed = self.dice.next();
        let with = self.open_fork(seed, meta.clone());
        let without = self.open_fork(seed, epoch_list::removed(&meta));
        assert_eq!(with, without, "the list tells what the headers do not");
        assert!(with.0.clean);
    }

    fn open_fork(&mut self, seed: u64, meta: Vec<u8>) -> (RecoveryReport, Vec<Found>, u64) {
        let fork = self.disk.fork(seed);
        let mine = std::mem::replace(&mut self.disk, fork);
        self.disk.restart();
        self.disk.set_file("meta", meta);
        let wal = self.open().unwrap_or_else(|e| panic!("open: {e}"));
        let mut report = wal.recovery_report().clone();
        report.elapsed = std::time::Duration::ZERO;
        let found = (report, contents(&wal), wal.head_lsn().as_u64());
        self.disk.kill();
        self.disk = mine;
        found
    }

    /// Called while the log is closed.
    pub(crate) fn damage_a_header(&mut self) {
        let names: Vec<String> =
            self.disk.files().into_iter().filter(|name| name.starts_with("segment-")).collect();
        if names.is_empty() {
            return;
        }
        self.what = "damage a header".into();
        let name = self.dice.pick(&(0..names.len()).collect::<Vec<_>>());
        let name = &names[name];
        let number: u64 = name["segment-".len()..].parse().expect("a number");
        let seed = self.dice.next();
        let mine = std::mem::replace(&mut self.disk, SimDisk::new(0));
        self.disk = mine.fork(seed);
        let kept = self.kept.fork();
        let kept = std::mem::replace(&mut self.kept, kept);
        self.disk.restart();
        let whole = self.disk.file(name).expect("the segment");
        self.damage(&names, name, whole.clone());
        self.what += &format!(" of {name}");
        self.roll();
        self.look_at_the_damaged(name, number, &whole);
        self.disk.kill();
        (self.disk, self.kept) = (mine, kept);
    }

    /// Flipped, zeroed, some segment's, perhaps its own, or shortened.
    fn damage(&mut self, names: &[String], name: &str, whole: Vec<u8>) {
        let mut bytes = whole;
        let kind = self.dice.below(4);
        self.what += &format!(" by {kind}");
        match kind {
            0 => bytes[self.dice.below(FIELDS_END as u64) as usize] ^= 1 << self.dice.below(8),
            1 => bytes[..HEADER_BYTES].fill(0),
            2 => {
                let other = &names[self.dice.below(names.len() as u64) as usize];
                let other = self.disk.file(other).expect("the segment");
                bytes[..HEADER_BYTES].copy_from_slice(&other[..HEADER_BYTES]);
            }
            _ => bytes.truncate(self.dice.below(HEADER_BYTES as u64) as usize),
        }
        self.disk.set_file(name, bytes);
    }

    fn look_at_the_damaged(&mut self, name: &str, number: u64, whole: &[u8]) {
        let before = snapshot(&self.disk);
        let wal = match self.open() {
            Ok(wal) => wal,
            Err(error) => {
                assert!(is_refusal(&error), "{error}");
                return same_files(&before, &snapshot(&self.disk), "a refused open");
            }
        };
        let recs = self.model.recs.clone();
        if wal.recovery_report().clean {
            read_damaged(&wal, &recs, number, self.fixed.segment_bytes);
        } else {
            assert!(same(&contents(&wal), &recs), "unclean, and not all is there");
        }
        let more = self.go_on(&wal);
        let head = wal.head_lsn().as_u64();
        self.end_damaged(wal);
        self.check_released_but(&recs, number, head);
        let before = snapshot(&self.disk);
        match self.open() {
            Ok(wal) => drop(wal),
            Err(_) => same_files(&before, &snapshot(&self.disk), "a refused open"),
        }
        self.disk.kill();
        self.disk.restart();
        if let Some(mut bytes) = self.disk.file(name) {
            if bytes.len() < HEADER_BYTES {
                bytes = whole.to_vec();
            }
            bytes[..HEADER_BYTES].copy_from_slice(&whole[..HEADER_BYTES]);
            self.disk.set_file(name, bytes);
        }
        self.what += " healed";
        let wal = self.open().unwrap_or_else(|e| panic!("healed: {e}"));
        let old = recs.iter().map(|r| (r.lsn, r.tag, r.data.clone()));
        let want: Vec<_> = old.chain(more).filter(|r| r.0 >= head).collect();
        let found = contents(&wal);
        assert!(found == want, "healed: {} records, want {}", found.len(), want.len());
    }

    /// Appends, and truncates the head where no damage forbids it. Gives what was appended.
    fn go_on(&mut self, wal: &Wal) -> Vec<Found> {
        let mut more = Vec::new();
        for n in 0..self.dice.below(20) {
            let data = vec![n as u8; (n * 37 % 150) as usize];
            more.push((wal.append(&data).expect("append").lsn().as_u64(), 0, data));
        }
        wal.sync().expect("sync");
        if self.dice.once_in(3)
            && let Some(rec) = self.some_rec()
        {
            self.what += &format!(" truncate {}", rec.lsn);
            let before = wal.head_lsn();
            match wal.truncate_before(rec.at()) {
                Ok(()) => assert_eq!(wal.head_lsn(), before.max(rec.at())),
                // No record begins where its bytes are gone.
                Err(error) => assert!(is_refusal(&error) || is_no_record(&error), "{error}"),
            }
        }
        more
    }

    fn end_damaged(&mut self, wal: Wal) {
        match self.dice.below(3) {
            0 => wal.close().expect("close"),
            1 => drop(wal),
            _ => {
                self.disk.kill();
                drop(wal);
            }
        }
        self.disk.kill();
        match self.dice.below(2) {
            0 => self.disk.restart(),
            _ => self.disk.lose_power(),
        }
    }

    /// What lies below the head and not in the damaged segment is in the log still, or was kept.
    fn check_released_but(&self, recs: &[Rec], number: u64, head: u64) {
        for r in recs.iter().filter(|r| self.fixed.keeps_released && r.lsn < head) {
            let is_damaged = r.lsn / self.fixed.segment_bytes == number;
            assert!(is_damaged || self.has_bytes(r), "{} neither in log nor kept", r.lsn);
        }
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

fn is_no_record(error: &Error) -> bool {
    error.kind() == ErrorKind::NotARecord
}

/// A record's LSN, tag and payload.
type Found = (u64, u16, Vec<u8>);

fn same(found: &[Found], recs: &[Rec]) -> bool {
    found.len() == recs.len()
        && found.iter().zip(recs).all(|(f, r)| f.0 == r.lsn && f.1 == r.tag && f.2 == r.data)
}

/// Reading gives all, or all below the damaged segment, whose bytes are gone.
fn read_damaged(wal: &Wal, recs: &[Rec], number: u64, s: u64) {
    let mut records = wal.records().expect("records");
    let mut i = 0;
    loop {
        match records.next() {
            Ok(Some(r)) => {
                let w = &recs[i];
                assert!(w.lsn == r.lsn().as_u64() && w.data == r.data(), "another record");
                i += 1;
            }
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert_eq!(error.lsn().map(|lsn| lsn.segment(s)), Some(number), "{error}");
                assert!(recs.get(i).is_none_or(|r| r.lsn / s >= number), "{error}");
                break;
            }
        }
    }
    let is_whole = i == recs.len();
    for r in recs {
        match wal.get(Lsn::new(r.lsn)) {
            Ok(got) => assert!(got.data() == r.data && (is_whole || r.lsn / s != number)),
            Err(error) => {
                assert!(!is_whole && is_no_record(&error) && r.lsn / s == number, "{error}");
            }
        }
    }
}
