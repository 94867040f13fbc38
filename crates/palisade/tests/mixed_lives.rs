//! Random lives of one log on a simulated disk, each opened with other options, against a plain
//! list of what was appended. It shares nothing with the oracle of `powerloss`.

#![expect(clippy::print_stderr, reason = "progress and figures of long runs")]
#![expect(clippy::too_many_lines, clippy::while_let_loop, reason = "a harness, written in one go")]

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade::{
    BufferKind, Error, ErrorKind, FileOptions, Lsn, Options, RecoveryPolicy, Replay, Result,
    SyncPolicy, Tail, Ticket, Verify, Wal, framed_bytes,
};
use palisade_core::inspect::{Inspector, Outcome};

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rec {
    lsn: u64,
    end: u64,
    tag: u16,
    data: Vec<u8>,
}

#[derive(Default)]
struct Model {
    recs: Vec<Rec>,
    gone: Vec<Rec>,
    durable: u64,
    os: u64,
    kill: u64,
    head_lo: u64,
    head_hi: u64,
    cut: Option<u64>,
    top: u64,
    top_durable: u64,
    ckpt_lo: u64,
    ckpt_hi: u64,
    cuts: u64,
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Kill,
    Reboot,
    Power,
}

impl Model {
    fn data(&mut self, len: usize) -> Vec<u8> {
        self.count += 1;
        let mut d = vec![(self.count * 7) as u8; len];
        let n = len.min(8);
        d[..n].copy_from_slice(&self.count.to_le_bytes()[..n]);
        d
    }
    fn add(&mut self, lsn: u64, end: u64, tag: u16, datas: Vec<Vec<u8>>) {
        let mut at = lsn;
        for data in datas {
            assert!(at >= self.top, "LSN {at} given out twice, top {}", self.top);
            let next = at + framed_bytes(data.len());
            self.recs.push(Rec { lsn: at, end, tag, data });
            at = next;
        }
        assert!(end >= at);
        self.top = end;
    }
    fn is_durable(&mut self, to: u64) {
        self.durable = self.durable.max(to);
        self.top_durable = self.top_durable.max(to);
        self.is_os(to);
    }
    fn is_os(&mut self, to: u64) {
        self.os = self.os.max(to);
        self.kill = self.kill.max(to);
    }
    fn head(&mut self, head: u64) {
        self.head_lo = self.head_lo.max(head);
        self.head_hi = self.head_hi.max(head);
        let k = self.recs.iter().take_while(|r| r.lsn < head).count();
        self.gone.extend(self.recs.drain(..k));
    }
    fn cut_at(&mut self, end: u64) {
        self.recs.retain(|r| r.end <= end);
        self.durable = self.durable.min(end);
        self.os = self.os.min(end);
        self.kill = self.kill.min(end);
        self.ckpt_lo = self.ckpt_lo.min(end);
        self.is_durable(end);
        self.cuts += 1;
        self.cut = None;
    }
    fn promised(&self, crash: Crash) -> u64 {
        match crash {
            Crash::Kill => self.kill,
            Crash::Reboot => self.os,
            Crash::Power => self.durable,
        }
    }
    fn end_of(&self, n: usize) -> u64 {
        n.checked_sub(1).map_or(self.head_lo, |i| self.recs[i].end)
    }
    /// An open found the first `n`.
    fn found(&mut self, n: usize, crash: Crash) {
        let promised = self.promised(crash);
        if let Some(missing) = self.recs.get(n) {
            if self.cut != Some(self.end_of(n)) {
                assert!(missing.end > promised, "G1: {} missing, promised {promised}", missing.lsn);
            }
            let split = n > 0 && self.recs[n - 1].end == missing.end;
            assert!(!split, "G4: batch to {} in part", missing.end);
        }
        self.recs.truncate(n);
        let end = self.end_of(n);
        (self.durable, self.os, self.kill) = (end, end, end);
        self.cut = None;
    }
}

struct Fixed {
    segment_bytes: u64,
    in_place: bool,
    boot: bool,
    powersafe: bool,
    archives: bool,
    threads: bool,
}

#[derive(Clone, Debug)]
struct Opening {
    buffer: BufferKind,
    buffer_bytes: usize,
    zero_fill: bool,
    spares: usize,
    policy: SyncPolicy,
    pad: bool,
    write_bytes: usize,
    gather: u32,
    verify: Verify,
    read_ahead: usize,
    recovery: RecoveryPolicy,
}

