//! The death of the process, and the process runs after it.

use std::collections::BTreeSet;

use super::*;

/// Stores `bytes` into the mapped memory of the file `name`, as an append does.
fn store(disk: &SimDisk, name: &str, at: usize, bytes: &[u8]) {
    let mut world = disk.world.lock();
    let node = world.names.file(&in_folder(name)).unwrap();
    world.node(node).store_mapped(at, bytes);
}

#[test]
fn the_dead_change_nothing() {
    let disk = SimDisk::new(1);
    let (log, process) = (begin(&disk), disk.as_disk());
    let file = durable_file(&log, "file", b"bytes");
    disk.kill();
    assert!(disk.is_dead());
    let calls = disk.calls();
    for _ in 0..2 {
        assert!(write_bytes(file.as_ref(), 0, b"other").is_err());
        assert!(file.sync_data().is_err() && file.allocate(100).is_err() && file.len().is_err());
        assert!(file.read_at(0, &mut [0; 5]).is_err() && file.map(0, 4).is_err());
        assert!(file.try_lock(false).is_err() && file.unlock().is_err());
        assert!(log.open("new", Access::Fresh).is_err());
        assert!(log.rename("file", "new").is_err());
        assert!(log.remove("file").is_err() && log.list().is_err());
        assert!(process.create_folder(&in_folder("x"), 0o600).is_err());
        assert!(log.sync().is_err() && process.kind(&absolute(FOLDER)).is_err());
        assert_eq!(
            (disk.files(), disk.file("file").unwrap()),
            (vec!["file".into()], b"bytes".into())
        );
        assert_eq!(disk.calls(), calls);
        // And in the next run the old handles are no better.
        disk.restart();
    }
    assert!(folder(&disk).open("file", Access::Write).is_ok());
}

#[test]
fn a_kill_keeps_what_the_system_had_and_power_loss_does_not() {
    let disk = SimDisk::new(1);
    let (_, file) = with_file(&disk, &[b'o'; 512]);
    write_bytes(file.as_ref(), 0, &[b'n'; 512]).unwrap();
    disk.restart();
    assert_eq!(disk.file("file").unwrap(), [b'n'; 512]);
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    assert_eq!(disk.file("file").unwrap(), [b'o'; 512]);
}

#[test]
fn a_reboot_keeps_everything_and_ends_the_process() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    let file = log.open("file", Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 0, b"bytes").unwrap();
    disk.reboot();
    assert_eq!(disk.file("file").unwrap(), b"bytes");
    assert!(log.open("file", Access::Read).is_err());
}

#[test]
fn a_file_in_memory_outlives_each_mount_and_no_boot() {
    let disk = SimDisk::new(1);
    let name = format!("{}/buffer", super::super::names::MEMORY);
    let file = begin(&disk).open(name.as_ref(), Access::New).unwrap();
    write_bytes(file.as_ref(), 0, b"ring").unwrap();
    disk.restart();
    assert_eq!(disk.file(&name).unwrap(), b"ring");
    disk.remount();
    assert_eq!(disk.file(&name).unwrap(), b"ring");
    disk.crash_file_system();
    assert_eq!(disk.file(&name).unwrap(), b"ring");
    disk.reboot();
    assert_eq!(disk.file(&name), None);
}

#[test]
fn a_file_system_that_has_shut_down_loses_at_an_orderly_end() {
    let ends: [fn(&SimDisk); 2] = [SimDisk::remount, SimDisk::reboot];
    for end in ends {
        let mut lost = 0;
        for seed in 0..40 {
            let disk = SimDisk::new(seed).failing_as(WriteBackFailure::ShutsDown);
            let log = begin(&disk);
            let other = durable_file(&log, "other", &[b'o'; 512]);
            write_bytes(other.as_ref(), 0, &[b'n'; 512]).unwrap();
            let file = durable_file(&log, "file", &[b'o'; 512]);
            disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
            file.sync_data().unwrap_err();
            assert!(disk.is_shut_down() && log.list().is_err());
            end(&disk);
            assert!(!disk.is_shut_down() && folder(&disk).list().is_ok());
            lost += usize::from(disk.file("other").unwrap() == [b'o'; 512]);
        }
        assert!((1..40).contains(&lost), "{lost} of 40 files lost what nobody had synced");
    }
}

#[test]
fn mapped_bytes_are_kept_as_they_are_at_the_death() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    let file = durable_file(&log, "ring", &[0; 8192]);
    let _memory = file.map(4096, 4096).unwrap();
    store(&disk, "ring", 4196, b"stored");
    assert_eq!(&content(file.as_ref())[4196..4202], b"stored");
    write_bytes(file.as_ref(), 4096 + 200, b"written").unwrap();
    let _same = file.map(0, 8192).unwrap();
    store(&disk, "ring", 4396, b"shared");
    disk.kill();
    disk.restart();
    let bytes = disk.file("ring").unwrap();
    assert_eq!(&bytes[4196..4202], b"stored");
    assert_eq!((&bytes[4296..4303], &bytes[4396..4402]), (&b"written"[..], &b"shared"[..]));
    let file = folder(&disk).open("ring", Access::Write).unwrap();
    drop(file.map(4096, 4096).unwrap());
    assert_eq!(content(file.as_ref()), bytes);
}

