//! A disk that panics at each kind of call, in each file: nobody hangs, the drop of a handle does
//! not panic, no acknowledged record is lost, and the same process can open the log again.

use crate::prelude::*;

const SEGMENT_BYTES: u64 = 8192;
const RECORD_BYTES: usize = 700;
const SESSIONS: u64 = 2;

/// How a session ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Abandon,
    Drop,
}

/// Which log, and how its sessions end.
#[derive(Clone, Copy, Debug)]
struct Shape {
    buffer: BufferKind,
    has_thread: bool,
    end: End,
}

/// The call at which the disk panics.
#[derive(Clone, Copy, Debug)]
struct At {
    calls: Calls,
    /// How many of these calls pass before.
    skipped: usize,
    /// Whether all later ones of the session panic, too.
    for_good: bool,
}

/// Counts the calls, and panics.
#[derive(Default)]
struct Probe {
    counts: Mutex<BTreeMap<Calls, usize>>,
    at: Mutex<Option<At>>,
    has_panicked: AtomicBool,
}

impl Probe {
    fn see(&self, calls: Calls) {
        let nth = {
            let mut counts = self.counts.lock().unwrap();
            let count = counts.entry(calls).or_default();
            *count += 1;
            *count - 1
        };
        let at = *self.at.lock().unwrap();
        if let Some(at) = at.filter(|at| at.calls == calls)
            && (nth == at.skipped || at.for_good && nth > at.skipped)
        {
            self.has_panicked.store(true, Ordering::SeqCst);
            // A panic without a report: a thousand backtraces would take minutes.
            std::panic::resume_unwind(Box::new("the disk panics, as the test wants it"));
        }
    }

    fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::SeqCst)
    }
}

/// Reads each segment that is released.
#[derive(Debug)]
struct ReadsAll;

impl OnRelease for ReadsAll {
    fn released(&self, segment: &ReleasedSegment<'_>) -> palisade::Result<()> {
        let read = segment.reader().read_to_end(&mut Vec::new());
        read.map(drop).map_err(|error| Error::io("read a released segment", error))
    }
}

fn open(disk: &FaultDisk, shape: Shape) -> palisade::Result<Wal> {
    let options = Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .buffer_bytes(SEGMENT_BYTES as usize)
        .buffer(shape.buffer)
        .spare_segments(1)
        .on_release(ReadsAll);
    Wal::with_store(disk, options)
}

/// A log on a disk that may panic, and what must be in it.
struct History {
    shape: Shape,
    disk: FaultDisk,
    inner: MemDisk,
    probe: Arc<Probe>,
    /// How many records the log was asked to append.
    asked: u64,
    /// Acknowledged records that no truncation can have removed.
    acknowledged: BTreeMap<Lsn, u64>,
    /// Records whose append returned.
    appended: BTreeMap<Lsn, u64>,
    /// Records that a truncation has removed.
    removed: BTreeSet<u64>,
    is_poisoned: bool,
}

impl History {
    fn new(shape: Shape, at: Option<At>) -> History {
        let inner = MemDisk::new();
        let inner = if shape.has_thread { inner } else { inner.with_work_at_once() };
        let disk = FaultDisk::new(Arc::new(inner.clone()));
        let probe = Arc::new(Probe { at: Mutex::new(at), ..Probe::default() });
        let watched = Arc::clone(&probe);
        disk.watch(move |call| {
            watched.see((call.kind, call.target));
            Ok(())
        });
        History {
            shape,
            disk,
            inner,
            probe,
            asked: 0,
            acknowledged: BTreeMap::new(),
            appended: BTreeMap::new(),
            removed: BTreeSet::new(),
            is_poisoned: false,
        }
    }

