//! What is wrong with a file of an archive, or of a log's folder, and what a restore of both makes
//! of it: all records, or an error that names the file.

#![expect(clippy::print_stdout, reason = "the counts")]

use crate::prelude::*;

/// Segments 0 to 5 are in the archive, and 6 to 12 in the log's folder.
const RECORDS: u8 = 200;
const HEAD: usize = 100;
const ARCHIVED: [u64; 3] = [0, 3, 5];
const KEPT: [u64; 3] = [6, 9, 12];
/// Within the reach of the log, and out of it.
const NEAR: u64 = 40;
const FAR: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    // In place of a segment.
    Missing,
    Empty,
    HeaderOnly,
    Cut,
    HeaderRots,
    SwappedWithTheNext,
    OtherLogs,
    OtherSegment,
    // Beside all segments.
    AddedEmpty,
    AddedText,
    AddedZeros,
    AddedOtherLogs,
    AddedOtherSegment,
}

const IN_PLACE: [Wrong; 8] = [
    Wrong::Missing,
    Wrong::Empty,
    Wrong::HeaderOnly,
    Wrong::Cut,
    Wrong::HeaderRots,
    Wrong::SwappedWithTheNext,
    Wrong::OtherLogs,
    Wrong::OtherSegment,
];

const BESIDE: [Wrong; 5] = [
    Wrong::AddedEmpty,
    Wrong::AddedText,
    Wrong::AddedZeros,
    Wrong::AddedOtherLogs,
    Wrong::AddedOtherSegment,
];

/// A log and its archive, which are never changed, and all of their records.
struct Sources {
    _dir: TempDir,
    log: PathBuf,
    archive: PathBuf,
    other: Vec<u8>,
    records: Entries,
}

/// Copies of the two folders.
struct Copies {
    dir: TempDir,
    log: PathBuf,
    archive: PathBuf,
}

impl Sources {
    fn new() -> Sources {
        let (dir, log) = folder();
        let archive = dir.path().join("archive");
        let wal = small().on_release(Archive::open(&archive).unwrap()).open(&log).unwrap();
        let records = append_bytes(&wal, 0..RECORDS, 4000);
        wal.truncate_before(records[HEAD].0).unwrap();
        wal.close().unwrap();
        let (_other, path, wal) = log_on_files(small());
        append_bytes(&wal, 0..20, 4000);
        wal.close().unwrap();
        let other = fs::read(segment(&path, 0)).unwrap();
        Sources { _dir: dir, log, archive, other, records }
    }

    fn copies(&self) -> Copies {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let [log, archive] = ["log", "archive"].map(|name| dir.path().join(name));
        for (from, to) in [(&self.log, &log), (&self.archive, &archive)] {
            fs::create_dir(to).unwrap();
            for (name, bytes) in snapshot(from) {
                fs::write(to.join(name), bytes).unwrap();
            }
        }
        Copies { dir, log, archive }
    }

    /// Lets `wrong` happen to segment `number` in `folder`. Returns the files that an error may
    /// name.
    fn apply(&self, wrong: Wrong, folder: &Path, number: u64) -> Vec<PathBuf> {
        let file = segment(folder, number);
        let cut = |len| fs::File::options().write(true).open(&file).unwrap().set_len(len).unwrap();
        let own = || fs::read(segment(&self.archive, 4)).unwrap();
        match wrong {
            Wrong::Missing => fs::remove_file(&file).unwrap(),
            Wrong::Empty => cut(0),
            Wrong::HeaderOnly => cut(4096),
            Wrong::Cut => cut(4096 + SEGMENT_BYTES / 2),
            Wrong::HeaderRots => flip(&file, 50),
            Wrong::OtherLogs | Wrong::AddedOtherLogs => fs::write(&file, &self.other).unwrap(),
            Wrong::OtherSegment | Wrong::AddedOtherSegment => fs::write(&file, own()).unwrap(),
            Wrong::AddedEmpty => fs::write(&file, []).unwrap(),
            Wrong::AddedText => fs::write(&file, b"not a segment").unwrap(),
            Wrong::AddedZeros => fs::write(&file, vec![0; 70_000]).unwrap(),
            Wrong::SwappedWithTheNext => {
                let (next, temp) = (segment(folder, number + 1), folder.join("temp"));
                fs::rename(&file, &temp).unwrap();
                fs::rename(&next, &file).unwrap();
                fs::rename(temp, &next).unwrap();
                return vec![file, next];
            }
        }
        vec![file]
    }
}

/// Restores `from` into a new folder of `copies`. Returns the records, and the files that were not
/// read.
fn restored(copies: &Copies, from: RestoreFrom) -> palisade::Result<(Entries, Vec<PathBuf>)> {
    let restore = Restore::plan(from, None, &mut |_| {})?;
    let (into, strays) = (copies.dir.path().join("restored"), restore.strays().to_vec());
    restore.write(&into, &mut |_| {})?;
    let wal = small().open_mode(OpenMode::MustExist).open(&into).unwrap();
    let next = wal.commit(b"goes on").unwrap();
    assert!(next < Lsn::new(1 << 32), "a stray does not move the next LSN: {next}");
    let mut records = contents(&wal);
    records.pop();
    Ok((records, strays))
}

