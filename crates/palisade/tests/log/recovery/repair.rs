//! A repair keeps what lies below the damage, record for record, and changes nothing of the damaged
//! log; what it gives up never comes back, and its LSNs are not used again.

use palisade::inspect::BufferPlace;
use palisade::{CopyReport, CopyStep, EndCause};

use crate::prelude::*;
use crate::two_epochs::{damage, damage_header, full, log, refused, salvage};

/// Repairs the log in `path`, which must not change by it. The copy, and what it came to.
fn repaired(path: &Path, from: Lsn) -> (TempDir, PathBuf, CopyReport) {
    let before = snapshot(path);
    let (dir, into) = folder();
    let report = repair(path, &into, from).unwrap();
    assert!(snapshot(path) == before, "the damaged log is as it was");
    assert_eq!(Repair::plan(path, from, &mut |_| {}).unwrap().report().records, report.records);
    (dir, into, report)
}

/// A repair that has to be refused, and writes nothing.
#[track_caller]
fn refused_repair(path: &Path, from: Lsn, kind: ErrorKind) -> Error {
    let before = snapshot(path);
    let (_dir, into) = folder();
    let error = repair(path, &into, from).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(snapshot(path) == before && !into.exists(), "{error}");
    error
}

/// The first bad place, which a repair from any place above names. A verification proposes it.
#[track_caller]
fn first_bad(path: &Path, above: Lsn) -> Lsn {
    let first = refused_repair(path, above, ErrorKind::OutOfRange).lsn().unwrap();
    let log = Inspector::open(path).unwrap();
    for verdict in [log.verify().unwrap(), log.verify_deep(0).unwrap()] {
        let is_proposed = verdict.outcome != Outcome::Corrupt || verdict.end == first;
        assert!(is_proposed, "a repair keeps the log up to LSN {first}: {verdict:?}");
    }
    first
}

/// Damages the record at `index`, repairs the log from there, and checks what comes of it, in the
/// first run of the copy and the later ones.
fn lose(path: &Path, records: &[(Lsn, Vec<u8>)], index: usize) {
    let from = records[index].0;
    let last = records[records.len() - 1].0;
    assert_eq!(refused(&full(), path, ErrorKind::Corrupt).lsn(), Some(from));
    assert_eq!(first_bad(path, last), from);
    let (_dir, into, report) = repaired(path, from);
    assert_eq!(report.records, index as u64);
    assert_eq!(report.given_up_records, (records.len() - index - 1) as u64);
    assert!(report.end <= from && report.given_up_to > last && report.base >= report.given_up_to);
    let meta = fs::read(into.join("meta")).unwrap();
    assert!(epoch_list::len(&meta) > 0, "a repaired log was closed with its list");
    for meta in [epoch_list::removed(&meta), meta] {
        fs::write(into.join("meta"), meta).unwrap();
        let found = full().dry_run(&into).unwrap();
        assert_eq!((found.clean, found.end_cause), (true, EndCause::CleanClose));
        assert_eq!(found.records, index as u64);
    }

    let wal = small().open(&into).unwrap();
    assert!(wal.recovery_report().clean && wal.checkpoint_lsn() <= from);
    assert!(wal.reserved_lsn() >= report.given_up_to, "no LSN is used twice");
    let kept = &records[..index];
    assert_eq!(contents(&wal), kept);
    assert_eq!(wal.get(from).unwrap_err().kind(), ErrorKind::Truncated);
    let more: Vec<_> = (0..300_u16).map(|n| n.to_le_bytes().repeat(60)).collect();
    let more: Vec<_> =
        more.into_iter().map(|data| (wal.append(&data).unwrap().lsn(), data)).collect();
    assert_eq!(
        (more[0].0, wal.uuid()),
        (report.base, Inspector::open(path).unwrap().state().unwrap().uuid)
    );
    wal.sync().unwrap();
    drop(wal);

    let expected: Vec<_> = kept.iter().cloned().chain(more).collect();
    for closed in [false, true] {
        let wal = full().open(&into).unwrap();
        assert_eq!(contents(&wal), expected, "what was given up stays gone");
        if closed {
            wal.close().unwrap();
        }
    }
    let verdict = Inspector::open(&into).unwrap().verify_deep(0).unwrap();
    assert_eq!(verdict.outcome, Outcome::Clean, "{verdict:?}");
}

#[test]
fn a_repair_ends_the_log_at_the_first_bad_place_for_good() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        for index in [0, 1, 300, 699, 700, 701, 1398] {
            let (_copy, path) = copy_as_killed(&path);
            damage(&path, records[index].0);
            lose(&path, &records, index);
        }
    }
}

