//! How many released segments are worth keeping: as many as the log takes between two releases,
//! or took lately.
//!
//! An engine lets go of its log in bursts, at each checkpoint, and then takes as many segments
//! again. Keeping them costs no space that the log did not take a moment ago, and spares the next
//! burst the making of files and the growing of them. There is a cap, so that a log that was large
//! once gives its space back. The estimate follows a larger demand at once and a smaller one
//! slowly, as PostgreSQL's for its recycled segments does (`CheckPointDistanceEstimate`,
//! <https://www.postgresql.org/docs/current/wal-configuration.html>).

/// A smaller demand takes one part in this many of the way down at each release.
const DECAY: u64 = 10;

/// So many times the asked number of spares are kept for the log at most.
const MOST_TIMES: usize = 4;

/// What the log took lately.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    taken: u64,
    // In tenths: whole segments would never decay below ten.
    estimate: u64,
}

impl Demand {
    /// Counts a segment that was taken into use.
    pub(crate) fn take(&mut self) {
        self.taken += 1;
    }

    /// Returns how many spares to keep after a release, at least `asked`. Rounds up: a log that
    /// takes four segments and a half takes five every other time, and would make the fifth anew.
    pub(crate) fn at_release(&mut self, asked: usize) -> usize {
        let taken = std::mem::take(&mut self.taken) * DECAY;
        // Rounded up, or an estimate a little above the demand would stay there for ever.
        let slow = self.estimate - self.estimate.div_ceil(DECAY) + taken / DECAY;
        self.estimate = taken.max(slow);
        let wanted = self.estimate.div_ceil(DECAY) as usize;
        wanted.clamp(asked, asked.saturating_mul(MOST_TIMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release_after(demand: &mut Demand, taken: u64) -> usize {
        (0..taken).for_each(|_| demand.take());
        demand.at_release(8)
    }

    #[test]
    fn a_larger_demand_counts_at_once_a_smaller_one_slowly() {
        let mut demand = Demand::default();
        assert_eq!(release_after(&mut demand, 3), 8);
        assert_eq!(release_after(&mut demand, 20), 20);
        let next = release_after(&mut demand, 0);
        assert!((15..20).contains(&next), "{next}");
        assert_eq!((0..100).map(|_| release_after(&mut demand, 2)).last(), Some(8));
    }

    #[test]
    fn a_log_that_takes_half_a_segment_more_keeps_a_whole_one() {
        let mut demand = Demand::default();
        assert_eq!(release_after(&mut demand, 10), 10);
        assert_eq!(release_after(&mut demand, 9), 10, "the next burst may take ten again");
        assert_eq!(release_after(&mut demand, 10), 10);
        assert_eq!((0..20).map(|_| release_after(&mut demand, 9)).last(), Some(9), "and no more");
    }

    #[test]
    fn a_burst_does_not_stay_for_ever() {
        let mut demand = Demand::default();
        assert_eq!(demand.at_release(0), 0);
        assert_eq!(release_after(&mut demand, 10_000), 8 * MOST_TIMES);
        assert_eq!(demand.at_release(0), 0, "none was asked for, whatever the log takes");
        assert_eq!(demand.at_release(usize::MAX), usize::MAX);
    }
}
