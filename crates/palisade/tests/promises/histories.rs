//! G1 to G5 against a model: random histories of appends, commits, truncations, clean ends,
//! kills, losses of power and interrupted recoveries, on one store.
//!
//! The model is a list of what was appended and how much of it was acknowledged. After each
//! recovery what is there has to be a prefix of the list, with whole batches, that has all that
//! was promised; the list is then cut to it, so that what is gone has to stay gone.

use palisade::store::ReadStore;
use palisade::{Lsn, MemStore, Options, Wal, framed_bytes};
use proptest::prelude::*;

use crate::faulty::FaultyStore;
use crate::folder::contents;
use crate::numbered::data;
use crate::watchdog::guarded;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    InPlace(usize),
    Batch(Vec<usize>),
    Commit(usize),
    Flush,
    Sync,
    /// Positions are shares of the list, in 256ths.
    Truncate(u8),
    /// Cuts off what follows the entry, or the batch that it lies in.
    Cut(u8),
    Checkpoint(u8),
    Read,
    End(End),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Drop,
    Kill,
    /// With seeds for what the medium kept of the bytes that no sync covered.
    LosePower(u64),
    /// The process dies, and so does its successor, in the middle of recovery.
    KillTwice {
        calls: usize,
    },
    /// The process dies, power is lost in the middle of recovery.
    KillAndLosePower {
        calls: usize,
        seed: u64,
    },
}

#[derive(Clone, Debug)]
struct Shape {
    segment_bytes: u64,
    buffer_bytes: usize,
    keeps_buffer: bool,
    pads: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    lsn: Lsn,
    /// End of the record or of its batch: entries with the same end are there together.
    end: Lsn,
    data: Vec<u8>,
}

struct History {
    shape: Shape,
    store: FaultyStore,
    wal: Wal,
    entries: Vec<Entry>,
    /// What has been promised to survive loss of power.
    durable: Lsn,
    /// Above every LSN that was ever given out.
    highest: Lsn,
    appended: u64,
}