struct Run {
    dice: Dice,
    fixed: Fixed,
    disk: SimDisk,
    model: Model,
    opening: Opening,
    /// Faults that fail syncs were armed in this boot.
    forgets: bool,
    faults: bool,
    capped: bool,
    clean: bool,
    what: String,
    tails: Vec<(Tail, u64, bool, u64)>,
    tickets: Vec<Ticket<'static>>,
    acked: Arc<AtomicU64>,
    cut_on_full: bool,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Run {
    fn new(seed: u64) -> Run {
        let mut dice = Dice(seed ^ 0xe1e5_33aa);
        let fixed = Fixed {
            segment_bytes: dice.pick(&[4096, 4096, 8192, 12_288, 20_480, 28_672]),
            in_place: !dice.one_in(3),
            boot: !dice.one_in(4),
            powersafe: !dice.one_in(4),
            archives: dice.one_in(3),
            threads: dice.one_in(if number("PALISADE_THREADS").is_some() { 1 } else { 4 }),
        };
        let mut disk = SimDisk::new(seed);
        if !fixed.in_place {
            disk = disk.copy_on_write();
        }
        if !fixed.boot {
            disk = disk.without_boot_id();
        }
        if !fixed.powersafe {
            disk = disk.without_powersafe_overwrite();
        }
        let opening = Opening {
            buffer: BufferKind::Auto,
            buffer_bytes: 4096,
            zero_fill: true,
            spares: 0,
            policy: SyncPolicy::OnCommit,
            pad: false,
            write_bytes: 1,
            gather: 0,
            verify: Verify::Tail,
            read_ahead: 4096,
            recovery: RecoveryPolicy::Strict,
        };
        Run {
            dice,
            fixed,
            disk,
            model: Model::default(),
            opening,
            forgets: false,
            faults: false,
            capped: false,
            clean: false,
            what: String::new(),
            tails: Vec::new(),
            tickets: Vec::new(),
            acked: Arc::default(),
            cut_on_full: false,
        }
    }

    fn roll(&mut self) {
        let d = &mut self.dice;
        let mut policies = vec![
            SyncPolicy::OnCommit,
            SyncPolicy::OnCommit,
            SyncPolicy::Always,
            SyncPolicy::Os,
            SyncPolicy::Interval(DAY),
        ];
        if self.fixed.threads {
            policies.push(SyncPolicy::Interval(Duration::from_micros(300)));
        }
        self.opening = Opening {
            buffer: d.pick(&[
                BufferKind::Auto,
                BufferKind::Auto,
                BufferKind::Heap,
                BufferKind::Mapped,
            ]),
            buffer_bytes: d.pick(&[4096, 4096, 8192, 16_384, 32_768]),
            zero_fill: !d.one_in(3),
            spares: d.below(6) as usize,
            policy: d.pick(&policies),
            pad: !self.fixed.powersafe || d.one_in(4),
            write_bytes: d.pick(&[1, 100, 1000, 4096, 1 << 20]),
            gather: d.pick(&[0, 25, 100]),
            verify: d.pick(&[Verify::Tail, Verify::Full]),
            read_ahead: d.pick(&[4096, 5000, 65_536]),
            recovery: RecoveryPolicy::Strict,
        };
        if d.one_in(4) {
            self.opening.recovery = RecoveryPolicy::PointInTime { lose_from: None };
        }
    }

    fn open(&mut self) -> Result<Wal> {
        let o = self.opening.clone();
        let (files, log) = (self.files(), self.log(&o));
        let wal = Wal::with_store(self.disk.open(&files)?, log)?;
        Ok(wal)
    }

    fn files(&self) -> FileOptions {
        let o = &self.opening;
        let mut files = FileOptions::new();
        files.segment_bytes = Some(self.fixed.segment_bytes);
        files.buffer = o.buffer;
        files.zero_fill = o.zero_fill;
        files.spare_segments = o.spares;
        files.archive = self.fixed.archives.then(|| "/archive".into());
        files
    }

    fn log(&self, o: &Opening) -> Options {
        Options::new()
            .buffer_bytes(o.buffer_bytes)
            .sync_policy(o.policy)
            .pad_to_block(o.pad)
            .write_bytes(o.write_bytes)
            .gather_percent(o.gather)
            .verify(o.verify)
            .verify_threads(1)
            .read_ahead_bytes(o.read_ahead)
            .recovery(o.recovery)
    }

    fn snapshot(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        self.disk.files().into_iter().map(|f| (f.clone(), self.disk.file(&f))).collect()
    }

    /// Everything that a recovered log has to be.
    fn check_open(&mut self, wal: &Wal, crash: Crash) {
        let report = wal.recovery_report().clone();
        assert!(report.lost.is_none(), "lost without damage: {report:?}");
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
            ck >= m.ckpt_lo || !between || m.cut.is_some(),
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
        m.found(n, crash);
        if report.verified {
            assert_eq!(report.records, n as u64, "{report:?}");
        }
        let tail = wal.reserved_lsn().as_u64();
        assert!(tail >= m.top_durable, "tail {tail} below {}", m.top_durable);
        if crash == Crash::Power {
            m.top = tail;
        }
        assert!(tail >= m.top, "tail {tail} below a given LSN {}", m.top);
        if self.fixed.archives {
            self.check_archive();
        }
    }

    fn check_archive(&self) {
        let s = self.fixed.segment_bytes;
        for r in &self.model.gone {
            let at = 4096 + (r.lsn % s) as usize + 24;
            let names = [
                format!("segment-{:020}", r.lsn / s),
                format!("/archive/segment-{:020}", r.lsn / s),
            ];
            let there = names.iter().any(|n| {
                self.disk.file(n).and_then(|b| b.get(at..at + r.data.len()).map(|x| x == r.data))
                    == Some(true)
            });
            assert!(there, "{} neither in log nor archive", r.lsn);
        }
    }

    fn crash(&mut self) -> Crash {
        self.disk.kill();
        self.tails.clear();
        self.tickets.clear();
        self.disk.heal();
        self.disk.set_capacity(None);
        (self.faults, self.capped) = (false, false);
        match self.dice.below(5) {
            0..=1 => {
                self.disk.restart();
                Crash::Kill
            }
            2 => {
                self.disk.reboot();
                let forgot = std::mem::take(&mut self.forgets);
                if forgot { self.lost_power() } else { self.rebooted() }
            }
            _ => {
                self.disk.lose_power();
                self.forgets = false;
                self.lost_power()
            }
        }
    }

    fn rebooted(&mut self) -> Crash {
        self.model.kill = self.model.os;
        Crash::Reboot
    }

    fn lost_power(&mut self) -> Crash {
        self.model.kill = self.model.durable;
        self.model.os = self.model.durable;
        Crash::Power
    }

    fn worse(a: Crash, b: Crash) -> Crash {
        if a == Crash::Power || b == Crash::Power {
            Crash::Power
        } else if a == Crash::Reboot || b == Crash::Reboot {
            Crash::Reboot
        } else {
            Crash::Kill
        }
    }

    fn arm_fault(&mut self, within: u64) {
        let kinds = [
            FaultKind::Eio,
            FaultKind::Eio,
            FaultKind::NoSpace,
            FaultKind::ShortWrite,
            FaultKind::Interrupted,
        ];
        let calls = [
            CallKind::Write,
            CallKind::Sync,
            CallKind::Sync,
            CallKind::SyncFolder,
            CallKind::Rename,
            CallKind::Read,
            CallKind::Open,
            CallKind::Map,
            CallKind::Create,
            CallKind::Allocate,
            CallKind::Remove,
        ];
        let kind = self.dice.pick(&kinds);
        let fault = match self.dice.below(4) {
            0 => Fault::at(self.disk.calls() + self.dice.below(within), kind),
            1 => Fault::rate(3 + self.dice.below(60), kind),
            2 => Fault::nth(self.dice.pick(&calls), self.dice.below(within), kind),
            _ => Fault::all(self.dice.pick(&calls), kind).times(1 + self.dice.below(4)),
        };
        self.what += &format!(" fault {fault:?}");
        self.disk.fail(fault);
        self.faults = true;
        self.forgets = true;
    }

    /// What a tool sees that reads the files.
    fn look(&self, promised: u64) {
        let Ok(reader) = self.disk.reader() else { return };
        let inspector = Inspector::new(reader);
        let verdict = inspector.verify().unwrap_or_else(|e| panic!("verify: {e}"));
        assert_ne!(verdict.outcome, Outcome::Corrupt, "false alarm: {verdict:?}");
        let deep = inspector.verify_deep(1).unwrap_or_else(|e| panic!("verify: {e}"));
        assert_ne!(deep.outcome, Outcome::Corrupt, "false alarm: {deep:?}");
        let head = inspector.state().expect("state").head.as_u64();
        let m = &self.model;
        assert!(m.head_lo <= head && head <= m.head_hi.max(m.head_lo), "tool's head {head}");
        let mut want = m.gone.iter().chain(&m.recs).filter(|r| r.lsn >= head);
        let mut records = inspector.records(None).expect("records");
        loop {
            match records.next().unwrap_or_else(|e| panic!("tool: {e}")) {
                Some(r) => {
                    let w = want.next();
                    let same = w.is_some_and(|w| {
                        (w.lsn, w.tag, &w.data[..]) == (r.lsn().as_u64(), r.tag(), r.data())
                    });
                    assert!(same, "tool gives {}, want {:?}", r.lsn(), w.map(|w| (w.lsn, w.end)));
                }
                None => break,
            }
        }
        if m.cut.is_none()
            && let Some(missing) = want.next()
        {
            assert!(missing.end > promised, "tool: {} missing, promised {promised}", missing.lsn);
        }
    }

    fn recover(&mut self, mut crash: Crash) -> Wal {
        self.look(self.model.os.min(self.model.promised(crash)));
        for _ in 0..self.dice.below(4) {
            self.roll();
            let kind = self.dice.below(6);
            match kind {
                5 => {
                    let free = self.dice.below(4) * 4096;
                    self.disk.set_capacity(Some(self.used() + free));
                }
                0 => self.disk.crash_at(self.disk.calls() + self.dice.below(45)),
                1 | 2 => self.arm_fault(30),
                3 => {
                    // Absolute refuses an unclean log and leaves it; nothing else changes.
                    let before = self.snapshot();
                    self.opening.recovery = RecoveryPolicy::Absolute;
                    match self.open() {
                        Ok(wal) => {
                            assert!(
                                wal.recovery_report().clean || self.model.count == 0,
                                "absolute"
                            );
                            self.check_open(&wal, crash);
                            self.clean = false;
                            drop(wal);
                        }
                        Err(e) => {
                            assert!(!self.clean, "{e}");
                            assert_eq!(e.kind(), ErrorKind::Unclean, "absolute: {e}");
                            same_files(&before, &self.snapshot(), "absolute");
                        }
                    }
                    continue;
                }
                _ => {
                    let before = self.snapshot();
                    if !before.contains_key("meta") {
                        continue;
                    }
                    let store = self.disk.open(&{
                        let mut f = self.files();
                        f.segment_bytes = Some(self.fixed.segment_bytes + 4096);
                        f
                    });
                    if before.contains_key("meta") {
                        assert_eq!(store.err().map(|e| e.kind()), Some(ErrorKind::Mismatch));
                        same_files(&before, &self.snapshot(), "mismatch");
                    } else {
                        drop(store);
                        continue;
                    }
                    continue;
                }
            }
            let opened = self.open();
            match opened {
                Ok(wal) => {
                    self.disk.heal();
                    self.disk.set_capacity(None);
                    if self.disk.is_dead() {
                        let end = wal.recovery_report().end.as_u64();
                        let n = self.model.recs.iter().take_while(|r| r.end <= end).count();
                        self.model.found(n, crash);
                    } else {
                        self.check_open(&wal, crash);
                    }
                    self.clean = false;
                    self.disk.kill();
                    drop(wal);
                }
                Err(e) => {
                    let ok = self.disk.is_dead()
                        || (kind == 5 && e.kind() == ErrorKind::NoSpace)
                        || (kind != 0
                            && kind != 5
                            && matches!(
                                e.kind(),
                                ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned
                            ));
                    assert!(ok, "open: {e} {e:?}");
                    if self.model.count == 0 && !self.disk.is_dead() {
                        // ok
                    }
                    self.clean = false;
                }
            }
            let next = self.crash();
            crash = Run::worse(crash, next);
            self.look(self.model.os.min(self.model.promised(crash)));
        }
        self.roll();
        if self.dice.one_in(3) {
            let before = self.snapshot();
            if before.contains_key("meta") {
                let o = self.opening.clone();
                let (files, log) = (self.files(), self.log(&o));
                let mut core = palisade_options(&log, &o);
                core.verify = o.verify;
                let seen = (|| {
                    let wal_store = self.disk.open(&files)?;
                    foresee(wal_store, &core)
                })();
                let seen = seen.unwrap_or_else(|e| panic!("foresee: {e}"));
                same_files(&before, &self.snapshot(), "foresee");
                let wal = self.open().unwrap_or_else(|e| panic!("open: {e}"));
                let did = wal.recovery_report();
                assert_eq!(
                    (
                        seen.clean,
                        seen.records,
                        seen.bytes,
                        seen.end,
                        seen.floor,
                        seen.torn_bytes,
                        seen.holes_padded
                    ),
                    (
                        did.clean,
                        did.records,
                        did.bytes,
                        did.end,
                        did.floor,
                        did.torn_bytes,
                        did.holes_padded
                    ),
                    "foresee says another thing than open\n{seen:?}\n{did:?}"
                );
                self.check_open(&wal, crash);
                self.clean = false;
                return wal;
            }
        }
        let wal = if self.dice.one_in(3) {
            let o = self.opening.clone();
            let (files, log) = (self.files(), self.log(&o));
            let mut seen = Vec::new();
            let mut at = Vec::new();
            let store = self.disk.open(&files).unwrap_or_else(|e| panic!("open: {e}"));
            let wal = Wal::with_store_replaying(store, log, None, |event| {
                match event {
                    Replay::Record(r) => seen.push((r.lsn().as_u64(), r.tag(), r.data().to_vec())),
                    Replay::Segment(s) => at.push((s.at.as_u64(), s.records, seen.len() as u64)),
                    _ => {}
                }
                Ok::<(), Error>(())
            })
            .unwrap_or_else(|e| panic!("open: {e}"));
            assert_eq!(seen, contents(&wal), "replay gives another thing than iter");
            for (_, records, so_far) in at {
                assert_eq!(records, so_far, "SegmentStart::records");
            }
            wal
        } else {
            self.open().unwrap_or_else(|e| panic!("open: {e}"))
        };
        self.check_open(&wal, crash);
        self.clean = false;
        wal
    }

    /// Whether the log goes on.
    fn took(&mut self, wal: &Wal, result: Result<()>) -> bool {
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
                assert!(self.faults || self.cut_on_full, "poisoned for no reason: {what}: {e}");
                let again = wal.append(b"x").map(drop).expect_err("append on poisoned");
                assert_eq!(again.kind(), ErrorKind::Poisoned);
                assert_eq!(again.to_string(), wal.append(b"y").map(drop).unwrap_err().to_string());
                false
            }
            _ => panic!("{what}: {e:?}"),
        }
    }

    /// What the watermarks and the callbacks promise.
    fn note(&mut self, wal: &Wal) {
        if self.model.cut.is_some() {
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
        let (d, w, f, r) =
            (wal.durable_lsn(), wal.written_lsn(), wal.filled_lsn(), wal.reserved_lsn());
        assert!(d <= r && d <= w.max(d) && f <= r, "{d} {w} {f} {r}");
    }

    fn noted(
        &mut self,
        wal: &Wal,
        got: Result<(u64, u64)>,
        tag: u16,
        datas: Vec<Vec<u8>>,
    ) -> Result<()> {
        let (lsn, end, result) = match got {
            Ok((lsn, end)) => (lsn, end, Ok(())),
            Err(e) => match e.appended_lsn() {
                Some(lsn) => {
                    let bytes: u64 = datas.iter().map(|d| framed_bytes(d.len())).sum();
                    (lsn.as_u64(), lsn.as_u64() + bytes, Err(e))
                }
                None => return Err(e),
            },
        };
        let batch_end = end;
        self.model.add(lsn, batch_end, tag, datas);
        if !self.disk.is_dead() {
            if wal.stats().appends_survive_kill {
                self.model.kill = self.model.kill.max(end);
            }
            if self.opening.policy == SyncPolicy::Always && result.is_ok() {
                assert!(wal.durable_lsn().as_u64() >= end, "Always: append returned");
            }
            if self.opening.policy == SyncPolicy::Os && result.is_ok() {
                assert!(wal.written_lsn().as_u64() >= end, "Os: append returned");
            }
        }
        result
    }

    fn len(&mut self, wal: &Wal) -> usize {
        let max = wal.max_record_bytes() as u64;
        let d = &mut self.dice;
        (match d.below(16) {
            0 => 0,
            1 => max - d.below(9),
            2..=3 => d.below(max + 1),
            4 => 4096 - 24 - d.below(64),
            _ => d.below(180),
        })
        .min(max) as usize
    }

    fn append_any(&mut self, wal: &Wal) -> Result<()> {
        let len = self.len(wal);
        let data = self.model.data(len);
        let both = |t: Ticket<'_>| (t.lsn().as_u64(), t.end_lsn().as_u64());
        match self.dice.below(9) {
            0 => {
                self.what += " tagged";
                let tag = self.dice.next() as u16;
                let got = wal.append_tagged(tag, &data).map(both);
                self.noted(wal, got, tag, vec![data])
            }
            1 => {
                self.what += " vectored";
                let k = len / 3;
                let parts = [IoSlice::new(&data[..k]), IoSlice::new(&[]), IoSlice::new(&data[k..])];
                let got = wal.append_vectored(&parts).map(both);
                self.noted(wal, got, 0, vec![data])
            }
            2 => {
                self.what += " with";
                let how = self.dice.below(8);
                let disk = self.disk.clone();
                let got = catch_unwind(AssertUnwindSafe(|| {
                    wal.append_with(len, |_, bytes| {
                        bytes[..len / 2].copy_from_slice(&data[..len / 2]);
                        if how == 0 {
                            disk.kill();
                        }
                        if how == 1 {
                            std::panic::resume_unwind(Box::new(()));
                        }
                        bytes[len / 2..].copy_from_slice(&data[len / 2..]);
                    })
                    .map(both)
                }));
                let Ok(got) = got else { return Ok(()) };
                if how == 0 {
                    return Ok(());
                }
                self.noted(wal, got, 0, vec![data])
            }
            3 | 4 => {
                self.what += " batch";
                let k = 1 + self.dice.below(5);
                let lens: Vec<usize> = (0..k).map(|_| self.dice.below(150) as usize).collect();
                let datas: Vec<Vec<u8>> = lens.into_iter().map(|l| self.model.data(l)).collect();
                let refs: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
                let got = wal.append_batch(&refs).map(both);
                self.noted(wal, got, 0, datas)
            }
            5 => {
                self.what += " try";
                let got = wal.try_append(&data).map(both);
                if got.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoRoom) {
                    return Ok(());
                }
                self.noted(wal, got, 0, vec![data])
            }
            _ => {
                self.what += " append";
                let ticket = wal.append(&data).map(Ticket::detach);
                let got = ticket.as_ref().map(|t| (t.lsn().as_u64(), t.end_lsn().as_u64()));
                let got = got.map_err(Clone::clone);
                self.noted(wal, got, 0, vec![data])?;
                self.tickets.push(ticket?);
                Ok(())
            }
        }
    }

    fn some_rec(&mut self) -> Option<Rec> {
        let n = self.model.recs.len() as u64;
        if n == 0 {
            return None;
        }
        let back = if self.dice.one_in(2) { self.dice.below(n.min(5)) } else { self.dice.below(n) };
        Some(self.model.recs[(n - 1 - back) as usize].clone())
    }

    fn truncate_after(&mut self, wal: &Wal) -> Result<()> {
        let Some(rec) = self.some_rec() else { return Ok(()) };
        let last = self.model.recs.iter().rfind(|r| r.end == rec.end).unwrap().clone();
        self.what += &format!(" truncate_after {}", last.lsn);
        if rec.lsn != last.lsn && self.model.head_hi < rec.lsn {
            let e = wal.truncate_after(rec.lsn_()).expect_err("inside a batch");
            if e.kind() != ErrorKind::InvalidArgument {
                return Err(e);
            }
        }
        let cut_ck = self.model.ckpt_lo;
        let (was, lo) = (self.model.cut, self.model.ckpt_lo);
        self.model.cut = Some(last.end);
        self.model.ckpt_lo = cut_ck.min(last.end);
        let result = wal.truncate_after(last.lsn_());
        match &result {
            Ok(()) => {
                self.model.cut_at(last.end);
                let tail = wal.reserved_lsn().as_u64();
                assert!(tail >= self.model.top);
            }
            Err(e) if self.disk.is_dead() || e.kind() == ErrorKind::Poisoned => {
                if self.capped && !self.fixed.in_place {
                    self.cut_on_full = true;
                }
            }
            Err(_) => (self.model.cut, self.model.ckpt_lo) = (was, lo),
        }
        result
    }

    fn truncate_before(&mut self, wal: &Wal) -> Result<()> {
        let lsn = match self.some_rec() {
            Some(r) if !self.dice.one_in(8) => r.lsn,
            _ => wal.reserved_lsn().as_u64(),
        };
        self.what += &format!(" truncate_before {lsn}");
        self.model.head_hi = self.model.head_hi.max(lsn);
        let result = wal.truncate_before(Lsn::new(lsn));
        if result.is_ok() {
            self.model.is_durable(lsn);
            self.model.head(lsn);
        }
        if !self.disk.is_dead() {
            let head = wal.head_lsn().as_u64();
            self.model.head(head);
            if result.is_ok() {
                assert!(head >= lsn);
                if self.tails.is_empty() {
                    let names = self.disk.files();
                    let s = self.fixed.segment_bytes;
                    for n in names.iter().filter_map(|n| n.strip_prefix("segment-")) {
                        let n: u64 = n.parse().unwrap();
                        assert!((n + 1) * s > head, "segment {n} not freed below {head}");
                    }
                }
            }
        }
        result
    }

    fn read(&mut self, wal: &Wal) -> Result<()> {
        self.what += " read";
        let mut records = wal.iter()?;
        let mut i = 0;
        while let Some(r) = records.next()? {
            let w = &self.model.recs.get(i);
            assert!(
                w.is_some_and(|w| w.lsn == r.lsn().as_u64() && w.data == r.data()),
                "read {} want {:?}",
                r.lsn(),
                w.map(|w| w.lsn)
            );
            i += 1;
        }
        assert_eq!(i, self.model.recs.len(), "iter ends early");
        Ok(())
    }

    fn step_tails(&mut self, wal: &Wal) -> Result<()> {
        self.what += " tail";
        if self.tails.len() < 2 && self.dice.one_in(2) {
            let is_written = self.dice.one_in(2);
            let (tail, from) = match self.some_rec() {
                Some(r) => (wal.tail_from(r.lsn_())?, r.lsn),
                None => (wal.tail()?, wal.head_lsn().as_u64()),
            };
            let tail = if is_written { tail.written() } else { tail };
            self.tails.push((tail, from, is_written, self.model.cuts));
        }
        let mut kept = Vec::new();
        for (mut tail, mut from, is_written, cuts) in std::mem::take(&mut self.tails) {
            let mut over = false;
            for _ in 0..self.dice.below(6) {
                match tail.next(Duration::ZERO) {
                    Ok(Some(r)) => {
                        let m = &self.model;
                        let next = m.gone.iter().chain(&m.recs).find(|w| w.lsn >= from);
                        let w =
                            next.unwrap_or_else(|| panic!("tail gives {}, nothing there", r.lsn()));
                        assert_eq!((w.lsn, &w.data[..]), (r.lsn().as_u64(), r.data()), "tail");
                        if !is_written {
                            assert!(w.end <= wal.durable_lsn().as_u64(), "tail gives undurable");
                        }
                        from = w.lsn + 1;
                    }
                    Ok(None) => {
                        let m = &self.model;
                        let to = if is_written { wal.written_lsn() } else { wal.durable_lsn() };
                        if cuts == m.cuts && !self.faults && !self.disk.is_dead() {
                            let next = m.gone.iter().chain(&m.recs).find(|w| w.lsn >= from);
                            assert!(
                                next.is_none_or(|w| w.end > to.as_u64()),
                                "tail leaves out {next:?}"
                            );
                        }
                        break;
                    }
                    Err(e) => {
                        over = true;
                        let fits = match e.kind() {
                            ErrorKind::Truncated => self.model.cuts > cuts,
                            ErrorKind::Poisoned | ErrorKind::Io => {
                                self.faults || self.disk.is_dead()
                            }
                            _ => self.disk.is_dead(),
                        };
                        assert!(fits, "tail: {e:?}");
                        break;
                    }
                }
            }
            if !over {
                kept.push((tail, from, is_written, cuts));
            }
        }
        self.tails = kept;
        Ok(())
    }

    fn ask_tickets(&mut self, wal: &Wal) -> Result<()> {
        self.what += " ticket";
        if self.tickets.is_empty() {
            return Ok(());
        }
        let i = self.dice.below(self.tickets.len() as u64) as usize;
        let t = self.tickets.swap_remove(i);
        let lsn = t.lsn().as_u64();
        let lives = self.model.gone.iter().chain(&self.model.recs).any(|r| r.lsn == lsn);
        let r = t.wait();
        match &r {
            Ok(l) => {
                assert!(lives && l.as_u64() == lsn, "a cut record acknowledged");
                self.model.is_durable(t.end_lsn().as_u64().min(self.model.top));
            }
            Err(e) if e.kind() == ErrorKind::Truncated => assert!(!lives, "{e}"),
            Err(_) => return r.map(drop),
        }
        let _ = wal;
        Ok(())
    }

    fn threads(&mut self, wal: &Wal) -> Result<()> {
        self.what += " threads";
        let promises = wal.stats().appends_survive_kill && self.fixed.boot && self.fixed.in_place;
        let mut plans = Vec::new();
        for _ in 0..2 + self.dice.below(2) {
            let mut plan = Vec::new();
            for _ in 0..1 + self.dice.below(5) {
                let len = self.len(wal);
                plan.push((self.dice.below(3), self.model.data(len)));
            }
            plans.push(plan);
        }
        let disk = &self.disk;
        let results: Vec<_> = std::thread::scope(|s| {
            let joins: Vec<_> = plans
                .into_iter()
                .map(|plan| {
                    s.spawn(move || {
                        let mut out = Vec::new();
                        for (how, data) in plan {
                            let got = if how == 0 {
                                wal.commit(&data)
                            } else {
                                wal.append(&data).map(|t| t.lsn())
                            };
                            let alive = !disk.is_dead();
                            let acked = got.is_ok() && how == 0;
                            out.push((got, data, alive, acked));
                        }
                        out
                    })
                })
                .collect();
            joins.into_iter().flat_map(|j| j.join().expect("thread")).collect()
        });
        let mut all = Vec::new();
        let mut bad = None;
        for (got, data, alive, acked) in results {
            match got {
                Ok(lsn) => all.push((lsn.as_u64(), data, alive, acked)),
                Err(e) => {
                    if let Some(lsn) = e.appended_lsn() {
                        all.push((lsn.as_u64(), data, false, false));
                    }
                    // The worst counts.
                    if bad.as_ref().is_none_or(|b: &Error| b.kind() != ErrorKind::Poisoned) {
                        bad = Some(e);
                    }
                }
            }
        }
        all.sort_by_key(|a| a.0);
        for (lsn, data, alive, acked) in all {
            let end = lsn + framed_bytes(data.len());
            self.model.add(lsn, end, 0, vec![data]);
            if acked {
                self.model.is_durable(end);
            }
            if alive && promises {
                self.model.kill = self.model.kill.max(end);
            }
        }
        bad.map_or(Ok(()), Err)
    }

    /// Threads append while this one cuts the log, or while the disk is full and then is not.
    fn threads_against(&mut self, wal: &Wal, cuts: bool) -> Result<()> {
        self.what += if cuts { " threads+cut" } else { " threads+full" };
        let kept =
            self.some_rec().and_then(|r| self.model.recs.iter().rfind(|x| x.end == r.end).cloned());
        let Some(kept) = kept else { return Ok(()) };
        let promises = wal.stats().appends_survive_kill && self.fixed.boot && self.fixed.in_place;
        let mut plans = Vec::new();
        for _ in 0..2 + self.dice.below(2) {
            let mut plan = Vec::new();
            for _ in 0..1 + self.dice.below(12) {
                let len = self.len(wal);
                plan.push((self.dice.below(3), self.model.data(len)));
            }
            plans.push(plan);
        }
        let (used, free) = (self.used(), self.dice.below(4) * 4096);
        let spins = self.dice.below(3000);
        let ck = self.model.ckpt_lo;
        if cuts {
            self.model.cut = Some(kept.end);
            self.model.ckpt_lo = ck.min(kept.end);
        } else {
            self.capped = true;
            self.disk.set_capacity(Some(used + free));
        }
        let disk = &self.disk;
        let mut cut = Ok(());
        let results: Vec<_> = std::thread::scope(|s| {
            let joins: Vec<_> = plans
                .into_iter()
                .map(|plan| {
                    s.spawn(move || {
                        let mut out = Vec::new();
                        for (how, data) in plan {
                            let got = match how {
                                0 => wal.commit(&data),
                                1 => wal.try_append(&data).map(|t| t.lsn()),
                                _ => wal.append(&data).map(|t| t.lsn()),
                            };
                            let alive = !disk.is_dead();
                            let acked = got.is_ok() && how == 0;
                            out.push((got, data, alive, acked));
                        }
                        out
                    })
                })
                .collect();
            for _ in 0..spins {
                std::thread::yield_now();
            }
            if cuts {
                cut = wal.truncate_after(kept.lsn_());
            } else {
                disk.set_capacity(None);
            }
            joins.into_iter().flat_map(|j| j.join().expect("thread")).collect()
        });
        let mut all = Vec::new();
        let mut bad = None;
        for (got, data, alive, acked) in results {
            match got {
                Ok(lsn) => all.push((lsn.as_u64(), data, alive, acked)),
                Err(e) => {
                    if let Some(lsn) = e.appended_lsn() {
                        all.push((lsn.as_u64(), data, false, false));
                    }
                    let mild = matches!(e.kind(), ErrorKind::NoRoom | ErrorKind::Truncated);
                    if !mild && bad.as_ref().is_none_or(|b: &Error| b.kind() != ErrorKind::Poisoned)
                    {
                        bad = Some(e);
                    }
                }
            }
        }
        all.sort_by_key(|a| a.0);
        let did_cut = cuts && cut.is_ok();
        if did_cut {
            self.model.cut_at(kept.end);
        } else if let Err(e) = &cut
            && !self.disk.is_dead()
            && e.kind() != ErrorKind::Poisoned
        {
            self.model.cut = None;
            self.model.ckpt_lo = ck;
        }
        let mut cut_ones = 0;
        let mut behind = 0;
        for (lsn, data, alive, acked) in all {
            let end = lsn + framed_bytes(data.len());
            if did_cut {
                match wal.wait_durable(Lsn::new(lsn)) {
                    Err(e) if e.kind() == ErrorKind::Truncated => {
                        assert_eq!(behind, 0, "{lsn} is cut off, behind one that is not");
                        assert!(lsn >= self.model.top);
                        self.model.top = end;
                        cut_ones += 1;
                        continue;
                    }
                    Ok(()) => {
                        self.model.add(lsn, end, 0, vec![data]);
                        self.model.is_durable(end);
                    }
                    Err(e) => {
                        // Poisoned or full: not known here; only a durable one is certain.
                        self.model.add(lsn, end, 0, vec![data]);
                        bad = Some(e);
                    }
                }
                behind += 1;
                continue;
            }
            self.model.add(lsn, end, 0, vec![data]);
            if acked {
                self.model.is_durable(end);
            }
            if alive && promises {
                self.model.kill = self.model.kill.max(end);
            }
        }
        let _ = cut_ones;
        if !cuts && !self.disk.is_dead() {
            if let Some(e) = &bad {
                assert!(
                    e.kind() == ErrorKind::NoSpace || self.faults,
                    "threads on a full disk: {e:?}"
                );
            }
            let synced = wal.sync();
            if !self.faults && !self.disk.is_dead() {
                synced.as_ref().expect("there is space again");
            }
            self.capped = false;
            return synced;
        }
        bad.map_or(cut, Err)
    }

    fn full_disk(&mut self, wal: &Wal) -> bool {
        self.what += " full";
        let free = self.dice.below(6) * 4096;
        // Whatever is used now, and a little.
        let used: u64 = self.used();
        self.capped = true;
        self.disk.set_capacity(Some(used + free));
        let mut goes = true;
        for _ in 0..self.dice.below(14) {
            let r = match self.dice.below(8) {
                0 => self.truncate_before(wal),
                1 => self.truncate_after(wal),
                2 => {
                    self.what += " sync";
                    wal.sync()
                }
                _ => self.append_any(wal),
            };
            if !self.took(wal, r) {
                goes = false;
                break;
            }
        }
        self.disk.set_capacity(None);
        if !goes || self.disk.is_dead() {
            return false;
        }
        self.capped = false;
        self.what += " space";
        let r = wal.sync();
        self.took(wal, r)
    }

    fn used(&self) -> u64 {
        let blocks = |n: usize| (n as u64).div_ceil(4096) * 4096;
        let log: u64 = self
            .disk
            .files()
            .iter()
            .map(|f| blocks(self.disk.file(f).map_or(0, |b| b.len())))
            .sum();
        let arch: u64 = self
            .disk
            .files_in("/archive")
            .iter()
            .map(|f| blocks(self.disk.file(&format!("/archive/{f}")).map_or(0, |b| b.len())))
            .sum();
        log + arch
    }

    fn step(&mut self, wal: &Wal) -> bool {
        self.what.clear();
        let r = match self.dice.below(if self.fixed.threads { 34 } else { 27 }) {
            0..=7 => self.append_any(wal),
            8 => {
                self.what += "commit";
                let len = self.len(wal);
                let data = self.model.data(len);
                let got = wal.commit(&data);
                let end = framed_bytes(len);
                let both =
                    got.as_ref().map(|l| (l.as_u64(), l.as_u64() + end)).map_err(Clone::clone);
                let r = self.noted(wal, both, 0, vec![data]);
                if r.is_ok() {
                    self.model.is_durable(self.model.top);
                }
                r
            }
            9 => {
                self.what += "sync";
                let r = wal.sync();
                if r.is_ok() {
                    self.model.is_durable(self.model.top);
                }
                r
            }
            10 => {
                let Some(rec) = self.some_rec() else { return true };
                self.what += "flush";
                let r = wal.flush_to_os(rec.lsn_());
                if r.is_ok() && !self.disk.is_dead() {
                    self.model.is_os(rec.end);
                }
                r
            }
            11 => {
                let Some(rec) = self.some_rec() else { return true };
                self.what += "wait_durable";
                let r = wal.wait_durable(rec.lsn_());
                if r.is_ok() {
                    self.model.is_durable(rec.end);
                }
                r
            }
            12 if self.fixed.threads => {
                let Some(rec) = self.some_rec() else { return true };
                self.what += "on_durable";
                let (acked, lsn) = (Arc::clone(&self.acked), rec.lsn);
                let w = wal.clone();
                wal.on_durable(rec.lsn_(), move |r| {
                    if r.is_ok() {
                        acked.fetch_max(lsn + 1, Ordering::SeqCst);
                    }
                    drop(w);
                })
            }
            13..=14 => self.truncate_before(wal),
            15..=16 => self.truncate_after(wal),
            17 => {
                // Several cuts with something between, then the head.
                let mut r = Ok(());
                for _ in 0..1 + self.dice.below(4) {
                    r = self.truncate_after(wal);
                    if r.is_ok() && self.dice.one_in(2) {
                        r = self.append_any(wal);
                    }
                    if r.is_err() {
                        break;
                    }
                }
                if r.is_ok() {
                    r = self.truncate_before(wal);
                }
                r
            }
            18 => {
                let lsn = match self.some_rec() {
                    Some(r) if !self.dice.one_in(6) => r.lsn,
                    _ => wal.reserved_lsn().as_u64(),
                };
                self.what += &format!("checkpoint {lsn}");
                self.model.ckpt_hi = self.model.ckpt_hi.max(lsn);
                let r = wal.checkpoint(Lsn::new(lsn));
                if r.is_ok() {
                    self.model.ckpt_lo = self.model.ckpt_lo.max(lsn);
                    self.model.is_durable(lsn.min(self.model.top));
                }
                r
            }
            19 => self.read(wal),
            20..=21 => self.step_tails(wal),
            22 => self.ask_tickets(wal),
            23 => {
                return self.full_disk(wal);
            }
            24 if self.fixed.threads => self.threads(wal),
            27..=30 => self.threads_against(wal, true),
            31..=33 => self.threads_against(wal, false),
            26 => {
                self.what += "look";
                if !self.faults && !self.disk.is_dead() && !self.fixed.threads {
                    self.look(wal.written_lsn().as_u64());
                }
                return true;
            }
            _ => {
                let Some(rec) = self.some_rec() else { return true };
                self.what += "get";
                wal.get(rec.lsn_()).map(|r| {
                    assert_eq!((r.data(), r.tag()), (&rec.data[..], rec.tag));
                })
            }
        };
        self.took(wal, r)
    }

    fn run(&mut self) {
        let mut crash = Crash::Kill;
        for _ in 0..6 {
            let wal = self.recover(crash);
            self.cut_on_full = false;
            if self.dice.one_in(2) {
                self.disk.crash_at(self.disk.calls() + self.dice.below(150));
            }
            if self.dice.one_in(4) {
                self.arm_fault(40);
            }
            if self.fixed.threads && self.dice.one_in(2) {
                self.disk.fail(Fault::rate(2, FaultKind::SlowSync));
            }
            for _ in 0..self.dice.below(50) {
                if self.disk.is_dead() || !self.step(&wal) {
                    break;
                }
            }
            self.note(&wal);
            let in_doubt = self.model.cut.is_some();
            self.tails.clear();
            self.tickets.clear();
            match self.dice.below(4) {
                0 => {
                    self.what = "close".into();
                    match wal.close() {
                        Ok(()) => {
                            if !in_doubt {
                                self.model.is_durable(self.model.top);
                            }
                            self.clean = !self.disk.is_dead() && !self.fixed.threads;
                        }
                        Err(e) => assert!(
                            self.faults || self.disk.is_dead() || self.cut_on_full,
                            "close: {e}"
                        ),
                    }
                }
                1 => {
                    let r = wal.reserved_lsn();
                    let poisoned = wal
                        .flush_to_os(Lsn::new(0))
                        .is_err_and(|e| e.kind() == ErrorKind::Poisoned);
                    drop(wal);
                    let _ = r;
                    if !poisoned
                        && !self.faults
                        && !self.disk.is_dead()
                        && !in_doubt
                        && !self.cut_on_full
                        && !self.fixed.threads
                    {
                        self.model.is_os(self.model.top);
                    }
                }
                _ => {
                    self.disk.kill();
                    drop(wal);
                }
            }
            crash = self.crash();
        }
        drop(self.recover(crash));
    }
}

