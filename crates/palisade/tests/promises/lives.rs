//! Many lives of one log on files: appended to, truncated, and ended in every way that leaves
//! the operating system running.

use std::path::{Path, PathBuf};

use palisade::{BufferKind, Lsn, Options, Wal};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::folder::{contents, copy_as_killed, folder, small};

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Drop,
    Kill,
}

#[derive(Clone, Debug)]
struct Life {
    lens: Vec<usize>,
    truncate: Option<u8>,
    checkpoint: Option<u8>,
    end: End,
}

fn life() -> impl Strategy<Value = Life> {
    let lens = prop::collection::vec(prop_oneof![6 => 0..400_usize, 1 => 400..8000_usize], 0..120);
    let end = prop_oneof![Just(End::Close), Just(End::Drop), Just(End::Kill)];
    let share = prop::option::weighted(0.4, any::<u8>());
    (lens, share.clone(), share, end).prop_map(|(lens, truncate, checkpoint, end)| Life {
        lens,
        truncate,
        checkpoint,
        end,
    })
}

/// What a kill leaves is a copy; the folders before it live as long as the last.
struct Lives {
    folders: Vec<TempDir>,
    path: PathBuf,
    records: Vec<(Lsn, Vec<u8>)>,
}

impl Lives {
    fn open(&self, options: &Options) -> Wal {
        let wal = options.open(&self.path).unwrap();
        let found = contents(&wal).unwrap();
        assert!(found == self.records, "{:?}", wal.recovery_report());
        wal
    }

    fn live(&mut self, options: &Options, life: &Life) {
        let wal = self.open(options);
        for (n, len) in life.lens.iter().enumerate() {
            let data = vec![n as u8; *len];
            let lsn = match n % 4 {
                0 => wal.append_batch(&[&data]).unwrap().lsn(),
                1 => wal.append_with(*len, |_, bytes| bytes.fill(n as u8)).unwrap().lsn(),
                2 if n % 40 == 2 => wal.commit(&data).unwrap(),
                _ => wal.append(&data).unwrap().lsn(),
            };
            let highest = self.records.last().map_or(Lsn::ZERO, |(last, _)| *last);
            assert!(self.records.is_empty() || lsn > highest, "an LSN is used once");
            self.records.push((lsn, data));
        }
        let at = |share: u8| self.records.len() * usize::from(share) / 256;
        if let Some(share) = life.checkpoint.filter(|_| !self.records.is_empty()) {
            wal.checkpoint(self.records[at(share)].0).unwrap();
        }
        if let Some(share) = life.truncate.filter(|_| !self.records.is_empty()) {
            let at = at(share);
            wal.truncate_before(self.records[at].0).unwrap();
            self.records.drain(..at);
        }
        self.end(wal, life.end);
    }

    fn end(&mut self, wal: Wal, end: End) {
        match end {
            End::Close => wal.close().unwrap(),
            End::Drop => drop(wal),
            End::Kill => {
                // A copy has no log buffer.
                if let Some((last, _)) = self.records.last() {
                    wal.flush_to_os(*last).unwrap();
                }
                let (dir, path) = copy_as_killed(&self.path);
                self.folders.push(dir);
                self.path = path;
            }
        }
    }
}

fn verify(path: &Path, records: usize) {
    let verdict = palisade::inspect::Inspector::open(path).unwrap().verify().unwrap();
    assert_eq!(verdict.outcome, palisade::inspect::Outcome::Clean, "{verdict:?}");
    assert_eq!(verdict.records, records as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_life_finds_what_the_lives_before_left(
        lives in prop::collection::vec(life(), 1..6),
        buffer in prop::sample::select(vec![BufferKind::Heap, BufferKind::Mapped]),
    ) {
        let (dir, path) = folder();
        let mut log = Lives { folders: vec![dir], path, records: Vec::new() };
        let options = small().buffer(buffer);
        lives.iter().for_each(|life| log.live(&options, life));
        log.open(&options).close().unwrap();
        verify(&log.path, log.records.len());
    }
}
