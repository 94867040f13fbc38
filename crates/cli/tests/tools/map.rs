//! `map`: each state that a segment can have, and the ranges between epochs.

use super::*;

fn fill(wal: &Wal) -> Vec<Lsn> {
    (0..200).map(|_| wal.commit(&[7; 2000]).unwrap()).collect()
}

fn map(dir: &Path) -> Value {
    let (exit, map) = json(dir, &["map"]);
    assert_eq!(exit, 0, "{map}");
    map
}

/// The state of each segment in the map.
fn states(map: &Value) -> Vec<(u64, String)> {
    let parts = map["segment_list"].as_array().unwrap().iter();
    let state = |part: &Value| part["state"].as_str().unwrap().to_owned();
    parts.map(|part| (part["number"].as_u64().unwrap(), state(part))).collect()
}

fn state_of(map: &Value, number: u64) -> String {
    let mut states = states(map).into_iter();
    let found = states.find(|(found, _)| *found == number);
    found.unwrap_or_else(|| panic!("segment {number} is not in {map}")).1
}

#[test]
fn a_map_of_a_whole_log_has_a_line_for_each_segment_and_the_end() {
    let (folder, wal) = open_log(&small());
    let lsns = fill(&wal);
    let running = map(folder.path());
    let last = lsns.last().unwrap();
    assert!(running["end"].as_u64().unwrap() > last.as_u64(), "{running}");
    for number in 0..=last.as_u64() / SEGMENT {
        assert_eq!(state_of(&running, number), "live");
    }
    wal.close().unwrap();
    let closed = map(folder.path());
    assert!(states(&closed).iter().all(|(number, state)| {
        let expected = if *number <= last.as_u64() / SEGMENT { "live" } else { "beyond the end" };
        state == expected
    }));
    let first = &closed["segment_list"][0];
    assert_eq!((&first["from"], &first["to"]), (&0.into(), &SEGMENT.into()));
    let len = fs::metadata(folder.path().join(format!("segment-{:020}", 0))).unwrap().len();
    assert_eq!((&first["epoch"], &first["file_bytes"]), (&1.into(), &len.into()));
    is_documented("map", [&closed, first]);
    let shown = text(&palisade(folder.path(), &["map"]).stdout);
    assert_eq!(shown.lines().count(), 4 + states(&closed).len(), "{shown}");
}

#[test]
fn a_map_names_what_is_missing_damaged_stray_or_beyond_the_end() {
    let (folder, wal) = open_log(&small());
    let lsns = fill(&wal);
    drop(wal);
    let path = |number: u64| folder.path().join(format!("segment-{number:020}"));
    let last = lsns.last().unwrap().as_u64() / SEGMENT;
    for number in [1, 2] {
        fs::remove_file(path(number)).unwrap();
    }
    fs::write(path(3), b"no header").unwrap();
    fs::write(path(1 << 30), b"no segment").unwrap();
    let found = map(folder.path());
    let run = &found["segment_list"][1];
    assert_eq!((&run["number"], &run["count"]), (&1.into(), &2.into()), "{found}");
    assert_eq!((&run["state"], &run["to"]), (&"missing".into(), &(3 * SEGMENT).into()));
    assert_eq!(state_of(&found, 3), "damaged header");
    assert_eq!(state_of(&found, 1 << 30), "stray");
    assert_eq!([0, last].map(|number| state_of(&found, number)), ["live", "live"]);
    let shown = text(&palisade(folder.path(), &["map"]).stdout);
    has(&shown, &["       1-2 ", "  missing\n", "  damaged header: ", "  stray: "]);
}

#[test]
fn a_map_tells_what_was_truncated_at_both_ends() {
    let (folder, wal) = open_log(&small());
    let lsns = fill(&wal);
    let path = |number: u64| folder.path().join(format!("segment-{number:020}"));
    let within = lsns[101].as_u64() / SEGMENT + 1;
    let released = [0, within].map(|number| (number, fs::read(path(number)).unwrap()));
    wal.truncate_after(lsns[100]).unwrap();
    let next = wal.commit(b"next").unwrap();
    wal.truncate_before(lsns[60]).unwrap();
    wal.close().unwrap();
    // A crash can leave files that a truncation has released.
    released.into_iter().for_each(|(number, bytes)| fs::write(path(number), bytes).unwrap());
    let found = map(folder.path());
    assert_eq!(state_of(&found, 0), "before the head");
    assert_eq!(state_of(&found, within), "between epochs");
    assert_eq!(found["head"], lsns[60].as_u64());
    let ranges = found["ranges"].as_array().unwrap();
    assert_eq!(ranges.len(), 1, "{found}");
    let range = ["from", "to", "epoch_before", "epoch_after"].map(|name| ranges[0][name].as_u64());
    assert_eq!(range, [lsns[101].as_u64(), next.as_u64(), 1, 2].map(Some));
    let missing = states(&found).into_iter().find(|(_, state)| state == "missing");
    assert_eq!(missing, None, "the range has no files");
    assert_eq!(state_of(&found, next.as_u64() / SEGMENT), "live");
    let shown = text(&palisade(folder.path(), &["map"]).stdout);
    assert!(shown.contains("no records: truncated, or left by a crash\n"), "{shown}");
}

#[test]
fn a_map_of_a_log_without_its_state_rests_on_the_headers() {
    let (folder, lsns) = written();
    fs::remove_file(folder.path().join("meta")).unwrap();
    let output = palisade(folder.path(), &["map"]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(text(&output.stderr).contains("`meta` is missing or damaged"), "{output:?}");
    let found = map(folder.path());
    assert!(found["end"].as_u64().unwrap() > lsns[99].as_u64(), "{found}");
}
