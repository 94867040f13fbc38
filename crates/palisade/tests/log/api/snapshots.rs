//! `Wal::stats` beside threads that append, commit and truncate.

use palisade::Stats;

use crate::prelude::*;

const RUN: Duration = Duration::from_millis(600);

fn open() -> Wal {
    watch();
    let options = Options::new().buffer_bytes(1 << 16).write_bytes(1 << 12);
    Wal::with_store(MemStore::new(1 << 20), options).unwrap()
}

/// What the documentation of `Stats` promises of every snapshot.
fn check(stats: &Stats) {
    let Stats { head, durable, written, filled, reserved, .. } = *stats;
    assert!(head <= durable && durable <= written, "{stats:?}");
    assert!(written <= filled && filled <= reserved, "{stats:?}");
    assert!(stats.synced_appends <= stats.appends, "{stats:?}");
    if durable == written {
        assert_eq!(stats.synced_appends, stats.appends, "{stats:?}");
    }
    assert_eq!(stats.writes, stats.write_size_bytes.count());
    assert_eq!(stats.appended_bytes, stats.write_size_bytes.sum());
    assert_eq!(stats.syncs, stats.sync_duration_ns.count());
    assert_eq!(stats.syncs, stats.group_size.count());
    assert_eq!(stats.synced_appends, stats.group_size.sum());
    assert!(stats.append_stall_ns.count() <= stats.waits_for_room, "{stats:?}");
    assert!(durable < reserved || stats.oldest_not_durable_ns == 0, "{stats:?}");
}

/// Ends the threads when it is dropped, also if a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Relaxed: it only ends the loops.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on two threads and takes snapshots meanwhile.
fn beside(wal: &Wal, work: impl Fn(&Wal) + Sync, check: impl Fn(&Stats)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: as in `End`.
                while !is_over.load(Ordering::Relaxed) {
                    work(wal);
                }
            });
        }
        let _end = End(&is_over);
        let start = Instant::now();
        let mut snapshots = 0;
        let mut before = wal.stats();
        while start.elapsed() < RUN {
            let stats = wal.stats();
            check(&stats);
            assert!(before.syncs <= stats.syncs && before.durable <= stats.durable);
            before = stats;
            snapshots += 1;
        }
        assert!(snapshots > 100, "writers keep snapshots waiting: {snapshots}");
    });
}

#[test]
fn counters_and_watermarks_of_a_snapshot_belong_together() {
    let wal = open();
    let base = wal.recovery_report().base;
    let work = |wal: &Wal| {
        wal.append(&[1; 300]).unwrap();
        wal.commit(b"two").unwrap();
    };
    beside(&wal, work, |stats| {
        check(stats);
        assert_eq!(stats.appended_bytes, stats.written.bytes_since(base), "{stats:?}");
    });
    let stats = wal.stats();
    assert!(stats.commit_latency_ns.count() > 0 && stats.commit_latency_ns.max() > 0);
    assert!(stats.syncs > 0 && stats.group_size.mean() > 1.0);
}

#[test]
fn a_snapshot_beside_truncations_has_ordered_watermarks() {
    let wal = open();
    let work = |wal: &Wal| {
        // The other thread may truncate the record meanwhile, or all before it.
        if let Ok(lsn) = wal.commit(b"kept") {
            drop(wal.append(b"truncated").unwrap());
            let _ = wal.truncate_after(lsn);
            let _ = wal.truncate_before(lsn);
        }
    };
    beside(&wal, work, check);
}

#[test]
fn a_wait_for_room_shows_at_once_and_its_time_when_it_ends() {
    let wal = open();
    with_a_hole(&wal, 100, |fill| {
        thread::scope(|scope| {
            let appender = scope.spawn(|| {
                for _ in 0..8 {
                    wal.append(&[1; 1 << 14]).unwrap();
                }
            });
            until(|| wal.stats().waits_for_room == 1);
            let stats = wal.stats();
            assert_eq!((stats.append_stall_ns.count(), stats.writes), (0, 0));
            assert!(stats.filled < stats.reserved);
            fill();
            appender.join().unwrap();
        });
    });
    let stats = wal.stats();
    check(&stats);
    assert!(stats.append_stall_ns.count() == stats.waits_for_room && stats.waits_for_room > 0);
    assert!(stats.append_stall_ns.max() > 0 && stats.write_size_bytes.max() >= 1 << 14);
}

#[test]
fn the_age_of_what_is_not_durable_grows_until_it_is() {
    let wal = open();
    assert_eq!(wal.stats().oldest_not_durable_ns, 0);
    wal.append(b"waits for a sync").unwrap();
    assert_eq!(wal.stats().oldest_not_durable_ns, 0, "seen for the first time");
    let seen = Instant::now();
    wal.append(b"a younger one").unwrap();
    while seen.elapsed() < Duration::from_millis(2) {
        thread::yield_now();
    }
    assert!(wal.stats().oldest_not_durable_ns >= 2_000_000);
    wal.sync().unwrap();
    let stats = wal.stats();
    assert_eq!((stats.oldest_not_durable_ns, stats.running_sync_ns), (0, 0));
}