#[test]
fn the_lowest_of_several_bad_places_counts() {
    let (_dir, path, records) = log(false);
    for index in [1395, 1200, 400, 60] {
        damage(&path, records[index].0);
    }
    damage_header(&path, records[1000].0);
    for above in [61, 500, 1399] {
        assert_eq!(first_bad(&path, records[above].0), records[60].0);
    }
    let (_dir, into, _) = repaired(&path, records[60].0);
    assert_eq!(contents(&full().open(&into).unwrap()), records[..60]);
}

/// Checks headers within an epoch: the others of the epoch have what they had.
#[test]
fn a_missing_segment_is_a_bad_place_and_a_damaged_header_is_not() {
    let (_dir, path, records) = log(false);
    let end = first_bad(&path, Lsn::new(1 << 59));
    for lsn in [records[400].0, records[1100].0, records[1399].0] {
        let base = Lsn::new(lsn.segment(SEGMENT_BYTES) * SEGMENT_BYTES);
        let below = records.iter().filter(|(lsn, _)| *lsn < base).count();
        let (_copy, without) = copy_as_killed(&path);
        fs::remove_file(place_of(&without, lsn, SEGMENT_BYTES).0).unwrap();
        refused(&small(), &without, ErrorKind::Corrupt);
        assert_eq!(first_bad(&without, records[1399].0.plus(8)), base);
        let (_dir, into, report) = repaired(&without, base);
        let wal = full().open(&into).unwrap();
        assert_eq!(contents(&wal), records[..below]);
        assert!(report.base > records[1399].0 && wal.reserved_lsn() >= report.base);

        // Every frame has a checksum of its own: what the header said, the others of its epoch say.
        let (_copy, headless) = copy_as_killed(&path);
        damage_header(&headless, lsn);
        refused(&small(), &headless, ErrorKind::Corrupt);
        assert_eq!(first_bad(&headless, Lsn::new(1 << 59)), end);
        let (_dir, into, report) = repaired(&headless, end);
        assert_eq!((report.records, report.given_up_records), (1400, 0));
        assert_eq!(contents(&full().open(&into).unwrap()), records);
    }
}

fn remove_segments_from(path: &Path, first: u64) {
    for name in snapshot(path).keys() {
        let number = name.strip_prefix("segment-").and_then(|number| number.parse::<u64>().ok());
        if number.is_some_and(|number| number >= first) {
            fs::remove_file(path.join(name)).unwrap();
        }
    }
}

/// Nothing in the segments shows how far the log once went, but the checkpoint does.
#[test]
fn no_lsn_is_used_twice_though_the_last_segments_are_gone() {
    let (_dir, path, records) = log(false);
    let first = records[1100].0.segment(SEGMENT_BYTES);
    remove_segments_from(&path, first);
    let base = Lsn::new(first * SEGMENT_BYTES);
    assert_eq!(first_bad(&path, records[1399].0), base);
    let (_dir, into, report) = repaired(&path, base);
    assert!(report.given_up_to >= records[1399].0 && report.given_up_records == 0, "{report:?}");
    let wal = small().open(&into).unwrap();
    assert!(wal.reserved_lsn() > records[1399].0);
    let kept = records.iter().filter(|(lsn, _)| *lsn < base).count();
    assert_eq!(contents(&wal), records[..kept]);
}

