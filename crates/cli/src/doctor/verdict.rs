//! What the measured costs mean for a log in that folder, in plain words.

use std::time::Duration;

use super::probe::{Cost, GROWING, LOG, Way};
use crate::units::time;

/// No device that keeps bytes without power answers so soon over any bus: whoever did not wait.
const IN_MEMORY: Duration = Duration::from_micros(2);
/// A cache that outlives the power answers so soon; a disk that has to write does not.
pub(crate) const CACHED: Duration = Duration::from_micros(20);
/// Rotating disks, and networks.
const SLOW: Duration = Duration::from_millis(2);
/// A way has to be better by as much as this before it is called better: runs differ.
const BETTER: f64 = 1.2;

/// What was measured, by its way; `None` where this system has no such way.
pub(super) type Costs = [(Way, Option<Cost>)];

fn cost(costs: &Costs, way: Way) -> Option<Cost> {
    costs.iter().find(|(measured, _)| *measured == way).and_then(|(_, cost)| *cost)
}

/// Returns lines that explain the costs that were measured.
pub(super) fn of(file_system: Option<&str>, costs: &Costs) -> Vec<String> {
    let cost = |way| cost(costs, way);
    let Some(log) = cost(LOG) else {
        return vec!["a log cannot be kept here: fdatasync does not work".into()];
    };
    let mut lines = vec![honesty(file_system, log.p50), rate(log)];
    lines.extend(cost(GROWING).map(|growing| growth(log, growing)));
    lines
}

/// Says whether a sync that takes so long can have reached a medium.
pub(crate) fn honesty(file_system: Option<&str>, sync: Duration) -> String {
    let took = time(sync);
    if let Some(name @ ("tmpfs" | "ramfs")) = file_system {
        return format!(
            "{name} lies in memory: nothing here survives a loss of power, whatever syncs say"
        );
    }
    let rank = [IN_MEMORY, CACHED, SLOW].iter().position(|limit| sync < *limit);
    match rank {
        Some(0) => format!(
            "a sync takes {took}: it reaches no device; nothing here survives a loss of power"
        ),
        Some(1) => format!(
            "a sync takes {took}: the device has a cache that outlives the power, or it does not \
             wait for its medium; find out which before you trust it"
        ),
        Some(2) => format!("a sync takes {took}, as a device that writes to its medium takes"),
        _ => format!(
            "a sync takes {took}: a rotating disk, a network, or a busy device; many committing \
             threads share one sync, one alone waits for it"
        ),
    }
}

fn rate(log: Cost) -> String {
    format!(
        "one thread that commits each record can reach {:.0} commits/s; more threads share syncs",
        log.per_s
    )
}

fn growth(log: Cost, growing: Cost) -> String {
    let ratio = log.per_s / growing.per_s;
    if ratio < BETTER {
        return "a file that grows is synced as soon: writing ahead gains little here".into();
    }
    format!("a file that grows is {ratio:.1} times slower: the log writes its segments ahead")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(us: u64) -> Cost {
        let time = Duration::from_micros(us);
        Cost { writes: 10, per_s: 1e6 / us as f64, p50: time, p99: time }
    }

    #[test]
    fn a_usual_disk_gets_its_rates() {
        let costs = [(LOG, Some(cost(100))), (GROWING, Some(cost(150)))];
        let lines = of(Some("ext4"), &costs).join("\n");
        for part in ["100.0 µs, as a device that writes", "10000 commits/s", "1.5 times slower"] {
            assert!(lines.contains(part), "{part} is not in {lines}");
        }
    }

    #[test]
    fn memory_is_called_memory() {
        let in_memory = of(Some("tmpfs"), &[(LOG, Some(cost(100)))]);
        assert!(in_memory[0].contains("tmpfs lies in memory"), "{in_memory:?}");
        let too_soon = of(None, &[(LOG, Some(cost(1)))]);
        assert!(too_soon[0].contains("reaches no device"), "{too_soon:?}");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let lines = of(None, &[(LOG, Some(cost(100))), (GROWING, None)]);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("10000 commits/s"), "{lines:?}");
        assert_eq!(of(None, &[(LOG, None)]).len(), 1);
    }
}
