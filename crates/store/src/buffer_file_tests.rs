//! The log buffer's file, in a folder of the test's own.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::MemoryKind;
use crate::disk::{Disk, MemDisk, OsDisk};
use crate::sim::{CallKind, FaultDisk, Target};

const HOME: FolderIdentity = FolderIdentity { device: 3, inode: 7, born: 11 };
const HEADER: RingHeader = RingHeader {
    uuid: Uuid([2; 16]),
    epoch: 5,
    ring_bytes: 8192,
    home: HOME,
    path: PathBuf::new(),
};
const NAME: BufferName = BufferName(77);

fn memory() -> (TempDir, Folder) {
    let temp = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let folder = Folder::at(&disk, temp.path(), 0o600).unwrap();
    (temp, folder)
}

fn made() -> (TempDir, Folder, PathBuf) {
    let (temp, memory) = memory();
    drop(BufferFile::create(&memory, HEADER, NAME, Lsn::ZERO).unwrap());
    let path = path_of(&temp, NAME);
    (temp, memory, path)
}

fn path_of(temp: &TempDir, name: BufferName) -> PathBuf {
    temp.path().join(file_name(HEADER.uuid, name))
}

fn old(memory: &Folder) -> OldBuffer {
    read_old(memory, HEADER.uuid, HOME, NAME, HEADER.ring_bytes as u64).unwrap()
}

