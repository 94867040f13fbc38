//! What is on the disk at each moment, and what a reader makes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::CodecId;
use crate::SavedCursor;
use crate::block::{with_features, with_version};
use crate::disk::Disk;
use crate::disk::OsDisk;

const RESERVED_AT: usize = 120;

fn sample(head: u64) -> State {
    State {
        uuid: Uuid([3; 16]),
        segment_bytes: 65_536,
        buffer_bytes: 4096,
        epoch: 2,
        epoch_base: Lsn::new(65_536),
        epoch_salt: 77,
        head: Lsn::new(head),
        checkpoint: Lsn::new(9),
        clean_end: Lsn::new(8),
        clean: true,
        epochs: vec![extent(1, 0, 64), extent(2, 65_536, 65_600)],
        codec: None,
        cursors: Vec::new(),
        bases: Vec::new(),
    }
}

fn extent(number: u64, base: u64, end: u64) -> EpochExtent {
    EpochExtent { number, salt: number ^ 0x55, base: Lsn::new(base), end: Lsn::new(end) }
}

fn origin() -> Origin {
    Origin {
        file: Some(FileIdentity { inode: 6, born: 7 }),
        home: FolderIdentity { device: 1, inode: 2, born: 3 },
        buffer: Some(BufferRef { name: BufferName(u128::MAX - 5), has_ring: true }),
    }
}

fn meta(state: State, generation: u64) -> Meta {
    Meta { state, origin: origin(), generation, is_copy: false }
}

fn block(head: u64, generation: u64) -> Block {
    encode(&meta(sample(head), generation))
}

fn empty() -> (TempDir, Folder, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let folder = Folder::at(&disk, temp.path(), 0o600).unwrap();
    let path = temp.path().join(META);
    (temp, folder, path)
}

fn create(folder: &Folder, head: u64) -> MetaFile {
    MetaFile::create(folder, sample(head), origin()).unwrap()
}

fn open(folder: &Folder) -> MetaFile {
    MetaFile::open(folder, found(folder), origin())
}

fn found(folder: &Folder) -> Meta {
    read(folder).unwrap().unwrap()
}

fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[cfg(unix)]
fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
fn a_saved_state_survives_damage_of_either_copy() {
    for at in [0, COPY_STRIDE as usize] {
        let (_temp, folder, path) = empty();
        let mut file = create(&folder, 0);
        file.save(&sample(64)).unwrap();
        damage(&path, at + 100);
        assert_eq!(found(&folder).state, sample(64));
        let there = found(&folder).origin;
        assert_eq!(Origin { file: origin().file, ..there }, origin());
        open(&folder).save(&sample(128)).unwrap();
        damage(&path, (COPY_STRIDE as usize - at) + 100);
        assert_eq!(found(&folder).state, sample(128));
    }
}

/// Checks all alignments: a block of the medium can hold several of the file system's.
#[test]
fn a_saved_state_survives_the_loss_of_any_block_of_16_kib() {
    let (_temp, folder, path) = empty();
    drop(create(&folder, 64));
    let whole = fs::read(&path).unwrap();
    for end in (BLOCK_BYTES..whole.len() + (16 << 10)).step_by(BLOCK_BYTES) {
        let mut bytes = whole.clone();
        bytes[end.saturating_sub(16 << 10)..end.min(whole.len())].fill(0);
        fs::write(&path, bytes).unwrap();
        assert_eq!(found(&folder).state, sample(64), "without the block that ends at {end}");
    }
}

