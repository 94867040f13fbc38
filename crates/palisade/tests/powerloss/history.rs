//! One seed: runs of one log on a simulated disk, each with random work, each ended by a crash at
//! a random file-system call, and a check of what the next one finds.

use std::time::Duration;

use palisade::sim::{CallKind, Fault, WriteBackFailure};
use palisade::{Error, ErrorKind, Lsn, Result, SyncPolicy, Verify, Wal, framed_bytes};

use crate::codecs::Chosen;
use crate::device::{Device, FAULTS, POLICIES, may_drop_pages};
use crate::dice::Dice;
use crate::ends::End;
use crate::held::Held;
use crate::oracle::{Crash, Entry};
use crate::seeds::Seeded;
use crate::session::Session;
use crate::shape::{Opening, Shape};

const RUNS: u64 = 5;
/// In an idle run the log syncs by itself so soon.
const IDLE: Duration = Duration::from_millis(2);
/// Recoveries that may be interrupted one after the other.
const DEPTH: u32 = 3;

/// A session and the dice that say what happens in it.
#[derive(Debug)]
pub(crate) struct History {
    dice: Dice,
    device: Device,
    held: Held,
    is_poisoned: bool,
    pub(crate) session: Session,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        let mut dice = Dice::new(seed);
        let (device, failure) = Device::new(seed);
        let codec = Chosen::of_seed(seed);
        let mut shape = Shape { failure, codec, ..roll_shape(&mut dice) };
        roll_long_frames(&mut shape, &mut Dice::new(seed ^ 0x10f6_4a3e));
        let session = Session::new(shape, dice.next());
        History { dice, device, held: Held::default(), is_poisoned: false, session }
    }

    fn run(&mut self) {
        let mut crash = None;
        for _ in 0..RUNS {
            let wal = self.recover(crash);
            self.is_poisoned = false;
            if self.session.opening.policy.is_some() {
                self.idle(wal);
            } else {
                self.work(wal);
            }
            crash = Some(self.crash());
        }
        drop(self.recover(crash));
    }

    fn describe(&self) -> String {
        self.session.describe()
    }
}

impl History {
    /// Opens the log after `crash`, with up to `DEPTH` crashes on the way, and checks it.
    fn recover(&mut self, crash: Option<Crash>) -> Wal {
        let mut crash = crash;
        for _ in 0..DEPTH {
            if !self.dice.once_in(3) {
                break;
            }
            self.plan_crash(40);
            self.device.plan_dropped_pages(&self.session.disk);
            self.roll_opening();
            // The first open of all has nothing to lose: any promise is empty.
            self.session.open_and_die(crash.unwrap_or(Crash::Kill));
            crash = Some(self.crash_after(crash));
        }
        let crash = self.open_with_faults(crash);
        let crash = self.open_damaged(crash);
        self.roll_opening();
        self.device.plan_dropped_pages(&self.session.disk);
        let wal = self.session.open_and_check(crash);
        if !self.dice.once_in(3) {
            return wal;
        }
        // G5: a second recovery, with nothing done in between, finds the same.
        self.session.disk.kill();
        drop(wal);
        let crash = self.crash();
        let wal = self.session.open_and_check(Some(crash));
        self.session.oracle.check_all(&wal);
        wal
    }

    /// Opens that meet faults, in the same boot, and then maybe a crash.
    fn open_with_faults(&mut self, crash: Option<Crash>) -> Option<Crash> {
        let mut crash = crash;
        for _ in 0..3 {
            if !self.dice.once_in(2) {
                break;
            }
            let fault = self.roll_fault();
            self.session.disk.fail(fault);
            self.device.plan_trouble(&self.session.disk, 30);
            self.device.plan_bad_read(&self.session.disk);
            self.session.working_on = "faulty open";
            self.roll_opening();
            self.session.opening.verify_threads = 1;
            let opened = self.session.open();
            self.session.disk.heal();
            match opened {
                Ok(wal) => {
                    let before = crash.unwrap_or(Crash::Kill);
                    if self.session.disk.is_shut_down() {
                        self.session.reported(&wal, before);
                    } else {
                        self.session.check_recovered(&wal, before);
                    }
                    self.session.disk.kill();
                    drop(wal);
                }
                Err(error) => {
                    let kind = error.kind();
                    let is_the_fault = matches!(kind, ErrorKind::Io | ErrorKind::NoSpace);
                    assert!(is_the_fault || kind == ErrorKind::Poisoned, "faulty open: {error}");
                    self.session.disk.kill();
                }
            }
            crash = Some(self.crash_after(crash));
        }
        crash
    }

