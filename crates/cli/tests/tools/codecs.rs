//! The tools read a log with a codec without it, and say so.

use palisade::Lz4;

use super::*;

/// A closed log with one record that its codec has encoded, and one that it has not.
fn write_encoded(dir: &Path) {
    let wal = options().codec(Lz4::new()).open(dir).unwrap();
    wal.commit(&[b'x'; 1000]).unwrap();
    wal.commit(b"short").unwrap();
    wal.close().unwrap();
}

#[test]
fn a_log_with_a_codec_is_verified_and_copied_without_it() {
    let folder = folder();
    let log = folder.path().join("log");
    write_encoded(&log);
    let verified = palisade(&log, &["verify"]);
    assert_eq!(code(&verified), 0, "{verified:?}");
    assert!(text(&verified.stdout).contains("records    2 "), "{verified:?}");
    let copy = folder.path().join("copy");
    let copied = palisade(&log, &["backup", "--into", copy.to_str().unwrap()]);
    assert_eq!(code(&copied), 0, "{copied:?}");
    let wal = options().codec(Lz4::new()).open(&copy).unwrap();
    let records: Vec<_> = wal.records().unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!((records[0].data(), records[1].data()), (&[b'x'; 1000][..], &b"short"[..]));
}

#[test]
fn info_and_dump_name_the_codec_and_what_it_has_encoded() {
    let folder = folder();
    write_encoded(folder.path());
    let info = text(&palisade(folder.path(), &["info"]).stdout);
    assert!(info.contains("\ncodec       `lz4`\n"), "{info}");
    let json = text(&palisade(folder.path(), &["info", "--json"]).stdout);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["codec"], &json["codec_key"]), (&"lz4".into(), &"0".repeat(32).into()));
    let lines = text(&palisade(folder.path(), &["dump"]).stdout);
    let encoded: Vec<bool> = lines.lines().map(|line| line.contains("encoded bytes")).collect();
    assert_eq!(encoded, [true, false], "{lines}");
    let hex = text(&palisade(folder.path(), &["dump", "--hex"]).stdout);
    assert_eq!(hex.matches("encoded bytes\n").count(), 1, "{hex}");
    let lines = text(&palisade(folder.path(), &["dump", "--json"]).stdout);
    let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let encoded: Vec<Value> = objects.map(|object| object["encoded"].clone()).collect();
    assert_eq!(encoded, [true, false]);
}
