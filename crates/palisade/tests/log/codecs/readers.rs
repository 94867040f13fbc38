//! Every form of append encodes, and every reader decodes.

use crate::prelude::*;

/// Records by their LSNs, each with its tag.
type All = BTreeMap<Lsn, (u16, Vec<u8>)>;

fn options() -> Options {
    Options::new().buffer_bytes(1 << 16)
}

fn codecs() -> [Options; 3] {
    [options().codec(Lz4::new()), options().codec(Zstd::new()), options().codec(Masked(0x5a))]
}

/// Long enough for each codec, and short enough for the others to be stored as they are.
fn records() -> [Vec<u8>; 4] {
    [vec![], b"short".to_vec(), vec![7; 3000], b"{\"key\": 17}".repeat(40)]
}

/// One record by each form of append, two by those that take several.
fn append_in_every_way(wal: &Wal) -> All {
    let mut all = All::new();
    for data in records() {
        let mut note = |lsn, tag| assert_eq!(all.insert(lsn, (tag, data.clone())), None);
        note(wal.append(&data).unwrap().lsn(), 0);
        note(wal.append_tagged(3, &data).unwrap().lsn(), 3);
        note(wal.try_append(&data).unwrap().lsn(), 0);
        note(wal.commit(&data).unwrap(), 0);
        note(wal.commit_tagged(4, &data).unwrap(), 4);
        let parts = data.split_at(data.len() / 3);
        let parts = [parts.0, &[], parts.1].map(IoSlice::new);
        note(wal.append_vectored(&parts).unwrap().lsn(), 0);
        note(wal.append_vectored_tagged(7, &parts).unwrap().lsn(), 7);
        wal.append_batch([&data, &data]).unwrap().lsns().iter().for_each(|lsn| note(*lsn, 0));
        let tagged = [(5, &data), (6, &data)];
        let batch = wal.append_batch_tagged(tagged).unwrap();
        batch.lsns().iter().zip(5..).for_each(|(lsn, tag)| note(*lsn, tag));
        let many = wal.append_many_tagged(tagged).unwrap();
        many.lsns().iter().zip(5..).for_each(|(lsn, tag)| note(*lsn, tag));
        let last = wal.append(b"to be replaced").unwrap().lsn();
        let replaced = wal.replace_from_tagged(last, tagged).unwrap();
        replaced.iter().zip(5..).for_each(|(lsn, tag)| note(*lsn, tag));
    }
    all
}

fn check(record: &RecordBuf, all: &All) {
    let (tag, data) = &all[&record.lsn()];
    assert_eq!((record.tag(), record.data()), (*tag, &data[..]), "{}", record.lsn());
    assert!(!record.is_encoded());
}

#[test]
fn all_readers_return_what_every_form_of_append_got() {
    watch();
    for options in codecs() {
        let store = MemStore::new(64 << 10);
        let wal = Wal::with_store(store.clone(), options.clone()).unwrap();
        let all = append_in_every_way(&wal);
        check_readers(&wal, &all);
        drop(wal);
        check_readers(&Wal::with_store(store.clone(), options.clone()).unwrap(), &all);
        store.kill();
        check_readers(&Wal::with_store(store, options).unwrap(), &all);
    }
}

fn check_readers(wal: &Wal, all: &All) {
    let (&first, &last) = (all.keys().next().unwrap(), all.keys().last().unwrap());
    let mut read = 0;
    let mut check_all = |records: palisade::Records| {
        read += records.into_iter().inspect(|record| check(record.as_ref().unwrap(), all)).count();
    };
    check_all(wal.records().unwrap());
    check_all(wal.records_from(first).unwrap());
    check_all(wal.range(first..=last).unwrap());
    check_all(wal.hold(first).unwrap().records().unwrap());
    assert_eq!(read, 4 * all.len());
    check(&wal.last_record().unwrap().unwrap(), all);
    all.keys().for_each(|lsn| check(&wal.get(*lsn).unwrap(), all));
    let backwards: Vec<Lsn> = all.keys().rev().copied().collect();
    wal.get_batch(&backwards).unwrap().iter().for_each(|record| check(record, all));
    wal.sync().unwrap();
    for mut tail in [wal.tail().unwrap(), wal.tail_from(first).unwrap()] {
        for lsn in all.keys() {
            let record = tail.next(Duration::from_secs(60)).unwrap().unwrap();
            assert_eq!(record.lsn(), *lsn);
            check(&record.into(), all);
        }
    }
}

#[test]
fn a_replay_decodes() {
    let (_dir, path) = folder();
    let options = small().codec(Zstd::new());
    let lsn = options.open(&path).unwrap().commit(&[7; 5000]).unwrap();
    let recovery = options.recover(&path).unwrap();
    let record = recovery.records(ReplayFrom::Head).unwrap().into_iter().next().unwrap().unwrap();
    assert_eq!((record.lsn(), record.data()), (lsn, &[7; 5000][..]));
}

/// The stored form of a record: is it encoded, and how long is its payload.
fn stored(store: &MemStore, lsn: Lsn) -> (bool, u64) {
    let inspector = Inspector::open_on(Arc::new(store.disk().clone()), "/log").unwrap();
    let record = inspector.records(Some(lsn)).unwrap().into_iter().next().unwrap().unwrap();
    (record.is_encoded(), record.data().len() as u64)
}

