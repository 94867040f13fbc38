//! One block that the medium cannot read, in each file of a log: a copy of the state or a header
//! that cannot be read is as one that is damaged, tools name the place and go on above it, and an
//! open takes nothing for torn.

use palisade::inspect::BadHeader;

use crate::prelude::*;

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 4 * BLOCK;

/// A record: where its frame begins and ends, and its length.
type Entry = (Lsn, Lsn, usize);

fn options() -> Options {
    Options::new().segment_bytes(SEGMENT).buffer_bytes(SEGMENT as usize)
}

fn append_all(wal: &Wal, lens: &[usize], entries: &mut Vec<Entry>) {
    for &len in lens {
        let ticket = wal.append(&vec![entries.len() as u8; len]).unwrap();
        entries.push((ticket.lsn(), ticket.end_lsn(), len));
    }
    wal.sync().unwrap();
}

/// A log of two epochs and some segments, which was closed, or whose process died.
fn log(is_closed: bool) -> (SimDisk, Vec<Entry>) {
    let disk = SimDisk::new(5).without_memory();
    let mut entries = Vec::new();
    let wal = Wal::with_store(&disk, options()).unwrap();
    append_all(&wal, &[200, 6000, 300, 7000, 5000, 100, 100, 6500], &mut entries);
    disk.kill();
    drop(wal);
    disk.restart();
    let wal = Wal::with_store(&disk, options()).unwrap();
    append_all(&wal, &[7000, 200, 200, 3900, 100, 6000, 2000, 2000], &mut entries);
    if is_closed {
        wal.close().unwrap();
    } else {
        disk.kill();
    }
    (disk, entries)
}

/// A place of a file that the medium cannot read.
#[derive(Clone, Debug)]
struct BadBlock {
    file: String,
    from: u64,
}

impl BadBlock {
    /// All blocks of the log's files.
    fn all(disk: &SimDisk) -> Vec<BadBlock> {
        let names = disk.files().into_iter();
        let names = names.filter(|name| name == "meta" || name.starts_with("segment-"));
        let blocks = |file: String| {
            let len = disk.file(&file).unwrap().len() as u64;
            let froms = (0..len.div_ceil(BLOCK)).map(|block| block * BLOCK);
            froms.map(|from| BadBlock { file: file.clone(), from }).collect::<Vec<_>>()
        };
        names.flat_map(blocks).collect()
    }

    fn is_meta(&self) -> bool {
        self.file == "meta"
    }

    fn number(&self) -> u64 {
        self.file.rsplit('-').next().unwrap().parse().unwrap()
    }

    /// Where the log's bytes of the block begin and end; nowhere in a header.
    fn range(&self) -> Option<(Lsn, Lsn)> {
        let offset = self.from.checked_sub(BLOCK).filter(|_| !self.is_meta())?;
        let from = Lsn::new(self.number() * SEGMENT + offset);
        Some((from, from.plus(BLOCK)))
    }

    /// Whether the block has a part of the record.
    fn has(&self, entry: &Entry) -> bool {
        self.range().is_some_and(|(from, to)| entry.0 < to && from < entry.1)
    }
}

/// A copy of the disk, and the medium without some blocks.
fn without(disk: &SimDisk, bad: &[BadBlock]) -> (SimDisk, FaultDisk) {
    let copy = disk.fork(1);
    copy.restart();
    let faulty = FaultDisk::new(copy.as_disk());
    let bad = bad.to_vec();
    faulty.watch(move |call| {
        let meets = |bad: &BadBlock| {
            call.name.ends_with(&bad.file)
                && call.offset < bad.from + BLOCK
                && bad.from < call.offset + call.len
        };
        match call.kind == CallKind::Read && bad.iter().any(meets) {
            true => Err(FaultKind::Eio.error()),
            false => Ok(()),
        }
    });
    (copy, faulty)
}

fn inspector(disk: &FaultDisk) -> Inspector {
    Inspector::open_on(Arc::new(disk.clone()), "/log").unwrap()
}

fn salvaged(log: &Inspector) -> (Vec<Lsn>, usize) {
    let mut salvage = log.salvage(None).unwrap();
    let (mut found, mut errors) = (Vec::new(), 0);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => found.push(record.lsn()),
            Ok(Some(_)) => {}
            Ok(None) => return (found, errors),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert!(error.lsn().is_some() && error.path().is_some(), "{error:?}");
                errors += 1;
            }
        }
    }
}

