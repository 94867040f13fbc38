//! The callback for released segments gets each segment before the log loses it, and nothing else.

use palisade::{Records, Result, Uuid};

use crate::prelude::*;

/// What the callback does with the next segment of a number.
#[derive(Debug)]
enum Then {
    Fail(u64),
    Panic(u64),
    Drop(Box<Records>),
}

/// Numbers and bytes of segments.
type Files = Vec<(u64, Vec<u8>)>;

/// A callback that notes what it gets. Clones are one.
#[derive(Clone, Debug, Default)]
struct Noted {
    got: Arc<Mutex<Files>>,
    then: Arc<Mutex<Option<Then>>>,
    uuid: Arc<Mutex<Option<Uuid>>>,
}

impl Noted {
    fn numbers(&self) -> Vec<u64> {
        self.got.lock().unwrap().iter().map(|(number, _)| *number).collect()
    }

    fn next(&self, then: Then) {
        *self.then.lock().unwrap() = Some(then);
    }
}

impl OnRelease for Noted {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let header = segment.header;
        let then = self.then.lock().unwrap().take();
        match then {
            Some(Then::Fail(number)) if number == header.number => {
                return Err(Error::new(ErrorKind::Locked, "the bucket is busy"));
            }
            Some(Then::Panic(number)) if number == header.number => panic!("the callback panics"),
            Some(Then::Drop(records)) => drop(records),
            other => *self.then.lock().unwrap() = other,
        }
        let mut bytes = Vec::new();
        segment.reader().read_to_end(&mut bytes).unwrap();
        assert_eq!(segment.segment_bytes, SEGMENT_BYTES);
        assert_eq!(header.base, Lsn::new(header.number * SEGMENT_BYTES));
        assert_eq!(segment.file_name(), format!("segment-{:020}", header.number));
        assert_eq!(bytes.len() as u64, segment.file_bytes());
        assert_eq!(bytes.len() as u64, 4096 + segment.end.bytes_since(header.base));
        assert_eq!(segment.uuid, *self.uuid.lock().unwrap().get_or_insert(segment.uuid));
        self.got.lock().unwrap().push((header.number, bytes));
        Ok(())
    }
}

fn append(wal: &Wal, count: usize) -> Vec<Lsn> {
    (0..count).map(|n| wal.append(&[n as u8; 4000]).unwrap().lsn()).collect()
}

/// A log with a callback and ten segments.
fn with_ten_segments() -> (TempDir, PathBuf, Noted, Wal, Vec<Lsn>) {
    let (dir, path) = folder();
    let noted = Noted::default();
    let wal = small().on_release(noted.clone()).open(&path).unwrap();
    let lsns = append(&wal, 155);
    wal.sync().unwrap();
    (dir, path, noted, wal, lsns)
}

/// The first record of segment `number`.
fn first_of(lsns: &[Lsn], number: u64) -> Lsn {
    *lsns.iter().find(|lsn| lsn.segment(SEGMENT_BYTES) == number).unwrap()
}

#[test]
fn the_callback_gets_each_released_segments_bytes_in_order() {
    let (_dir, path, noted, wal, lsns) = with_ten_segments();
    let before: Vec<_> = (0..9).map(|n| (n, fs::read(segment(&path, n)).unwrap())).collect();
    wal.truncate_before(first_of(&lsns, 4)).unwrap();
    wal.truncate_before(first_of(&lsns, 9)).unwrap();
    assert_eq!(*noted.uuid.lock().unwrap(), Some(wal.uuid()));
    assert_eq!(*noted.got.lock().unwrap(), before);
    assert!(!segment(&path, 8).exists());
}

#[test]
fn a_callback_that_fails_keeps_its_segment_and_all_above() {
    let (_dir, path, noted, wal, lsns) = with_ten_segments();
    noted.next(Then::Fail(3));
    let head = first_of(&lsns, 7);
    let error = wal.truncate_before(head).unwrap_err();
    assert_eq!((error.kind(), error.segment()), (ErrorKind::Locked, Some(3)), "{error}");
    for part in ["the callback for released segments failed", "the head has moved", "truncate"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(wal.head_lsn(), head);
    assert_eq!(noted.numbers(), [0, 1, 2]);
    assert!(!segment(&path, 2).exists());
    assert!((3..7).all(|number| segment(&path, number).exists()));
    wal.commit(b"the log goes on").unwrap();
    wal.truncate_before(head).unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2, 3, 4, 5, 6]);
    assert!((3..7).all(|number| !segment(&path, number).exists()));
}

#[test]
fn a_callback_that_panics_keeps_its_segment_and_the_log_goes_on() {
    let (_dir, path, noted, wal, lsns) = with_ten_segments();
    noted.next(Then::Panic(1));
    let head = first_of(&lsns, 3);
    let error = wal.truncate_before(head).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(!segment(&path, 0).exists() && segment(&path, 1).exists());
    wal.commit(b"the log goes on").unwrap();
    wal.truncate_before(head).unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2]);
    wal.close().unwrap();
}

/// What a crash left below the head stays for the next truncation, after a clean and after an
/// unclean end; dead segments of the unclean end are freed unseen.
#[test]
fn an_open_calls_no_callback_and_the_next_truncation_does() {
    let (_dir, path, noted, wal, lsns) = with_ten_segments();
    noted.next(Then::Fail(2));
    let head = first_of(&lsns, 5);
    wal.truncate_before(head).unwrap_err();
    let (_copy, unclean) = copy_as_killed(&path);
    wal.close().unwrap();
    for path in [path, unclean] {
        let noted = Noted::default();
        let wal = small().on_release(noted.clone()).open(&path).unwrap();
        assert_eq!((wal.head_lsn(), noted.numbers()), (head, vec![]));
        assert!((2..5).all(|number| segment(&path, number).exists()));
        wal.truncate_before(head).unwrap();
        assert_eq!(noted.numbers(), [2, 3, 4]);
        assert!((2..5).all(|number| !segment(&path, number).exists()));
    }
}

