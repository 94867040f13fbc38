//! What streams take in memory: at most 8 bytes an entry, and 64 bytes an idle stream.
//!
//! The test's own thread does all work and is the only one that is counted. A log on files keeps no
//! record in memory.

#[path = "../../palisade/tests/common/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::KEPT;
use palisade_streams::{Options, Streams};
use tempfile::TempDir;

const NAME_BYTES: usize = 8;

fn open() -> (TempDir, Streams) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = palisade::Options::new().segment_bytes(4 << 20);
    let streams = Options::new().log(log).background(false).open(folder.path().join("log"));
    (folder, streams.unwrap())
}

/// Makes streams, and frees their handles.
fn create(streams: &Streams, count: usize) {
    let name = |number| format!("{number:0NAME_BYTES$}");
    assert_eq!(streams.create_many((0..count).map(name)).unwrap().len(), count);
}

/// Bytes that the thread keeps of what it allocates in `run`.
fn kept_by(run: impl FnOnce()) -> f64 {
    let before = KEPT.get();
    run();
    (KEPT.get() - before) as f64
}

fn append_to_each(streams: &Streams, entries: u64) {
    for name in streams.list() {
        let stream = streams.stream(name).unwrap();
        (0..entries).for_each(|n| drop(stream.append(n.to_le_bytes()).unwrap()));
    }
}

#[test]
fn the_allocator_counts_what_is_kept() {
    let mut list = Vec::new();
    assert_eq!(kept_by(|| list = vec![0_u8; 100]), 100.0);
    assert_eq!(kept_by(|| drop(std::mem::take(&mut list))), -100.0);
}

#[test]
fn an_entry_takes_at_most_8_bytes() {
    for (count, entries) in [(1, 300_000), (300, 1000)] {
        let (_folder, streams) = open();
        create(&streams, count);
        let bytes = kept_by(|| append_to_each(&streams, entries)) / (count as f64 * entries as f64);
        assert!((4.0..=8.0).contains(&bytes), "{bytes} bytes an entry in {count} streams");
    }
}

#[test]
fn polls_of_the_numbers_keep_nothing() {
    for (count, entries) in [(1, 20_000), (300, 60)] {
        let kept = [false, true].map(|polls| {
            let (_folder, streams) = open();
            create(&streams, count);
            let all: Vec<_> = streams.list().iter().map(|n| streams.stream(n).unwrap()).collect();
            let idle = streams.create("idle").unwrap();
            kept_by(|| {
                for n in 0..entries * count {
                    drop(all[n % count].append("entry").unwrap());
                    if polls && n % 2 == 0 {
                        drop(streams.pinned());
                    } else if polls {
                        idle.stats().unwrap();
                    }
                }
                // What the stripes have counted counts in both cases.
                drop(streams.pinned());
            })
        });
        let more = kept[1] - kept[0];
        assert!(more <= 16.0 * count as f64 + 1000.0, "{more} bytes more: {kept:?}");
    }
}

#[test]
fn an_idle_stream_takes_at_most_64_bytes_and_its_name() {
    const STREAMS: usize = 250_000;
    let (_folder, streams) = open();
    let made = kept_by(|| create(&streams, STREAMS));
    // A stream whose entries are truncated is as idle as a new one.
    let used = made
        + kept_by(|| {
            for name in streams.list() {
                let stream = streams.stream(name).unwrap();
                stream.append("entry").unwrap();
                stream.truncate_before(1).unwrap();
            }
            while streams.maintain().unwrap() {}
        });
    for bytes in [made, used] {
        let bytes = bytes / STREAMS as f64 - NAME_BYTES as f64;
        assert!((32.0..=64.0).contains(&bytes), "{bytes} bytes a stream, {made} {used}");
    }
}