/// What the tools say of the log, which must have these records above and below the block.
fn inspect(bad: &BadBlock, disk: &FaultDisk, sound: &Inspector, entries: &[Entry]) {
    let log = inspector(disk);
    assert_eq!(log.state().unwrap(), sound.state().unwrap(), "{bad:?}");
    let segments = log.segments().unwrap();
    for segment in &segments {
        let is_bad = !bad.is_meta() && bad.from == 0 && segment.number == bad.number();
        let says_so = matches!(segment.header, Err(BadHeader::Unreadable(_)));
        assert!(is_bad == says_so && is_bad == segment.header.is_err(), "{bad:?}: {segment:?}");
    }
    log.end().unwrap();
    log.cursors().unwrap();
    let (found, _) = salvaged(&log);
    let expected: Vec<Lsn> =
        entries.iter().filter(|entry| !bad.has(entry)).map(|entry| entry.0).collect();
    assert_eq!(found, expected, "{bad:?}");
    let is_meant = entries.iter().any(|entry| bad.has(entry));
    for verdict in [log.verify().unwrap(), log.verify_deep(0).unwrap()] {
        if bad.is_meta() {
            assert_eq!(verdict, sound.verify().unwrap(), "{bad:?}");
            continue;
        }
        assert!(!is_meant || verdict.outcome == Outcome::Corrupt, "{bad:?}: {verdict:?}");
        if verdict.outcome == Outcome::Corrupt {
            let why = verdict.why.clone().unwrap();
            assert!(why.contains(&FaultKind::Eio.error().to_string()), "{bad:?}: {why}");
            let (from, to) = bad.range().unwrap_or_else(|| {
                let base = Lsn::new(bad.number() * SEGMENT);
                (base, base.plus(SEGMENT))
            });
            // The frame that the block cuts, or a place from which a header would reach into it.
            let cut = entries.iter().find(|entry| bad.has(entry));
            let reach = Lsn::new(from.as_u64().saturating_sub(24));
            let around = cut.map_or(reach, |cut| cut.0.min(reach));
            let names = |place: &palisade::inspect::BadPlace| {
                place.segment == bad.number() && around <= place.lsn && place.lsn < to
            };
            assert!(verdict.bad_places.iter().any(names), "{bad:?}: {verdict:?}");
        }
    }
    let deep = log.verify_deep(1).unwrap();
    assert!(deep.outcome != Outcome::Corrupt || deep.records == found.len() as u64, "{deep:?}");
    let disk = Arc::new(disk.clone());
    let plan = Repair::plan_on(disk, Path::new("/log"), deep.end, &mut |_| {}).unwrap();
    let kept = entries.iter().filter(|entry| entry.1 <= deep.end).count() as u64;
    assert_eq!(plan.report().records, kept, "{bad:?}");
}

/// An open beside the block: it finds the whole log, or says that it cannot read a file. It changes
/// nothing for the worse: on a sound medium the next open finds all.
fn open(bad: &BadBlock, disk: &FaultDisk, copy: &SimDisk, verify: Verify, entries: &[Entry]) {
    let end = entries.last().unwrap().1;
    match Wal::with_store(disk, options().verify(verify)) {
        // A close adds a mark.
        Ok(wal) => assert!(wal.recovery_report().end >= end, "{bad:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io, "{bad:?}: {error}");
            let path = error.path().unwrap_or_else(|| panic!("{bad:?}: {error}"));
            assert!(path.ends_with(&bad.file) && !bad.is_meta(), "{bad:?}: {error}");
        }
    }
    copy.kill();
    copy.restart();
    let wal = Wal::with_store(copy, options()).unwrap();
    let found: Vec<(Lsn, usize)> = {
        let records = wal.records().unwrap().into_iter();
        records.map(|record| record.map(|it| (it.lsn(), it.data().len())).unwrap()).collect()
    };
    let expected: Vec<(Lsn, usize)> = entries.iter().map(|entry| (entry.0, entry.2)).collect();
    assert_eq!(found, expected, "{bad:?}");
}

#[test]
fn tools_name_an_unreadable_block_and_no_open_takes_it_as_torn() {
    for is_closed in [false, true] {
        let (disk, entries) = log(is_closed);
        let sound = inspector(&without(&disk, &[]).1);
        let blocks = BadBlock::all(&disk);
        assert!(blocks.len() > 20, "{blocks:?}");
        for bad in blocks {
            inspect(&bad, &without(&disk, std::slice::from_ref(&bad)).1, &sound, &entries);
            for verify in [Verify::Tail, Verify::Full] {
                let (copy, faulty) = without(&disk, std::slice::from_ref(&bad));
                open(&bad, &faulty, &copy, verify, &entries);
            }
        }
    }
}

#[test]
fn two_unreadable_copies_of_the_state_fail_with_the_files_name() {
    let (disk, _) = log(true);
    let copies = [0, 4 * BLOCK].map(|from| BadBlock { file: "meta".into(), from });
    let (_copy, faulty) = without(&disk, &copies);
    let opened = Wal::with_store(&faulty, options()).map(drop).unwrap_err();
    let inspected = Inspector::open_on(Arc::new(faulty), "/log").map(drop).unwrap_err();
    for error in [opened, inspected] {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.path().unwrap().ends_with("meta"), "{error}");
        // The next read may succeed.
        assert!(error.to_string().contains("call once more"), "{error}");
    }
}