impl Rec {
    fn lsn_(&self) -> Lsn {
        Lsn::new(self.lsn)
    }
}

fn palisade_options(_: &Options, o: &Opening) -> palisade_core::Options {
    let mut c = palisade_core::Options::new();
    c.buffer_bytes = o.buffer_bytes;
    c.pad_to_block = o.pad;
    c.recovery = o.recovery;
    c.read_ahead_bytes = o.read_ahead;
    c
}

fn foresee(
    store: palisade::sim::SimStore,
    o: &palisade_core::Options,
) -> Result<palisade::RecoveryReport> {
    palisade_core::Wal::foresee(store, o)
}

fn contents(wal: &Wal) -> Vec<(u64, u16, Vec<u8>)> {
    let mut records = wal.iter().expect("iter");
    let mut found = Vec::new();
    while let Some(r) = records.next().expect("read") {
        found.push((r.lsn().as_u64(), r.tag(), r.data().to_vec()));
    }
    found
}

fn same_files(
    a: &BTreeMap<String, Option<Vec<u8>>>,
    b: &BTreeMap<String, Option<Vec<u8>>>,
    what: &str,
) {
    let names = |m: &BTreeMap<String, Option<Vec<u8>>>| {
        m.keys().filter(|k| *k != "lock").cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(a), names(b), "{what}: files changed");
    for (k, v) in a {
        assert!(b.get(k) == Some(v), "{what}: {k} changed");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn lives_with_other_options_each_lose_nothing() {
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    let seeds = number("PALISADE_SEEDS").unwrap_or(100);
    let until = Instant::now() + Duration::from_secs(number("PALISADE_SECONDS").unwrap_or(100_000));
    let now = Arc::new(AtomicU64::new(u64::MAX));
    let begun = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    {
        let (now, begun) = (Arc::clone(&now), Arc::clone(&begun));
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_secs(5));
                let at = begun.load(Ordering::SeqCst);
                if start.elapsed().as_secs() > at + 60 && now.load(Ordering::SeqCst) != u64::MAX {
                    eprintln!("HANG in seed {}", now.load(Ordering::SeqCst));
                    if number("PALISADE_STAY").is_none() {
                        std::process::abort();
                    }
                }
            }
        });
    }
    let mut failures = Vec::new();
    let mut done = 0;
    for seed in first..first + seeds {
        if Instant::now() > until {
            break;
        }
        now.store(seed, Ordering::SeqCst);
        begun.store(start.elapsed().as_secs(), Ordering::SeqCst);
        let mut run = Run::new(seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| run.run()));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let f = &run.fixed;
            eprintln!(
                "seed {seed}: {:.500}\n   op {} | seg {} in_place {} boot {} powersafe {} archive {} threads {} | {:?}",
                text.unwrap_or_default(),
                run.what,
                f.segment_bytes,
                f.in_place,
                f.boot,
                f.powersafe,
                f.archives,
                f.threads,
                run.opening
            );
            if number("PALISADE_TRACE").is_some() {
                eprintln!("{}\n{:?}", run.disk.trace().join("\n"), run.disk.files());
            }
            run.disk.kill();
            failures.push(seed);
        }
        done += 1;
        if done % 500 == 0 {
            eprintln!("{done} seeds, {} failures", failures.len());
        }
    }
    now.store(u64::MAX, Ordering::SeqCst);
    eprintln!("{done} seeds from {first}: failed {failures:?}");
    assert!(failures.is_empty());
}
