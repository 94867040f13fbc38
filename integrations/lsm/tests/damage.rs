//! Damage to the small files of a database: no open panics, asks for huge memory, or believes them.

use std::fs;
use std::path::{Path, PathBuf};

use palisade_lsm::{Error, Options};

fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    Options::new().background(false).cache_bytes(1 << 20).log(log)
}

/// Makes a database with some tables, and closes it.
fn database(folder: &Path) {
    let database = small().open(folder).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    for round in 0..3_u8 {
        for number in 0..30 {
            keyspace.append_put([number + 10 * round], [round; 20]).unwrap();
        }
        database.flush().unwrap();
    }
    drop(keyspace);
    database.close().unwrap();
}

/// Writes `bytes` into the file, opens the database, and puts the file back.
fn open_with(folder: &Path, file: &Path, bytes: &[u8]) -> Result<(), Error> {
    let path = folder.join(file);
    let before = fs::read(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let opened = small().open(folder).map(drop);
    fs::write(&path, before).unwrap();
    opened
}

fn list(folder: &Path) -> PathBuf {
    let current = fs::read(folder.join("tables/1/current")).unwrap();
    format!("tables/1/v{}", u64::from_le_bytes(current[..8].try_into().unwrap())).into()
}

#[test]
fn a_damaged_file_is_refused_and_the_error_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    database(folder);
    let list = list(folder);
    let small_files = ["engine", "tables/flushed", "tables/1/current"].map(PathBuf::from);
    for file in small_files.iter().chain([&list]) {
        let bytes = fs::read(folder.join(file)).unwrap();
        let is_text = small_files[..2].contains(file);
        let mask = if is_text { 1 } else { 0x80 };
        // All bytes of the short files.
        let flips = (0..bytes.len()).step_by(bytes.len() / 40 + 1).map(|at| {
            let mut flipped = bytes.clone();
            flipped[at] ^= mask;
            (format!("{} byte {at}", file.display()), flipped)
        });
        let cuts = [0, 1, bytes.len() / 2, bytes.len() - 1]
            .map(|len| (format!("{} cut at {len}", file.display()), bytes[..len].to_vec()));
        for (context, damaged) in flips.chain(cuts) {
            let error = open_with(folder, file, &damaged).expect_err(&context);
            let text = error.to_string();
            match error {
                Error::Mismatch(_) if is_text => assert!(text.contains("backup"), "{text}"),
                Error::Tables { .. } if !is_text => {
                    assert!(text.contains("tables/1/") && text.contains("backup"), "{text}");
                }
                other => panic!("{context}: {other}"),
            }
        }
    }
    let database = small().open(folder).unwrap();
    assert_eq!(database.keyspace("k").unwrap().range::<&str>(..).count(), 50);
}

#[test]
fn bytes_that_are_no_text_are_a_mismatch() {
    let folder = tempfile::tempdir().unwrap();
    database(folder.path());
    for file in ["engine", "tables/flushed"] {
        let error = open_with(folder.path(), Path::new(file), b"\xff\xfe").unwrap_err();
        assert!(matches!(error, Error::Mismatch(_)), "{file}: {error}");
    }
    small().open(folder.path()).unwrap();
}

/// A line that was not written so is refused, also if each word is a number.
#[test]
fn a_file_flushed_without_its_checksum_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    database(folder.path());
    let line = fs::read_to_string(folder.path().join("tables/flushed")).unwrap();
    let (words, checksum) = line.rsplit_once(' ').unwrap();
    for text in ["", "7 x", "\u{e9}", words, checksum, &format!("{line} "), &line.replace(' ', "")]
    {
        let refused = open_with(folder.path(), Path::new("tables/flushed"), text.as_bytes());
        assert!(matches!(refused, Err(Error::Mismatch(_))), "{text}");
    }
}
