//! The open of a closed log takes its epochs from the list in the state and reads few headers. The
//! list tells what the headers tell, bytes of another segment or log are refused by their first
//! reader, and a list that does not belong to the state is not believed.

use palisade::RecoveryReport;

use crate::prelude::*;

/// The segment that is damaged, and those around it.
const DAMAGED: u64 = 3;
const SEGMENTS: u64 = 8;

fn closed_log() -> (TempDir, PathBuf, Vec<Lsn>) {
    let (dir, path, wal) = log_on_files(small());
    let mut lsns = Vec::new();
    while lsns.last().is_none_or(|lsn: &Lsn| lsn.segment(SEGMENT_BYTES) < SEGMENTS) {
        lsns.push(wal.append(&[lsns.len() as u8; 1000]).unwrap().lsn());
    }
    wal.close().unwrap();
    (dir, path, lsns)
}

fn swap(path: &Path, one: u64, other: u64) {
    let (first, second) = (segment(path, one), segment(path, other));
    let kept = fs::read(&first).unwrap();
    fs::rename(&second, &first).unwrap();
    fs::write(&second, kept).unwrap();
}

/// A closed log in which a segment is not what it was.
struct Damaged {
    _dir: TempDir,
    path: PathBuf,
    lsns: Vec<Lsn>,
    /// What was done to it.
    by: &'static str,
}

const DAMAGED_HEADER: &str = "a damaged header";

fn all_damaged() -> Vec<Damaged> {
    let all = [DAMAGED_HEADER, "a swap", "a copy from another log", "an empty file"];
    let damaged = all.into_iter().map(|by| {
        let (dir, path, lsns) = closed_log();
        let file = segment(&path, DAMAGED);
        match by {
            DAMAGED_HEADER => flip(&file, 50),
            "a swap" => swap(&path, DAMAGED, DAMAGED + 1),
            "a copy from another log" => {
                let (_other_dir, other, _) = closed_log();
                fs::copy(segment(&other, DAMAGED), &file).unwrap();
            }
            _ => fs::write(&file, b"").unwrap(),
        }
        Damaged { _dir: dir, path, lsns, by }
    });
    damaged.collect()
}

#[test]
fn the_first_reader_refuses_bytes_of_another_segment_or_log() {
    for Damaged { path, lsns, by, _dir } in all_damaged() {
        let wal = small().open(&path).unwrap();
        assert!(wal.recovery_report().clean, "{by}");
        if by == DAMAGED_HEADER {
            // What it said, the list says; every frame has a checksum of its own.
            assert_eq!(lsns_of(&wal), lsns);
            continue;
        }
        let damaged = *lsns.iter().find(|lsn| is_of(lsn, DAMAGED)).unwrap();
        for _ in 0..2 {
            assert_eq!(wal.get(damaged).unwrap_err().kind(), ErrorKind::NotARecord, "{by}");
            assert_eq!(
                wal.records_from(damaged).unwrap_err().kind(),
                ErrorKind::NotARecord,
                "{by}"
            );
            let (found, error) = read_until_error(wal.records().unwrap());
            let below = lsns.iter().take_while(|lsn| lsn.segment(SEGMENT_BYTES) < DAMAGED);
            assert!(found.iter().map(|(lsn, _)| lsn).eq(below));
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{by}: {error}");
            assert_eq!(error.lsn().unwrap().segment(SEGMENT_BYTES), DAMAGED, "{by}: {error}");
        }
        let is_sound = |lsn: &&Lsn| !is_of(lsn, DAMAGED) && !is_of(lsn, DAMAGED + 1);
        for lsn in lsns.iter().filter(is_sound) {
            assert_eq!(wal.get(*lsn).unwrap().lsn(), *lsn);
        }
        wal.commit(&[7; 100]).unwrap();
        drop(wal);
        // What lies below the head is given up, whatever it is.
        let (_copy, path) = copy_as_killed(&path);
        let replayed = small().recover(&path).and_then(|recovery| {
            recovery.records(ReplayFrom::Head)?.into_iter().try_for_each(|found| found.map(drop))
        });
        assert_eq!(replayed.unwrap_err().kind(), ErrorKind::Corrupt, "{by}");
    }
}

