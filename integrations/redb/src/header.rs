//! The one thing that the backend knows of redb's file: the header, which names the current commit.
//! redb's `docs/design.md` describes it.

use crate::state::PAGE_BYTES;

const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";
/// Has the flags, of which `PRIMARY` is the slot of the current commit.
const FLAGS: usize = MAGIC.len();
const PRIMARY: u8 = 1;
/// Where the two slots of commits begin, with the version of the format.
const SLOTS: [usize; 2] = [64, 192];
const VERSION: u8 = 3;

/// What the first page of redb's file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A header that this crate does not know.
    Other,
    /// That of a database in the making, which has no magic number yet. redb syncs it, adds the
    /// number and syncs it again. A file that a crash leaves between the two is none that redb
    /// opens, so the backend makes one sync of both.
    Unfinished,
    /// That of a database whose current commit is in this slot.
    ///
    /// Each commit makes the other slot the current one. A sync that does not is the first of the
    /// two syncs of a two-phase commit, comes after the file has grown, or marks the database as
    /// open, repaired or closed. redb needs these syncs to order its writes. The log keeps their
    /// order, so they need not wait for the device.
    Current(u8),
}

impl Header {
    pub(crate) fn of(page: &[u8; PAGE_BYTES]) -> Header {
        let is_known = SLOTS.iter().all(|&slot| page[slot] == VERSION);
        match page.first_chunk() {
            Some(magic) if is_known && *magic == MAGIC => Header::Current(page[FLAGS] & PRIMARY),
            Some(magic) if is_known && *magic == [0; MAGIC.len()] => Header::Unfinished,
            _ => Header::Other,
        }
    }
}