#[test]
fn the_greater_generation_counts() {
    let (_temp, folder, path) = empty();
    drop(create(&folder, 0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[..BLOCK_BYTES].copy_from_slice(&block(64, 2));
    fs::write(&path, &bytes).unwrap();
    assert_eq!(found(&folder).state, sample(64));
    open(&folder).save(&sample(128)).unwrap();
    assert_eq!((found(&folder).state, found(&folder).generation), (sample(128), 3));
}

/// Checks that no process trusts what another one has written.
#[cfg(unix)]
#[test]
fn each_open_writes_a_new_file_and_each_save_both_its_copies() {
    let (temp, folder, path) = empty();
    drop(create(&folder, 0));
    let kept = fs::File::open(&path).unwrap();
    let first = inode(&path);
    let mut file = open(&folder);
    file.save(&sample(64)).unwrap();
    let second = inode(&path);
    assert_ne!(second, first);
    file.save(&sample(128)).unwrap();
    assert_eq!(inode(&path), second);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, META_BYTES);
    assert_eq!(bytes[..BLOCK_BYTES], bytes[COPY_STRIDE as usize..]);
    assert!(!temp.path().join(META_TEMP).exists());
    drop(kept);
}

#[test]
fn origins_come_back_as_they_were() {
    let others = [
        Origin::default(),
        Origin { file: None, ..origin() },
        Origin { buffer: None, ..origin() },
        Origin {
            buffer: Some(BufferRef { name: BufferName(1), has_ring: false }),
            ..Origin::default()
        },
    ];
    for origin in others {
        let meta = Meta { origin, ..meta(sample(0), 1) };
        assert_eq!(decode(&encode(&meta)), Ok(meta));
    }
}

fn decoded(state: &State) -> State {
    decode(&encode(&meta(state.clone(), 1))).unwrap().state
}

fn epochs(count: u64) -> Vec<EpochExtent> {
    (1..=count).map(|n| extent(n, n * 65_536, n * 65_536 + 8)).collect()
}

fn with_epochs(count: u64) -> Writer {
    let block = Writer::new(MAGIC).bytes(&block(0, 1)[24..LIST_AT]).u64(count);
    epochs(count).iter().fold(block, |block, epoch| {
        block.u64(epoch.number).u64(epoch.salt).u64(epoch.base.as_u64()).u64(epoch.end.as_u64())
    })
}

fn field(block: &Block, at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().unwrap())
}

fn cursors(count: u64) -> Vec<SavedCursor> {
    let cursor = |n: u64| SavedCursor {
        name: format!("{n:0>32}"),
        position: Lsn::new(n * 64),
        max_lag: u64::MAX - n,
    };
    (0..count).map(cursor).collect()
}

#[test]
fn cursors_are_kept_and_epochs_get_the_rest_of_the_block() {
    for (cursor_count, epochs_fit) in [(0, MAX_EPOCHS as u64), (1, 109), (MAX_CURSORS as u64, 15)] {
        for (epoch_count, is_kept) in
            [(0, true), (1, true), (epochs_fit, true), (epochs_fit + 1, false)]
        {
            let state =
                State { epochs: epochs(epoch_count), cursors: cursors(cursor_count), ..sample(0) };
            let expected = if is_kept { state.epochs.clone() } else { vec![] };
            assert_eq!(decoded(&state), State { epochs: expected, ..state }, "{cursor_count}");
        }
    }
}

#[test]
fn cursors_have_their_place_in_the_block_and_their_feature_bit() {
    let block = encode(&meta(State { cursors: cursors(2), ..sample(0) }, 1));
    assert_eq!(block[16], 2, "the feature bit");
    // After the two epochs.
    assert_eq!(field(&block, 328), 2);
    assert_eq!(&block[336..368], cursors(1)[0].name.as_bytes());
    assert_eq!([416, 424].map(|at| field(&block, at)), [64, u64::MAX - 1]);
    assert_eq!(encode(&meta(sample(0), 1))[16], 0);
}

#[test]
fn bases_come_back_from_the_end_of_the_block() {
    let base = |n: u64| EpochBase { end_before: Lsn::new(n), base: Lsn::new(n * 65_536) };
    for count in [0, 1, MAX_BASES as u64] {
        let bases = (1..=count).map(base).collect();
        let state = State { bases, cursors: cursors(MAX_CURSORS as u64), ..sample(0) };
        assert_eq!(decoded(&state), state);
        let block = encode(&meta(state, 1));
        assert_eq!(block[3832..3840], count.to_le_bytes());
        let mut damaged = block;
        damaged[3832] = MAX_BASES as u8 + 1;
        assert_eq!(decode(&with_features(damaged, 2)), Err(BlockFault::Damaged));
    }
}

#[test]
fn cursors_that_reach_over_the_bases_count_as_damage() {
    let long = with_epochs(100).cursors(&cursors(12)).seal();
    assert_eq!(decode(&long), Err(BlockFault::Damaged));
}

#[test]
fn cursors_that_no_log_can_have_count_as_damage() {
    let two = cursors(2);
    let named = |name: &str| SavedCursor { name: name.into(), ..two[0].clone() };
    let swapped = vec![two[1].clone(), two[0].clone()];
    let twice = vec![two[0].clone(), two[0].clone()];
    for bad in [swapped, twice, vec![named("")], vec![named("a\0b")]] {
        let block = encode(&meta(State { cursors: bad.clone(), ..sample(0) }, 1));
        assert_eq!(decode(&block), Err(BlockFault::Damaged), "{bad:?}");
    }
    let whole = encode(&meta(State { cursors: two, ..sample(0) }, 1));
    for (at, bytes) in [(328, u64::MAX.to_le_bytes()), (336, [0xff; 8])] {
        let mut damaged = whole;
        damaged[at..at + 8].copy_from_slice(&bytes);
        assert_eq!(decode(&with_features(damaged, 2)), Err(BlockFault::Damaged), "{at}");
    }
}

