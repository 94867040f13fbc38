//! `stat`: space, counts and lengths, of whole logs, damaged ones, and beside a writer.

use super::*;

fn stat(dir: &Path) -> (i32, Value) {
    json(dir, &["stat"])
}

fn numbers<const N: usize>(object: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| object[name].as_u64().unwrap_or_else(|| panic!("{name} in {object}")))
}

#[test]
fn stat_counts_records_by_tag_and_length() {
    let (folder, wal) = open_log(&options());
    let mut lsns = Vec::new();
    for (tag, bytes) in [(0, 10), (7, 30), (7, 20), (65_535, 1000)] {
        lsns.push(wal.commit_tagged(tag, &vec![1; bytes]).unwrap());
    }
    let (exit, running) = stat(folder.path());
    assert_eq!((exit, numbers(&running, ["records", "payload_bytes"])), (0, [4, 1060]));
    wal.close().unwrap();
    let (exit, closed) = stat(folder.path());
    let lengths = numbers(&closed, ["smallest", "median", "largest"]);
    assert_eq!((exit, lengths), (0, [10, 20, 1000]));
    let tags = closed["tags"].as_array().unwrap().iter();
    let tags = tags.map(|tag| numbers(tag, ["tag", "records", "payload_bytes"]));
    let expected = [[0, 1, 10], [7, 2, 50], [65_535, 1, 1000]];
    assert_eq!(tags.collect::<Vec<_>>(), expected);
    assert_eq!(closed["epochs"], serde_json::json!([1]));

    is_documented("stat", [&closed, &closed["tags"][0]]);
    let shown = text(&palisade(folder.path(), &["stat"]).stdout);
    let parts = [
        "records   4, 1060 bytes\n",
        "bytes     smallest 10, median 20, largest 1000\n",
        "tag 7     2 records, 50 bytes\n",
        "epochs    1, number 1\n",
    ];
    has(&shown, &parts);
}

#[test]
fn stat_and_map_show_the_cursors() {
    let (folder, wal) = open_log(&options());
    let lsns: Vec<Lsn> = (0..3).map(|_| wal.commit(&[7; 100]).unwrap()).collect();
    for (name, from, max_lag) in [("far", 0, 100), ("near", 2, u64::MAX)] {
        drop(wal.create_cursor(name, Some(lsns[from]), max_lag).unwrap());
    }
    let (_, found) = stat(folder.path());
    let cursors = found["cursors"].as_array().unwrap();
    let numbers = |cursor| numbers(cursor, ["position", "lag", "max_lag"]);
    assert_eq!(numbers(&cursors[0]), [0, 384, 100]);
    assert_eq!(numbers(&cursors[1]), [lsns[2].as_u64(), 128, u64::MAX]);
    let shown = text(&palisade(folder.path(), &["stat"]).stdout);
    assert!(shown.contains("cursor    far, LSN 0, lag 384 bytes, keeps nothing\n"), "{shown}");
    assert!(shown.contains("cursor    near, LSN 256, lag 128 bytes, keeps the log\n"), "{shown}");
    is_documented("stat", &cursors[..1]);
    let map = text(&palisade(folder.path(), &["map"]).stdout);
    assert!(map.contains("live; cursors far, near\n"), "{map}");
}

#[test]
fn stat_measures_the_files_and_what_lies_between_head_and_end() {
    let (folder, wal) = open_log(&small());
    let lsns: Vec<Lsn> = (0..200).map(|_| wal.commit(&[7; 2000]).unwrap()).collect();
    wal.truncate_after(lsns[100]).unwrap();
    let next = wal.commit(b"next").unwrap();
    wal.truncate_before(lsns[40]).unwrap();
    wal.close().unwrap();
    fs::write(folder.path().join("letter"), b"of somebody else").unwrap();
    let (exit, found) = stat(folder.path());
    assert_eq!((exit, numbers(&found, ["records"])), (0, [62]));
    assert_eq!(found["epochs"], serde_json::json!([1, 2]));
    let [head, end, live] = numbers(&found, ["head", "end", "live_bytes"]);
    let dead = next.bytes_since(lsns[101]);
    assert_eq!((head, live), (lsns[40].as_u64(), end - head - dead));
    let mut files = [(0, 0); 3];
    for (name, bytes) in content(folder.path()) {
        let name = Path::new(&name).file_name().unwrap().to_str().unwrap().to_owned();
        let is_of = [name != "letter", name.starts_with("segment-"), name.starts_with("spare-")];
        for (files, _) in files.iter_mut().zip(is_of).filter(|(_, is_of)| *is_of) {
            *files = (files.0 + 1, files.1 + bytes.len() as u64);
        }
    }
    let counts = ["files", "segments", "spares"].map(|name| numbers(&found, [name])[0]);
    let bytes = ["file_bytes", "segment_file_bytes", "spare_bytes"];
    let bytes = bytes.map(|name| numbers(&found, [name])[0]);
    assert_eq!((counts, bytes), (files.map(|it| it.0), files.map(|it| it.1)));
    let reserve = fs::metadata(folder.path().join("reserve")).map_or(0, |file| file.len());
    assert_eq!(numbers(&found, ["reserve_bytes"]), [reserve]);
}

#[test]
fn stat_of_an_empty_log_has_no_lengths() {
    let folder = folder();
    options().open(folder.path()).unwrap().close().unwrap();
    let (exit, found) = stat(folder.path());
    assert_eq!((exit, numbers(&found, ["records", "live_bytes"])[0]), (0, 0));
    assert!(["smallest", "median", "largest"].iter().all(|name| found[*name].is_null()));
    let shown = text(&palisade(folder.path(), &["stat"]).stdout);
    assert!(shown.contains("epochs    none with records\nrecords   0, 0 bytes\n"), "{shown}");
}

#[test]
fn stat_of_a_damaged_log_counts_up_to_the_damage_and_fails() {
    let (folder, lsns) = written();
    damage(folder.path(), lsns[50].plus(25));
    let (exit, found) = stat(folder.path());
    assert_eq!((exit, numbers(&found, ["records"])), (4, [50]));
}

#[test]
fn stat_of_a_torn_tail_says_up_to_where_it_counted() {
    let (folder, wal) = open_log(&options());
    let lsns: Vec<Lsn> = (0..3).map(|_| wal.append(&[7; 500]).unwrap().lsn()).collect();
    drop(wal);
    damage(folder.path(), lsns[1].plus(100));
    let output = palisade(folder.path(), &["stat"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let note = format!("note: counted up to LSN {}: ", lsns[1]);
    assert!(text(&output.stderr).starts_with(&note), "{output:?}");
    assert!(text(&output.stdout).contains("records   1, 500 bytes"), "{output:?}");
}
