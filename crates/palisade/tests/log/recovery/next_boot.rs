//! A log buffer that an open cannot use at this moment.

use crate::on_disk::{open, open_as, options};
use crate::prelude::*;

/// The ring may have what the segments lack: a failure to read it is not a ring without records.
#[test]
fn an_unreadable_log_buffer_is_not_taken_for_an_empty_one() {
    let disk = SimDisk::new(1);
    let wal = open(&disk);
    assert!(wal.stats().appends_survive_kill);
    wal.append(b"survives the death of the process").unwrap();
    end_process(&disk, wal);
    let mut refused = 0;
    for read in 0..30 {
        let disk = disk.fork(read);
        disk.restart();
        disk.fail(Fault::nth(CallKind::Read, read, FaultKind::Eio));
        let opened = open_as(&disk, BufferKind::Auto, options());
        disk.heal();
        match opened {
            Ok(wal) => {
                let note = wal.recovery_report().buffer_note.clone();
                assert_eq!(contents(&wal).len(), 1, "read {read}: {note:?}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "read {read}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1, "an open reads the header of the buffer and its ring");
}