fn codec(name: &[u8]) -> Option<CodecId> {
    let mut padded = [0; 32];
    padded[..name.len()].copy_from_slice(name);
    CodecId::from_bytes(padded, [9; 16])
}

#[test]
fn a_codec_is_read_back_with_its_offset_and_its_feature_bit() {
    for name in [&b"lz4"[..], &[b'x'; 32]] {
        let state = State { codec: codec(name), ..sample(0) };
        assert!(state.codec.is_some());
        assert_eq!(decoded(&state), state);
        let block = encode(&meta(state, 1));
        assert_eq!(
            (block[16..20].to_vec(), &block[200..200 + name.len()]),
            (vec![1, 0, 0, 0], name)
        );
        assert_eq!(block[232..248], [9; 16]);
    }
    assert_eq!(block(0, 1)[16..20], [0; 4]);
}

#[test]
fn a_name_that_no_codec_has_counts_as_damage() {
    let whole = encode(&meta(State { codec: codec(b"lz4"), ..sample(0) }, 1));
    for name in [[0, 0, 0], [b'a', 0, b'b'], [0xff, b'a', b'b']] {
        assert_eq!(codec(&name), None);
        let mut damaged = whole;
        damaged[200..203].copy_from_slice(&name);
        let sealed = with_features(damaged, 1);
        assert_eq!(decode(&sealed), Err(BlockFault::Damaged), "{name:?}");
    }
}

#[test]
fn no_list_lies_beside_a_cleared_flag() {
    let state = State { clean: false, ..sample(0) };
    assert_eq!(decoded(&state), State { epochs: Vec::new(), ..state });
}

#[test]
fn the_list_has_its_place_in_the_block_and_zeros_there_are_none() {
    let block = block(0, 1);
    assert!(block[200..LIST_AT].iter().all(|byte| *byte == 0));
    let second = [2, 2 ^ 0x55, 65_536, 65_600];
    let found = [296, 304, 312, 320].map(|at| field(&block, at));
    assert_eq!((field(&block, 256), found), (2, second));
    let old = Writer::new(MAGIC).bytes(&block[24..LIST_AT]).seal();
    assert_eq!(decode(&old).unwrap().state.epochs, []);
    let endless = Writer::new(MAGIC).bytes(&block[24..LIST_AT]).u64(MAX_EPOCHS as u64 + 1);
    assert_eq!(decode(&endless.seal()), Err(BlockFault::Damaged));
}

#[test]
fn a_copy_whose_list_is_damaged_counts_as_damaged() {
    let (_temp, folder, path) = empty();
    drop(create(&folder, 0));
    damage(&path, LIST_AT + 20);
    assert_eq!(found(&folder).state, sample(0), "the other copy has it");
    damage(&path, COPY_STRIDE as usize + LIST_AT + 20);
    assert_eq!(read(&folder).unwrap_err().kind(), ErrorKind::Corrupt);
}

fn with_reserved(block: Block, value: u64) -> Block {
    Writer::new(MAGIC)
        .bytes(&block[24..RESERVED_AT])
        .u64(value)
        .bytes(&block[RESERVED_AT + 8..])
        .seal()
}

#[test]
fn what_is_wrong_with_the_file_decides_the_kind() {
    let whole = block(0, 1);
    let mut damaged = whole;
    damaged[50] ^= 1;
    let newer = with_version(whole, 9);
    let other_way = with_reserved(whole, 1);
    let foreign = [b'x'; BLOCK_BYTES];
    let cases = [
        (vec![damaged, damaged], ErrorKind::Corrupt),
        (vec![damaged, foreign], ErrorKind::Corrupt),
        (vec![foreign, foreign], ErrorKind::Foreign),
        (vec![], ErrorKind::Foreign),
        (vec![newer, newer], ErrorKind::Unsupported),
        (vec![newer, whole], ErrorKind::Unsupported),
        (vec![other_way, other_way], ErrorKind::Unsupported),
        (vec![whole, other_way], ErrorKind::Unsupported),
        (vec![damaged], ErrorKind::Corrupt),
    ];
    for (copies, kind) in cases {
        let (_temp, folder, path) = empty();
        let mut bytes = Vec::new();
        for (number, copy) in copies.iter().enumerate() {
            bytes.resize(number * COPY_STRIDE as usize, 0);
            bytes.extend_from_slice(copy);
        }
        fs::write(path, bytes).unwrap();
        assert_eq!(read(&folder).unwrap_err().kind(), kind);
    }
}