impl History {
    fn new(shape: Shape) -> History {
        let inner = MemStore::new(shape.segment_bytes).kept_buffer(shape.keeps_buffer);
        let store = FaultyStore::over(inner);
        let wal = open(&store, &shape).unwrap();
        let (entries, durable, highest) = (Vec::new(), Lsn::ZERO, Lsn::ZERO);
        History { shape, store, wal, entries, durable, highest, appended: 0 }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(len) => {
                let data = self.data(*len);
                let ticket = self.wal.append(&data).unwrap();
                let (lsn, end) = (ticket.lsn(), ticket.end_lsn());
                drop(ticket);
                self.note(vec![(lsn, data)], end);
            }
            Step::InPlace(len) => {
                let data = self.data(*len);
                let fill = |_: Lsn, bytes: &mut [u8]| bytes.copy_from_slice(&data);
                let ticket = self.wal.append_with(data.len(), fill).unwrap();
                let (lsn, end) = (ticket.lsn(), ticket.end_lsn());
                drop(ticket);
                self.note(vec![(lsn, data)], end);
            }
            Step::Batch(lens) => self.append_batch(lens),
            Step::Commit(len) => {
                let data = self.data(*len);
                let lsn = self.wal.commit(&data).unwrap();
                self.note(vec![(lsn, data)], self.wal.reserved_lsn());
                self.durable = self.highest;
            }
            Step::Flush => {
                if let Some(last) = self.entries.last() {
                    self.wal.flush_to_os(last.lsn).unwrap();
                }
            }
            Step::Sync => {
                self.wal.sync().unwrap();
                self.durable = self.highest;
            }
            Step::Truncate(share) => {
                if let Some(at) = self.position(*share) {
                    let lsn = self.entries[at].lsn;
                    self.wal.truncate_before(lsn).unwrap();
                    self.durable = self.durable.max(lsn);
                    self.entries.drain(..at);
                }
            }
            Step::Cut(share) => {
                if let Some(at) = self.position(*share) {
                    let end = self.entries[at].end;
                    self.entries.retain(|entry| entry.end <= end);
                    let last = self.entries.last().unwrap();
                    self.wal.truncate_after(last.lsn).unwrap();
                    self.durable = end;
                    self.highest = self.highest.max(self.wal.reserved_lsn());
                }
            }
            Step::Checkpoint(share) => {
                if let Some(at) = self.position(*share) {
                    let lsn = self.entries[at].lsn;
                    self.wal.checkpoint(lsn).unwrap();
                    self.durable = self.durable.max(lsn);
                }
            }
            Step::Read => self.check_contents(),
            Step::End(end) => self.end(*end),
        }
    }

    fn append_batch(&mut self, lens: &[usize]) {
        let datas: Vec<Vec<u8>> = lens.iter().map(|len| self.data(*len)).collect();
        let records: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
        let ticket = self.wal.append_batch(&records).unwrap();
        let (mut lsn, end) = (ticket.lsn(), ticket.end_lsn());
        drop(ticket);
        let mut members = Vec::new();
        for data in datas {
            let len = framed_bytes(data.len());
            members.push((lsn, data));
            lsn = lsn.plus(len);
        }
        self.note(members, end);
    }

    /// Bytes that no other record has.
    fn data(&mut self, len: usize) -> Vec<u8> {
        self.appended += 1;
        data(self.appended, len)
    }

    fn note(&mut self, records: Vec<(Lsn, Vec<u8>)>, end: Lsn) {
        for (lsn, data) in records {
            assert!(lsn >= self.highest, "LSN {lsn} was given out before");
            self.highest = lsn.plus(framed_bytes(data.len()));
            self.entries.push(Entry { lsn, end, data });
        }
        assert!(end >= self.highest);
        self.highest = end;
    }

    fn position(&self, share: u8) -> Option<usize> {
        let at = self.entries.len() * usize::from(share) / 256;
        (at < self.entries.len()).then_some(at)
    }

    fn end(&mut self, end: End) {
        let (durable, written) = (self.wal.durable_lsn(), self.wal.written_lsn());
        assert!(durable >= self.durable);
        let survives_kill = if self.shape.keeps_buffer { self.highest } else { written };
        let wal = self.wal.clone();
        let spare = std::mem::replace(&mut self.wal, idle());
        drop(spare);
        let promised = match end {
            End::Close => {
                wal.close().unwrap();
                self.highest
            }
            End::Drop => {
                drop(wal);
                self.highest
            }
            End::Kill => {
                self.die(wal);
                survives_kill
            }
            End::LosePower(seed) => {
                self.die(wal);
                lose_power(&self.store.inner, seed);
                durable
            }
            End::KillTwice { calls } => {
                self.die(wal);
                self.die_recovering(calls);
                survives_kill
            }
            End::KillAndLosePower { calls, seed } => {
                self.die(wal);
                // Once an open has returned, what it reported is durable, too.
                let reported = self.die_recovering(calls);
                lose_power(&self.store.inner, seed);
                if reported { survives_kill } else { durable }
            }
        };
        self.recover(promised);
        let is_clean = self.wal.recovery_report().clean;
        assert_eq!(is_clean, matches!(end, End::Close));
    }

    fn die(&mut self, wal: Wal) {
        self.store.kill();
        drop(wal);
        self.store = self.store.next_life();
    }

    /// Lets the next process die after some changing calls; says whether its open returned.
    fn die_recovering(&mut self, calls: usize) -> bool {
        self.store.die_after(calls);
        let opened = open(&self.store, &self.shape);
        let has_opened = opened.is_ok();
        self.store.kill();
        drop(opened);
        self.store = self.store.next_life();
        has_opened
    }

    fn recover(&mut self, promised: Lsn) {
        self.store = self.store.next_life();
        self.wal = open(&self.store, &self.shape).unwrap();
        let found = contents(&self.wal).unwrap();
        let is_kept = |entry: &&Entry| entry.end <= promised;
        let at_least = self.entries.iter().take_while(is_kept).count();
        assert!(
            found.len() >= at_least,
            "{} of {at_least} promised records are there: {:?}",
            found.len(),
            self.wal.recovery_report()
        );
        assert!(found.len() <= self.entries.len(), "more is there than was appended");
        let cut = self.entries.split_off(found.len());
        self.check_equal(&found);
        if let (Some(last), Some(first_cut)) = (self.entries.last(), cut.first()) {
            assert_ne!(last.end, first_cut.end, "a batch is there in part");
        }
        assert!(self.wal.reserved_lsn() >= self.highest, "an LSN could be used twice");
        self.durable = self.wal.durable_lsn();
        self.highest = self.wal.reserved_lsn();
    }

    fn check_contents(&self) {
        self.check_equal(&contents(&self.wal).unwrap());
        for entry in self.entries.iter().step_by(7) {
            assert_eq!(self.wal.get(entry.lsn).unwrap().data(), entry.data);
        }
    }

    fn check_equal(&self, found: &[(Lsn, Vec<u8>)]) {
        assert_eq!(found.len(), self.entries.len());
        for ((lsn, data), entry) in found.iter().zip(&self.entries) {
            assert_eq!((*lsn, data), (entry.lsn, &entry.data));
        }
    }
}

