//! What a folder knows of the set that it belongs to, and which folders make a set.
//!
//! Each shard has the identity of the set, the number of shards and its own number, in a value of
//! the reserved stream [`SHARD`]. The first open of a set writes them:
//! 1. It makes the logs of all shards. The identity of the set is that of the log of shard 0.
//! 2. It makes the memberships of the shards from 1 on durable.
//! 3. It makes the membership of shard 0 durable. So where shard 0 has one, the set is complete,
//!    and a shard that is missing was lost.
//!
//! After a crash between these steps the next open does what is left. No stream has been made then,
//! since the first open has not returned.

use palisade::{Error, ErrorKind, Result, Uuid};

use crate::record::{Decoder, Encode};
use crate::streams::Streams;

/// The reserved stream of each shard: its membership, and the chunks of checkpoints as entries.
pub(crate) const SHARD: &[u8] = b"\0palisade.shard";
/// The reserved stream of shard 0: an entry for each checkpoint.
pub(crate) const CHECKPOINTS: &[u8] = b"\0palisade.checkpoints";
/// The key of the membership.
const MEMBERSHIP: &[u8] = b"membership";
/// The format of the membership and of all that the reserved streams have, and the rule by which a
/// name has its shard.
const VERSION: u64 = 1;

/// Returns whether a name is kept for the set's own streams. A zero byte alone is not enough: names
/// that are big-endian numbers begin with one.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"\0palisade")
}

/// What a shard knows of its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) set: Uuid,
    pub(crate) count: usize,
    pub(crate) number: usize,
}

/// What a folder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// No log.
    Nothing,
    /// A log that no set and nobody else has used.
    Unused,
    /// A log with other streams than those of a set.
    Other,
    /// A shard.
    Shard(Membership),
}

impl Membership {
    /// Makes the log of `streams` the shard that `self` says. Durable when it returns.
    pub(crate) fn write(&self, streams: &Streams) -> Result<()> {
        if self.number == 0 {
            streams.stream_or_create(CHECKPOINTS)?;
        }
        let mut bytes = Vec::new();
        bytes.number(VERSION);
        bytes.extend_from_slice(&self.set.0);
        bytes.number(self.count as u64);
        bytes.number(self.number as u64);
        streams.stream_or_create(SHARD)?.put(MEMBERSHIP, &bytes)?.wait()?;
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Membership> {
        let mut from = Decoder(bytes);
        let version = from.number();
        if version.is_some_and(|version| version > VERSION) {
            let text = "a newer version made the set of shards";
            let advice = "open it with the version that made it, or a later one";
            return Err(Error::new(ErrorKind::Unsupported, text).with_advice(advice));
        }
        let mut fields = || {
            let (set, rest) = from.0.split_first_chunk()?;
            from = Decoder(rest);
            let (count, number) =
                (from.number()?.try_into().ok()?, from.number()?.try_into().ok()?);
            from.0.is_empty().then_some(Membership { set: Uuid(*set), count, number })
        };
        fields().filter(|_| version == Some(VERSION)).ok_or_else(|| {
            let text = "the value that makes the log a shard of a set cannot be read";
            let advice = "restore the log from a backup";
            Error::new(ErrorKind::Corrupt, text).with_advice(advice)
        })
    }
}

impl Holding {
    /// Looks at an open log.
    pub(crate) fn of(streams: &Streams) -> Result<Holding> {
        let own = streams.stream(SHARD).ok();
        let membership = own.map(|own| own.value(MEMBERSHIP)).transpose()?.flatten();
        if let Some(bytes) = membership {
            return Membership::decode(&bytes).map(Holding::Shard);
        }
        // A crash in the first open can leave the reserved streams, without an entry.
        let is_unused = streams.open_report().entries == 0
            && streams.list().iter().all(|name| name == SHARD || name == CHECKPOINTS);
        Ok(if is_unused { Holding::Unused } else { Holding::Other })
    }
}

/// Decides whether folders make a set. `first` is the identity of the log in the first folder.
/// Returns whether the set is complete; otherwise the first open of a new set began, or is to
/// begin.
///
/// # Errors
/// The number of the shard that does not fit, and what does not.
pub(crate) fn judge(
    holdings: &[Holding],
    first: Option<Uuid>,
) -> std::result::Result<bool, (usize, Error)> {
    let count = holdings.len();
    for (number, holding) in holdings.iter().enumerate() {
        check_place(*holding, count, number).map_err(|error| (number, error))?;
    }
    let (set, is_complete) = match holdings[0] {
        Holding::Shard(shard) => (Some(shard.set), true),
        _ => (first, false),
    };
    for (number, holding) in holdings.iter().enumerate() {
        match holding {
            Holding::Shard(shard) if Some(shard.set) != set => {
                if !is_complete {
                    return Err((0, missing()));
                }
                let text = format!("the folder has a shard of another set, {}", shard.set);
                let advice = "name the folders of one set";
                return Err((number, Error::new(ErrorKind::Foreign, text).with_advice(advice)));
            }
            Holding::Nothing | Holding::Unused if is_complete => return Err((number, missing())),
            _ => {}
        }
    }
    Ok(is_complete)
}

/// Checks what one folder says of itself.
fn check_place(holding: Holding, count: usize, number: usize) -> Result<()> {
    let (kind, text, advice) = match holding {
        Holding::Other => (
            ErrorKind::Foreign,
            "the folder has a log of streams that belongs to no set".to_owned(),
            "open it with Streams::open, or name new folders for the set",
        ),
        Holding::Shard(shard) if shard.count != count => (
            ErrorKind::Mismatch,
            format!("the set has {} shards, and the open names {count}", shard.count),
            "name as many folders as the set was made with; for another number, copy the streams \
             into a new set",
        ),
        Holding::Shard(shard) if shard.number != number => (
            ErrorKind::Mismatch,
            format!("the folder has shard {} of the set", shard.number),
            "name the folders in the order in which the set was made",
        ),
        _ => return Ok(()),
    };
    Err(Error::new(kind, text).with_advice(advice))
}

fn missing() -> Error {
    let text = "the folder does not have this shard, and the others of the set are there";
    let advice = "mount the disk that has it, or restore it from a backup";
    Error::new(ErrorKind::NotFound, text).with_advice(advice)
}
