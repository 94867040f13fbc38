//! What must hold for the disk in memory.

use super::*;
use crate::disk::{read_full, write_bytes};

#[test]
fn a_killed_process_reads_and_changes_nothing() {
    let disk = MemDisk::new();
    let open = || disk.open_folder(Path::new("/"), 0).unwrap();
    let folder = open();
    let file = folder.open("a", Access::New).unwrap();
    write_bytes(file.as_ref(), 0, b"before").unwrap();
    assert!(file.try_lock(false).unwrap());
    disk.kill();
    let next = open().open("a", Access::Write).unwrap();
    assert!(next.try_lock(false).unwrap(), "the lock died with the process");
    write_bytes(file.as_ref(), 0, b"after").unwrap_err();
    file.allocate(1 << 20).unwrap_err();
    file.sync_data().unwrap_err();
    folder.rename("a", "b").unwrap_err();
    folder.remove("a").unwrap_err();
    folder.open("b", Access::WriteOrCreate).unwrap_err();
    let mut bytes = [0; 10];
    assert_eq!(read_full(file.as_ref(), 0, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes[..6], b"before");
    assert_eq!(open().list().unwrap(), ["a"]);
}

#[test]
fn power_loss_takes_the_bytes_that_no_sync_has_covered() {
    let disk = MemDisk::new();
    let folder = disk.open_folder(Path::new("/"), 0).unwrap();
    let file = folder.open("a", Access::New).unwrap();
    write_bytes(file.as_ref(), 0, b"synced").unwrap();
    file.sync_data().unwrap();
    for at in [8, 12, 10] {
        write_bytes(file.as_ref(), at, b"lost").unwrap();
    }
    disk.lose_power();
    let mut bytes = [1; 20];
    assert_eq!(read_full(file.as_ref(), 0, &mut bytes).unwrap(), 16);
    assert_eq!(&bytes[..16], b"synced\0\0\0\0\0\0\0\0\0\0");
}
