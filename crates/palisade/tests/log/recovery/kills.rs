//! What comes back after a kill, after loss of power, and once more after that.

use crate::prelude::*;

fn options() -> Options {
    Options::new().buffer_bytes(1 << 14)
}

fn open(store: &FaultyLog) -> Wal {
    store.open(options())
}

fn append(wal: &Wal, count: u32) -> Entries {
    let datas = (0..count).map(|n| n.to_le_bytes().repeat(n as usize % 20));
    datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect()
}

#[test]
fn after_a_kill_buffered_records_are_replayed_and_made_durable() {
    let (wal, store) = log_and_store();
    let expected = append(&wal, 50);
    assert_eq!(wal.stats().writes, 0, "all of it has to be in the buffer only");
    let next = store.after_kill(wal);
    let wal = open(&next);
    assert_eq!(wal.recovery_report().records_from_buffer, 50);
    assert_eq!(contents(&wal), expected);
    let wal = open(&next.after_power_loss(wal));
    assert_eq!(wal.recovery_report().records_from_buffer, 0);
    assert_eq!(contents(&wal), expected, "what was reported never shrinks");
}

/// Checks also that `appends_survive_kill` is false.
#[test]
fn a_kill_with_a_heap_buffer_keeps_only_what_was_flushed() {
    let (_dir, path, wal) = log_on_files(heap());
    assert!(!wal.stats().appends_survive_kill);
    assert!(!wal.recovery_report().appends_survive_kill);
    let expected = append(&wal, 20);
    wal.flush_to_os(expected[19].0).unwrap();
    append(&wal, 20);
    let (_copy, killed) = copy_as_killed(&path);
    let reopened = small().open(&killed).unwrap();
    assert_eq!(contents(&reopened), expected);
}

/// Evidence that claims too much would make a torn log look damaged, and refuse it: the second
/// half of a padding that crosses a segment end is the place where that is easily done.
#[test]
fn padding_across_a_segment_end_claims_only_what_was_durable() {
    let store = FaultyLog::with_buffer(4096, BufferKind::Heap);
    let wal = store.open(Options::new().buffer_bytes(4096));
    let kept = wal.commit(&[1; 1000]).unwrap();
    let torn = wal.append(&[2; 1800]).unwrap().lsn();
    let crossed = wal.append(&[3; 1800]).unwrap().lsn();
    assert!(crossed.as_u64() > 4096, "the record has to lie behind a padding");
    wal.flush_to_os(crossed).unwrap();
    store.kill();
    drop(wal);
    let everything = bytes_at(&store.inner, Lsn::new(4096), 4096);
    store.inner.lose_power();
    // The medium kept the second segment, and nothing of the record that the first one ends in.
    store.inner.damage(Lsn::new(4096), &everything).unwrap();
    let wal = store.next_run().open(Options::new().buffer_bytes(4096));
    assert_eq!(contents(&wal), [(kept, vec![1; 1000])]);
    let report = wal.recovery_report();
    assert_eq!(report.end, torn);
    assert!(report.torn_bytes > 0 && report.torn_reason.is_some(), "{report:?}");
}

fn bytes_at(store: &MemStore, at: Lsn, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let len = store.reader().unwrap().read(at, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_torn_batch_is_not_there_at_all() {
    let members: [&[u8]; 3] = [&[1; 100], &[2; 100], &[3; 100]];
    let frame_bytes = 24 + 3 * 128;
    for torn_at in (0..frame_bytes).step_by(8) {
        let store = FaultyLog::with_buffer(1 << 16, BufferKind::Heap);
        let wal = open(&store);
        let before = wal.commit(b"before").unwrap();
        let batch = wal.append_batch(&members).unwrap().lsn();
        wal.flush_to_os(batch).unwrap();
        let store = store.after_kill(wal);
        let frame = Lsn::new(batch.as_u64() - 24);
        let at = frame.plus(torn_at);
        let flipped: Vec<u8> = bytes_at(&store.inner, at, 1).iter().map(|byte| !byte).collect();
        store.inner.damage(at, &flipped).unwrap();
        let wal = open(&store);
        // The alignment behind a payload is covered by the batch's checksum, too.
        assert_eq!(contents(&wal), [(before, b"before".to_vec())], "byte {torn_at}");
        assert_eq!(wal.recovery_report().end, frame);
    }
}

/// What one thread was told.
#[derive(Default)]
struct Told {
    appended: Entries,
    committed: Entries,
}

fn work_until_killed(wal: &Wal, thread: u8) -> Told {
    let mut told = Told::default();
    for n in 0_u32.. {
        let data = [&[thread], &n.to_le_bytes()[..]].concat();
        let list = if n % 5 == 0 { &mut told.committed } else { &mut told.appended };
        let done = if n % 5 == 0 {
            wal.commit(&data)
        } else {
            wal.append(&data).map(|ticket| ticket.lsn())
        };
        match done {
            Ok(lsn) => list.push((lsn, data)),
            Err(_) => break,
        }
    }
    told
}

fn kill_under_load(keeps_buffer: bool, power_is_lost: bool) {
    let buffer = if keeps_buffer { BufferKind::Auto } else { BufferKind::Heap };
    let store = FaultyLog::with_buffer(1 << 14, buffer);
    let wal = open(&store);
    let told: Vec<Told> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6_u8)
            .map(|thread| {
                let wal = &wal;
                scope.spawn(move || work_until_killed(wal, thread))
            })
            .collect();
        until(|| wal.stats().syncs > 100);
        store.kill();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(wal);
    if power_is_lost {
        store.inner.lose_power();
    }
    let found = contents(&open(&store.next_run()));
    let case = format!("keeps_buffer: {keeps_buffer}, power_is_lost: {power_is_lost}");
    let is_there = |record: &(Lsn, Vec<u8>)| found.binary_search(record).is_ok();
    for thread in &told {
        assert!(thread.committed.iter().all(is_there), "{case}: a commit is missing");
        if keeps_buffer && !power_is_lost {
            assert!(thread.appended.iter().all(is_there), "{case}: an append is missing");
        }
    }
    for thread in 0..told.len() {
        // Those of one thread are a prefix of what it appended: none missing, none twice.
        let numbers = found.iter().filter(|(_, data)| usize::from(data[0]) == thread);
        let numbers: Vec<u32> =
            numbers.map(|(_, data)| u32::from_le_bytes(data[1..].try_into().unwrap())).collect();
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "{case}");
    }
}

#[test]
fn kills_and_power_losses_under_load_lose_nothing_promised() {
    for (keeps_buffer, power_is_lost) in [(true, false), (false, false), (true, true)] {
        (0..20).for_each(|_| kill_under_load(keeps_buffer, power_is_lost));
    }
}
