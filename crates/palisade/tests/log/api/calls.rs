//! The log on files and in memory, through its public calls.

use palisade::Result;

use crate::prelude::*;

#[test]
fn a_closed_log_opens_without_a_scan_in_the_same_epoch() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let lsn = wal.commit(b"one")?;
    let epoch = wal.recovery_report().epoch;
    wal.close()?;
    let wal = small().open(&path)?;
    let report = wal.recovery_report();
    assert!(report.clean, "{report:?}");
    assert_eq!((report.records, report.epoch), (0, epoch));
    assert_eq!(wal.get(lsn)?.data(), b"one");
    let next = wal.commit(b"two")?;
    assert!(next > lsn);
    assert_eq!(contents(&wal).len(), 2);
    wal.close()
}

#[test]
fn vectored_tagged_and_in_place_appends() -> Result<()> {
    let wal = log_in_memory(1 << 16, 1 << 12);
    for n in 0..200 {
        let lsn = wal.append_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")])?.lsn();
        assert_eq!(wal.get(lsn)?.data(), b"abcde");
        let parts = [IoSlice::new(b""), IoSlice::new(b"fg")];
        let found = wal.get(wal.append_vectored_tagged(n + 1, &parts)?.lsn())?;
        assert_eq!((found.tag(), found.data()), (n + 1, &b"fg"[..]));
        let lsn = wal.append_tagged(n, b"t")?.lsn();
        assert_eq!(wal.get(lsn)?.tag(), n);
        let lsn = wal.append_with(100, |lsn, bytes| {
            assert_eq!(bytes, [0; 100]);
            bytes[..8].copy_from_slice(&lsn.as_u64().to_le_bytes());
        })?;
        let lsn = lsn.lsn();
        assert_eq!(wal.get(lsn)?.data()[..8], lsn.as_u64().to_le_bytes());
    }
    Ok(())
}

#[test]
fn a_panic_in_append_with_becomes_padding() -> Result<()> {
    let wal = log_in_memory(1 << 16, 1 << 12);
    let before = wal.append(b"before")?.lsn();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wal.append_with(64, |_, _| panic!("in the closure")).map(drop)
    }));
    assert!(panicked.is_err());
    let after = wal.commit(b"after")?;
    assert_eq!(lsns_of(&wal), [before, after]);
    Ok(())
}

/// What a log in memory cannot honour it refuses; the rest holds as on files.
#[test]
fn a_log_in_memory_honours_the_options_of_files_or_refuses_them() -> Result<()> {
    let store = MemStore::new(1 << 16);
    let options = || Options::new().buffer_bytes(1 << 12);
    let open = |options: Options| Wal::with_store(store.clone(), options);
    let missing = open(options().open_mode(OpenMode::MustExist)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let other = open(options().segment_bytes(1 << 20)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Mismatch);
    let bad = open(options().file_mode(0)).unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::InvalidArgument);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kept = dir.path().join("archive");
    let archive = Arc::new(Archive::open(&kept)?);
    let first = Lsn::new(1 << 30);
    let all = options().segment_bytes(1 << 16).first_lsn(first).on_release(archive);
    let wal = open(all.buffer(BufferKind::Heap))?;
    assert!(!wal.stats().appends_survive_kill);
    assert_eq!(wal.commit(&[1; 1000])?, first);
    while wal.reserved_lsn() <= first.plus(1 << 16) {
        wal.append(&[2; 1000])?;
    }
    wal.truncate_before(wal.last_record()?.unwrap().lsn())?;
    let mut records = ArchiveReader::open(&kept)?.records(None)?;
    assert_eq!(records.next()?.unwrap().lsn(), first);
    Ok(())
}
