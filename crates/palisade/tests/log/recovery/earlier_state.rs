//! A file `meta` that was saved before the log went on, put back: repairs, restores and the tools
//! follow the log past its clean end, as an open does.

use crate::prelude::*;

const EARLY: u8 = 40;
const ALL: u8 = 80;

/// A closed log with the file `meta` of its close with [`EARLY`] records. `between` can end an
/// epoch before the others are appended.
fn log(between: impl FnOnce(&Path)) -> (TempDir, PathBuf, Entries) {
    let (dir, path, wal) = log_on_files(small());
    let mut records = append_bytes(&wal, 0..EARLY, 3000);
    wal.close().unwrap();
    let meta = path.join("meta");
    let saved = fs::read(&meta).unwrap();
    between(&path);
    let wal = small().open(&path).unwrap();
    records.extend(append_bytes(&wal, EARLY..ALL, 3000));
    wal.close().unwrap();
    fs::write(meta, saved).unwrap();
    (dir, path, records)
}

fn all_logs() -> [(TempDir, PathBuf, Entries); 2] {
    let killed = |path: &Path| (0..2).for_each(|_| small().open(path).unwrap().abandon());
    [log(|_| {}), log(killed)]
}

#[test]
fn a_repair_and_a_restore_keep_what_follows_an_old_clean_end() {
    for (_dir, path, records) in all_logs() {
        let (_copies, into) = folder();
        let from = records[70].0;
        assert_eq!(repair(&path, &into, from).unwrap().records, 70);
        assert_eq!(contents(&small().open(&into).unwrap()), records[..70]);
        let (_copies, into) = folder();
        let restore = Restore::plan(RestoreFrom::log(&path), None, &mut |_| {}).unwrap();
        assert_eq!(restore.write(&into, &mut |_| {}).unwrap().records, u64::from(ALL));
        assert_eq!(contents(&small().open(&into).unwrap()), records);
    }
}

#[test]
fn a_view_past_an_old_clean_end_ends_where_an_open_does() {
    for (_dir, path, records) in all_logs() {
        let view = Inspector::open(&path).unwrap();
        assert!(view.end().unwrap() > records[usize::from(ALL) - 1].0);
        assert_eq!(view.verify().unwrap().records, u64::from(ALL));
        assert_eq!(contents(&small().open(&path).unwrap()), records);
        assert!(view.end().unwrap() > records[usize::from(ALL) - 1].0);
    }
}