fn is_of(lsn: &Lsn, number: u64) -> bool {
    lsn.segment(SEGMENT_BYTES) == number
}

#[test]
fn full_verification_tools_and_unclean_opens_read_all_headers() {
    for Damaged { path, by, _dir, .. } in all_damaged() {
        let is_corrupt = |options: Options| {
            let error = refused(&options, &path);
            let found = (error.kind(), error.segment());
            assert_eq!(found, (ErrorKind::Corrupt, Some(DAMAGED)), "{by}: {error}");
        };
        is_corrupt(small().verify(Verify::Full));
        let before = snapshot(&path);
        for deep in [false, true] {
            let log = Inspector::open(&path).unwrap();
            let verdict = if deep { log.verify_deep(0) } else { log.verify() }.unwrap();
            let found = (verdict.outcome, verdict.bad_places[0].segment);
            assert_eq!(found, (Outcome::Corrupt, DAMAGED), "{by}");
        }
        assert!(snapshot(&path) == before, "a tool changes nothing");
        drop(small().open(&path).unwrap());
        is_corrupt(small());
    }
}

/// Appends go on behind the clean end: the open reads the header there.
#[test]
fn an_open_refuses_a_bad_header_at_the_end_and_missing_segments() {
    let (_dir, path, lsns) = closed_log();
    let wal = small().open(&path).unwrap();
    let kept = lsns.iter().position(|lsn| lsn.segment(SEGMENT_BYTES) == 6).unwrap();
    wal.truncate_after(lsns[kept + 3]).unwrap();
    wal.truncate_before(lsns[kept / 3]).unwrap();
    let first = wal.append(&[1; 1000]).unwrap().lsn();
    let end = (0..200).fold(first, |_, _| wal.append(&[2; 1000]).unwrap().lsn());
    let head = wal.head_lsn();
    wal.close().unwrap();
    let [head, first, end] = [head, first, end].map(|lsn| lsn.segment(SEGMENT_BYTES));
    let is_missed = |path: &Path, number: u64| {
        let error = refused(&small(), path);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        // The next header of the epoch is what lacks the first one.
        assert!([number, number + u64::from(number == first)].contains(&error.segment().unwrap()));
    };
    let (_copy, copy) = copy_as_killed(&path);
    flip(&segment(&copy, end), 50);
    is_missed(&copy, end);
    for number in [head, head + 1, first, end - 1, end] {
        let (_copy, copy) = copy_as_killed(&path);
        fs::remove_file(segment(&copy, number)).unwrap();
        is_missed(&copy, number);
    }
    assert_eq!(contents(&small().open(&path).unwrap()).len(), kept + 4 - kept / 3 + 201);
}

/// Protection: a frame ends at the clean end. The state alone does not show that the file was cut.
#[test]
fn a_closed_log_whose_last_segment_was_cut_is_refused() {
    // The bytes of a padding mean nothing, so only a cut into the block before shows.
    let cuts: [&[u64]; 2] = [&[1, 8, 24, 25, 4096, 20_000], &[4096, 20_000]];
    for (pads, cuts) in [false, true].into_iter().zip(cuts) {
        let options = small().pad_to_block(pads);
        let (_dir, path, wal) = log_on_files(options.clone());
        append(&wal, 0..900, 240);
        wal.close().unwrap();
        let end = Inspector::open(&path).unwrap().state().unwrap().clean_end;
        let (file, len) = place_of(&path, end, SEGMENT_BYTES);
        for cut in cuts {
            let (_copy, copy) = copy_as_killed(&path);
            let file = copy.join(file.file_name().unwrap());
            fs::File::options().write(true).open(file).unwrap().set_len(len - cut).unwrap();
            let error = refused(&options, &copy);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(error.segment(), Some(end.segment(SEGMENT_BYTES)), "{error}");
        }
        let wal = options.open(&path).unwrap();
        assert!(wal.recovery_report().clean);
    }
}

