//! What most of the tests of one log use.

pub(crate) use std::cell::Cell;
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::io::{IoSlice, Read};
pub(crate) use std::panic::{AssertUnwindSafe, catch_unwind};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::pin::Pin;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use std::sync::{Arc, Barrier, Mutex};
pub(crate) use std::task::{Context, Poll, Waker};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use std::{fs, io, thread};

pub(crate) use palisade::disk::{Access, Disk, MemDisk};
pub(crate) use palisade::inspect::{Inspector, Outcome, Salvaged};
pub(crate) use palisade::sim::{
    CallKind, Calls, Effect, Fate, Fault, FaultDisk, FaultKind, Loss, SimDisk, Target,
};
pub(crate) use palisade::{
    Archive, ArchiveReader, BufferKind, Codec, Cursor, Error, ErrorKind, Lsn, Lz4, MemStore,
    OnRelease, OpenMode, Options, PinKind, RecordBuf, ReleasedSegment, Repair, ReplayFrom, Restore,
    RestoreFrom, SyncPolicy, Tail, Ticket, Verify, Wal, Zstd, crc32c_append, framed_bytes,
};
pub(crate) use palisade_store::FileOptions;
pub(crate) use palisade_store::ReadStore;
pub(crate) use tempfile::TempDir;

pub(crate) use crate::again::{Other, given_folder, in_a_process, say};
pub(crate) use crate::content::{all, append, fill, number_of, numbers, record};
pub(crate) use crate::dice::Dice;
pub(crate) use crate::epoch_list;
pub(crate) use crate::executor::{Count, block_on, poll_once, run_all};
pub(crate) use crate::faulty::log_in_memory;
pub(crate) use crate::faulty::{
    FaultyLog, MAKE_SEGMENT, MARK, NAME_SEGMENT, PASS_BUFFER_ON, READ, RELEASE, SAVE_STATE, SYNC,
    WRITE, log_and_store, new_log,
};
pub(crate) use crate::folder::{
    Entries, SEGMENT_BYTES, append_bytes, archived, archived_from, contents, copy_as_killed,
    datas_of, flip, folder, heap, log_on_files, lsns_of, place_of, read_until_error, refused,
    repair, segment, small, snapshot, snapshot_at_rest,
};
pub(crate) use crate::hole::with_a_hole;
pub(crate) use crate::masked::{Masked, OVERHEAD_BYTES};
pub(crate) use crate::on_disk::end_process;
pub(crate) use crate::repaired::repair_in_place;
pub(crate) use crate::watchdog::watch;
pub(crate) use crate::watchdog::{PATIENCE, until};
