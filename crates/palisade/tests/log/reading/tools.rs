//! Tools that look at a log while its writer recycles what they read.

use std::sync::atomic::AtomicUsize;

use crate::prelude::*;

const RECORDS: u64 = 6000;
const KEPT: u64 = 300;
/// Fewer looks are no test: the writer goes on until there were as many.
const LOOKS: usize = 10;

/// Appends and truncates, so that files go around all the time, until somebody has looked enough.
fn recycle(wal: &Wal, looks: &Mutex<usize>) {
    let mut places: Vec<Lsn> = Vec::new();
    for number in 0.. {
        let is_seen = *looks.lock().unwrap() >= LOOKS;
        // The looker may be gone: it has panicked.
        if number >= 20 * RECORDS || number >= RECORDS && is_seen {
            return;
        }
        places.push(wal.append(&record(number, 800)).unwrap().lsn());
        if number % 100 == 99 {
            wal.sync().unwrap();
        }
        if number % 80 == 0 && number > KEPT {
            wal.truncate_before(places[(number - KEPT) as usize]).unwrap();
        }
    }
}

/// Calls `look` again and again beside a writer that recycles.
fn beside_a_writer(look: impl Fn(&std::path::Path)) {
    let (_dir, path, wal) = log_on_files(heap());
    let looks = Mutex::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| recycle(&wal, &looks));
        while !writer.is_finished() {
            look(&path);
            *looks.lock().unwrap() += 1;
        }
        writer.join().unwrap();
    });
    assert!(wal.head_lsn() > Lsn::ZERO);
}

/// Protection: damage that is found while the log's state changes is looked for again.
#[test]
fn verify_beside_a_writer_that_recycles_raises_no_false_alarm() {
    beside_a_writer(|path| {
        let verdict = Inspector::open(path).unwrap().verify().unwrap();
        assert_ne!(verdict.outcome, Outcome::Corrupt, "{verdict:?}");
    });
}

/// Protection: the same. Here the writer recycles all segments at a given read of the check.
#[test]
fn verify_looks_again_if_its_segments_were_recycled() {
    let mut recycled = 0;
    for read in 0..40 {
        let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let wal = heap().open_on(Arc::clone(&below), "/log").unwrap();
        let fill = move || {
            let append = |number| wal.append(&record(number, 800)).unwrap().lsn();
            let lsns: Vec<_> = (0..300).map(append).collect();
            wal.sync().unwrap();
            wal.truncate_before(lsns[299]).unwrap();
        };
        fill();
        let disk = FaultDisk::new(below);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        disk.watch(move |call| {
            let is_read = (call.kind, call.target) == (CallKind::Read, Target::Segment);
            if is_read && counted.fetch_add(1, Ordering::Relaxed) == read {
                fill();
            }
            Ok(())
        });
        let verdict = Inspector::open_on(Arc::new(disk), "/log").unwrap().verify().unwrap();
        assert_ne!(verdict.outcome, Outcome::Corrupt, "recycled at read {read}: {verdict:?}");
        recycled += usize::from(reads.load(Ordering::Relaxed) > read);
    }
    assert!(recycled > 3, "{recycled}");
}

/// Protection: what `dump` prints validates as it is read; what is recycled meanwhile ends it with
/// an error.
#[test]
fn dump_beside_recycling_prints_only_records_and_in_order() {
    beside_a_writer(|path| {
        let mut records = Inspector::open(path).unwrap().records(None).unwrap();
        let mut last = None;
        loop {
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => return assert_eq!(error.kind(), ErrorKind::Truncated, "{error}"),
            };
            let number = number_of(record.data()).expect("a record that nobody appended");
            assert!(last.is_none_or(|last| number == last + 1), "{number} after {last:?}");
            last = Some(number);
        }
    });
}