/// Protection: a frame ends where the epoch before an empty one ended. A copy begins with such an
/// epoch, and a scan would read no other.
#[test]
fn a_copy_whose_last_segment_was_cut_is_refused() {
    let (_dir, _, wal) = log_on_files(small());
    append(&wal, 0..50, 240);
    // Longer than the block that is read first.
    wal.commit(&[7; 8000]).unwrap();
    let copies = tempfile::tempdir().unwrap();
    let path = copies.path().join("copy");
    let end = wal.backup_to(&path).unwrap().end;
    let (file, len) = place_of(&path, end, SEGMENT_BYTES);
    for cut in [1, 24, 4096, 10_000] {
        let (_copy, copy) = copy_as_killed(&path);
        let file = copy.join(file.file_name().unwrap());
        fs::File::options().write(true).open(file).unwrap().set_len(len - cut).unwrap();
        let error = small().open(&copy).unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(end)), "{error}");
    }
    let wal = small().open(&path).unwrap();
    assert!(wal.recovery_report().clean);
}

/// The caller gives up what lies below the head: whether its segments are whole is of no interest.
#[test]
fn a_truncation_of_the_head_frees_segments_that_are_damaged() {
    for Damaged { path, lsns, by, _dir } in all_damaged() {
        let wal = small().open(&path).unwrap();
        let behind = lsns.iter().position(|lsn| is_of(lsn, DAMAGED + 2)).unwrap();
        wal.truncate_before(lsns[behind]).unwrap();
        assert!(!segment(&path, DAMAGED).exists(), "{by}");
        assert_eq!(lsns_of(&wal), lsns[behind..]);
        drop(wal);
        assert_eq!(lsns_of(&small().open(&path).unwrap()), lsns[behind..]);
    }
}

#[test]
fn both_truncations_of_a_log_opened_by_its_list_keep_the_rest() {
    let (dir, path, lsns) = closed_log();
    let archive = dir.path().join("archive");
    let wal: Wal = small().on_release(Archive::open(&archive).unwrap()).open(&path).unwrap();
    let kept = lsns.iter().position(|lsn| lsn.segment(SEGMENT_BYTES) == 2).unwrap();
    wal.truncate_after(lsns[kept]).unwrap();
    let more = wal.commit(&[9; 100]).unwrap();
    let expected: Vec<Lsn> = lsns[..=kept].iter().copied().chain([more]).collect();
    assert_eq!(lsns_of(&wal), expected);
    wal.truncate_before(more).unwrap();
    assert_eq!(lsns_of(&wal), [more]);
    let archived: Vec<Lsn> = archived(&archive).into_iter().map(|(lsn, _)| lsn).collect();
    assert_eq!(archived, lsns[..=kept]);
    wal.close().unwrap();
    assert_eq!(lsns_of(&small().open(&path).unwrap()), [more]);
}

fn meta(path: &Path) -> Vec<u8> {
    fs::read(path.join("meta")).unwrap()
}

/// What an open finds in a copy of the log with `meta` as its state.
fn found_with(path: &Path, meta: &[u8]) -> (RecoveryReport, Entries) {
    let (_dir, path) = copy_as_killed(path);
    fs::write(path.join("meta"), meta).unwrap();
    let wal = small().open(&path).unwrap();
    let mut report = wal.recovery_report().clone();
    report.elapsed = std::time::Duration::ZERO;
    (report, contents(&wal))
}

/// A log without the list has more epochs than the list has room for.
#[track_caller]
fn assert_same_without_list(path: &Path, epochs: u64) {
    let state = meta(path);
    assert_eq!(epoch_list::len(&state), epochs);
    let with = found_with(path, &state);
    assert!(with.0.clean);
    assert_eq!(with, found_with(path, &epoch_list::removed(&state)));
}