    /// Makes a call, which may only fail or panic once the disk has panicked.
    fn call<T>(&mut self, call: impl FnOnce() -> palisade::Result<T>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(result)) => Some(result),
            Ok(Err(error)) => {
                assert!(self.probe.has_panicked(), "{error}");
                self.is_poisoned |= error.kind() == ErrorKind::Poisoned;
                None
            }
            Err(_) => {
                assert!(self.probe.has_panicked(), "the log panics");
                None
            }
        }
    }

    fn record(&mut self) -> Vec<u8> {
        self.asked += 1;
        record(self.asked - 1, RECORD_BYTES)
    }

    /// Notes a record that `wait` acknowledges.
    fn commit(&mut self, wait: impl FnOnce(&[u8]) -> palisade::Result<Lsn>) -> Option<Lsn> {
        let (number, data, was_poisoned) = (self.asked, self.record(), self.is_poisoned);
        let lsn = self.call(|| wait(&data))?;
        assert!(!was_poisoned, "a poisoned log acknowledges record {number}");
        self.acknowledged.insert(lsn, number);
        Some(lsn)
    }

    fn commits(&mut self, wal: &Wal, count: u64) -> Option<Lsn> {
        (0..count).filter_map(|_| self.commit(|data| wal.commit(data))).last()
    }

    fn appends(&mut self, wal: &Wal, count: u64) {
        for _ in 0..count {
            let (number, data) = (self.asked, self.record());
            if let Some(lsn) = self.call(|| wal.append(&data).map(|ticket| ticket.lsn())) {
                self.appended.insert(lsn, number);
            }
        }
    }

    fn sync(&mut self, sync: impl FnOnce() -> palisade::Result<()>) {
        let was_poisoned = self.is_poisoned;
        if self.call(sync).is_some() && !self.appended.is_empty() {
            assert!(!was_poisoned, "a poisoned log acknowledges {:?}", self.appended);
            self.acknowledged.append(&mut self.appended);
        }
    }

    /// Truncates the prefix below the record in the middle.
    fn truncate_before(&mut self, truncate: impl FnOnce(Lsn) -> palisade::Result<()>) {
        let middle = self.acknowledged.len() / 2;
        let Some((&lsn, _)) = self.acknowledged.iter().nth(middle) else { return };
        let kept = self.acknowledged.split_off(&lsn);
        let below = std::mem::replace(&mut self.acknowledged, kept);
        if self.call(|| truncate(lsn)).is_some() {
            self.removed.extend(below.into_values());
        }
    }

    /// Truncates the suffix from the last record but one on.
    fn truncate_from<T>(&mut self, truncate: impl FnOnce(Lsn) -> palisade::Result<T>) -> Option<T> {
        let (&lsn, _) = self.acknowledged.iter().rev().nth(1)?;
        let mut above = self.acknowledged.split_off(&lsn);
        above.extend(self.appended.split_off(&lsn));
        let truncated = self.call(|| truncate(lsn))?;
        self.removed.extend(above.into_values());
        Some(truncated)
    }

    fn session(&mut self) {
        self.is_poisoned = false;
        self.appended.clear();
        let (disk, shape) = (self.disk.clone(), self.shape);
        let Some(wal) = self.call(|| open(&disk, shape)) else { return };
        self.commits(&wal, 3);
        self.appends(&wal, 14);
        self.sync(|| wal.sync());
        self.commit(|data| block_on(wal.append(data)?));
        self.call_back(&wal);
        self.use_cursor(&wal);
        self.read(&wal);
        self.truncate_before(|lsn| wal.truncate_before(lsn));
        self.commits(&wal, 12);
        let checkpoint = self.acknowledged.keys().next_back().copied();
        self.call(|| wal.checkpoint(checkpoint.unwrap_or_else(|| wal.head_lsn())));
        self.truncate_before(|lsn| wal.truncate_before_in_background(lsn)?.wait());
        self.truncate_from(|lsn| wal.truncate_from(lsn));
        self.commits(&wal, 3);
        let (number, data) = (self.asked, self.record());
        if let Some(lsns) = self.truncate_from(|lsn| wal.replace_from(lsn, [data])) {
            self.acknowledged.insert(lsns[0], number);
        }
        self.commits(&wal, 2);
        self.appends(&wal, 3);
        self.end(wal);
    }

    fn call_back(&mut self, wal: &Wal) {
        self.appends(wal, 1);
        let Some((&lsn, _)) = self.appended.last_key_value() else { return };
        let (sender, receiver) = channel();
        let note = move |result| sender.send(result).unwrap();
        if self.call(|| wal.on_durable(lsn, note)).is_some() {
            self.sync(|| receiver.recv().expect("the callback runs"));
        }
    }

    fn use_cursor(&mut self, wal: &Wal) {
        let Some(mut cursor) = self.call(|| wal.create_cursor("name", None, u64::MAX)) else {
            return;
        };
        self.call(|| cursor.next(Duration::ZERO).map(drop));
        cursor.confirm();
        self.call(|| cursor.save());
        drop(cursor);
        self.call(|| wal.remove_cursor("name"));
    }

    fn read(&mut self, wal: &Wal) {
        self.call(|| {
            let mut records = wal.records()?;
            while records.next()?.is_some() {}
            let hold = wal.hold(wal.head_lsn())?;
            hold.records()?.next().map(drop)
        });
    }

    fn end(&mut self, wal: Wal) {
        match self.shape.end {
            End::Close => {
                self.sync(|| wal.close());
                // If the first call failed.
                self.call(|| match wal.close() {
                    Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
                    closed => closed,
                });
            }
            End::Abandon => wal.clone().abandon(),
            End::Drop => {}
        }
        drop(wal);
    }

    /// Opens the log again on a disk that panics no more.
    fn check(&mut self, loses_power: bool) {
        *self.probe.at.lock().unwrap() = None;
        if loses_power {
            // The thread that has released segments may still drop its handle.
            until(|| self.is_unlocked());
            self.inner.lose_power();
        }
        let wal = open(&self.disk, self.shape).unwrap();
        let mut found = BTreeMap::new();
        let mut records = wal.records().unwrap();
        while let Some(record) = records.next().unwrap() {
            let number = number_of(record.data()).expect("a record that nobody appended");
            assert!(number < self.asked && !self.removed.contains(&number), "record {number}");
            found.insert(record.lsn(), number);
        }
        let numbers: BTreeSet<u64> = found.values().copied().collect();
        assert_eq!(numbers.len(), found.len(), "a record is there twice: {found:?}");
        for (lsn, number) in &self.acknowledged {
            assert_eq!(found.get(lsn), Some(number), "an acknowledged record: {found:?}");
        }
        drop(records);
        wal.commit(b"goes on").unwrap();
        wal.close().unwrap();
    }

    fn is_unlocked(&self) -> bool {
        let Ok(folder) = self.inner.open_folder(Path::new("/log"), 0o600) else { return true };
        let Ok(lock) = folder.open("lock", Access::Write) else { return true };
        folder.try_lock(false) && lock.try_lock(false).unwrap()
    }
}

