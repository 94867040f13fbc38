//! The decision at the first bad place: a table over everything that counts.

/// What is known about the first place without a whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Something proves that bytes at or above this place were durable once.
    pub(crate) is_below_floor: bool,
    /// A valid header stands at the place; its payload does not validate.
    pub(crate) has_broken_frame: bool,
    /// Whole frames of the same epoch lie behind the place.
    pub(crate) has_followers: bool,
}

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    NothingFollows,
    BrokenFrame,
    Gap,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Corruption: nothing may be changed.
    Refuse,
    /// A torn tail, or a proper end: the log ends here.
    End(Cause),
}

type Row = (Ending, Decision);

const fn row(below: bool, broken: bool, followers: bool, decision: Decision) -> Row {
    let ending =
        Ending { is_below_floor: below, has_broken_frame: broken, has_followers: followers };
    (ending, decision)
}

/// Policy `Strict`.
const TABLE: [Row; 8] = [
    row(false, false, false, Decision::End(Cause::NothingFollows)),
    row(false, true, false, Decision::End(Cause::BrokenFrame)),
    row(false, false, true, Decision::End(Cause::Gap)),
    row(false, true, true, Decision::End(Cause::BrokenFrame)),
    row(true, false, false, Decision::Refuse),
    row(true, true, false, Decision::Refuse),
    row(true, false, true, Decision::Refuse),
    row(true, true, true, Decision::Refuse),
];

pub(crate) fn decide(ending: Ending) -> Decision {
    let row = TABLE.iter().find(|(known, _)| *known == ending);
    row.map_or(Decision::Refuse, |(_, decision)| *decision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_has_one_row_and_damage_below_the_floor_is_always_refused() {
        for bits in 0..8_u8 {
            let ending = Ending {
                is_below_floor: bits & 1 != 0,
                has_broken_frame: bits & 2 != 0,
                has_followers: bits & 4 != 0,
            };
            assert_eq!(TABLE.iter().filter(|(known, _)| *known == ending).count(), 1);
            assert_eq!(decide(ending) == Decision::Refuse, ending.is_below_floor);
        }
    }
}
