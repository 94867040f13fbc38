//! The decision at the first bad place: a table over everything that counts.

use crate::RecoveryPolicy;

/// Where the first place without a whole frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing proves that bytes at or above it were durable once.
    AboveFloor,
    /// Something does: acknowledged data is damaged.
    BelowFloor,
}

/// What is known about the first place without a whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) standing: Standing,
    /// A valid header stands at the place; its payload does not validate.
    pub(crate) has_broken_frame: bool,
    /// Whole frames of the same epoch lie behind the place.
    pub(crate) has_followers: bool,
}

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// It was closed there.
    CleanClose,
    /// No record was ever written behind the last one, as far as anything shows.
    #[default]
    NothingFollows,
    /// A record stands there whose header is whole and whose bytes are not.
    TornRecord,
    /// No record validates there, and valid ones lie behind: a crash kept later bytes and lost
    /// earlier ones.
    Gap,
    /// Damage lies there. A [`Verdict`](crate::inspect::Verdict) has it; an open is refused
    /// instead.
    Damage,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A torn tail, or nothing follows: the log ends here.
    End(EndCause),
    /// Corruption: nothing may be changed.
    Refuse,
    /// No clean end: nothing may be changed.
    RefuseUnclean,
}

/// One row: what it is for, with `None` for "either", and what to do.
type Row = (RecoveryPolicy, Standing, Option<bool>, Option<bool>, Decision);

use Decision::{End, Refuse, RefuseUnclean};
use EndCause::{Gap, NothingFollows, TornRecord};
use RecoveryPolicy::{Absolute, Strict};
use Standing::{AboveFloor, BelowFloor};

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[rustfmt::skip]
const TABLE: [Row; 6] = [
    // policy, place,      broken, followers, decision
    (Strict,   AboveFloor, YES,  None, End(TornRecord)),
    (Strict,   AboveFloor, NO,   YES,  End(Gap)),
    (Strict,   AboveFloor, NO,   NO,   End(NothingFollows)),
    (Strict,   BelowFloor, None, None, Refuse),

    (Absolute, AboveFloor, None, None, RefuseUnclean),
    (Absolute, BelowFloor, None, None, Refuse),
];

pub(crate) fn decide(policy: RecoveryPolicy, ending: Ending) -> Decision {
    let row = TABLE.iter().find(|row| is_for(row, policy, ending));
    // The test shows that every input has a row.
    row.map_or(Refuse, |(.., decision)| *decision)
}

fn is_for(row: &Row, policy: RecoveryPolicy, ending: Ending) -> bool {
    let (of, standing, broken, followers, _) = row;
    let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
    *of == policy
        && *standing == ending.standing
        && fits(*broken, ending.has_broken_frame)
        && fits(*followers, ending.has_followers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDINGS: [Standing; 2] = [AboveFloor, BelowFloor];

    fn all() -> impl Iterator<Item = (RecoveryPolicy, Ending)> {
        let endings = STANDINGS.into_iter().flat_map(|standing| {
            (0..4_u8).map(move |bits| Ending {
                standing,
                has_broken_frame: bits & 1 != 0,
                has_followers: bits & 2 != 0,
            })
        });
        endings.flat_map(|ending| [Strict, Absolute].map(|policy| (policy, ending)))
    }

    #[test]
    fn every_input_has_exactly_one_row_and_every_row_an_input() {
        assert_eq!(all().count(), 16);
        for (policy, ending) in all() {
            let rows = TABLE.iter().filter(|row| is_for(row, policy, ending));
            assert_eq!(rows.count(), 1, "{policy:?} {ending:?}");
        }
        for row in &TABLE {
            assert!(all().any(|(policy, ending)| is_for(row, policy, ending)), "{row:?}");
        }
    }

    #[test]
    fn damage_below_the_floor_ends_no_log() {
        for (policy, ending) in all().filter(|(_, ending)| ending.standing == BelowFloor) {
            assert_eq!(decide(policy, ending), Refuse, "{policy:?} {ending:?}");
        }
    }

    #[test]
    fn a_torn_tail_is_cut_off_unless_a_clean_end_is_required() {
        for (policy, ending) in all().filter(|(_, ending)| ending.standing == AboveFloor) {
            let decision = decide(policy, ending);
            match policy {
                Absolute => assert_eq!(decision, RefuseUnclean),
                Strict => assert!(matches!(decision, End(_)), "{ending:?}"),
            }
        }
    }

    #[test]
    fn what_is_said_of_a_torn_tail_follows_from_what_was_found() {
        for (policy, ending) in all() {
            let End(cause) = decide(policy, ending) else { continue };
            let broken = ending.has_broken_frame;
            assert!(cause != TornRecord || broken, "{policy:?} {ending:?}");
            assert!(cause != Gap || (ending.has_followers && !broken), "{policy:?} {ending:?}");
            assert_ne!(cause, EndCause::CleanClose, "no clean end gets here");
            let has_nothing = !broken && !ending.has_followers;
            assert!(cause != NothingFollows || has_nothing, "{policy:?} {ending:?}");
        }
    }
}