fn marks(memory: &Folder) -> (u64, Lsn, Lsn) {
    match old(memory) {
        OldBuffer::Found { epoch, durable, written, .. } => (epoch, durable, written),
        other => panic!("{other:?}"),
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn is_invalid(memory: &Folder, expected: &str) -> bool {
    matches!(old(memory), OldBuffer::Invalid(text) if text.contains(expected))
}

#[test]
fn a_buffer_is_found_again_with_its_marks_and_its_ring() {
    let (temp, memory) = memory();
    assert!(matches!(old(&memory), OldBuffer::Missing));
    let (mut buffer, ring) = BufferFile::create(&memory, HEADER, NAME, Lsn::new(64)).unwrap();
    assert_eq!((ring.len(), ring.kind()), (8192, MemoryKind::Mapped));
    assert_eq!(marks(&memory), (5, Lsn::new(64), Lsn::new(64)));
    buffer.note_written(Lsn::new(256)).unwrap();
    buffer.note_durable(Lsn::new(128)).unwrap();
    assert_eq!(marks(&memory), (5, Lsn::new(128), Lsn::new(256)));
    buffer.note_durable(Lsn::new(512)).unwrap();
    assert_eq!(marks(&memory), (5, Lsn::new(512), Lsn::new(512)), "what is durable was written");
    buffer.pass_on(6).unwrap();
    assert_eq!(marks(&memory).0, 6);
    let bytes = fs::read(path_of(&temp, NAME)).unwrap();
    assert!(bytes.len() == RING_AT + 8192 && bytes[RING_AT..].iter().all(|&byte| byte == 0));
    buffer.remove().unwrap();
    assert!(matches!(old(&memory), OldBuffer::Missing));
}

#[test]
fn the_buffer_of_a_log_in_another_folder_is_not_taken() {
    let (_temp, memory, _) = made();
    for home in [
        FolderIdentity { device: 4, ..HOME },
        FolderIdentity { inode: 8, ..HOME },
        FolderIdentity { born: 12, ..HOME },
    ] {
        let found = read_old(&memory, HEADER.uuid, home, NAME, 8192).unwrap();
        assert!(matches!(found, OldBuffer::Invalid(text) if text.contains("another folder")));
    }
}

#[test]
fn a_mark_that_is_too_short_leaves_the_one_before() {
    let (temp, memory) = memory();
    let (mut buffer, _ring) = BufferFile::create(&memory, HEADER, NAME, Lsn::new(8)).unwrap();
    buffer.note_durable(Lsn::new(16)).unwrap();
    buffer.note_durable(Lsn::new(24)).unwrap();
    let path = path_of(&temp, NAME);
    change(&path, |bytes| bytes[slot_at(2) as usize + 9] ^= 1);
    assert_eq!(marks(&memory).1, Lsn::new(16));
    change(&path, |bytes| bytes[slot_at(1) as usize + 9] ^= 1);
    assert!(is_invalid(&memory, "marks do not validate"));
}

#[test]
fn what_is_no_whole_buffer_is_invalid_and_says_why() {
    let (_temp, memory, path) = made();
    let whole = fs::read(&path).unwrap();
    change(&path, |bytes| bytes.truncate(RING_AT + 4096));
    assert!(is_invalid(&memory, "too short"));
    change(&path, |bytes| bytes.truncate(100));
    assert!(is_invalid(&memory, "checksum"));
    fs::write(&path, &whole).unwrap();
    change(&path, |bytes| bytes[30] ^= 1);
    assert!(is_invalid(&memory, "checksum"));
    let endless = RingHeader { ring_bytes: usize::MAX, ..HEADER };
    change(&path, |bytes| bytes[..BLOCK_BYTES].copy_from_slice(&encode_header(&endless)));
    assert!(is_invalid(&memory, "larger than a buffer can be"));
}

#[test]
fn an_emptied_buffer_keeps_its_marks() {
    let (temp, memory) = memory();
    let (mut buffer, ring) = BufferFile::create(&memory, HEADER, NAME, Lsn::ZERO).unwrap();
    buffer.note_durable(Lsn::new(40)).unwrap();
    change(&path_of(&temp, NAME), |bytes| bytes[RING_AT..].fill(9));
    buffer.empty();
    drop(ring);
    let OldBuffer::Found { epoch, durable, written, ring } = old(&memory) else { panic!() };
    assert_eq!((epoch, durable, written), (5, Lsn::new(40), Lsn::new(40)));
    assert!(ring.is_empty(), "a ring without blocks is not touched");
    let bytes = fs::read(path_of(&temp, NAME)).unwrap();
    assert!(bytes.len() == RING_AT + 8192 && bytes[RING_AT..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_ring_that_is_larger_than_the_state_says_gets_no_memory() {
    let (_temp, memory, path) = made();
    let larger = RingHeader { ring_bytes: 8193, ..HEADER };
    change(&path, |bytes| {
        bytes[..BLOCK_BYTES].copy_from_slice(&encode_header(&larger));
        bytes.truncate(RING_AT);
        bytes.resize(RING_AT + 8193, 0);
    });
    assert!(is_invalid(&memory, "larger than the log's buffer"));
}

#[test]
fn only_unused_buffers_of_the_same_folder_are_removed() {
    let (temp, memory) = memory();
    let make = |name, header| BufferFile::create(&memory, header, name, Lsn::ZERO).unwrap().0;
    let names = [1, 2, 3, 4].map(BufferName);
    let kept = make(names[0], HEADER);
    drop(make(names[1], HEADER));
    let in_use = make(names[2], HEADER);
    drop(make(names[3], RingHeader { home: FolderIdentity { inode: 1, ..HOME }, ..HEADER }));
    let foreign = temp.path().join("palisade-not-a-buffer");
    fs::write(&foreign, "x").unwrap();
    remove_others(&memory, &kept).unwrap();
    let are_there = names.map(|name| path_of(&temp, name).exists());
    assert_eq!((are_there, foreign.exists()), ([true, false, true, true], true));
    drop(in_use);
}

/// Checks a folder in which only a file's owner can remove it.
#[test]
fn a_buffer_that_cannot_be_removed_keeps_no_other() {
    let faults = FaultDisk::new(Arc::new(MemDisk::new()));
    let disk: Arc<dyn Disk> = Arc::new(faults.clone());
    let memory = Folder::memory(&disk).unwrap().unwrap();
    let make =
        |number| BufferFile::create(&memory, HEADER, BufferName(number), Lsn::ZERO).unwrap().0;
    let kept = make(1);
    (2..5).for_each(|number| drop(make(number)));
    let stuck = file_name(HEADER.uuid, BufferName(2));
    let name = stuck.clone();
    faults.watch(move |call| match call.kind {
        CallKind::Remove if call.name == name => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(()),
    });
    remove_others(&memory, &kept).unwrap();
    assert_eq!(memory.names().unwrap(), [file_name(HEADER.uuid, kept.name), stuck]);
}

fn other(number: u128, ring_bytes: usize, home: FolderIdentity, path: &Path) -> OtherLog {
    let header = RingHeader { uuid: Uuid([9; 16]), ring_bytes, home, path: path.into(), ..HEADER };
    (BufferName(number), header)
}

type OtherLog = (BufferName, RingHeader);

#[test]
fn buffers_of_other_logs_stay_though_their_folders_are_missing() {
    let (temp, memory) = memory();
    let (there, gone) = (temp.path().to_path_buf(), temp.path().join("gone"));
    let kept = BufferFile::create(&memory, HEADER, NAME, Lsn::ZERO).unwrap().0;
    let logs = [other(1, 0, HOME, &gone), other(2, 8192, HOME, &gone), other(3, 0, HOME, &there)];
    for (name, header) in logs {
        drop(BufferFile::create(&memory, header, name, Lsn::ZERO).unwrap());
    }
    remove_others(&memory, &kept).unwrap();
    assert_eq!(memory.names().unwrap().len(), 4);
}

#[test]
fn of_many_buffers_those_without_a_log_at_its_path_are_removed() {
    let (temp, memory) = memory();
    let (there, gone) = (temp.path().to_path_buf(), temp.path().join("gone"));
    let kept = BufferFile::create(&memory, HEADER, NAME, Lsn::ZERO).unwrap().0;
    let home = memory.handle().identity();
    let make = |(name, header): OtherLog| {
        let file = file_name(header.uuid, name);
        (file, BufferFile::create(&memory, header, name, Lsn::ZERO).unwrap().0)
    };
    let staying: Vec<String> = (0..50)
        .map(|number| match number % 3 {
            0 => other(number, 8, HOME, &gone),
            1 => other(number, 0, home, &there),
            _ => other(number, 0, HOME, Path::new("relative/gone")),
        })
        .map(|log| make(log).0)
        .collect();
    let in_use = make(other(60, 0, HOME, &gone));
    // Of these half are deleted, and half were made anew.
    for number in 100..1149 {
        make(other(number, 0, HOME, if number % 2 == 0 { &gone } else { &there }));
    }
    let count = || memory.names().unwrap().len() - 1;
    let mut before = count();
    assert_eq!(before, 1100);
    loop {
        remove_others(&memory, &kept).unwrap();
        assert!(count() + 100 >= before, "an open looks at 100 of them at most");
        if count() == before {
            break;
        }
        before = count();
    }
    assert!(before <= 1000, "{before} of them stay");
    let names = memory.names().unwrap();
    assert!(staying.iter().chain([&in_use.0]).all(|name| names.contains(name)));
}

#[test]
fn a_mark_that_cannot_be_written_leaves_the_one_before() {
    let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let faults = FaultDisk::new(Arc::clone(&below));
    let disk: Arc<dyn Disk> = Arc::new(faults.clone());
    let memory = Folder::memory(&disk).unwrap().unwrap();
    let (mut buffer, _ring) = BufferFile::create(&memory, HEADER, NAME, Lsn::new(8)).unwrap();
    buffer.note_durable(Lsn::new(16)).unwrap();
    faults.watch(move |call| {
        if (call.kind, call.target) == (CallKind::Write, Target::Marks) {
            let (_, folder) = below.memory_folder()?.unwrap();
            let torn = io::IoSlice::new(&call.pieces[0][..9]);
            folder.open(call.name, Access::Write)?.write_at(call.offset, &[torn])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    for _ in 0..3 {
        assert_eq!(buffer.note_durable(Lsn::new(24)).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(marks(&memory), (5, Lsn::new(16), Lsn::new(16)));
    }
    faults.watch(|_| Ok(()));
    buffer.note_written(Lsn::new(32)).unwrap();
    assert_eq!(marks(&memory), (5, Lsn::new(16), Lsn::new(32)), "what failed is not noted");
}

#[test]
fn a_name_that_is_taken_is_an_error_and_its_file_stays() {
    let (temp, memory) = memory();
    fs::write(path_of(&temp, NAME), "somebody's").unwrap();
    BufferFile::create(&memory, HEADER, NAME, Lsn::ZERO).unwrap_err();
    assert_eq!(fs::read(path_of(&temp, NAME)).unwrap(), b"somebody's");
}