fn open(store: &FaultyStore, shape: &Shape) -> palisade::Result<Wal> {
    let options = Options::new().buffer_bytes(shape.buffer_bytes).pad_to_block(shape.pads);
    Wal::with_store(store.clone(), options)
}

/// A log that stands in while the real one is between two lives.
fn idle() -> Wal {
    Wal::with_store(MemStore::new(4096), Options::new().buffer_bytes(4096)).unwrap()
}

/// Loses power as a medium may: from the first byte that no sync covered on, each 64 bytes come
/// back as they were written, as they were before, as zeros, or as anything.
fn lose_power(store: &MemStore, seed: u64) {
    let written = bytes_of_segments(store);
    store.lose_power();
    let synced = bytes_of_segments(store);
    let mut random = seed | 1;
    for ((base, written), (_, synced)) in written.iter().zip(&synced) {
        let is_same = |(one, other): &(&u8, &u8)| one == other;
        let mut at = written.iter().zip(synced).take_while(is_same).count();
        while at < written.len() {
            let next = (at + 1).next_multiple_of(64).min(written.len());
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let kept = match random % 8 {
                0 => None,
                1 => Some(vec![0; next - at]),
                2 => Some(written[at..next].iter().map(|byte| byte ^ random as u8).collect()),
                _ => Some(written[at..next].to_vec()),
            };
            if let Some(kept) = kept {
                // The medium has it: the next loss of power takes none of it.
                store.damage(base.plus(at as u64), &kept).unwrap();
            }
            at = next;
        }
    }
}

/// The base and the bytes of every segment.
fn bytes_of_segments(store: &MemStore) -> Vec<(Lsn, Vec<u8>)> {
    let segment_bytes = store.state().unwrap().segment_bytes;
    let segments = store.segments().unwrap();
    let read = segments.iter().map(|segment| {
        let base = Lsn::new(segment.number * segment_bytes);
        let mut bytes = vec![0; segment_bytes as usize];
        let len = store.read(base, &mut bytes).unwrap();
        bytes.truncate(len);
        (base, bytes)
    });
    read.collect()
}

fn steps(max_bytes: usize) -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![4 => 0..200_usize, 1 => 200..=max_bytes];
    let batch = prop::collection::vec(0..max_bytes / 10, 1..6);
    let seed = any::<u64>();
    let end = prop_oneof![
        1 => Just(End::Close),
        1 => Just(End::Drop),
        3 => Just(End::Kill),
        4 => seed.prop_map(End::LosePower),
        2 => (0..12_usize).prop_map(|calls| End::KillTwice { calls }),
        2 => (0..12_usize, seed).prop_map(|(calls, seed)| End::KillAndLosePower { calls, seed }),
    ];
    let step = prop_oneof![
        8 => len.clone().prop_map(Step::Append),
        2 => len.clone().prop_map(Step::InPlace),
        3 => batch.prop_map(Step::Batch),
        3 => len.prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => any::<u8>().prop_map(Step::Cut),
        1 => any::<u8>().prop_map(Step::Checkpoint),
        1 => Just(Step::Read),
        3 => end.prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..80)
}

fn shape() -> impl Strategy<Value = Shape> {
    let segment_bytes = prop::sample::select(vec![4096, 8192, 12_288, 65_536]);
    let buffer_bytes = prop::sample::select(vec![4096, 16_384]);
    let flags = (prop::bool::weighted(0.7), prop::bool::weighted(0.3));
    (segment_bytes, buffer_bytes, flags).prop_map(
        |(segment_bytes, buffer_bytes, (keeps_buffer, pads))| Shape {
            segment_bytes,
            buffer_bytes,
            keeps_buffer,
            pads,
        },
    )
}

/// Half of the smallest buffer, less a header.
const MAX_RECORD_BYTES: usize = 2048 - 24;

proptest! {
    #![proptest_config(ProptestConfig {
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_history_keeps_what_was_promised_and_nothing_else(
        shape in shape(),
        steps in steps(MAX_RECORD_BYTES),
    ) {
        guarded(move || {
            let mut history = History::new(shape);
            steps.iter().for_each(|step| history.step(step));
            history.end(End::Kill);
            history.end(End::LosePower(1));
        });
    }
}