#[test]
fn stores_to_mapped_memory_are_unsynced_writes() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    let file = durable_file(&log, "ring", &[0; 4096]);
    let _memory = file.map(0, 4096).unwrap();
    for position in [10, 1000, 2000] {
        store(&disk, "ring", position, b"x");
    }
    assert_eq!(disk.unsynced_sectors(), 3);
    let mut left = BTreeSet::new();
    for seed in 0..200 {
        let fork = disk.fork(seed);
        fork.lose_power();
        let bytes = fork.file("ring").unwrap();
        left.insert([10, 1000, 2000].map(|position| bytes[position] == b'x'));
    }
    assert_eq!(left.len(), 8, "every subset");
    file.sync_data().unwrap();
    assert_eq!(disk.unsynced_sectors(), 0);
}

#[test]
fn a_process_dies_in_the_middle_of_a_write() {
    let mut written = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (_, file) = with_file(&disk, b"");
        disk.crash_at(disk.calls());
        write_bytes(file.as_ref(), 0, b"12345678").unwrap_err();
        assert!(disk.is_dead());
        disk.restart();
        let bytes = disk.file("file").unwrap();
        assert!(b"12345678".starts_with(&bytes), "{bytes:?}");
        written.insert(bytes.len());
    }
    assert_eq!(written.len(), 9);
}

#[test]
fn the_call_in_which_a_process_dies_is_done_or_not() {
    type Call = fn(&SimDisk);
    let calls: [Call; 4] = [
        |disk| drop(folder(disk).open("new", Access::WriteOrCreate)),
        |disk| drop(folder(disk).rename("file", "new")),
        |disk| drop(folder(disk).remove("file")),
        |disk| drop(disk.as_disk().create_folder(&in_folder("folder"), 0o600)),
    ];
    for call in calls {
        let mut left = BTreeSet::new();
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let log = begin(&disk);
            drop(durable_file(&log, "file", b"bytes"));
            disk.crash_at(disk.calls());
            call(&disk);
            assert!(disk.is_dead());
            disk.restart();
            let folder = disk.as_disk().kind(&in_folder("folder")).unwrap();
            left.insert((disk.files(), format!("{folder:?}")));
        }
        assert_eq!(left.len(), 2, "{left:?}");
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let disk = SimDisk::new(1);
    let (_, file) = with_file(&disk, &[b'o'; 4096]);
    write_bytes(file.as_ref(), 0, &[b'n'; 4096]).unwrap();
    let fork = disk.fork(2);
    assert!(fork.is_dead() && !disk.is_dead());
    fork.lose_power_choosing(&mut |_| Fate::Drop);
    fork.set_file("other", b"bytes".to_vec());
    assert_eq!(fork.file("file").unwrap(), [b'o'; 4096]);
    assert_eq!((disk.files(), content(file.as_ref())), (vec!["file".into()], vec![b'n'; 4096]));
    let fates = |seed| {
        let fork = disk.fork(seed);
        fork.lose_power();
        fork.file("file").unwrap()
    };
    assert_eq!(fates(3), fates(3));
    let all: BTreeSet<Vec<u8>> = (0..20).map(fates).collect();
    assert!(all.len() > 5);
}

/// Checks what the check of every disk (`conformance`) leaves out of locks.
#[test]
fn the_owner_of_a_lock_can_take_it_again_and_its_death_frees_it() {
    let disk = SimDisk::new(1);
    let open = |log: Arc<dyn DiskFolder>| log.open("lock", Access::WriteOrCreate).unwrap();
    let owner = open(begin(&disk));
    assert!(owner.try_lock(false).unwrap() && owner.try_lock(false).unwrap());
    disk.restart();
    assert!(open(folder(&disk)).try_lock(false).unwrap());
}

#[test]
fn what_is_set_from_outside_is_on_the_medium() {
    let disk = SimDisk::new(1);
    let (_, file) = with_file(&disk, b"bytes");
    write_bytes(file.as_ref(), 0, b"unsynced").unwrap();
    disk.set_file("file", b"rotten".to_vec());
    disk.set_file("made", b"new".to_vec());
    assert_eq!((disk.losses(), content(file.as_ref())), (vec![], b"rotten".to_vec()));
    disk.remove_file("file");
    disk.lose_power();
    assert_eq!((disk.files(), disk.file("made").unwrap()), (vec!["made".into()], b"new".to_vec()));
    assert_eq!(disk.file("file"), None);
}
