//! Root and another user open one log: the files stay that user's.

#![expect(clippy::print_stdout, reason = "says what was skipped")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::again::run_as;
use crate::prelude::*;

/// A user that owns nothing: on most systems `nobody`.
const USER: u32 = 65_534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can open the log of another user");
    }
    is_root
}

/// A folder of the user, in which nothing is.
fn folder_of_the_user() -> (TempDir, PathBuf) {
    let (dir, path) = folder();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    (dir, path)
}

/// Owner, group and permissions of all files in `folder`.
fn owners(folder: &Path) -> BTreeMap<String, (u32, u32, u32)> {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let owner = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (found.uid(), found.gid(), found.mode() & 0o777))
    };
    files.map(owner).collect()
}

fn assert_of_the_user(folder: &Path, mode: u32) {
    let owners = owners(folder);
    assert!(owners.len() > 2, "{owners:?}");
    for (name, owner) in owners {
        let mode = if name == "meta" { mode } else { 0o600 };
        assert_eq!(owner, (USER, USER, mode), "{name} in {}", folder.display());
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn append_and_truncate(wal: &Wal) {
    let lsns = lsns_of(wal).into_iter().chain(append(wal, 0..300, 1000));
    let last = lsns.last().unwrap();
    wal.sync().unwrap();
    wal.truncate_before(last).unwrap();
}

/// Protection: an open by root locks the user of the log out of nothing.
#[test]
fn a_log_that_root_has_opened_stays_its_users() {
    let path = match given_folder() {
        None if !is_root() => return,
        None => None,
        Some(path) => {
            // As the user, before and after root.
            let wal = small().open(&path).unwrap();
            append_and_truncate(&wal);
            return wal.close().unwrap();
        }
    };
    assert_eq!(path, None::<PathBuf>);
    let (_dir, path) = folder_of_the_user();
    let test = "processes::owners::a_log_that_root_has_opened_stays_its_users";
    run_as(USER, test, &path);
    for closes in [true, false] {
        // The owner has given a group the right to read the state.
        set_mode(&path.join("meta"), 0o640);
        let wal = heap().open(&path).unwrap();
        append_and_truncate(&wal);
        if closes {
            wal.close().unwrap();
        } else {
            drop(wal);
            assert_of_the_user(&path, 0o640);
            // The marks of a log that was not closed stay root's, in memory.
            heap().open(&path).unwrap().close().unwrap();
        }
        assert_of_the_user(&path, 0o640);
        run_as(USER, test, &path);
    }
}

/// Protection: the same in a folder of root, in which the user's group may make files.
#[test]
fn a_log_in_a_folder_of_root_stays_its_users_if_root_opens_it() {
    match given_folder() {
        None if !is_root() => return,
        None => {}
        Some(path) => {
            let wal = small().open(&path).unwrap();
            append_and_truncate(&wal);
            return wal.close().unwrap();
        }
    }
    let (_dir, path) = folder_of_the_user();
    let test = "processes::owners::a_log_in_a_folder_of_root_stays_its_users_if_root_opens_it";
    run_as(USER, test, &path);
    chown(&path, Some(0), Some(USER)).unwrap();
    set_mode(&path, 0o770);
    let wal = heap().open(&path).unwrap();
    append_and_truncate(&wal);
    wal.close().unwrap();
    assert_of_the_user(&path, 0o600);
    run_as(USER, test, &path);
}

/// Protection: the right to read the state stays that of the group that has it.
#[test]
fn a_state_that_root_replaces_keeps_its_group() {
    if !is_root() {
        return;
    }
    let (_dir, path) = folder_of_the_user();
    small().open(&path).unwrap().close().unwrap();
    let meta = path.join("meta");
    chown(&path, Some(USER), Some(100)).unwrap();
    for (owner, group, mode) in [(USER, 1234, 0o640), (1234, USER, 0o660)] {
        chown(&meta, Some(owner), Some(group)).unwrap();
        set_mode(&meta, mode);
        small().open(&path).unwrap().close().unwrap();
        assert_eq!(owners(&path)["meta"], (owner, group, mode));
    }
    // Root's own becomes the user's, without what a group of root might do.
    chown(&meta, Some(0), Some(0)).unwrap();
    set_mode(&meta, 0o660);
    small().open(&path).unwrap().close().unwrap();
    assert_eq!(owners(&path)["meta"], (USER, 100, 0o600));
}

/// The same for what root copies into a folder of the user.
#[test]
fn what_root_writes_into_a_users_folder_is_the_users() {
    if !is_root() {
        return;
    }
    let (dir, path) = folder_of_the_user();
    let folders = ["archive", "backup", "restored"].map(|name| dir.path().join(name));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        chown(folder, Some(USER), Some(USER)).unwrap();
    }
    let [archive, backup, restored] = &folders;
    let wal = small().on_release(Archive::open(archive).unwrap()).open(&path).unwrap();
    append_and_truncate(&wal);
    wal.backup_to(backup).unwrap();
    wal.close().unwrap();
    let from = RestoreFrom::archive(archive).with_log(&path);
    Restore::plan(from, None, &mut |_| {}).unwrap().write(restored, &mut |_| {}).unwrap();
    for folder in &folders {
        assert_of_the_user(folder, 0o600);
    }
}

/// Protection: a user who may link files of root into a folder does not get them as a gift.
#[test]
fn a_file_of_root_that_a_user_links_into_the_log_stays_roots() {
    if !is_root() {
        return;
    }
    let (dir, path) = folder_of_the_user();
    fs::create_dir(&path).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"of root").unwrap();
    for name in ["lock", "meta.tmp"] {
        fs::hard_link(&file, path.join(name)).unwrap();
    }
    chown(&path, Some(USER), Some(USER)).unwrap();
    small().open(&path).unwrap().close().unwrap();
    assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
}