#[test]
fn the_list_of_epochs_tells_what_all_headers_tell() {
    let (_dir, path) = folder();
    let mut lsns = Vec::new();
    let mut append = |wal: &Wal, count: usize| {
        lsns.extend((0..count).map(|n| wal.append(&[n as u8; 1000]).unwrap().lsn()));
        lsns.clone()
    };
    // Three epochs that kills end, with an empty one between them.
    for count in [100, 0, 150, 20] {
        let wal = small().open(&path).unwrap();
        append(&wal, count);
        wal.flush_to_os(Lsn::ZERO).unwrap();
    }
    small().open(&path).unwrap().close().unwrap();
    assert_same_without_list(&path, 4);
    // Truncated after a record of the second of them; the running epoch takes the third's place.
    let wal = small().open(&path).unwrap();
    let all = append(&wal, 30);
    wal.truncate_after(all[180]).unwrap();
    wal.close().unwrap();
    assert_same_without_list(&path, 3);
    let wal = small().open(&path).unwrap();
    let all = append(&wal, 200);
    wal.close().unwrap();
    assert_same_without_list(&path, 3);
    // The head lies in the second epoch, then at its end, then in the running one.
    for (head, epochs) in [(120, 2), (180, 2), (all.len() - 1, 1)] {
        let wal = small().open(&path).unwrap();
        wal.truncate_before(all[head]).unwrap();
        wal.close().unwrap();
        assert_same_without_list(&path, epochs);
    }
}

/// 111 fit. After a truncation of the prefix there is room again.
#[test]
fn a_log_with_too_many_epochs_for_the_list_is_opened_by_headers() {
    let (_dir, path) = folder();
    let mut lsns = Vec::new();
    for run in 0..113_u8 {
        let wal = heap().open(&path).unwrap();
        lsns.push(wal.commit(&[run; 10]).unwrap());
        if run == 109 {
            wal.close().unwrap();
            assert_same_without_list(&path, 110);
        }
    }
    small().open(&path).unwrap().close().unwrap();
    assert_same_without_list(&path, 0);
    let wal = small().open(&path).unwrap();
    assert_eq!(lsns_of(&wal), lsns);
    wal.truncate_before(lsns[10]).unwrap();
    wal.close().unwrap();
    assert_same_without_list(&path, 103);
    assert_eq!(lsns_of(&small().open(&path).unwrap()), lsns[10..]);
}

/// The flag and the list stand in the same block: a cleared flag takes the list with it, whatever
/// stands there.
#[test]
fn a_list_beside_a_cleared_flag_is_not_believed() {
    let disk = SimDisk::new(1);
    let open = || Wal::with_store(disk.open(&FileOptions::new()).unwrap(), Options::new()).unwrap();
    let meta = || disk.file("meta").unwrap();
    let wal = open();
    let first = wal.commit(&[1; 100]).unwrap();
    wal.close().unwrap();
    let closed = meta();
    let wal = open();
    assert_eq!(epoch_list::len(&meta()), 0, "an open clears the list with the flag");
    // In the log buffer only: nothing behind the clean end shows that the log went on.
    let later = wal.append(&[2; 100]).unwrap().lsn();
    disk.restart();
    drop(wal);
    let forged = epoch_list::changed(&meta(), |copy| {
        copy[256..].copy_from_slice(&closed[256..4096]);
    });
    assert_eq!(epoch_list::len(&forged), 1);
    disk.set_file("meta", forged);
    assert_eq!(lsns_of(&open()), [first, later]);
}

/// A list that no close can have saved beside this state is no list: the headers decide.
#[test]
fn a_list_that_does_not_fit_the_state_is_not_believed() {
    let (_dir, path, lsns) = closed_log();
    let wal = small().open(&path).unwrap();
    wal.truncate_after(lsns[100]).unwrap();
    wal.commit(&[3; 100]).unwrap();
    wal.close().unwrap();
    let state = meta(&path);
    assert_eq!(epoch_list::len(&state), 2);
    let expected = found_with(&path, &state);
    // Number, salt, base and end of the running epoch, which the state has, too.
    for at in (264 + 32..264 + 64).step_by(8) {
        let wrong = epoch_list::changed(&state, |copy| copy[at + 1] ^= 1);
        assert_eq!(found_with(&path, &wrong), expected, "offset {at}");
    }
    let endless = epoch_list::changed(&state, |copy| copy[257] = 1);
    fs::write(path.join("meta"), endless).unwrap();
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
}
