//! The bodies over the committed corpus, over a few thousand inputs made from it, and the maker of
//! the corpus.

use std::fs;
use std::path::{Path, PathBuf};

use palisade_store::FileOptions;
use palisade_store::ReadStore;
use palisade_store::folder::segment_name;

use super::image::record;
use super::*;
use palisade_store::BufferKind;
use palisade_store::chance::Chance;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Returns the name and the bytes of each seed of `target`, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap());
    let file = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.sort();
    assert!(files.len() >= 4, "the corpus of {target} is committed");
    files
}

/// Runs `body` and names the input that broke a promise.
fn run(what: &str, body: impl FnOnce()) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    assert!(outcome.is_ok(), "broken by {what}");
}

/// Runs `body` over the corpus of `target`, and over each seed after `count` mutations of it.
fn run_all(target: &str, body: fn(&[u8]), count: u64, mutate: fn(&mut Vec<u8>, &mut Chance)) {
    for (name, bytes) in seeds(target) {
        run(&name, || body(&bytes));
        for seed in 0..count {
            let mut mutated = bytes.clone();
            mutate(&mut mutated, &mut Chance::new(seed));
            run(&format!("{name}, seed {seed}"), || body(&mutated));
        }
    }
}

#[test]
fn frames_of_the_corpus_and_of_mutations_decode_or_do_not() {
    run_all("frame_decode", frame_decode, 600, |bytes, random| {
        for _ in 0..=random.index(4) {
            let at = random.index(bytes.len());
            match random.index(4) {
                0 => bytes.truncate(at),
                1 => {
                    let rest = &mut bytes[at..];
                    rest.rotate_left(random.index(64) % rest.len());
                }
                _ => bytes[at] ^= 1 << random.index(8),
            }
            if bytes.is_empty() {
                break;
            }
        }
    });
}

#[test]
fn blocks_of_the_corpus_and_of_mutations_decode_or_do_not() {
    run_all("segment_header", segment_header, 300, |bytes, random| {
        for _ in 0..=random.index(3) {
            let at = random.index(128).min(bytes.len() - 1);
            bytes[at] = random.draw() as u8;
        }
        if random.index(8) == 0 {
            bytes.truncate(random.index(bytes.len()));
        }
    });
}

/// Runs all mutations, or only those of one seed to replay a failure: `PALISADE_FUZZ_SEED=n`.
/// Checks that a refused folder is unchanged.
#[test]
fn corpus_and_mutated_folders_are_refused_or_return_the_appends() {
    let only: Option<u64> = std::env::var("PALISADE_FUZZ_SEED").ok().and_then(|n| n.parse().ok());
    for (name, bytes) in seeds("open_folder") {
        let image = Image::decode(&bytes).expect("a seed is an image");
        assert_eq!(Image::decode(&image.encode()), Some(image.clone()), "{name}");
        run(&name, || open_folder(&bytes));
        for seed in only.map_or(0..FOLDERS, |seed| seed..seed + 1) {
            let mut mutated = image.clone();
            for step in 0..=seed % 4 {
                mutate(&mut mutated, seed * 8 + step);
            }
            let what = format!("{name}, PALISADE_FUZZ_SEED={seed}");
            run(&what, || open_folder(&mutated.encode()));
        }
    }
}

#[test]
fn a_seed_gives_all_the_records_that_it_has() {
    for (name, bytes) in seeds("open_folder") {
        let disk = Image::decode(&bytes).unwrap().disk();
        let found = numbers(&open(&disk).unwrap());
        assert_eq!((found.strangers, found.error), (0, None), "{name}");
        assert!(found.numbers.len() >= 10, "{name}: {found:?}");
    }
}

/// Makes `fuzz/corpus` anew: `cargo test -p palisade-store -- --ignored make_the_corpus`.
#[test]
#[ignore = "writes fuzz/corpus"]
fn make_the_corpus() {
    let save = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::write(corpus(target).join(name), bytes).unwrap();
    };
    for (name, make) in LOGS {
        let disk = MemDisk::new();
        let image = make(&disk);
        save("open_folder", name, &image.encode());
        for (file, bytes) in &image.files {
            if file == "meta" || file.starts_with("segment-") {
                let short = file.trim_start_matches("segment-").trim_start_matches('0');
                let short = if short.is_empty() { "0" } else { short };
                save("segment_header", &format!("{name}-{short}"), &bytes[..FIELDS_BYTES]);
            }
            if *file == segment_name(0) {
                let frames = [&frame_prefix(&disk), &bytes[BLOCK_BYTES..]].concat();
                save("frame_decode", name, &frames);
            }
        }
    }
}