/// Without a checkpoint the log buffer's mark shows what was written; and appends that were not lie
/// within a ring above it.
#[test]
fn no_lsn_is_used_twice_though_only_the_log_buffer_tells_of_it() {
    let (_dir, path, wal) = log_on_files(small().buffer(BufferKind::Mapped));
    let mut lsns: Vec<Lsn> = (0..300).map(|_| wal.append(&[1; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    lsns.push(wal.append(&[2; 1000]).unwrap().lsn());
    let (_copy, path) = copy_as_killed(&path);
    remove_segments_from(&path, 1);
    let (_dir, into, report) = repaired(&path, Lsn::new(SEGMENT_BYTES));
    assert!(report.given_up_to > lsns[299] && report.base > lsns[300], "{report:?}");
    assert!(small().open(&into).unwrap().commit(b"later").unwrap() > lsns[300]);
}

#[test]
fn a_log_without_its_first_segment_keeps_nothing() {
    let (_dir, path, records) = log(false);
    fs::remove_file(place_of(&path, records[0].0, SEGMENT_BYTES).0).unwrap();
    assert_eq!(first_bad(&path, records[1000].0), Lsn::ZERO);
    let (_dir, into, report) = repaired(&path, Lsn::ZERO);
    assert!(report.records == 0 && report.given_up_records > 1000, "{report:?}");
    let wal = small().open(&into).unwrap();
    assert_eq!(contents(&wal), []);
    let lsn = wal.commit(b"anew").unwrap();
    assert!(lsn > records[1399].0);
    drop(wal);
    assert_eq!(contents(&full().open(&into).unwrap()), [(lsn, b"anew".to_vec())]);
}

#[test]
fn a_log_whose_heads_segment_is_damaged_keeps_what_is_certain() {
    for what in ["header", "record", "gone"] {
        let (_dir, path, records) = log(false);
        let wal = small().open(&path).unwrap();
        let head = records[300].0;
        wal.truncate_before(head).unwrap();
        drop(wal);
        let (file, _) = place_of(&path, head, SEGMENT_BYTES);
        match what {
            "header" => damage_header(&path, head),
            "record" => damage(&path, head),
            _ => fs::remove_file(file).unwrap(),
        }
        let bad = first_bad(&path, Lsn::new(1 << 59));
        let kept = if what == "header" { &records[300..] } else { &[] };
        assert!(if kept.is_empty() { bad == head } else { bad > records[1399].0 }, "{what}");
        let (_dir, into, report) = repaired(&path, bad);
        assert_eq!(report.records, kept.len() as u64, "{what}");
        let wal = full().open(&into).unwrap();
        assert_eq!(contents(&wal), kept, "{what}");
        let lsn = wal.commit(b"later").unwrap();
        assert!(lsn > records[1399].0 && wal.head_lsn() <= lsn);
        drop(wal);
        assert_eq!(lsns_of(&full().open(&into).unwrap()).last(), Some(&lsn), "{what}");
    }
}

/// The head lies within a segment of which nothing else is left: the copy has no use for it.
#[test]
fn a_head_at_the_end_of_an_epoch_moves_up_to_the_next() {
    for closed in [false, true] {
        let (_dir, path, wal) = log_on_files(small());
        wal.commit(b"applied").unwrap();
        wal.truncate_before(wal.reserved_lsn()).unwrap();
        let head = wal.head_lsn();
        drop(wal);
        let wal = small().open(&path).unwrap();
        let lsns: Vec<Lsn> = (0..10_u8).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
        assert!(wal.head_lsn() == head && head < lsns[0]);
        if closed {
            wal.close().unwrap();
        } else {
            drop(wal);
        }
        let (_dir, into, report) = repaired(&path, lsns[5]);
        assert_eq!((report.head, report.records), (lsns[0], 5));
        let wal = full().open(&into).unwrap();
        assert_eq!((wal.head_lsn(), lsns_of(&wal)), (lsns[0], lsns[..5].to_vec()));
    }
}

/// Where an epoch ended is known from the header of the next one alone: without it, records that a
/// truncation removed could not be told from the log's own.
#[test]
fn without_the_header_after_an_epoch_nothing_below_is_kept() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..300).map(|_| wal.append(&[1; 1000]).unwrap().lsn()).collect();
    wal.truncate_after(lsns[20]).unwrap();
    let behind: Vec<Lsn> = (0..100).map(|_| wal.append(&[2; 1000]).unwrap().lsn()).collect();
    wal.sync().unwrap();
    drop(wal);
    let (_copy, whole) = copy_as_killed(&path);
    let (_dir, into, report) = repaired(&whole, behind[50]);
    assert_eq!(report.records, 71);
    let expected: Vec<Lsn> = lsns[..=20].iter().chain(&behind[..50]).copied().collect();
    assert_eq!(lsns_of(&full().open(&into).unwrap()), expected);

    damage_header(&path, behind[0]);
    refused(&small(), &path, ErrorKind::Corrupt);
    for above in [lsns[1], lsns[20], lsns[21], behind[0], behind[50]] {
        assert_eq!(first_bad(&path, above), Lsn::ZERO);
    }
    let (_dir, into, report) = repaired(&path, Lsn::ZERO);
    assert_eq!((report.records, report.given_up_records >= 121), (0, true), "{report:?}");
    assert_eq!(lsns_of(&full().open(&into).unwrap()), []);
    let (found, _) = salvage(&path, None);
    assert!(found.len() >= 121, "salvage reads all of it");
}

/// The header's own place would give up all records of its segment and above.
#[test]
fn the_proposed_lsn_for_a_damaged_header_keeps_every_record() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        damage_header(&path, records[1000].0);
        let verdict = Inspector::open(&path).unwrap().verify_deep(0).unwrap();
        assert!(verdict.bad_places[0].lsn <= records[1000].0 && records[1399].0 < verdict.end);
        let (_dir, into, report) = repaired(&path, verdict.end);
        assert_eq!((report.records, report.given_up_records), (1400, 0));
        assert_eq!(contents(&full().open(&into).unwrap()), records);
    }
}