/// Neither when they are freed, nor when some are left below a later head.
#[test]
fn the_callback_gets_no_truncated_segment() {
    let (_dir, path, noted, wal, lsns) = with_ten_segments();
    let dead = fs::read(segment(&path, 7)).unwrap();
    let kept = first_of(&lsns, 4);
    wal.truncate_after(kept).unwrap();
    assert_eq!(noted.numbers(), []);
    assert!(!segment(&path, 7).exists());
    fs::write(segment(&path, 7), dead).unwrap();
    let more = append(&wal, 40);
    let first = more[0].segment(SEGMENT_BYTES);
    wal.truncate_before(first_of(&more, first + 1)).unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2, 3, 4, first]);
    assert!(!segment(&path, 7).exists());
    let length = noted.got.lock().unwrap()[4].1.len();
    assert!(
        (4096 + 4000..4096 + 2 * 4096).contains(&length),
        "one record, and no truncated one: {length}"
    );
}

/// The discarded range of a killed log is freed by the open that finds it.
#[test]
fn the_callback_gets_no_segment_behind_an_unclean_end() {
    let (_dir, path) = folder();
    let heap = || small().buffer(BufferKind::Heap);
    let wal = heap().open(&path).unwrap();
    let lsns = append(&wal, 40);
    wal.sync().unwrap();
    let (_copy, killed) = copy_as_killed(&path);
    drop(wal);
    // As if nothing behind segment 0 had reached the medium.
    for number in 1..3 {
        let mut bytes = fs::read(segment(&killed, number)).unwrap();
        bytes[4096..].fill(0);
        fs::write(segment(&killed, number), bytes).unwrap();
    }
    fs::remove_file(killed.join("buffer")).unwrap_or(());
    let noted = Noted::default();
    let wal = heap().on_release(noted.clone()).open(&killed).unwrap();
    let base = wal.recovery_report().base;
    assert!(base > Lsn::new(3 * SEGMENT_BYTES), "segments 1 and 2 are dead");
    assert_eq!((noted.numbers(), segment(&killed, 1).exists()), (vec![], false));
    let first = contents(&wal).len();
    assert!(first < lsns.len());
    let more = append(&wal, 20);
    wal.truncate_before(first_of(&more, base.segment(SEGMENT_BYTES) + 1)).unwrap();
    assert_eq!(noted.numbers(), [0, base.segment(SEGMENT_BYTES)]);
}

#[test]
fn a_segment_whose_header_is_wrong_is_not_released() {
    for is_flipped in [false, true] {
        let (_dir, path, noted, wal, lsns) = with_ten_segments();
        let before = fs::read(segment(&path, 3)).unwrap();
        if is_flipped {
            flip(&segment(&path, 3), 50);
        } else {
            let other = fs::read(segment(&path, 5)).unwrap();
            fs::write(segment(&path, 3), other).unwrap();
        }
        let head = first_of(&lsns, 6);
        for _ in 0..2 {
            let error = wal.truncate_before(head).unwrap_err();
            let found = (error.kind(), error.segment());
            assert_eq!(found, (ErrorKind::Corrupt, Some(3)), "{error}");
            assert!((3..6).all(|number| segment(&path, number).exists()));
        }
        assert_eq!((wal.head_lsn(), noted.numbers()), (head, vec![0, 1, 2]));
        fs::write(segment(&path, 3), before).unwrap();
        wal.truncate_before(head).unwrap();
        assert_eq!(noted.numbers(), [0, 1, 2, 3, 4, 5]);
    }
}

/// A callback that takes long keeps no reader from going, and may be what drops it.
#[test]
fn a_reader_dropped_during_a_release_does_not_wait_for_it() {
    let (_dir, _path, noted, wal, lsns) = with_ten_segments();
    let records = wal.records_from(first_of(&lsns, 4)).unwrap();
    noted.next(Then::Drop(Box::new(records)));
    let head = first_of(&lsns, 7);
    wal.truncate_before(head).unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2, 3], "the reader was there when the release began");
    wal.truncate_before(head).unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2, 3, 4, 5, 6]);
}

/// The store's locks are free: what needs a segment made does not wait for the callback.
#[test]
fn appends_and_reads_go_on_while_the_callback_works() {
    #[derive(Debug, Default)]
    struct Uses(Arc<Mutex<Option<Wal>>>);

    impl OnRelease for Uses {
        fn released(&self, _: &ReleasedSegment<'_>) -> Result<()> {
            let wal = self.0.lock().unwrap().clone().unwrap();
            // More than is prepared ahead.
            let lsns = append(&wal, 100);
            wal.sync()?;
            wal.checkpoint(lsns[50])?;
            wal.get(lsns[99]).map(drop)
        }
    }

    let (_dir, path) = folder();
    let uses = Uses::default();
    let own = Arc::clone(&uses.0);
    let wal = small().on_release(uses).open(&path).unwrap();
    *own.lock().unwrap() = Some(wal.clone());
    let lsns = append(&wal, 40);
    wal.truncate_before(lsns[35]).unwrap();
    assert_eq!(contents(&wal).len(), 5 + 200);
    *own.lock().unwrap() = None;
    wal.close().unwrap();
}
