//! The decision at the first bad place, as a table of all inputs.

use crate::RecoveryPolicy;

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
    /// Refuse: the policy requires a clean end. Nothing may be changed.
    RefuseUnclean,
}

/// One row: the inputs it is for, with `None` for "either", and the decision.
type Row = (RecoveryPolicy, Standing, Option<bool>, Option<bool>, Decision);

use Decision::{End, Refuse, RefuseUnclean};
use EndCause::{Gap, NothingFollows, TornRecord};
use RecoveryPolicy::{RequireClean, Strict};
use Standing::{AboveFloor, BelowFloor};

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[rustfmt::skip]
const TABLE: [Row; 6] = [
    // policy,     place,      broken, followers, decision
    (Strict,       AboveFloor, YES,  None, End(TornRecord)),
    (Strict,       AboveFloor, NO,   YES,  End(Gap)),
    (Strict,       AboveFloor, NO,   NO,   End(NothingFollows)),
    (Strict,       BelowFloor, None, None, Refuse),

    (RequireClean, AboveFloor, None, None, RefuseUnclean),
    (RequireClean, BelowFloor, None, None, Refuse),
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
        endings.flat_map(|ending| [Strict, RequireClean].map(|policy| (policy, ending)))
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
    fn a_torn_tail_is_truncated_unless_a_clean_end_is_required() {
        for (policy, ending) in all().filter(|(_, ending)| ending.standing == AboveFloor) {
            let decision = decide(policy, ending);
            match policy {
                RequireClean => assert_eq!(decision, RefuseUnclean),
                Strict => assert!(matches!(decision, End(_)), "{ending:?}"),
            }
        }
    }

    #[test]
    fn the_cause_of_a_torn_tail_follows_from_what_was_found() {
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
