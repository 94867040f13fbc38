//! Two processes and one log: this program starts itself again.

use crate::prelude::*;

const CHILD: &str = "processes::second_process::the_other_process";

/// Not a test by itself: the part of the other process. Opens the log, says how that went, and
/// goes on for as long as it is spoken to.
#[test]
fn the_other_process() {
    let Some(path) = given_folder() else { return };
    let wal = match small().open(path) {
        Ok(wal) => wal,
        Err(error) => return say(&format!("{:?}", error.kind())),
    };
    wal.commit(&record(numbers(&wal).len() as u64, 100)).unwrap();
    say("open");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// What the other process says first.
pub(crate) fn first_word(other: &mut Other) -> String {
    other.hear().expect("the other process has to say something")
}

pub(crate) fn start(path: &Path) -> Other {
    Other::start(CHILD, path)
}

fn open(path: &Path) -> palisade::Result<Wal> {
    small().open(path)
}

/// Protection: the lock on the folder's lock file, between processes.
#[test]
fn a_second_process_is_refused_and_changes_nothing() {
    let (_dir, path) = folder();
    let wal = open(&path).unwrap();
    wal.commit(&record(0, 100)).unwrap();
    let before = snapshot_at_rest(&path);
    for _ in 0..3 {
        assert_eq!(first_word(&mut start(&path)), "Locked");
    }
    // So is a second open in this process.
    let error = open(&path).unwrap_err();
    assert!(error.kind() == ErrorKind::Locked && error.is_retryable(), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    // The owner may get space ready meanwhile: what is there stays, zeros may follow.
    let after = snapshot_at_rest(&path);
    for (name, bytes) in before.iter().filter(|(name, _)| !name.starts_with("spare")) {
        assert!(after[name].starts_with(bytes), "{name} was changed");
    }
    wal.commit(&record(1, 100)).unwrap();
    assert_eq!(numbers(&wal), [0, 1]);
    drop(wal);
    assert_eq!(first_word(&mut start(&path)), "open");
}

/// Protection: the lock dies with its process, and with nothing else.
#[test]
fn a_log_of_another_process_is_refused_until_that_process_dies() {
    let (_dir, path) = folder();
    let mut other = start(&path);
    assert_eq!(first_word(&mut other), "open");
    for _ in 0..2 {
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Locked);
        assert!(Inspector::open(&path).unwrap().has_writer().unwrap());
        let verdict = Inspector::open(&path).unwrap().verify().unwrap();
        assert_eq!((verdict.outcome, verdict.records), (Outcome::Unfinished, 1));
    }
    drop(other);
    let wal = open(&path).unwrap();
    assert!(!wal.recovery_report().clean);
    assert_eq!(numbers(&wal), [0]);
}

/// Protection: the lock of the folder, which no other name can take the place of.
#[test]
fn a_log_whose_lock_file_was_removed_stays_locked() {
    let (_dir, path) = folder();
    let wal = open(&path).unwrap();
    wal.commit(&record(0, 100)).unwrap();
    std::fs::remove_file(path.join("lock")).unwrap();
    assert!(Inspector::open(&path).unwrap().has_writer().unwrap());
    let repaired = Repair::plan(&path, wal.durable_lsn(), &mut |_| ()).unwrap_err();
    assert_eq!(repaired.kind(), ErrorKind::Locked, "{repaired}");
    // The first open makes a lock file, and the second finds it.
    for _ in 0..2 {
        assert_eq!(first_word(&mut start(&path)), "Locked");
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Locked);
    }
    wal.commit(&record(1, 100)).unwrap();
    drop(wal);
    assert!(!Inspector::open(&path).unwrap().has_writer().unwrap());
    assert_eq!(first_word(&mut start(&path)), "open");
}
