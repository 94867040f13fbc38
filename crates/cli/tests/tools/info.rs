//! `info`: what it sums up, and what it names.

use super::*;

#[test]
fn info_summarises_segments_and_lists_them_if_asked() {
    let (folder, wal) = open_log(&small());
    for _ in 0..3000 {
        drop(wal.append(&[7; 200]).unwrap());
    }
    wal.close().unwrap();
    let info = |flags: &[&str]| {
        let output = palisade(folder.path(), &[&["info"], flags].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        text(&output.stdout)
    };
    let segments = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let is_segment = |name: &str| name.starts_with("segment-");
    let names = segments.map(|entry| entry.file_name().into_string().unwrap());
    let count = names.filter(|name| is_segment(name)).count();
    assert!(count >= 10, "{count}");
    let summary = info(&[]);
    assert!(summary.lines().count() <= 12, "{summary}");
    let line = format!("segments    {count}, from number 0 to {}\n", count - 1);
    assert!(summary.contains(&line), "{summary}");
    assert_eq!(info(&["--segments"]).lines().count(), summary.lines().count() + count);
    fs::write(folder.path().join(format!("segment-{:020}", 1)), b"no header").unwrap();
    assert!(info(&[]).contains("; 1 unreadable, which --segments lists\n"), "{}", info(&[]));
    assert!(info(&["--segments"]).contains("         1  unreadable: "));
}

#[test]
fn info_names_an_end_only_where_there_is_one() {
    let folder = folder();
    let info = || text(&palisade(folder.path(), &["info"]).stdout);
    let wal = options().open(folder.path()).unwrap();
    wal.commit(b"record").unwrap();
    drop(wal);
    assert!(info().contains("end         not known without a scan"), "{}", info());
    assert!(info().contains("last end    LSN 32 (the log may have gone on since)"), "{}", info());
    let wal = options().open(folder.path()).unwrap();
    wal.commit(b"another").unwrap();
    wal.close().unwrap();
    let verdict = text(&palisade(folder.path(), &["verify"]).stdout);
    let end = verdict.lines().find_map(|line| line.strip_prefix("end        LSN ")).unwrap();
    let gone_on = format!("last end    LSN {end} (the log may have gone on since)\n");
    let end = format!("end         LSN {end}\n");
    assert!(info().contains(&end) && !info().contains("last end"), "{}", info());
    let wal = options().open(folder.path()).unwrap();
    assert!(info().contains(&gone_on), "{}", info());
    drop(wal);
}

#[test]
fn info_names_the_log_buffer_only_for_the_folder_that_owns_it() {
    let folder = folder();
    let [log, copy] = ["log", "copy"].map(|name| folder.path().join(name));
    let wal = options().open(&log).unwrap();
    wal.commit(b"record").unwrap();
    if !wal.stats().appends_survive_kill {
        return; // No memory of the operating system for a buffer here.
    }
    drop(wal);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&log).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let buffer = |dir: &Path| {
        let info = text(&palisade(dir, &["info"]).stdout);
        info.lines().find(|line| line.starts_with("buffer ")).unwrap().to_owned()
    };
    assert!(buffer(&log).contains("/palisade-"), "{}", buffer(&log));
    assert!(buffer(&copy).contains("of another folder: a copy has no buffer"), "{}", buffer(&copy));
    options().open(&log).unwrap().close().unwrap();
    assert!(buffer(&log).contains("none: the log was closed"), "{}", buffer(&log));
}

#[test]
fn info_and_verify_name_a_damaged_copy_of_the_state() {
    let (folder, _) = written();
    let path = folder.path().join("meta");
    let whole = fs::read(&path).unwrap();
    for at in [100, (16 << 10) + 100] {
        for is_damaged in [true, false] {
            let mut bytes = whole.clone();
            bytes[at] ^= u8::from(is_damaged);
            fs::write(&path, bytes).unwrap();
            for tool in ["info", "verify"] {
                let shown = palisade(folder.path(), &[tool]);
                let is_named = out(&shown).contains("one of the two copies of the state");
                assert_eq!((code(&shown), is_named), (0, is_damaged), "{at}: {shown:?}");
                let (_, object) = json(folder.path(), &[tool]);
                assert_eq!(object["has_damaged_copy"], is_damaged, "{at}: {object}");
            }
        }
    }
}

#[test]
fn info_names_as_unknown_what_only_the_lost_state_knew() {
    let (folder, _) = written();
    fs::remove_file(folder.path().join("meta")).unwrap();
    let shown = out(&palisade(folder.path(), &["info"]));
    has(&shown, &["epoch       unknown", "head        LSN 0 or above", "checkpoint  unknown"]);
    let (_, object) = json(folder.path(), &["info"]);
    assert_eq!((&object["epoch"], &object["buffer_bytes"]), (&Value::Null, &Value::Null));
    let verified = out(&palisade(folder.path(), &["verify"]));
    has(&verified, &["records    100 ("]);
}
