//! The process that opened a log, as opposed to its forked children.
//!
//! A child inherits handles, mappings and descriptors, but only the thread that called `fork`, so
//! locks of other threads stay locked. Each call that takes a lock checks the *process mark*
//! before, and a child changes nothing.
//!
//! On Linux the mark is a word in a page that is zeros in a child (`MADV_WIPEONFORK`), so the check
//! is one load. Before 4.14, and on other Unix systems, it compares process ids. Windows and the
//! models have no `fork`.

#[cfg(any(loom, not(unix)))]
pub use self::single::ProcessMark;
#[cfg(all(unix, not(loom)))]
pub use self::unix::ProcessMark;

#[cfg(all(unix, not(loom)))]
mod unix {
    use std::fmt;
    use std::io;

    use crate::sync::{Ordering, ZeroedWords};

    /// Cleared by the kernel: this is a child.
    const CLEARED: u64 = 0;
    /// Not cleared: this process made the mark.
    const OWN: u64 = 1;
    /// The kernel never clears the page.
    const COMPARE_IDS: u64 = 2;

    /// Tells the process that made it from forked children.
    pub struct ProcessMark {
        page: ZeroedWords,
        maker: u32,
    }

    impl ProcessMark {
        pub fn new() -> io::Result<ProcessMark> {
            let page = ZeroedWords::new(1)?;
            let state = if page.clear_in_children() { OWN } else { COMPARE_IDS };
            // Relaxed: stored before another thread can reach the mark, and never changed
            // afterwards.
            page[0].store(state, Ordering::Relaxed);
            Ok(ProcessMark { page, maker: std::process::id() })
        }

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

    #[derive(Debug)]
    pub struct ProcessMark(());

    impl ProcessMark {
        pub fn new() -> io::Result<ProcessMark> {
            Ok(ProcessMark(()))
        }

        #[inline]
        #[must_use]
        pub fn is_own(&self) -> bool {
            true
        }
    }
}
