//! Failing calls and full disks.

use std::io;

use super::*;

fn file(disk: &SimDisk) -> Box<dyn DiskFile> {
    with_file(disk, &[b'o'; 4096]).1
}

#[test]
fn a_fault_hits_the_call_of_its_index() {
    let disk = SimDisk::new(1);
    let file = file(&disk);
    disk.fail(Fault::at(disk.calls() + 1, FaultKind::Eio));
    write_bytes(file.as_ref(), 0, b"first").unwrap();
    write_bytes(file.as_ref(), 0, b"second").unwrap_err();
    write_bytes(file.as_ref(), 0, b"third").unwrap();
    assert!(disk.trace().iter().any(|line| line.contains("Write file [0, 6) -> EIO")));
}

#[test]
fn faults_of_a_kind_hit_that_kind_as_often_as_they_should() {
    let disk = SimDisk::new(1);
    let file = file(&disk);
    disk.fail(Fault::nth(CallKind::Sync, 1, FaultKind::Eio));
    disk.fail(Fault::all(CallKind::Create, FaultKind::NoSpace).times(2));
    write_bytes(file.as_ref(), 0, b"bytes").unwrap();
    file.sync_data().unwrap();
    assert!(file.sync_data().unwrap_err().raw_os_error().is_some());
    file.sync_data().unwrap();
    let create = || folder(&disk).open("new", Access::Fresh).map(drop);
    for _ in 0..2 {
        assert_eq!(create().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    create().unwrap();
    disk.fail(Fault::all(CallKind::Read, FaultKind::Eio));
    disk.fail(Fault::all(CallKind::Open, FaultKind::Eio));
    disk.fail(Fault::all(CallKind::Map, FaultKind::Eio));
    assert!(file.read_at(0, &mut [0; 8]).is_err() && file.map(0, 4096).is_err());
    assert!(folder(&disk).open("file", Access::Read).is_err());
    disk.heal();
    assert!(file.read_at(0, &mut [0; 8]).is_ok() && file.map(0, 4096).is_ok());
}

#[test]
fn short_and_interrupted_calls_are_survived_by_the_loops() {
    let mut short = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = file(&disk);
        disk.fail(Fault::all(CallKind::Write, FaultKind::Interrupted));
        disk.fail(Fault::rate(2, FaultKind::ShortWrite));
        disk.fail(Fault::rate(2, FaultKind::Interrupted).only(CallKind::Read));
        let bytes: Vec<u8> = (0..3000).map(|index| index as u8).collect();
        write_bytes(file.as_ref(), 50, &bytes).unwrap();
        assert_eq!(content(file.as_ref())[50..3050], bytes, "seed {seed}");
        let trace = disk.trace().join("\n");
        assert!(trace.contains("EINTR"), "seed {seed}\n{trace}");
        short += usize::from(trace.contains("short"));
    }
    assert!(short > 10, "{short} of 50 runs had short writes");
}

#[test]
fn rates_hit_about_as_often_as_they_say() {
    let disk = SimDisk::new(9);
    let file = file(&disk);
    disk.fail(Fault::rate(10, FaultKind::Eio).only(CallKind::Write));
    let failed = (0..1000).filter(|_| write_bytes(file.as_ref(), 0, b"x").is_err()).count();
    assert!((50..200).contains(&failed), "{failed} of 1000");
}

#[test]
fn a_full_disk_takes_overwrites_and_nothing_that_grows() {
    let disk = SimDisk::new(1);
    let file = file(&disk);
    disk.set_capacity(Some(3 * 4096));
    write_bytes(file.as_ref(), 4096, &[1; 4096]).unwrap();
    assert_eq!(file.write_at(8000, &[IoSlice::new(&[2; 9000])]).unwrap(), 3 * 4096 - 8000);
    let full =
        |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
    full(write_bytes(file.as_ref(), 3 * 4096, &[3]));
    full(file.allocate(3 * 4096 + 1));
    full(folder(&disk).open("new", Access::Fresh).map(drop));
    write_bytes(file.as_ref(), 0, &[4; 3 * 4096]).unwrap();
    file.sync_data().unwrap();
    // The space of a removed file comes back when nobody has it open.
    folder(&disk).remove("file").unwrap();
    full(folder(&disk).open("new", Access::Fresh).map(drop));
    drop(file);
    folder(&disk).open("new", Access::Fresh).unwrap();
    disk.set_capacity(None);
}

#[test]
fn where_writes_are_copied_overwrites_need_space_too() {
    let disk = SimDisk::new(1).copy_on_write();
    let file = file(&disk);
    assert!(!folder(&disk).overwrites_in_place());
    disk.set_capacity(Some(4096));
    let written = write_bytes(file.as_ref(), 0, &[1; 10]);
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.set_capacity(Some(8192));
    write_bytes(file.as_ref(), 0, &[1; 10]).unwrap();
}

#[test]
fn a_slow_sync_lets_other_threads_write() {
    let disk = SimDisk::new(1);
    let file = file(&disk);
    write_bytes(file.as_ref(), 0, &[b'n'; 512]).unwrap();
    disk.fail(Fault::all(CallKind::Sync, FaultKind::SlowSync));
    file.sync_data().unwrap();
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    assert_eq!(disk.file("file").unwrap()[..512], [b'n'; 512]);
}

#[test]
fn a_failure_of_write_back_is_counted_and_reported_once() {
    let disk = SimDisk::new(3);
    let (_, file) = with_file(&disk, &[b'o'; 512]);
    disk.fail_write_back();
    assert_eq!((disk.write_back_failures(), disk.unreported_failures()), (0, 0), "all is clean");
    write_bytes(file.as_ref(), 0, &[b'n'; 512]).unwrap();
    disk.fail_write_back();
    assert_eq!((disk.write_back_failures(), disk.unreported_failures()), (1, 1));
    file.sync_data().unwrap_err();
    assert_eq!((disk.write_back_failures(), disk.unreported_failures()), (1, 0));
    file.sync_data().unwrap();
    // The error of a sync stands for what failed before it, too.
    write_bytes(file.as_ref(), 0, &[b'm'; 512]).unwrap();
    disk.fail_write_back();
    disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
    file.sync_data().unwrap_err();
    assert_eq!((disk.write_back_failures(), disk.unreported_failures()), (3, 0));
}
