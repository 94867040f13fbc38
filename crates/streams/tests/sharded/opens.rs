//! Which folders an open takes for a set, and which it refuses.

use std::path::Path;
use std::sync::Arc;

use palisade::disk::{Disk, MemDisk};
use palisade::{ErrorKind, OpenMode, Result};
use palisade_streams::{Sharded, Streams};

use crate::disks::{folders, kind, log, open_three, options};

fn open(disk: &MemDisk, paths: &[&str]) -> Result<Sharded> {
    Sharded::open_on(folders(disk, paths), &options())
}

fn open_in_mode(disk: &MemDisk, paths: &[&str], mode: OpenMode) -> Result<Sharded> {
    Sharded::open_on(folders(disk, paths), &options().log(log().open_mode(mode)))
}

fn open_alone(disk: &MemDisk, path: &str) -> Result<Streams> {
    options().open_on(Arc::new(disk.clone()), path)
}

fn is_there(disk: &MemDisk, path: &str) -> bool {
    let alone = options().log(log().open_mode(OpenMode::MustExist));
    alone.open_on(Arc::new(disk.clone()), path).is_ok()
}

/// A set of three shards that was closed, with a stream and a checkpoint.
fn made() -> MemDisk {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    sharded.create("orders").unwrap().commit("two apples").unwrap();
    sharded.checkpoint("monday").unwrap();
    disk
}

/// The set opens as it was.
fn check(disk: &MemDisk) {
    let sharded = open_three(disk);
    assert_eq!(sharded.stream("orders").unwrap().get(0).unwrap().data(), b"two apples");
    assert_eq!(sharded.latest().unwrap().unwrap().next_index("orders"), Some(1));
    assert_eq!(sharded.list(), [b"orders"]);
}

#[test]
fn another_number_of_shards_is_refused() {
    let disk = made();
    for paths in [&["/0", "/1"][..], &["/0"], &["/1"], &["/0", "/1", "/2", "/new"]] {
        let refused = open(&disk, paths).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{paths:?}: {refused}");
        let text = format!("the set has 3 shards, and the open names {}", paths.len());
        assert!(refused.to_string().contains(&text), "{refused}");
    }
    assert!(!is_there(&disk, "/new"), "a refused open makes nothing");
    check(&disk);
}

#[test]
fn a_folder_that_is_named_twice_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let folders = ["/0", "/1", "/0"].map(|path| (Arc::clone(&disk), path));
    let refused = Sharded::open_on(folders, &options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    let text = refused.to_string();
    assert!(text.contains("shard 2 has the folder /0 of another"), "{text}");
    assert!(disk.open_folder(Path::new("/0"), 0o600).is_err(), "a refused open makes nothing");
}

#[test]
fn another_order_of_shards_is_refused() {
    let disk = made();
    for paths in [["/1", "/0", "/2"], ["/0", "/2", "/1"], ["/2", "/0", "/1"]] {
        let refused = open(&disk, &paths).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{paths:?}: {refused}");
        assert!(refused.to_string().contains("in the order"), "{refused}");
    }
    check(&disk);
}

#[test]
fn a_missing_shard_is_refused_and_not_made_anew() {
    let disk = made();
    for paths in [["/new", "/1", "/2"], ["/0", "/new", "/2"], ["/0", "/1", "/new"]] {
        assert_eq!(kind(open(&disk, &paths)), ErrorKind::NotFound, "{paths:?}");
        assert!(!is_there(&disk, "/new"), "{paths:?}");
    }
    drop(open_alone(&disk, "/empty").unwrap());
    for paths in [["/empty", "/1", "/2"], ["/0", "/1", "/empty"]] {
        assert_eq!(kind(open(&disk, &paths)), ErrorKind::NotFound, "{paths:?}");
    }
    assert_eq!(open_alone(&disk, "/empty").unwrap().list().len(), 0);
    check(&disk);
}

#[test]
fn a_shard_of_another_set_is_refused() {
    let disk = made();
    drop(open(&disk, &["/a", "/b", "/c"]).unwrap());
    let refused = open(&disk, &["/0", "/b", "/2"]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Foreign);
    assert!(refused.to_string().starts_with("shard 1: "), "{refused}");
    assert_eq!(kind(open(&disk, &["/a", "/1", "/2"])), ErrorKind::Foreign);
    check(&disk);
}

#[test]
fn streams_of_no_set_are_refused() {
    let disk = made();
    open_alone(&disk, "/plain").unwrap().create("mine").unwrap();
    for paths in [&["/0", "/plain", "/2"][..], &["/plain", "/new"], &["/new", "/plain"]] {
        assert_eq!(kind(open(&disk, paths)), ErrorKind::Foreign, "{paths:?}");
    }
    assert!(!is_there(&disk, "/new"));
    assert_eq!(open_alone(&disk, "/plain").unwrap().list(), [b"mine"]);
    // An empty one has nothing to lose, as after a crash in the first open.
    drop(open_alone(&disk, "/empty").unwrap());
    drop(open(&disk, &["/new", "/empty"]).unwrap());
    check(&disk);
}

#[test]
fn a_shard_opens_alone_and_shows_the_streams_of_the_set() {
    let disk = made();
    let mut names = open_alone(&disk, "/0").unwrap().list();
    names.sort_unstable();
    assert_eq!(names, [&b"\0palisade.checkpoints"[..], b"\0palisade.shard"]);
    check(&disk);
}

#[test]
fn the_open_mode_holds_for_the_set() {
    let disk = MemDisk::new();
    let paths = ["/0", "/1", "/2"];
    let open_as = |mode| open_in_mode(&disk, &paths, mode);
    assert_eq!(kind(open_as(OpenMode::MustExist)), ErrorKind::NotFound);
    assert!(!is_there(&disk, "/0"));
    drop(open_as(OpenMode::CreateNew).unwrap());
    assert_eq!(kind(open_as(OpenMode::CreateNew)), ErrorKind::AlreadyExists);
    drop(open_as(OpenMode::MustExist).unwrap());
    assert_eq!(open_three(&disk).list().len(), 0);
}

#[test]
fn a_membership_that_cannot_be_read_is_refused() {
    let cases = [(&b"\x02 a later format"[..], ErrorKind::Unsupported), (b"", ErrorKind::Corrupt)];
    for (bytes, expected) in cases {
        let disk = made();
        let shard = open_alone(&disk, "/1").unwrap();
        shard
            .stream(b"\0palisade.shard")
            .unwrap()
            .put("membership", bytes)
            .unwrap()
            .wait()
            .unwrap();
        drop(shard);
        assert_eq!(kind(open(&disk, &["/0", "/1", "/2"])), expected);
    }
}

#[test]
fn a_set_is_open_once() {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    assert_eq!(kind(open(&disk, &["/0", "/1", "/2"])), ErrorKind::Locked);
    drop(sharded);
    assert_eq!(kind(open(&disk, &["/0", "/0", "/2"])), ErrorKind::Locked);
}
