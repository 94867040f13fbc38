//! The calls of a set.

use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade_streams::{MAX_SHARDS, Options, Sharded};

use crate::disks::{folders, kind, open_three, options};

#[test]
fn a_set_is_used_like_one_log() {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    let names: Vec<String> = (0..60).map(|n| format!("stream {n}")).collect();
    let streams = sharded.create_many(&names).unwrap();
    for (name, stream) in names.iter().zip(&streams) {
        assert_eq!(stream.name(), name.as_bytes());
        assert_eq!(stream.append(name).unwrap().index(), 0);
        let shard = &sharded.shards()[sharded.shard_of(name)];
        assert_eq!(shard.stream(name).unwrap().len().unwrap(), 1);
    }
    let list = |sharded: &Sharded| {
        let mut list = sharded.list();
        list.sort_unstable();
        list
    };
    let mut sorted: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
    sorted.sort_unstable();
    assert_eq!(list(&sharded), sorted, "the set's own streams are hidden");
    let stats = sharded.stats();
    assert_eq!((stats.streams, stats.entries, stats.segments), (60, 60, 3));
    let shards = sharded.shards().iter();
    assert!(shards.clone().all(|shard| shard.stats().streams > 10), "each shard has some");

    assert_eq!(kind(sharded.create("stream 7")), ErrorKind::AlreadyExists);
    assert_eq!(kind(sharded.stream("none")), ErrorKind::NotFound);
    assert_eq!(sharded.stream_or_create("stream 7").unwrap().len().unwrap(), 1);
    sharded.delete("stream 7").unwrap().wait().unwrap();
    assert_eq!(kind(sharded.delete("stream 7")), ErrorKind::NotFound);
    assert_eq!(sharded.stream_or_create("stream 7").unwrap().len().unwrap(), 0);
    sharded.sync().unwrap();
    assert!(!sharded.maintain().unwrap());
    assert_eq!(sharded.pinned(), []);
    sharded.clone().close().unwrap();
    assert_eq!(kind(sharded.create("late")), ErrorKind::Closed);
    drop((streams, sharded));

    let sharded = open_three(&disk);
    assert_eq!(list(&sharded), sorted);
    assert_eq!(sharded.stream("stream 8").unwrap().get(0).unwrap().data(), b"stream 8");
    let reports = sharded.shards().iter().map(|shard| shard.open_report().entries);
    assert_eq!(reports.sum::<u64>(), 59);
}

#[test]
fn reserved_names_are_refused() {
    let sharded = open_three(&MemDisk::new());
    for name in [&b"\0palisade"[..], b"\0palisade.shard", b"\0palisade.checkpoints"] {
        assert_eq!(kind(sharded.create(name)), ErrorKind::InvalidArgument);
        assert_eq!(kind(sharded.create_many([name])), ErrorKind::InvalidArgument);
        assert_eq!(kind(sharded.stream(name)), ErrorKind::InvalidArgument);
        assert_eq!(kind(sharded.stream_or_create(name)), ErrorKind::InvalidArgument);
        assert_eq!(kind(sharded.delete(name)), ErrorKind::InvalidArgument);
    }
    sharded.create(7_u64.to_be_bytes()).unwrap();
    assert_eq!(sharded.list(), [7_u64.to_be_bytes()]);
}

#[test]
fn a_batch_is_atomic_within_a_shard_and_refuses_others() {
    let sharded = open_three(&MemDisk::new());
    let name = |part: &str| format!("{{tenant 7}}{part}");
    let orders = sharded.create(name("orders")).unwrap();
    let invoices = sharded.create(name("invoices")).unwrap();
    let batch = sharded.batch(name("")).append(&orders, b"two").append(&invoices, b"1.20");
    assert_eq!(batch.apply().unwrap().wait().unwrap(), [0, 0]);
    let is_elsewhere = |n: &u64| sharded.shard_of(n.to_le_bytes()) != sharded.shard_of(name(""));
    let other = (0..).find(is_elsewhere).unwrap();
    let other = sharded.create(other.to_le_bytes()).unwrap();
    let batch = sharded.batch(name("")).append(&orders, b"three").append(&other, b"x");
    let refused = batch.apply().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("shard_of"), "{refused}");
    assert_eq!((orders.len().unwrap(), other.len().unwrap()), (1, 0));
}

#[test]
fn errors_name_the_shard_and_its_folder() {
    let sharded = open_three(&MemDisk::new());
    assert_eq!(sharded.shard_of("orders"), 2);
    let text = sharded.stream("orders").unwrap_err().to_string();
    assert!(text.starts_with("shard 2: ") && text.contains("[/2]"), "{text}");
    sharded.shards()[1].close().unwrap();
    let text = sharded.sync().and_then(|()| sharded.close()).unwrap_err().to_string();
    assert!(text.starts_with("shard 1") && text.contains("[/1]"), "{text}");
}

#[test]
fn maintain_tries_all_shards_and_names_the_first_that_fails() {
    let sharded = open_three(&MemDisk::new());
    for stream in sharded.create_many((1..=30_u8).map(|n| [n])).unwrap() {
        for _ in 0..20 {
            stream.append([7; 1000]).unwrap();
        }
        stream.truncate_before(20).unwrap();
    }
    let [zero, one, two] = sharded.shards() else { panic!("there are three") };
    zero.close().unwrap();
    one.close().unwrap();
    let errors: Vec<_> = (0..50).filter_map(|_| sharded.maintain().err()).collect();
    let is_first = |error: &palisade::Error| error.to_string().starts_with("shard 0");
    assert!(errors.len() > 9 && errors.iter().all(is_first), "{errors:?}");
    let released = [zero, one, two].map(|shard| shard.stats().released_bytes > 0);
    assert_eq!(released, [false, false, true]);
}

#[test]
fn a_set_has_1_to_256_shards() {
    let none: [(std::sync::Arc<dyn palisade::disk::Disk>, &str); 0] = [];
    assert_eq!(kind(Sharded::open_on(none, &options())), ErrorKind::InvalidArgument);
    let paths: Vec<_> = (0..=MAX_SHARDS).map(|n| format!("/{n}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let refused = Sharded::open_on(folders(&MemDisk::new(), &paths), &options());
    assert_eq!(kind(refused), ErrorKind::InvalidArgument);

    let disk = MemDisk::new();
    let sharded = Sharded::open_on(folders(&disk, &["/only"]), &options()).unwrap();
    sharded.create("orders").unwrap().commit("two apples").unwrap();
    sharded.checkpoint("monday").unwrap();
    assert_eq!(sharded.load("monday").unwrap().next_index("orders"), Some(1));
}

#[test]
fn a_set_lies_in_folders_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    for run in 0..2 {
        let sharded = Sharded::open(&paths, &Options::new().log(crate::disks::log())).unwrap();
        let orders = sharded.stream_or_create("orders").unwrap();
        assert_eq!(orders.commit("two apples").unwrap(), run);
        sharded.checkpoint(format!("run {run}")).unwrap();
        assert_eq!(sharded.checkpoints().unwrap().len() as u64, run + 1);
        drop(orders);
        sharded.close().unwrap();
    }
    assert_eq!(kind(Sharded::open(&paths[..1], &options())), ErrorKind::Mismatch);
}