/// The list of a closed log says what the header said.
#[test]
fn a_closed_log_without_an_epochs_first_header_keeps_everything() {
    let (_dir, path, records) = log(true);
    damage_header(&path, records[700].0);
    let end = first_bad(&path, Lsn::new(1 << 59));
    let (_dir, into, report) = repaired(&path, end);
    assert_eq!((report.records, report.given_up_records), (1400, 0));
    let meta = fs::read(into.join("meta")).unwrap();
    for meta in [epoch_list::removed(&meta), meta] {
        fs::write(into.join("meta"), meta).unwrap();
        assert_eq!(full().dry_run(&into).unwrap().records, 1400);
    }
    assert_eq!(contents(&full().open(&into).unwrap()), records);
}

#[test]
fn a_place_below_the_first_bad_one_must_be_a_records_own() {
    let (_dir, path, records) = log(false);
    damage(&path, records[1000].0);
    for below in [999, 701, 700, 400, 1, 0] {
        let lsn = records[below].0;
        refused_repair(&path, lsn.plus(8), ErrorKind::NotARecord);
        let (_dir, into, report) = repaired(&path, lsn);
        let found = (report.records, report.given_up_records);
        assert_eq!(found, (below as u64, (1400 - below - 1) as u64));
        assert_eq!(contents(&full().open(&into).unwrap()), records[..below]);
    }
    // Between the epochs lies nothing, so nothing can begin there.
    refused_repair(&path, records[699].0.plus(8 * 1024), ErrorKind::NotARecord);
}

#[test]
fn a_place_below_the_head_and_one_within_a_batch_are_refused() {
    let (_dir, path, wal) = log_on_files(small());
    let lsns: Vec<Lsn> = (0..10_u8).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
    let batch = wal.append_batch(&[&[1; 50], &[2; 50], &[3; 50]]).unwrap();
    let (member, frame) = (batch.lsn(), Lsn::new(batch.lsn().as_u64() - 24));
    let second = member.plus(palisade::framed_bytes(50));
    batch.detach().wait().unwrap();
    let last = wal.commit(b"last").unwrap();
    wal.truncate_before(lsns[4]).unwrap();
    drop(wal);
    assert_eq!(refused_repair(&path, lsns[3], ErrorKind::Truncated).lsn(), Some(lsns[3]));
    refused_repair(&path, member, ErrorKind::NotARecord);
    refused_repair(&path, second, ErrorKind::NotARecord);
    let (_dir, into, report) = repaired(&path, frame);
    assert_eq!((report.records, report.given_up_records), (6, 4));
    assert_eq!(lsns_of(&full().open(&into).unwrap()), lsns[4..]);

    // A head within the batch: each of its members counts.
    let wal = small().open(&path).unwrap();
    wal.truncate_before(second).unwrap();
    drop(wal);
    let (_dir, into, report) = repaired(&path, last);
    assert_eq!(report.records, 2);
    let wal = full().open(&into).unwrap();
    assert_eq!((wal.head_lsn(), contents(&wal)[0].0), (second, second));
    // What lies below the head in its segment was copied: a truncation looks for the batch there.
    wal.truncate_after(second.plus(palisade::framed_bytes(50))).unwrap();
}

/// In the same boot the ring still has the damaged record, and appends that never left it.
#[test]
fn a_repair_gives_up_what_only_the_buffer_held() {
    let (_dir, path, wal) = log_on_files(small().buffer(BufferKind::Mapped));
    let lsns: Vec<Lsn> = (0..10_u8).map(|n| wal.commit(&[n; 100]).unwrap()).collect();
    let last = wal.append(b"in the buffer").unwrap().lsn();
    assert!(wal.written_lsn() <= last);
    let buffer = match Inspector::open(&path).unwrap().buffer().unwrap() {
        BufferPlace::Memory(buffer) => buffer,
        other => panic!("{other:?}"),
    };
    let (_copy, path) = copy_as_killed(&path);
    let (file, at) = place_of(&path, lsns[5], SEGMENT_BYTES);
    flip(&file, at + 40);
    refused(&small(), &path, ErrorKind::Corrupt);
    assert_eq!(Inspector::open(&path).unwrap().buffer().unwrap(), BufferPlace::Gone);
    let before = fs::read(&buffer).unwrap();
    let (_dir, into, report) = repaired(&path, lsns[5]);
    assert!(fs::read(&buffer).unwrap() == before, "the log buffer is as it was");
    assert_eq!((report.records, report.given_up_records), (5, 4));
    assert!(report.base > last);
    assert_eq!(lsns_of(&small().open(&into).unwrap()), lsns[..5]);
}