    /// Bits that rot before the open, and what it takes to open then.
    fn open_damaged(&mut self, crash: Option<Crash>) -> Option<Crash> {
        let Some(mut crash) = crash.filter(|_| self.dice.once_in(5)) else {
            return crash;
        };
        // No error waits to be reported, so a refused open leaves every byte.
        let disk = &self.session.disk;
        if disk.unreported_failures() > 0 || may_drop_pages(disk) {
            return Some(crash);
        }
        let Some(refused) = self.session.damage(crash, &mut self.dice) else { return Some(crash) };
        let opened = match refused {
            Err(wal) => wal,
            Ok(bad) => self.repair(bad, &mut crash),
        };
        self.session.disk.kill();
        drop(opened);
        Some(self.crash_after(Some(crash)))
    }

    /// Gives up what lies from `bad` on, or more, in as many attempts as it takes.
    fn repair(&mut self, bad: Lsn, crash: &mut Crash) -> Wal {
        let oracle = &self.session.oracle;
        let may_be_named = |entry: &&Entry| entry.lsn < bad && !oracle.is_split(entry);
        let below: Vec<Lsn> =
            oracle.entries().iter().filter(may_be_named).map(|entry| entry.lsn).collect();
        let is_lower = !below.is_empty() && self.dice.once_in(3);
        let mut named = if is_lower { self.dice.pick(&below) } else { bad };
        loop {
            if self.dice.once_in(2) {
                self.plan_crash(40);
            }
            if let Some(wal) = self.session.repair(named, bad, *crash) {
                return wal;
            }
            if self.session.disk.is_dead() {
                *crash = self.crash_after(Some(*crash));
            } else {
                named = bad;
            }
        }
    }

    /// One crash more, after `before`: what the two leave standing.
    fn crash_after(&mut self, before: Option<Crash>) -> Crash {
        let next = self.crash();
        let lost_power = before == Some(Crash::PowerLoss) || next == Crash::PowerLoss;
        if lost_power { Crash::PowerLoss } else { Crash::Kill }
    }

    /// How the next open goes about it.
    fn roll_opening(&mut self) {
        let verify = if self.dice.once_in(3) { Verify::Full } else { Verify::Tail };
        // If a read meets a fault, two threads would meet it at another place each time.
        let verify_threads = if self.device.is_sound { 1 + self.dice.below(2) as usize } else { 1 };
        let Shape { policy, max_files, .. } = self.session.shape;
        // At a limit nothing syncs.
        let may_idle = matches!(policy, SyncPolicy::Interval(_)) && max_files.is_none();
        let is_idle = may_idle && self.dice.once_in(2);
        let policy = is_idle.then_some(SyncPolicy::Interval(IDLE));
        self.session.opening = Opening { verify, verify_threads, policy };
    }

    fn plan_crash(&mut self, within: u64) {
        let disk = &self.session.disk;
        disk.crash_at(disk.calls() + self.dice.below(within));
    }

    fn crash(&mut self) -> Crash {
        let end = match self.dice.below(5) {
            0..=1 => End::PowerLoss,
            2..=3 => End::Kill,
            _ => End::Reboot,
        };
        self.session.disk.kill();
        // A fault of the run before must not meet the recovery, which is to come through.
        self.session.disk.heal();
        let end = self.device.end(&mut self.session, end);
        self.session.end_as(end)
    }

    fn plan_trouble(&mut self, within: u64) {
        if self.dice.once_in(2) {
            self.plan_crash(within);
        }
        if self.dice.once_in(4) {
            let fault = self.roll_fault();
            self.session.disk.fail(fault);
        }
        self.device.plan_trouble(&self.session.disk, within);
    }

