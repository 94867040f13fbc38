//! A log is opened with the codec and the key that it was made with, or not at all.

use palisade::Result;
use palisade_store::FileStore;

use crate::prelude::*;

/// The error of opening `path`.
fn mismatch(options: &Options, path: &Path) -> String {
    let before = snapshot(path);
    let errors = [options.dry_run(path).unwrap_err(), refused(options, path)];
    assert!(snapshot(path) == before, "a dry run leaves the folder as it is");
    for error in &errors {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        for part in [path.to_str().unwrap(), "Options::codec"] {
            assert!(error.to_string().contains(part), "`{part}` is not in {error}");
        }
    }
    errors[1].to_string()
}

fn with(codec: impl Codec) -> Options {
    heap().codec(codec)
}

/// A log with ten records, closed or killed.
fn log(options: Options, is_closed: bool) -> (tempfile::TempDir, std::path::PathBuf) {
    let (_dir, path, wal) = log_on_files(options);
    append(&wal, 0..10, 300);
    wal.sync().unwrap();
    if is_closed {
        wal.close().unwrap();
    }
    copy_as_killed(&path)
}

/// Protection: the codec of the log is compared with that of the options before anything is read.
#[test]
fn a_log_is_refused_with_no_codec_another_codec_or_another_key() {
    for is_closed in [true, false] {
        let (_dir, path) = log(with(Masked(7)), is_closed);
        let key = "07".repeat(16);
        for (options, given) in [
            (heap(), "no codec".into()),
            (with(Lz4::new()), "`lz4`".into()),
            (with(Masked(8)), "08".repeat(16)),
        ] {
            let text = mismatch(&options, &path);
            for part in ["`test-masked`", &key, &given] {
                assert!(text.contains(part), "`{part}` is not in {text}");
            }
        }
        assert_eq!(numbers(&with(Masked(7)).open(&path).unwrap()).len(), 10);
    }
}

#[test]
fn a_log_without_a_codec_gets_none() {
    for is_closed in [true, false] {
        let (_dir, path) = log(heap(), is_closed);
        let text = mismatch(&with(Zstd::new()), &path);
        assert!(text.contains("`zstd`") && text.contains("no codec"), "{text}");
        assert_eq!(numbers(&heap().open(&path).unwrap()).len(), 10);
    }
}

/// Threshold and level are no part of the format.
#[test]
fn a_codec_may_be_set_in_another_way_at_each_open() {
    let (_dir, path, wal) = log_on_files(with(Zstd::new()));
    let record = vec![7; 1000];
    let mut lsns = vec![wal.append(&record).unwrap().lsn()];
    wal.close().unwrap();
    for codec in [Zstd::new().threshold(5000), Zstd::new().level(19), Zstd::new().level(-50)] {
        let wal = with(Arc::new(codec)).open(&path).unwrap();
        lsns.push(wal.append(&record).unwrap().lsn());
        for lsn in &lsns {
            assert_eq!(wal.get(*lsn).unwrap().data(), record);
        }
        wal.close().unwrap();
    }
}

/// A store that was opened before looks at no option of the log.
#[test]
fn a_store_that_is_open_already_is_refused_with_another_codec() {
    let store = MemStore::new(64 << 10);
    let options = || Options::new().buffer_bytes(1 << 14);
    let wal = Wal::with_store(store.clone(), options().codec(Lz4::new())).unwrap();
    let lsn = wal.commit(&[7; 1000]).unwrap();
    drop(wal);
    let mut files = FileOptions::new();
    files.codec = store_codec(&store);
    let open = || {
        let path = Path::new("/log");
        FileStore::open_on(Arc::new(store.disk().clone()), path, &files).unwrap()
    };
    for options in [options(), options().codec(Zstd::new())] {
        let error = Wal::with_store(open(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.to_string().contains("`lz4`"), "{error}");
    }
    let wal = Wal::with_store(open(), options().codec(Lz4::new())).unwrap();
    assert_eq!(wal.get(lsn).unwrap().data(), [7; 1000]);
}

fn store_codec(store: &MemStore) -> Option<palisade::CodecId> {
    store.reader().unwrap().state().unwrap().codec
}

#[test]
fn the_tools_name_the_codec_and_the_identifier_of_the_key() {
    let (_dir, path) = log(with(Masked(7)), false);
    let codec = Inspector::open(&path).unwrap().state().unwrap().codec.unwrap();
    assert_eq!((codec.name(), codec.key_id()), ("test-masked", &[7; 16]));
    let (_dir, path) = log(heap(), false);
    assert_eq!(Inspector::open(&path).unwrap().state().unwrap().codec, None);
}

/// A codec with a name of its own.
#[derive(Clone, Debug)]
struct Named(String);

impl Codec for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn encode(&self, _: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        into.extend_from_slice(data);
        Ok(())
    }

    fn decode(&self, _: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        into.copy_from_slice(stored);
        Ok(stored.len())
    }
}

#[test]
fn a_name_that_the_log_cannot_keep_is_refused_and_nothing_made() {
    let (_dir, path) = folder();
    for name in ["", "a\0b", "a\0", &"x".repeat(33), &"é".repeat(17)] {
        let error = with(Named(name.into())).open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(!path.exists(), "{name}");
    }
    let longest = Named("é".repeat(16));
    let wal = with(longest.clone()).open(&path).unwrap();
    assert_eq!(wal.get(wal.commit(b"record").unwrap()).unwrap().data(), b"record");
    drop(wal);
    assert!(with(Named("é".repeat(15))).open(&path).is_err());
    with(longest).open(&path).unwrap();
}
