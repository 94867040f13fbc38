//! What an error says, and what a caller may do after it.

use super::*;

#[test]
fn text_names_what_where_and_what_to_do() {
    let cause = io::Error::from(io::ErrorKind::StorageFull);
    let error = Error::io("write segment", cause).at_segment(3).at_lsn(Lsn::new(64));
    let text = error.to_string();
    for part in ["write segment", "segment 3", "LSN 64", "free space"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.is_retryable() && !error.is_fatal());
}

#[test]
fn an_error_after_an_append_says_that_the_record_is_in_the_log() {
    let refused = Error::new(ErrorKind::InvalidArgument, "too many wait");
    assert!(!refused.to_string().contains("appended"), "{refused}");
    let text = refused.after_append(Lsn::new(64)).to_string();
    assert!(text.ends_with("appended at LSN 64: do not append it again"), "{text}");
    let poisoned = Error::bare(ErrorKind::Poisoned).after_append(Lsn::new(64)).to_string();
    assert!(poisoned.contains("LSN 64 and may have survived: look"), "{poisoned}");
}

#[test]
fn a_call_that_has_appended_is_not_repeated_but_waited_for() {
    for kind in [ErrorKind::NoSpace, ErrorKind::NoFiles, ErrorKind::TooManyWaiters] {
        let before = Error::new(kind, "lacks something");
        assert!(before.is_retryable() && !before.to_string().contains("wait_durable"));
        let after = before.after_append(Lsn::new(64));
        let text = after.to_string();
        assert!(!after.is_retryable(), "{text}");
        assert!(text.contains("LSN 64") && text.ends_with("with wait_durable"), "{text}");
        assert!(!text.contains("call again"), "{text}");
    }
    let io = Error::new(ErrorKind::Io, "no thread").after_append(Lsn::new(64)).to_string();
    assert!(io.contains("LSN 64: wait for it") && !io.contains("call once more"), "{io}");
    let truncated = Error::bare(ErrorKind::Truncated).after_append(Lsn::new(64));
    assert!(!truncated.to_string().contains("do not append"), "{truncated}");
}

#[test]
fn an_advice_of_its_own_takes_the_place_of_the_kinds() {
    let error = Error::new(ErrorKind::Corrupt, "no valid record").with_advice("ask a person");
    assert_eq!(error.to_string(), "no valid record; ask a person");
    assert_eq!(error.advice_of_cause(), Some("ask a person"));
    assert_eq!(error.finding(), "no valid record");
    assert_eq!(Error::bare(ErrorKind::Corrupt).advice_of_cause(), None);
}

#[test]
fn an_error_after_an_append_keeps_the_advice_of_its_cause() {
    let text = "the log may take 4096 bytes (max_bytes)";
    let error = Error::new(ErrorKind::NoSpace, text).with_advice("truncate the log");
    assert_eq!(error.to_string(), format!("{text}; truncate the log"));
    let after = error.after_append(Lsn::new(64)).to_string();
    assert!(after.contains("LSN 64: truncate the log, then wait for it"), "{after}");
}

#[test]
fn a_read_only_file_system_gets_mount_advice_not_access_advice() {
    let cause = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    let error = Error::io("sync the segment", cause).with_kind(ErrorKind::Poisoned);
    let text = error.to_string();
    assert!(text.contains("read-only") && text.contains("mount it for writing"), "{text}");
    assert!(!text.contains("grant"), "{text}");
}

#[test]
fn an_io_error_has_the_systems_kind_and_the_logs_error() {
    let cause = io::Error::from(io::ErrorKind::StorageFull);
    let error = Error::io("write segment", cause).with_kind(ErrorKind::Poisoned);
    assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull));
    let outer = io::Error::from(error);
    assert_eq!(outer.kind(), io::ErrorKind::StorageFull);
    let inner = outer.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    assert_eq!(inner.map(Error::kind), Some(ErrorKind::Poisoned));
    let locked = io::Error::from(Error::bare(ErrorKind::Locked));
    assert_eq!(locked.kind(), io::ErrorKind::ResourceBusy);
}

#[test]
fn bare_errors_still_say_what_to_do() {
    assert!(Error::bare(ErrorKind::NoRoom).to_string().contains("try again"));
}

#[test]
fn a_lack_of_memory_is_no_fault_of_the_device() {
    let error = Error::io("map the file", io::ErrorKind::OutOfMemory.into());
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    assert!(text.contains("free memory") && !text.contains("device"), "{text}");
}