    /// A run in which the log's own thread syncs, while this one waits: the interval policy.
    ///
    /// Only records that leave all calls to that thread, so that the run is the same each time.
    fn idle(&mut self, wal: Wal) {
        self.plan_trouble(30);
        let shape = &self.session.shape;
        let codec = shape.codec;
        let piece_bytes = shape.segment_bytes.min(shape.buffer_bytes as u64 / 2);
        for _ in 0..self.dice.below(6) {
            let len = self.dice.below(200) as usize;
            let start = wal.reserved_lsn();
            let end = start.plus(framed_bytes(len + codec.overhead_bytes()));
            let fits = start.segment(piece_bytes) == end.segment(piece_bytes);
            if !fits || self.session.disk.is_dead() {
                break;
            }
            if let Err(error) = self.session.append_and_idle(&wal, len)
                && !self.goes_on(&wal, &error)
            {
                break;
            }
        }
        self.session.note_ring(&wal);
        self.session.disk.kill();
        drop(wal);
    }

    /// Random work until the disk dies or the work is done.
    fn work(&mut self, wal: Wal) {
        self.plan_trouble(120);
        for _ in 0..self.dice.below(60) {
            if self.session.disk.is_dead() {
                break;
            }
            if let Err(error) = self.step(&wal)
                && !self.goes_on(&wal, &error)
            {
                break;
            }
        }
        self.session.note_ring(&wal);
        self.end(wal);
    }

    /// Whether the log goes on after `error`: after lack of space it does, in the same epoch.
    fn goes_on(&mut self, wal: &Wal, error: &Error) -> bool {
        if self.session.disk.is_dead() {
            return false;
        }
        match error.kind() {
            ErrorKind::NoSpace => true,
            ErrorKind::Poisoned => {
                self.is_poisoned = true;
                self.session.check_poisoned(wal);
                false
            }
            // A fault outside of writes and syncs: the call failed, the log stands.
            ErrorKind::Io => true,
            _ if self.session.is_unreadable(error) => true,
            _ => panic!("{}: {error}", self.session.working_on),
        }
    }

    fn step(&mut self, wal: &Wal) -> Result<()> {
        let index = self.dice.below(self.session.oracle.entries().len().max(1) as u64) as usize;
        match self.dice.below(26) {
            0..=3 => {
                let len = self.roll_len(wal);
                self.session.append(wal, len)
            }
            4 | 16 => {
                let len = self.roll_len(wal);
                let ticket = self.session.append_for_ticket(wal, len)?;
                self.held.keep(ticket);
                Ok(())
            }
            5 => {
                let (len, dies) = (self.roll_len(wal), self.dice.once_in(8));
                self.session.append_in_place(wal, len, dies)
            }
            6 => {
                let count = 1 + self.dice.below(4);
                let lens: Vec<usize> = (0..count).map(|_| self.dice.below(120) as usize).collect();
                if self.dice.once_in(3) {
                    self.session.append_many(wal, &lens)
                } else {
                    self.session.append_batch(wal, &lens)
                }
            }
            7..=8 => {
                let len = self.roll_len(wal);
                self.session.commit(wal, len)
            }
            9 => self.session.sync(wal),
            10 => self.session.flush(wal),
            11 => self.session.truncate_before(wal, index),
            12 => self.session.checkpoint(wal, index),
            13 => self.session.read(wal),
            14 => self.session.truncate_after(wal, index),
            17 => self.truncate_from(wal, index),
            18 => self.held.read(&self.session, wal, &mut self.dice),
            19..=20 => self.held.ask(&mut self.session, wal, &mut self.dice),
            22 => {
                self.session.note_watermark(wal);
                Ok(())
            }
            23..=25 => {
                let open = &mut self.held.cursors;
                self.session.step_cursors(wal, open, &mut self.dice)
            }
            21 => {
                let at_cut = self.dice.once_in(2);
                self.session.look(wal, index, at_cut)
            }
            _ => self.fill_the_disk(wal),
        }
    }

    fn truncate_from(&mut self, wal: &Wal, index: usize) -> Result<()> {
        if self.dice.once_in(2) {
            return self.session.truncate_from(wal, index);
        }
        let count = 1 + self.dice.below(3);
        let lens: Vec<usize> = (0..count).map(|_| self.dice.below(120) as usize).collect();
        self.session.replace_from(wal, index, &lens)
    }

