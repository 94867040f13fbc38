//! The decision at the first bad place, for all inputs.

/// The position of the first place without a whole frame, relative to the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing proves that bytes at or above the place were durable once.
    AboveFloor,
    /// Evidence proves that bytes above the place were durable once: acknowledged data is damaged.
    BelowFloor,
}

/// What is known about the first place without a whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) standing: Standing,
    /// The place has a valid header, but its payload does not validate.
    pub(crate) has_broken_frame: bool,
    /// There are whole frames of the same epoch above the place.
    pub(crate) has_followers: bool,
}

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// The log was closed there.
    CleanClose,
    /// There is nothing above the last record.
    #[default]
    NothingFollows,
    /// A record begins there whose header validates and whose payload does not.
    TornRecord,
    /// No record validates there, but valid records follow above. A crash kept later bytes and lost
    /// earlier ones.
    Gap,
    /// The log is damaged there. Only a [`Verdict`](crate::inspect::Verdict) has this cause; an
    /// open is refused instead.
    Damage,
}

/// What to do at the first bad place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The log ends here: the tail is torn, or nothing follows.
    End(EndCause),
    /// Refuse: acknowledged data is damaged. Nothing may be changed.
    Refuse,
}

use Decision::{End, Refuse};
use EndCause::{Gap, NothingFollows, TornRecord};
use Standing::{AboveFloor, BelowFloor};

pub(crate) fn decide(ending: Ending) -> Decision {
    match (ending.standing, ending.has_broken_frame, ending.has_followers) {
        (BelowFloor, _, _) => Refuse,
        (AboveFloor, true, _) => End(TornRecord),
        (AboveFloor, false, true) => End(Gap),
        (AboveFloor, false, false) => End(NothingFollows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Ending> {
        [AboveFloor, BelowFloor].into_iter().flat_map(|standing| {
            (0..4_u8).map(move |bits| Ending {
                standing,
                has_broken_frame: bits & 1 != 0,
                has_followers: bits & 2 != 0,
            })
        })
    }

    #[test]
    fn damage_below_the_floor_is_refused_and_a_bad_place_above_it_ends_the_log() {
        for ending in all() {
            let is_refused = decide(ending) == Refuse;
            assert_eq!(is_refused, ending.standing == BelowFloor, "{ending:?}");
        }
    }

    #[test]
    fn the_cause_of_a_torn_tail_follows_from_what_was_found() {
        for ending in all() {
            let End(cause) = decide(ending) else { continue };
            let broken = ending.has_broken_frame;
            assert!(cause != TornRecord || broken, "{ending:?}");
            assert!(cause != Gap || (ending.has_followers && !broken), "{ending:?}");
            assert_ne!(cause, EndCause::CleanClose, "no clean end gets here");
            let has_nothing = !broken && !ending.has_followers;
            assert!(cause != NothingFollows || has_nothing, "{ending:?}");
        }
    }
}
