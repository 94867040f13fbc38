//! The decision at the first bad place: a table over everything that counts.

use crate::RecoveryPolicy;

/// Where the first place without a whole frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is where the last close ended the log, and nothing follows.
    CleanEnd,
    /// Nothing proves that bytes at or above it were durable once.
    AboveFloor,
    /// Something does, or what must be there is missing or damaged.
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

impl Ending {
    /// Damage to what must be there: what lies around it changes nothing.
    pub(crate) const DAMAGE: Ending =
        Ending { standing: Standing::BelowFloor, has_broken_frame: false, has_followers: false };
    pub(crate) const CLEAN: Ending =
        Ending { standing: Standing::CleanEnd, has_broken_frame: false, has_followers: false };
}

/// What the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Strict,
    Absolute,
    /// `PointInTime` without a place.
    Unnamed,
    /// `PointInTime` with a place from which data may be lost.
    Named,
    Salvage,
}

impl Rule {
    pub(crate) const fn of(policy: RecoveryPolicy) -> Rule {
        match policy {
            RecoveryPolicy::Strict => Rule::Strict,
            RecoveryPolicy::Absolute => Rule::Absolute,
            RecoveryPolicy::PointInTime { lose_from: None } => Rule::Unnamed,
            RecoveryPolicy::PointInTime { lose_from: Some(_) } => Rule::Named,
            RecoveryPolicy::Salvage => Rule::Salvage,
        }
    }
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
    /// Damage that the caller gave up, and everything behind it
    /// ([`RecoveryPolicy::PointInTime`]).
    Damage,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A torn tail, or a proper end: the log ends here.
    End(EndCause),
    /// Corruption: nothing may be changed.
    Refuse,
    /// No clean end: nothing may be changed.
    RefuseUnclean,
    /// The loss has to be named: nothing may be changed.
    AskForName,
    /// The log ends at the place that the caller named.
    Lose,
    /// Reading goes on behind the place.
    Skip,
}

/// One row: what it is for, with `None` for "either", and what to do.
type Row = (Rule, Standing, Option<bool>, Option<bool>, Decision);

use Decision::{AskForName, End, Lose, Refuse, RefuseUnclean, Skip};
use EndCause::{CleanClose, Gap, NothingFollows, TornRecord};
use Rule::{Absolute, Named, Salvage, Strict, Unnamed};
use Standing::{AboveFloor, BelowFloor, CleanEnd};

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[rustfmt::skip]
const TABLE: [Row; 21] = [
    // rule, place,        broken, followers, decision
    (Strict,   CleanEnd,   None, None, End(CleanClose)),
    (Strict,   AboveFloor, YES,  None, End(TornRecord)),
    (Strict,   AboveFloor, NO,   YES,  End(Gap)),
    (Strict,   AboveFloor, NO,   NO,   End(NothingFollows)),
    (Strict,   BelowFloor, None, None, Refuse),

    (Absolute, CleanEnd,   None, None, End(CleanClose)),
    (Absolute, AboveFloor, None, None, RefuseUnclean),
    (Absolute, BelowFloor, None, None, Refuse),

    (Unnamed,  CleanEnd,   None, None, End(CleanClose)),
    (Unnamed,  AboveFloor, YES,  None, End(TornRecord)),
    (Unnamed,  AboveFloor, NO,   YES,  End(Gap)),
    (Unnamed,  AboveFloor, NO,   NO,   End(NothingFollows)),
    (Unnamed,  BelowFloor, None, None, AskForName),

    (Named,    CleanEnd,   None, None, End(CleanClose)),
    (Named,    AboveFloor, YES,  None, End(TornRecord)),
    (Named,    AboveFloor, NO,   YES,  End(Gap)),
    (Named,    AboveFloor, NO,   NO,   End(NothingFollows)),
    (Named,    BelowFloor, None, None, Lose),

    (Salvage,  CleanEnd,   None, None, End(CleanClose)),
    (Salvage,  AboveFloor, None, None, Skip),
    (Salvage,  BelowFloor, None, None, Skip),
];

pub(crate) fn decide(rule: Rule, ending: Ending) -> Decision {
    let row = TABLE.iter().find(|row| is_for(row, rule, ending));
    // The test shows that every input has a row.
    row.map_or(Refuse, |(.., decision)| *decision)
}

fn is_for((of, standing, broken, followers, _): &Row, rule: Rule, ending: Ending) -> bool {
    let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
    *of == rule
        && *standing == ending.standing
        && fits(*broken, ending.has_broken_frame)
        && fits(*followers, ending.has_followers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Rule; 5] = [Strict, Absolute, Unnamed, Named, Salvage];
    const STANDINGS: [Standing; 3] = [CleanEnd, AboveFloor, BelowFloor];

    fn all() -> impl Iterator<Item = (Rule, Ending)> {
        let endings = STANDINGS.into_iter().flat_map(|standing| {
            (0..4_u8).map(move |bits| Ending {
                standing,
                has_broken_frame: bits & 1 != 0,
                has_followers: bits & 2 != 0,
            })
        });
        endings.flat_map(|ending| RULES.map(|rule| (rule, ending)))
    }

    #[test]
    fn every_input_has_exactly_one_row_and_every_row_an_input() {
        assert_eq!(all().count(), 60);
        for (rule, ending) in all() {
            let rows = TABLE.iter().filter(|row| is_for(row, rule, ending));
            assert_eq!(rows.count(), 1, "{rule:?} {ending:?}");
        }
        for row in &TABLE {
            assert!(all().any(|(rule, ending)| is_for(row, rule, ending)), "{row:?}");
        }
    }

    #[test]
    fn damage_below_the_floor_ends_no_log_unless_the_loss_is_named() {
        for (rule, ending) in all().filter(|(_, ending)| ending.standing == BelowFloor) {
            let expected = match rule {
                Strict | Absolute => Refuse,
                Unnamed => AskForName,
                Named => Lose,
                Salvage => Skip,
            };
            assert_eq!(decide(rule, ending), expected, "{rule:?} {ending:?}");
        }
    }

    #[test]
    fn a_torn_tail_is_cut_off_by_every_rule_that_opens_and_takes_unclean_logs() {
        for (rule, ending) in all().filter(|(_, ending)| ending.standing == AboveFloor) {
            let decision = decide(rule, ending);
            match rule {
                Absolute => assert_eq!(decision, RefuseUnclean),
                Salvage => assert_eq!(decision, Skip),
                _ => assert!(matches!(decision, End(_)), "{rule:?} {ending:?}"),
            }
        }
    }

    #[test]
    fn a_clean_end_is_an_end_for_every_rule_and_nothing_else_is_called_one() {
        for (rule, ending) in all() {
            let is_clean = decide(rule, ending) == End(CleanClose);
            assert_eq!(is_clean, ending.standing == CleanEnd, "{rule:?} {ending:?}");
        }
    }

    #[test]
    fn what_is_said_of_a_cut_follows_from_what_was_found() {
        for (rule, ending) in all() {
            let End(cause) = decide(rule, ending) else { continue };
            let broken = ending.has_broken_frame;
            assert!(cause != TornRecord || broken, "{rule:?} {ending:?}");
            assert!(cause != Gap || (ending.has_followers && !broken), "{rule:?} {ending:?}");
            let has_nothing = !broken && !ending.has_followers;
            assert!(cause != NothingFollows || has_nothing, "{rule:?} {ending:?}");
        }
    }
}