/// Returns the UUID, epoch, salt and base LSN of segment 0, which begin an input of `frame_decode`.
fn frame_prefix(disk: &MemDisk) -> Vec<u8> {
    let reader = read(disk).unwrap();
    let uuid = reader.state().unwrap().uuid;
    let segments = reader.segments().unwrap();
    let header = segments[0].header.as_ref().unwrap();
    let numbers = [header.epoch, header.salt, header.base.as_u64()].map(u64::to_le_bytes);
    [&uuid.0[..], numbers.as_flattened()].concat()
}

/// Bytes of log in a segment of the logs in the corpus.
const SEGMENT_BYTES: u64 = 4096;
/// Mutations of each folder.
const FOLDERS: u64 = 250;
/// Of a block; zeros follow.
const FIELDS_BYTES: usize = 128;

type ImageMaker = fn(&MemDisk) -> Image;

const LOGS: [(&str, ImageMaker); 6] = [
    ("closed", closed),
    ("killed-with-mapped-buffer", killed_mapped),
    ("killed-with-heap-buffer", killed_heap),
    ("truncated-and-recycled", truncated),
    ("three-epochs", epochs),
    ("save-interrupted", interrupted),
];

fn begin(disk: &MemDisk, buffer: BufferKind) -> Wal {
    let options = FileOptions {
        segment_bytes: Some(SEGMENT_BYTES),
        buffer,
        spare_segments: 2,
        ..FileOptions::default()
    };
    open_with(disk, &options).unwrap()
}

/// Appends the records from `from` up to `to`, of many sizes, some of them in batches. Returns
/// their LSNs.
fn append(wal: &Wal, from: u64, to: u64) -> Vec<Lsn> {
    let mut lsns = Vec::new();
    let mut number = from;
    while number < to {
        let len = 8 + (number * 37 % 300) as usize;
        if number % 5 == 3 && number + 1 < to {
            let pair = [record(number, len), record(number + 1, 20)];
            let batch = wal.append_batch([&pair[0], &pair[1]]).unwrap().lsn();
            lsns.extend([batch, batch.plus(palisade_core::framed_bytes(pair[0].len()))]);
            number += 2;
        } else {
            lsns.push(wal.append(&record(number, len)).unwrap().lsn());
            number += 1;
        }
    }
    lsns
}

/// Kills the process, and returns what it leaves.
fn killed(disk: &MemDisk, wal: Wal) -> Image {
    disk.kill();
    drop(wal);
    Image::of(disk)
}

fn closed(disk: &MemDisk) -> Image {
    let wal = begin(disk, BufferKind::Heap);
    append(&wal, 0, 40);
    wal.close().unwrap();
    Image { synced: 40, ..Image::of(disk) }
}

fn killed_mapped(disk: &MemDisk) -> Image {
    let wal = begin(disk, BufferKind::Mapped);
    append(&wal, 0, 30);
    wal.sync().unwrap();
    append(&wal, 30, 40);
    Image { is_same_boot: true, synced: 30, ..killed(disk, wal) }
}

fn killed_heap(disk: &MemDisk) -> Image {
    let wal = begin(disk, BufferKind::Heap);
    let lsns = append(&wal, 0, 40);
    wal.checkpoint(lsns[25]).unwrap();
    let last = append(&wal, 40, 50)[9];
    wal.flush_to_os(last).unwrap();
    Image { synced: 40, ..killed(disk, wal) }
}

fn truncated(disk: &MemDisk) -> Image {
    let wal = begin(disk, BufferKind::Mapped);
    let lsns = append(&wal, 0, 120);
    wal.truncate_before(lsns[80]).unwrap();
    append(&wal, 120, 150);
    wal.sync().unwrap();
    Image { first: 80, synced: 150, ..killed(disk, wal) }
}

fn epochs(disk: &MemDisk) -> Image {
    for run in 0..2 {
        let wal = begin(disk, BufferKind::Heap);
        append(&wal, run * 15, (run + 1) * 15);
        drop(wal);
    }
    let wal = begin(disk, BufferKind::Mapped);
    append(&wal, 30, 45);
    wal.sync().unwrap();
    Image { is_same_boot: true, synced: 45, ..killed(disk, wal) }
}

/// Makes a log whose second copy of the state is of the save before, as a crash in between leaves
/// it.
fn interrupted(disk: &MemDisk) -> Image {
    let wal = begin(disk, BufferKind::Heap);
    let lsns = append(&wal, 0, 60);
    wal.sync().unwrap();
    let meta = |image: &Image| image.files.iter().position(|(name, _)| name == "meta").unwrap();
    let before = Image::of(disk);
    wal.checkpoint(lsns[30]).unwrap();
    let mut image = Image { synced: 60, ..killed(disk, wal) };
    let (at, before) = (meta(&image), &before.files[meta(&before)].1);
    image.files[at].1[BLOCK_BYTES..].copy_from_slice(&before[BLOCK_BYTES..]);
    image
}
