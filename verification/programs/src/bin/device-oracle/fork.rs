//! A child process that inherits the open log.

use std::io;

/// Which of the two processes a fork returned in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Parent,
    Child,
}

/// Forks this process.
///
/// The child has only the calling thread. It may call the log and write an answer, nothing else,
/// and then ends itself.
///
/// # Errors
/// The operating system refused, or has no such call.
#[cfg(unix)]
#[expect(unsafe_code, reason = "std has no fork; this is what the case is about")]
pub(crate) fn fork() -> io::Result<Side> {
    unsafe extern "C" {
        fn fork() -> i32;
    }
    // SAFETY:
    // - The declaration is that of POSIX: no argument, a `pid_t`, which is an `int` on every
    //   system that this compiles for.
    // - It touches no memory of the caller. The child may allocate: the C libraries of Linux and
    //   macOS hold their allocator's locks across the call.
    // - Locks that other threads hold stay locked in the child. The caller forks while its own
    //   threads are idle; what the log's threads hold is what the case tests.
    let pid = unsafe { fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        _ => Ok(Side::Parent),
    }
}

/// Forks this process: not on this system.
#[cfg(not(unix))]
pub(crate) fn fork() -> io::Result<Side> {
    Err(io::ErrorKind::Unsupported.into())
}