/// The error names one of the files by its path, or by its folder and number.
fn assert_names(error: &Error, files: &[PathBuf], what: &str) {
    let text = error.to_string();
    let is_named = |file: &PathBuf| {
        let (folder, name) = (file.parent().unwrap(), file.file_name().unwrap());
        let number = name.to_str().unwrap().trim_start_matches("segment-").trim_start_matches('0');
        let number: u64 = number.parse().unwrap_or(0);
        text.contains(file.to_str().unwrap())
            || (text.contains(folder.to_str().unwrap())
                && text.contains(&format!("(segment {number})")))
    };
    assert!(files.iter().any(is_named), "{what} is not named: {text}");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {text}");
}

/// Protection: no file of an archive or a folder makes a restore shorter without a word, and an
/// error names the file that is wrong.
#[test]
fn a_wrong_file_of_a_source_is_made_up_for_or_named() {
    let sources = Sources::new();
    let (mut whole, mut named) = (0, 0);
    let archived = ARCHIVED.map(|number| (true, number));
    let kept = KEPT.map(|number| (false, number));
    for (is_archived, number) in archived.into_iter().chain(kept) {
        for wrong in IN_PLACE {
            let is_last = [ARCHIVED[2], KEPT[2]].contains(&number);
            if wrong == Wrong::SwappedWithTheNext && is_last {
                continue;
            }
            let copies = sources.copies();
            let folder = if is_archived { &copies.archive } else { &copies.log };
            let files = sources.apply(wrong, folder, number);
            let what = format!("{wrong:?}, {}", files[0].display());
            let both = RestoreFrom::archive(&copies.archive).with_log(&copies.log);
            match restored(&copies, both) {
                // An archive begins with its lowest segment: others may have been taken away.
                Ok((records, strays)) if number == 0 && is_foreign(wrong) => {
                    assert!(records == sources.records[16..], "{what}: {}", records.len());
                    assert!(wrong == Wrong::Missing || strays == files, "{what}: {strays:?}");
                }
                Ok((records, _)) => {
                    assert!(records == sources.records, "{what}: {} records", records.len());
                    whole += 1;
                }
                Err(error) => {
                    assert_names(&error, &files, &what);
                    named += 1;
                }
            }
        }
    }
    println!("{whole} whole, {named} named");
    assert!(whole > 0 && named > 30, "{whole} whole, {named} named");
}

/// Protection: a file that is no segment of the log does not keep a restore from what is right.
#[test]
fn a_stray_file_beside_a_sources_segments_is_reported_or_named() {
    let sources = Sources::new();
    let (mut whole, mut named) = (0, 0);
    // Right above the archive, right above the log, and above that.
    let above = KEPT[2]..;
    let next = above.into_iter().find(|number| !segment(&sources.log, *number).exists()).unwrap();
    let of_archive = [KEPT[0], next, NEAR, FAR].map(|number| (true, number));
    let of_log = [next, NEAR, FAR].map(|number| (false, number));
    for (is_archived, number) in of_archive.into_iter().chain(of_log) {
        for wrong in BESIDE {
            let copies = sources.copies();
            let folder = if is_archived { &copies.archive } else { &copies.log };
            let files = sources.apply(wrong, folder, number);
            let what = format!("{wrong:?}, {}", files[0].display());
            let both = RestoreFrom::archive(&copies.archive).with_log(&copies.log);
            match restored(&copies, both) {
                Ok((records, strays)) => {
                    assert!(records == sources.records, "{what}: {} records", records.len());
                    // An open ignores those near a closed log, too.
                    assert!(strays == files || (!is_archived && number != FAR), "{what}");
                    whole += 1;
                }
                Err(error) => {
                    // Only one that may be a damaged segment of the log ends a restore.
                    let is_in_reach = [next, NEAR].contains(&number);
                    assert!(is_in_reach && is_unknown(wrong), "{what}: {error}");
                    assert_names(&error, &files, &what);
                    named += 1;
                }
            }
        }
    }
    println!("{whole} whole, {named} named");
    assert!(whole > 20 && named > 5, "{whole} whole, {named} named");
}

/// Whether nothing is there any more that says that the segment was there.
fn is_foreign(wrong: Wrong) -> bool {
    [Wrong::Missing, Wrong::OtherLogs, Wrong::OtherSegment].contains(&wrong)
}

/// Whether the file may be a segment of the log whose header is damaged.
fn is_unknown(wrong: Wrong) -> bool {
    ![Wrong::AddedOtherLogs, Wrong::AddedOtherSegment].contains(&wrong)
}

/// The same for an archive alone, in which the first segments are missing.
#[test]
fn a_stray_file_in_an_archive_alone_is_reported_or_named() {
    let sources = Sources::new();
    for number in [0, 1, 2, 6, NEAR, FAR] {
        for wrong in BESIDE {
            let copies = sources.copies();
            (0..3).for_each(|number| fs::remove_file(segment(&copies.archive, number)).unwrap());
            let expected = archived(&copies.archive);
            assert!(expected.len() > 40);
            let files = sources.apply(wrong, &copies.archive, number);
            let what = format!("{wrong:?}, {number}");
            let reader = ArchiveReader::open(&copies.archive).unwrap();
            match restored(&copies, RestoreFrom::archive(&copies.archive)) {
                Ok((records, strays)) => {
                    assert!(records == expected, "{what}: {} records", records.len());
                    assert_eq!((&strays, &reader.strays().unwrap()), (&files, &files), "{what}");
                    assert!(archived(&copies.archive) == expected, "{what}");
                }
                Err(error) => {
                    assert!([2, 6, NEAR].contains(&number) && is_unknown(wrong), "{what}: {error}");
                    assert_names(&error, &files, &what);
                }
            }
        }
    }
}