#[test]
fn a_repair_reports_how_far_each_step_has_come() {
    let (_dir, path) = folder();
    let options = Options::new().segment_bytes(8 << 20).buffer_bytes(1 << 20);
    let wal = options.open(&path).unwrap();
    let lsns: Vec<Lsn> = (0..30).map(|_| wal.append(&[7; 500_000]).unwrap().lsn()).collect();
    wal.close().unwrap();
    let mut steps: Vec<(CopyStep, u64)> = Vec::new();
    let mut note = |progress: palisade::CopyProgress| {
        assert!(progress.done <= progress.total, "{progress:?}");
        let before = steps.iter().rfind(|(step, _)| *step == progress.step);
        assert!(before.is_none_or(|(_, done)| *done <= progress.done), "{progress:?}");
        steps.push((progress.step, progress.done));
    };
    let plan = Repair::plan(&path, lsns[15], &mut note).unwrap();
    let (_into_dir, into) = folder();
    let report = plan.write(&into, &mut note).unwrap();
    for step in [CopyStep::Check, CopyStep::Count, CopyStep::Copy] {
        assert!(steps.iter().any(|(of, _)| *of == step), "{step:?}: {steps:?}");
    }
    assert_eq!(steps.last(), Some(&(CopyStep::Copy, report.end.as_u64())));
}

#[test]
fn a_folder_that_a_copy_must_not_go_to_is_refused() {
    let (dir, path, records) = log(false);
    damage(&path, records[500].0);
    let before = snapshot(&path);
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("letter"), "mine").unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    let mut cases = vec![
        (full.clone(), ErrorKind::InvalidArgument),
        (file.clone(), ErrorKind::Foreign),
        (path.clone(), ErrorKind::InvalidArgument),
        (path.join("copy"), ErrorKind::InvalidArgument),
        (path.join("..").join("log").join("copy"), ErrorKind::InvalidArgument),
        (dir.path().join("nowhere").join("copy"), ErrorKind::NotFound),
    ];
    if cfg!(unix) {
        let link = dir.path().join("link");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&path, &link).unwrap();
        cases.push((link.join("copy"), ErrorKind::InvalidArgument));
    }
    for (into, kind) in cases {
        let error = repair(&path, &into, records[500].0).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(snapshot(&path) == before, "{error}");
    }
    assert_eq!(fs::read(full.join("letter")).unwrap(), b"mine");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    repair(&path, &empty, records[500].0).unwrap();
    assert_eq!(contents(&small().open(&empty).unwrap()), records[..500]);
}

/// The copy is made as a log of its own is: for this user only, also if others may read the damaged
/// one.
#[cfg(unix)]
#[test]
fn the_files_of_a_copy_are_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt;

    let (_dir, path, wal) = log_on_files(small().file_mode(0o644));
    let lsn = wal.commit(b"kept").unwrap();
    wal.close().unwrap();
    let (_dir, into, _) = repaired(&path, lsn);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in snapshot(&into).keys() {
        assert_eq!(mode(into.join(name)), 0o600, "{name}");
    }
    assert_eq!((mode(path.join("meta")), mode(into)), (0o644, 0o700));
}

/// A link could lead to a file that another user must not read, or to a device that blocks.
#[cfg(unix)]
#[test]
fn a_log_with_a_link_in_the_place_of_a_file_is_not_copied() {
    for name in ["segment-00000000000000000001", "meta", "lock"] {
        let (dir, path, records) = log(true);
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(path.join(name), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.join(name)).unwrap();
        let error = refused_repair(&path, records[100].0, ErrorKind::Foreign);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_log_that_is_open_for_writing_is_not_repaired() {
    let (_dir, path, records) = log(true);
    let wal = small().open(&path).unwrap();
    let (_into_dir, into) = folder();
    let error = repair(&path, &into, records[500].0).unwrap_err();
    assert_eq!((error.kind(), into.exists()), (ErrorKind::Locked, false), "{error}");
    wal.close().unwrap();
    let plan = Repair::plan(&path, records[500].0, &mut |_| {}).unwrap();
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Locked);
    plan.write(&into, &mut |_| {}).unwrap();
    small().open(&path).unwrap().commit(b"more").unwrap();
}
