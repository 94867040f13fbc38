//! The decision at the first bad place, for all inputs.

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// The log was closed there.
    CleanClose,
    /// No header validates there, and no record validates above.
    #[default]
    NothingFollows,
    /// A record begins there whose header validates and whose payload does not.
    TornRecord,
    /// No header validates there, but valid records follow above. A crash kept later bytes and lost
    /// earlier ones.
    Gap,
    /// The log is damaged there. Only a [`Verdict`](crate::inspect::Verdict) has this cause; an
    /// open is refused instead.
    Damage,
}

/// Returns why the log ends at the first place without a whole frame. Returns `None` if the place
/// is below the floor: acknowledged data is damaged, and nothing may be changed.
///
/// `has_broken_frame`: a header validates at the place, and its payload does not.
/// `has_followers`: there are whole frames of the same epoch above the place.
pub(crate) fn decide(
    is_below_floor: bool,
    has_broken_frame: bool,
    has_followers: bool,
) -> Option<EndCause> {
    match (is_below_floor, has_broken_frame, has_followers) {
        (true, _, _) => None,
        (false, true, _) => Some(EndCause::TornRecord),
        (false, false, true) => Some(EndCause::Gap),
        (false, false, false) => Some(EndCause::NothingFollows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks also that the end has the cause of the bad place.
    #[test]
    fn a_bad_place_is_refused_below_the_floor_and_is_the_end_above() {
        for (has_broken_frame, has_followers, cause) in [
            (true, true, EndCause::TornRecord),
            (true, false, EndCause::TornRecord),
            (false, true, EndCause::Gap),
            (false, false, EndCause::NothingFollows),
        ] {
            let case = format!("broken frame: {has_broken_frame}, followers: {has_followers}");
            assert_eq!(decide(false, has_broken_frame, has_followers), Some(cause), "{case}");
            assert_eq!(decide(true, has_broken_frame, has_followers), None, "{case}");
        }
    }
}