    /// G7: the disk is full for a while; nothing is lost, and it goes on without a reopen.
    fn fill_the_disk(&mut self, wal: &Wal) -> Result<()> {
        self.session.disk.set_capacity(Some(0));
        let result = self.work_on_a_full_disk(wal);
        self.session.disk.set_capacity(None);
        result?;
        self.session.sync(wal)
    }

    fn work_on_a_full_disk(&mut self, wal: &Wal) -> Result<()> {
        for _ in 0..self.dice.below(12) {
            let len = self.roll_len(wal);
            let appended = self.session.append(wal, len);
            self.session.working_on = "append on a full disk";
            match appended {
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                other => other?,
            }
        }
        match self.session.sync(wal) {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            other => other,
        }
    }

    fn end(&mut self, wal: Wal) {
        self.ask_all(&wal);
        match self.dice.below(4) {
            0 => {
                let beside = wal.clone();
                // Its error is the crash or the fault that was planned.
                let closed = self.session.close(wal);
                self.ask_all(&beside);
                self.held.clear();
                let is_poisoned = closed.is_err_and(|error| error.kind() == ErrorKind::Poisoned);
                self.session.note_drop(is_poisoned);
            }
            1 => {
                self.session.working_on = "drop";
                self.held.clear();
                self.session.note_drop(self.is_poisoned);
                drop(wal);
            }
            _ => {
                self.session.disk.kill();
                self.held.clear();
                drop(wal);
            }
        }
    }

    fn ask_all(&mut self, wal: &Wal) {
        if !self.session.disk.is_dead() {
            self.held.ask_all(&mut self.session, wal);
        }
    }

    fn roll_fault(&mut self) -> Fault {
        let calls = [CallKind::Write, CallKind::Sync, CallKind::SyncFolder, CallKind::Rename];
        let kind = self.dice.pick(&FAULTS);
        if self.dice.once_in(2) {
            return Fault::at(self.session.disk.calls() + self.dice.below(60), kind);
        }
        Fault::nth(self.dice.pick(&calls), self.dice.below(20), kind)
    }

    fn roll_len(&mut self, wal: &Wal) -> usize {
        let max = (wal.max_record_bytes() - self.session.shape.codec.overhead_bytes()) as u64;
        let len = match self.dice.below(20) {
            0 => 0,
            1 => max,
            2..=4 => self.dice.below(max + 1),
            _ => self.dice.below(200.min(max)),
        };
        let is_long = self.session.shape.has_long_frames() && self.device.dice.once_in(3);
        let len = if is_long { self.device.dice.below(max + 1) } else { len };
        len as usize
    }
}

fn roll_shape(dice: &mut Dice) -> Shape {
    Shape {
        segment_bytes: dice.pick(&[4096, 8192, 16_384]),
        buffer_bytes: dice.pick(&[4096, 8192, 16_384]),
        heap: dice.once_in(4),
        zero_fill: !dice.once_in(4),
        spares: dice.below(4) as usize,
        // What happens in time is tried in idle runs.
        policy: dice.pick(&POLICIES),
        in_place: !dice.once_in(5),
        powersafe: !dice.once_in(5),
        keeps_released: dice.once_in(4),
        first_lsn: if dice.once_in(4) { (1 << 40) + dice.below(1 << 20) } else { 0 },
        max_files: dice.once_in(4).then(|| 4 + dice.below(4)),
        failure: WriteBackFailure::default(),
        codec: Chosen::None,
        read_ahead: 256 << 10,
    }
}

/// Makes one log in two have frames that are longer than the read buffer. The dice are its own, so
/// that all other rolls of a seed stay.
fn roll_long_frames(shape: &mut Shape, dice: &mut Dice) {
    if dice.once_in(2) {
        shape.read_ahead = dice.pick(&[4096, 5000, 8192]);
        shape.segment_bytes = dice.pick(&[16_384, 32_768, 65_536]);
        shape.buffer_bytes = dice.pick(&[16_384, 32_768, 65_536]);
    }
}
