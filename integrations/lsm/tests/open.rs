//! Which log and tables an open takes, and which it refuses.

use std::fs;

use palisade_lsm::{Database, Error, Options, Result};

const IDENTITY: &str = "engine";

fn log_options() -> palisade::Options {
    palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10)
}

fn small() -> Options {
    Options::new().background(false).cache_bytes(1 << 20).log(log_options())
}

fn assert_refused(opened: Result<Database>, context: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, Error::Mismatch(_)), "{context}: {error}");
    assert!(error.to_string().contains("from one backup"), "{context}: {error}");
}

/// To `lsm-tree` a reader at seqno 0 is one that sees nothing, so no log of this engine has LSN 0.
#[test]
fn a_log_that_begins_at_lsn_0_is_refused() {
    for (has_identity, is_closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        if has_identity {
            small().open(path).unwrap().close().unwrap();
            fs::remove_dir_all(path.join("log")).unwrap();
        }
        let log = log_options().open(path.join("log")).unwrap();
        if has_identity {
            fs::write(path.join(IDENTITY), format!("palisade-lsm 1 {}", log.uuid())).unwrap();
        }
        if is_closed {
            log.close().unwrap();
        }
        drop(log);
        let context = format!("identity {has_identity}, closed {is_closed}");
        assert_refused(small().open(path), &context);
    }
}