#[test]
fn a_short_or_incompressible_record_is_stored_as_it_is() {
    let mut random = vec![0; 1000];
    crate::content::fill(9, &mut random);
    for which in 0..2 {
        let store = MemStore::new(64 << 10);
        let wal = Wal::with_store(store.clone(), compressing(1000)[which].clone()).unwrap();
        let commit = |data: &[u8]| stored(&store, wal.commit(data).unwrap());
        assert_eq!(commit(&[7; 999]), (false, 999));
        let (is_encoded, bytes) = commit(&[7; 1000]);
        assert!(is_encoded && bytes < 40, "{bytes}");
        assert_eq!(commit(&random), (false, 1000), "random bytes are not smaller");
        drop(wal);
        let wal = Wal::with_store(store.clone(), compressing(0)[which].clone()).unwrap();
        let stored = stored(&store, wal.commit(b"").unwrap());
        assert_eq!(stored, (false, 0), "nothing is smaller than nothing");
    }
}

/// Both codecs with a threshold.
fn compressing(threshold: usize) -> [Options; 2] {
    let (lz4, zstd) = (Lz4::new().threshold(threshold), Zstd::new().threshold(threshold));
    [options().codec(lz4), options().codec(zstd)]
}

/// Protection: an encryption stores no record as it is.
#[test]
fn a_codec_without_a_threshold_encodes_each_record() {
    let store = MemStore::new(64 << 10);
    let wal = Wal::with_store(store.clone(), options().codec(Masked(1))).unwrap();
    for data in [&b""[..], b"x", &[0; 500]] {
        let bytes = (data.len() + OVERHEAD_BYTES) as u64;
        assert_eq!(stored(&store, wal.commit(data).unwrap()), (true, bytes));
    }
    let before = wal.reserved_lsn();
    let error = wal.append_with(100, |_, _| unreachable!("nothing was reserved")).unwrap_err();
    assert_eq!((error.kind(), wal.reserved_lsn()), (ErrorKind::InvalidArgument, before));
}

#[test]
fn tickets_and_limits_are_those_of_stored_bytes() {
    let store = MemStore::new(64 << 10);
    let wal = Wal::with_store(store, options().codec(Masked(1))).unwrap();
    let ticket = wal.append(&[7; 100]).unwrap();
    let stored = framed_bytes(100 + OVERHEAD_BYTES);
    assert_eq!(ticket.end_lsn().bytes_since(ticket.lsn()), stored);
    let batch = wal.append_batch([&[7; 100]; 2]).unwrap();
    assert_eq!(batch.lsns()[1].bytes_since(batch.lsns()[0]), stored);
    let (max, before) = (wal.max_record_bytes(), wal.reserved_lsn());
    for len in [max - OVERHEAD_BYTES + 1, max, max + 1] {
        let long = vec![7; len];
        assert_eq!(wal.append(&long).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(wal.append_many([&long]).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(
            wal.replace_from(ticket.lsn(), [&long]).unwrap_err().kind(),
            ErrorKind::TooLarge
        );
    }
    let endless = std::iter::repeat([7; 100]);
    assert_eq!(wal.append_batch(endless).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(wal.append_many([[7; 0]; 0]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(wal.reserved_lsn(), before, "nothing was reserved");
    let longest = vec![7; max - OVERHEAD_BYTES];
    assert_eq!(wal.get(wal.commit(&longest).unwrap()).unwrap().data(), longest);
}

/// Protection: no record is longer than a reader accepts, however well it can be compressed.
#[test]
fn a_too_long_record_is_refused_though_its_encoded_form_fits() {
    let wal = Wal::with_store(MemStore::new(64 << 10), options().codec(Lz4::new())).unwrap();
    let (max, before) = (wal.max_record_bytes(), wal.reserved_lsn());
    let long = vec![7; max + 1];
    let parts = [IoSlice::new(&long)];
    let errors = [
        wal.append(&long).unwrap_err(),
        wal.append_vectored(&parts).unwrap_err(),
        wal.append_batch([&long]).unwrap_err(),
        wal.append_many([&long]).unwrap_err(),
        wal.replace_from(wal.reserved_lsn(), [&long]).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::TooLarge), "{errors:?}");
    assert_eq!(wal.reserved_lsn(), before);
    // Together they are as long as the stored bytes say.
    let batch = wal.append_batch([&long[..max]; 20]).unwrap();
    assert_eq!(wal.get(batch.lsns()[19]).unwrap().data(), &long[..max]);
}

/// A codec that cannot encode: its error is the append's, and nothing was reserved.
#[derive(Debug)]
struct Failing;

impl Codec for Failing {
    fn name(&self) -> &str {
        "test-failing"
    }

    fn encode(&self, _: u16, _: &[u8], _: &mut Vec<u8>) -> palisade::Result<()> {
        Err(palisade::Error::new(ErrorKind::Io, "no random bytes"))
    }

    fn decode(&self, _: u16, _: &[u8], _: &mut [u8]) -> palisade::Result<usize> {
        unreachable!("nothing was encoded")
    }
}

#[test]
fn an_error_of_the_codec_leaves_the_log_as_it_was() {
    let wal = Wal::with_store(MemStore::new(64 << 10), options().codec(Failing)).unwrap();
    let before = wal.reserved_lsn();
    let errors = [
        wal.append(b"").unwrap_err(),
        wal.commit(b"").unwrap_err(),
        wal.append_batch([b""]).unwrap_err(),
        wal.replace_from(before, [b""]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.appended_lsn()), (ErrorKind::Io, None));
        assert!(error.to_string().contains("no random bytes"), "{error}");
    }
    assert_eq!(wal.reserved_lsn(), before);
    wal.close().unwrap();
}
