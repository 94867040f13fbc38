//! Cursors that tasks poll: they return what `next` returns, and end as it does.

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use palisade::Result;

use crate::prelude::*;

/// Of 1000 bytes each, with their headers.
const RECORDS_PER_SEGMENT: u8 = (SEGMENT_BYTES / 1024) as u8;

async fn next(cursor: &mut Cursor) -> Result<Option<Vec<u8>>> {
    let next = |context: &mut Context<'_>| {
        cursor.poll_next(context).map_ok(|found| found.map(|record| record.data().to_vec()))
    };
    poll_fn(next).await
}

async fn next_of_stream(cursor: &mut Cursor) -> Option<Result<RecordBuf>> {
    poll_fn(|context| <Cursor as Stream>::poll_next(Pin::new(cursor), context)).await
}

fn fill(wal: &Wal, numbers: std::ops::Range<u8>) -> Vec<Lsn> {
    let lsns = numbers.map(|number| wal.append(&[number; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    lsns
}

/// Checks that `next` and the stream return an error of this kind, and the stream only once.
fn assert_ends(cursor: &mut Cursor, kind: ErrorKind) {
    assert_eq!(cursor.next(Duration::ZERO).unwrap_err().kind(), kind);
    assert_eq!(block_on(next(cursor)).unwrap_err().kind(), kind);
    let error = block_on(next_of_stream(cursor)).unwrap().unwrap_err();
    assert_eq!(error.kind(), kind);
    assert!(block_on(next_of_stream(cursor)).is_none(), "a stream ends after an error");
    assert_eq!(block_on(next(cursor)).unwrap_err().kind(), kind);
}

#[test]
fn polled_cursors_see_each_record_once_in_order_beside_commits() {
    const RECORDS: u8 = 200;
    let (_folder, _, wal) = log_on_files(small());
    let mut polled = wal.create_cursor("polled", None, u64::MAX).unwrap();
    let mut streamed = wal.create_cursor("streamed", None, u64::MAX).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..RECORDS {
                wal.commit(&[number]).unwrap();
            }
        });
        let polled = async move {
            for number in 0..RECORDS {
                assert_eq!(next(&mut polled).await.unwrap().unwrap(), [number]);
                polled.confirm();
            }
        };
        let streamed = async move {
            for number in 0..RECORDS {
                let record = next_of_stream(&mut streamed).await.unwrap().unwrap();
                assert_eq!(record.data(), [number]);
            }
        };
        run_all(vec![Box::pin(polled), Box::pin(streamed)]);
    });
}

#[test]
fn a_commit_of_another_thread_wakes_a_task_that_polls_a_cursor() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(move || block_on(next(&mut cursor)).unwrap().unwrap());
        until(|| wal.stats().waiters == 1);
        wal.commit(b"x").unwrap();
        assert_eq!(reader.join().unwrap(), b"x");
    });
}

#[test]
fn a_dropped_future_of_a_cursor_loses_no_record() {
    let (_folder, path, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, u64::MAX).unwrap();
    for number in 0..50_u8 {
        // This future is dropped, before the record is there or after it.
        assert!(poll_once(&mut Box::pin(next(&mut cursor))).is_pending());
        wal.commit(&[number]).unwrap();
        match number % 3 {
            0 => drop(next(&mut cursor)),
            1 => drop(next_of_stream(&mut cursor)),
            _ => assert_eq!(cursor.peek(Duration::ZERO).unwrap().unwrap().data(), [number]),
        }
        assert_eq!(block_on(next(&mut cursor)).unwrap().unwrap(), [number]);
    }
    // What was returned is processed when the caller says so, as for `next`.
    cursor.save().unwrap();
    wal.commit(b"not processed").unwrap();
    let record = block_on(next_of_stream(&mut cursor)).unwrap().unwrap();
    assert_eq!(record.data(), b"not processed");
    assert!(poll_once(&mut Box::pin(next(&mut cursor))).is_pending());
    assert_eq!(wal.stats().waiters, 1);
    drop(cursor);
    assert_eq!(wal.stats().waiters, 0);
    wal.abandon();
    let wal = small().open(&path).unwrap();
    let mut cursor = wal.cursor("one").unwrap();
    assert_eq!(block_on(next(&mut cursor)).unwrap().unwrap(), b"not processed");
}

#[test]
fn a_polled_cursor_ends_with_the_log() {
    for kind in [ErrorKind::Closed, ErrorKind::Poisoned] {
        let (wal, store) = log_and_store();
        let mut cursor = wal.create_cursor("one", None, 0).unwrap();
        fill(&wal, 0..1);
        assert_eq!(block_on(next(&mut cursor)).unwrap().unwrap(), [0; 1000]);
        thread::scope(|scope| {
            let reader = scope.spawn(|| block_on(next(&mut cursor)).unwrap_err().kind());
            until(|| wal.stats().waiters == 1);
            if kind == ErrorKind::Closed {
                wal.close().unwrap();
            } else {
                store.set(SYNC, Effect::Eio);
                wal.commit(b"not durable").unwrap_err();
            }
            assert_eq!(reader.join().unwrap(), kind);
        });
        assert_ends(&mut cursor, kind);
    }
}

#[test]
fn a_cursor_stream_with_a_lost_position_goes_on_after_a_seek() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    let lsns = fill(&wal, 0..3 * RECORDS_PER_SEGMENT);
    let last = lsns.len() - 1;
    wal.truncate_before(lsns[last]).unwrap();
    assert_ends(&mut cursor, ErrorKind::Lagged);
    cursor.seek(lsns[last]).unwrap();
    let record = block_on(next_of_stream(&mut cursor)).unwrap().unwrap();
    assert_eq!(record.lsn(), lsns[last]);

    wal.truncate_from(lsns[last]).unwrap();
    assert_ends(&mut cursor, ErrorKind::Truncated);
    let to = wal.resume_lsn(cursor.position()).unwrap();
    cursor.seek(to).unwrap();
    fill(&wal, 7..8);
    let record = block_on(next_of_stream(&mut cursor)).unwrap().unwrap();
    assert_eq!(record.data(), [7; 1000]);
}

/// Its pin is at the first segment, so the truncation removes the pin, and the position stays.
#[test]
fn a_polled_cursor_without_a_pin_reads_until_the_head_passes_it() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    fill(&wal, 0..3 * RECORDS_PER_SEGMENT);
    for number in 0..RECORDS_PER_SEGMENT {
        assert_eq!(block_on(next(&mut cursor)).unwrap().unwrap()[0], number);
    }
    wal.truncate_before(cursor.position()).unwrap();
    assert_eq!(block_on(next(&mut cursor)).unwrap().unwrap()[0], RECORDS_PER_SEGMENT);
}

#[test]
fn cancelling_ends_a_stream_of_a_cursor() {
    let (_folder, _, wal) = log_on_files(small());
    let mut cursor = wal.create_cursor("one", None, 0).unwrap();
    fill(&wal, 0..1);
    cursor.canceller().cancel();
    assert!(block_on(next_of_stream(&mut cursor)).is_none());
    assert_eq!(block_on(next(&mut cursor)).unwrap(), None);
}
