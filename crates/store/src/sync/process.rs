//! The process that opened a log, as opposed to its forked children.
//!
//! A forked child inherits handles, mappings and file descriptors, but only the thread that called
//! `fork`. Locks that other threads held stay locked, and the log's own threads do not exist. So
//! each call that takes a lock checks the *process mark* before, and a child changes nothing.
//!
//! On Linux the process mark is a word in a page that the kernel hands to a child as zeros
//! (`MADV_WIPEONFORK`), so the check is one load. If the kernel refuses the advice (before 4.14),
//! and on other Unix systems, the check compares process ids. Windows has no `fork`, and the models
//! have one process.

#[cfg(any(loom, not(unix)))]
pub use self::single::ProcessMark;
#[cfg(all(unix, not(loom)))]
pub use self::unix::ProcessMark;

#[cfg(all(unix, not(loom)))]
mod unix {
    use std::fmt;
    use std::io;

    use crate::sync::{Ordering, ZeroedWords};

    /// The kernel has cleared the page: this process is a child.
    const CLEARED: u64 = 0;
    /// The kernel clears the page in children, and has not cleared this one: this process made the
    /// mark.
    const OWN: u64 = 1;
    /// The kernel does not clear the page: compare process ids.
    const COMPARE_IDS: u64 = 2;

    /// Distinguishes the process that made the mark from its forked children.
    pub struct ProcessMark {
        page: ZeroedWords,
        maker: u32,
    }

    impl ProcessMark {
        /// Marks the current process.
        ///
        /// # Errors
        /// The operating system has no memory for a page.
        pub fn new() -> io::Result<ProcessMark> {
            let page = ZeroedWords::new(1)?;
            let state = if page.clear_in_children() { OWN } else { COMPARE_IDS };
            // Relaxed: stored before another thread can reach the mark, and never changed
            // afterwards.
            page[0].store(state, Ordering::Relaxed);
            Ok(ProcessMark { page, maker: std::process::id() })
        }

        /// Returns whether the current process made the mark.
        #[inline]
        #[must_use]
        pub fn is_own(&self) -> bool {
            // Relaxed: no thread stores to it after `new`. In a child it is zero before the child's
            // first instruction.
            match self.page[0].load(Ordering::Relaxed) {
                OWN => true,
                CLEARED => false,
                _ => self.has_same_id(),
            }
        }

        #[cold]
        fn has_same_id(&self) -> bool {
            std::process::id() == self.maker
        }
    }

    impl fmt::Debug for ProcessMark {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("ProcessMark").field("is_own", &self.is_own()).finish_non_exhaustive()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_cleared_page_and_another_id_are_a_child() {
            let mut mark = ProcessMark::new().unwrap();
            assert!(mark.is_own());
            mark.page[0].store(COMPARE_IDS, Ordering::Relaxed);
            assert!(mark.is_own());
            mark.maker = mark.maker.wrapping_add(1);
            assert!(!mark.is_own());
            mark.page[0].store(CLEARED, Ordering::Relaxed);
            assert!(!mark.is_own());
        }

        #[test]
        #[cfg(target_os = "linux")]
        fn this_kernel_clears_the_page_in_children() {
            assert!(ZeroedWords::new(1).unwrap().clear_in_children());
        }
    }
}

#[cfg(any(loom, not(unix)))]
mod single {
    use std::io;

    /// Distinguishes the process that made the mark from its forked children: there are none.
    #[derive(Debug)]
    pub struct ProcessMark(());

    impl ProcessMark {
        /// Marks the current process.
        ///
        /// # Errors
        /// None here.
        pub fn new() -> io::Result<ProcessMark> {
            Ok(ProcessMark(()))
        }

        /// Returns true.
        #[inline]
        #[must_use]
        pub fn is_own(&self) -> bool {
            true
        }
    }
}
