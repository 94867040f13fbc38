//! A memory file system that has no space for two log buffers of one log.

use palisade::Result;

use crate::prelude::*;

/// The files of log buffers.
fn buffers(disk: &dyn Disk) -> usize {
    let (_, folder) = disk.memory_folder().unwrap().unwrap();
    folder.list().unwrap().len()
}

/// Opens the log, with space for `most` log buffers.
fn open(disk: &SimDisk, buffer: BufferKind, most: usize) -> Result<Wal> {
    watch();
    let below = disk.as_disk();
    let with_faults = FaultDisk::new(Arc::clone(&below));
    with_faults.watch(move |call| {
        // The file itself is there already.
        let is_full = (call.kind, call.target) == (CallKind::Allocate, Target::Buffer)
            && buffers(below.as_ref()) > most;
        if is_full { Err(FaultKind::NoSpace.error()) } else { Ok(()) }
    });
    small().buffer(buffer).open_on(Arc::new(with_faults), "/log")
}

/// Protection: the old log buffer makes room for the next one, once its records are durable.
#[test]
fn a_log_is_opened_again_where_memory_has_room_for_one_buffer() {
    for buffer in [BufferKind::Mapped, BufferKind::Auto] {
        let disk = SimDisk::new(1);
        for kill in 0..4 {
            let wal = open(&disk, buffer, 1).unwrap();
            assert_eq!(numbers(&wal), all(kill * 10), "{buffer:?}: only the buffer had them");
            assert!(wal.recovery_report().appends_survive_kill, "{buffer:?}, kill {kill}");
            assert_eq!(buffers(disk.as_disk().as_ref()), 1);
            append(&wal, kill * 10..kill * 10 + 10, 100);
            disk.restart();
            drop(wal);
        }
    }
}

/// Protection: an open that gets no log buffer leaves nothing that takes space.
#[test]
fn opens_that_get_no_buffer_take_no_space() {
    let disk = SimDisk::new(1);
    let wal = open(&disk, BufferKind::Mapped, 1).unwrap();
    append(&wal, 0..10, 100);
    disk.restart();
    drop(wal);
    let names = || {
        let folder = disk.as_disk().open_folder(Path::new("/log"), 0o600).unwrap();
        folder.list().unwrap()
    };
    let refused = || {
        let error = open(&disk, BufferKind::Mapped, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        names().len()
    };
    let left = refused();
    assert_eq!([(); 3].map(|()| refused()), [left; 3], "{:?}", names());
    assert_eq!(buffers(disk.as_disk().as_ref()), 0);
    assert_eq!(numbers(&open(&disk, BufferKind::Mapped, 1).unwrap()), all(10));
}

/// Protection: the buffer of an open that failed goes with it.
#[test]
fn opens_that_fail_leave_no_buffer() {
    let disk = SimDisk::new(1);
    drop(open(&disk, BufferKind::Mapped, 2).unwrap());
    let before = buffers(disk.as_disk().as_ref());
    for _ in 0..3 {
        let with_faults = FaultDisk::new(disk.as_disk());
        with_faults.watch(|call| match (call.kind, call.target) {
            (CallKind::Rename, Target::Segment) => Err(FaultKind::Eio.error()),
            _ => Ok(()),
        });
        let options = small().buffer(BufferKind::Mapped);
        let error = options.open_on(Arc::new(with_faults), "/log").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(buffers(disk.as_disk().as_ref()), before);
    }
}
