//! Engines that replay while they open: each record once, in order, borrowed; an error ends the
//! open and loses nothing.

use palisade::{Error, ErrorKind, Lsn, Options, Replay, Verify, Wal};

use crate::faulty::FaultyLog;
use crate::folder::{
    Entries, SEGMENT_BYTES, contents, copy_as_killed, flip, log_on_files, place_of, small,
};

/// What an engine makes of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
struct Engine {
    records: Entries,
    segments: Vec<u64>,
}

impl Engine {
    fn take(&mut self, event: Replay<'_>) {
        match event {
            Replay::Segment(start) => {
                assert_eq!(start.records, self.records.len() as u64);
                assert_eq!(start.at.as_u64() / SEGMENT_BYTES, start.segment);
                assert!(start.at < start.end);
                self.segments.push(start.segment);
            }
            Replay::Record(record) => {
                let segment = record.lsn().as_u64() / SEGMENT_BYTES;
                assert_eq!(self.segments.last(), Some(&segment), "progress comes first");
                self.records.push((record.lsn(), record.data().to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn log() -> (tempfile::TempDir, std::path::PathBuf, Entries) {
    let (dir, path, wal) = log_on_files(small());
    let mut records = Vec::new();
    for n in 0..900_u32 {
        let data = n.to_le_bytes().repeat(50);
        records.push((wal.append(&data).unwrap().lsn(), data));
    }
    wal.append_batch(&[b"one", b"two"]).unwrap().wait().unwrap();
    records = contents(&wal);
    wal.sync().unwrap();
    (dir, path, records)
}

#[test]
fn every_record_is_handed_out_once_in_order_after_a_kill_and_after_a_close() {
    let (_dir, path, records) = log();
    for closed in [false, true] {
        let (_copy, path) = copy_as_killed(&path);
        if closed {
            small().open(&path).unwrap().close().unwrap();
        }
        for from in [None, Some(0), Some(1), Some(450), Some(900), Some(901)] {
            let (_copy, path) = copy_as_killed(&path);
            let mut engine = Engine::default();
            let lsn = from.map(|index: usize| records[index].0);
            let opened = small().open_replaying(&path, lsn, |event| {
                engine.take(event);
                Ok::<(), Error>(())
            });
            let wal = opened.unwrap();
            assert_eq!(wal.recovery_report().clean, closed);
            assert_eq!(engine.records, records[from.unwrap_or(0)..]);
            assert!(engine.segments.windows(2).all(|pair| pair[0] < pair[1]));
            wal.commit(b"and on").unwrap();
        }
    }
}

#[test]
fn a_replay_may_begin_at_the_end_and_finds_nothing_there() {
    let (_dir, path, _) = log();
    let wal = small().open(&path).unwrap();
    let end = wal.reserved_lsn();
    wal.close().unwrap();
    let opened = small().open_replaying(&path, Some(end), |_| panic!("there is nothing"));
    let wal: Result<Wal, Error> = opened;
    wal.unwrap().close().unwrap();
    let beyond = small().open_replaying(&path, Some(Lsn::new(1 << 40)), |_| Ok::<(), Error>(()));
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[derive(Debug)]
enum EngineError {
    Log(Error),
    Full,
}

impl From<Error> for EngineError {
    fn from(error: Error) -> EngineError {
        EngineError::Log(error)
    }
}

#[test]
fn an_error_of_the_engine_ends_the_open_and_loses_nothing() {
    let (_dir, path, records) = log();
    for closed in [false, true, false, true] {
        let mut count = 0;
        let opened = small().open_replaying(&path, None, |event| match event {
            Replay::Record(_) if count == 500 => Err(EngineError::Full),
            Replay::Record(_) => {
                count += 1;
                Ok(())
            }
            _ => Ok(()),
        });
        assert!(matches!(opened, Err(EngineError::Full)), "{opened:?}");
        let wal = small().open(&path).unwrap();
        assert_eq!(contents(&wal), records);
        if closed {
            wal.close().unwrap();
        }
    }
}

#[test]
fn a_record_that_does_not_validate_ends_the_open_with_its_lsn() {
    let (_dir, path, records) = log();
    small().open(&path).unwrap().close().unwrap();
    let (file, at) = place_of(&path, records[100].0, SEGMENT_BYTES);
    flip(&file, at + 30);
    let mut engine = Engine::default();
    let opened = small().open_replaying(&path, None, |event| {
        engine.take(event);
        Ok::<(), EngineError>(())
    });
    let Err(EngineError::Log(error)) = opened else { panic!("{opened:?}") };
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(records[100].0)));
    assert_eq!(engine.records, records[..100]);
}

/// What an engine was given must be there when the machine dies in the middle of its replay.
#[test]
fn what_was_handed_out_survives_loss_of_power_during_the_replay() {
    let options = || Options::new().buffer_bytes(1 << 14).verify(Verify::Full);
    let store = FaultyLog::new(SEGMENT_BYTES);
    let wal = store.open(options());
    for n in 0..60_u8 {
        wal.append(&[n; 100]).unwrap();
    }
    let next = store.after_kill(wal);
    let mut given = Vec::new();
    let opened = Wal::with_store_replaying(next.store().unwrap(), options(), None, |event| {
        if let Replay::Record(record) = event {
            given.push((record.lsn(), record.data().to_vec()));
        }
        if given.len() < 40 { Ok(()) } else { Err(EngineError::Full) }
    });
    assert!(matches!(opened, Err(EngineError::Full)));
    next.kill();
    next.inner.lose_power();
    let wal = next.next_run().open(options());
    assert_eq!(contents(&wal)[..40], given);
}