/// Runs the history up to the panic, and checks the log. Returns the counts of the calls, and
/// whether the disk has panicked.
fn run(shape: Shape, at: Option<At>, loses_power: bool) -> (BTreeMap<Calls, usize>, bool) {
    watch();
    let mut history = History::new(shape, at);
    for _ in 0..SESSIONS {
        if !history.probe.has_panicked() {
            history.session();
        }
    }
    let has_panicked = history.probe.has_panicked();
    let counts = history.probe.counts.lock().unwrap().clone();
    history.check(loses_power);
    (counts, has_panicked)
}

/// Runs one case on a thread of its own, which names the case if it hangs.
fn on_a_thread<T: Send + 'static>(
    shape: Shape,
    at: Option<At>,
    case: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let name = format!("{shape:?} {at:?}");
    let thread = thread::Builder::new().name(name.clone()).spawn(case).unwrap();
    thread.join().map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        format!("{name}: {}", text.unwrap_or_else(|| "failed".into()))
    })
}

/// The calls at which the disk panics, of `count` calls of one kind.
fn moments(calls: Calls, count: usize) -> Vec<At> {
    let all = [(0, false), (0, true), (count / 2, false), (count - 1, true)];
    let distinct = BTreeSet::from(all).into_iter();
    distinct.map(|(skipped, for_good)| At { calls, skipped, for_good }).collect()
}

/// Runs all cases of a shape. Returns the cases in which the disk panicked, without their moments.
fn sweep(shape: Shape, failed: &mut Vec<String>) -> Vec<String> {
    let (counts, _) = on_a_thread(shape, None, move || run(shape, None, false)).unwrap();
    let mut cases = Vec::new();
    for at in counts.into_iter().flat_map(|(calls, count)| moments(calls, count)) {
        // Every second run loses power, too.
        let loses_power = cases.len() % 2 == 1;
        match on_a_thread(shape, Some(at), move || run(shape, Some(at), loses_power)) {
            // With a thread of the store, a later run may make fewer calls.
            Ok((_, false)) => {}
            Ok((_, true)) => {
                let Shape { buffer, has_thread, .. } = shape;
                cases.push(format!("{:?} {buffer:?} {has_thread} {}", at.calls, at.for_good));
            }
            Err(failure) => failed.push(failure),
        }
    }
    cases
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts of the sweep")]
fn a_disk_panic_at_any_call_hangs_no_thread_and_loses_nothing() {
    let mut failed = Vec::new();
    for end in [End::Close, End::Abandon, End::Drop] {
        let mut combinations = BTreeSet::new();
        let mut runs = 0;
        for (buffer, has_thread) in [
            (BufferKind::Auto, true),
            (BufferKind::Auto, false),
            (BufferKind::Heap, true),
            (BufferKind::Heap, false),
        ] {
            let cases = sweep(Shape { buffer, has_thread, end }, &mut failed);
            runs += cases.len();
            combinations.extend(cases);
        }
        println!("{end:?}: {} combinations in {runs} runs", combinations.len());
        assert!(combinations.len() >= 240, "{combinations:#?}");
    }
    assert!(failed.is_empty(), "{} fail: {failed:#?}", failed.len());
}

/// Calls beside an open log give an error, too.
#[test]
fn an_archive_or_a_copy_on_a_disk_that_panics_gives_an_error() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    let on = || -> Arc<dyn Disk> { Arc::new(disk.clone()) };
    let archive = Archive::open_on(on(), "/archive").unwrap();
    let wal = small().on_release(archive).open_on(on(), "/log").unwrap();
    let last = append(&wal, 0..1000, 100).pop().unwrap();
    wal.truncate_before(last).unwrap();
    wal.close().unwrap();
    disk.watch(|_| std::panic::resume_unwind(Box::new("the disk panics, as the test wants it")));
    let from = || RestoreFrom::archive("/archive").with_log("/log");
    let calls: [&dyn Fn() -> palisade::Result<()>; 4] = [
        &|| Archive::open_on(on(), "/archive").map(drop),
        &|| ArchiveReader::open_on(on(), "/archive").map(drop),
        &|| Restore::plan_on(on(), from(), None, &mut |_| {}).map(drop),
        &|| Inspector::open_on(on(), "/log").map(drop),
    ];
    for call in calls {
        let result = catch_unwind(AssertUnwindSafe(call)).expect("the panic ends in the log");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Io);
    }
}
