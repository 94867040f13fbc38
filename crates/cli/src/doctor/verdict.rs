//! What the measured costs mean for a log in that folder, in plain words.

use std::time::Duration;

use palisade::SyncMethod;

use super::Log;
use super::probe::{Cost, DIRECT, GROWING, LOG, OVERLAPPED, TWO_DIRECT, Way};
use crate::units::time;

/// No device that keeps bytes without power answers so soon over any bus: whoever did not wait.
const IN_MEMORY: Duration = Duration::from_micros(2);
/// A cache that outlives the power answers so soon; a disk that has to write does not.
const CACHED: Duration = Duration::from_micros(20);
/// Rotating disks, and networks.
const SLOW: Duration = Duration::from_millis(2);
/// A way has to be better by as much as this before it is called better: runs differ.
const BETTER: f64 = 1.2;

/// What was measured, by its way; `None` where this system has no such way.
pub(super) type Costs = [(Way, Option<Cost>)];

fn cost(costs: &Costs, way: Way) -> Option<Cost> {
    costs.iter().find(|(measured, _)| *measured == way).and_then(|(_, cost)| *cost)
}

/// The method that these costs give a new log: by medians, as the log itself measures.
pub(super) fn new_log(file_system: Option<&str>, costs: &Costs) -> SyncMethod {
    let per_s = |way, in_flight| cost(costs, way).map(|cost| in_flight / cost.p50.as_secs_f64());
    match (per_s(LOG, 1.0), per_s(DIRECT, 1.0), per_s(TWO_DIRECT, 2.0)) {
        (Some(log), Some(one), Some(two)) => SyncMethod::choice(file_system, log, one, two),
        _ => SyncMethod::DataSync,
    }
}

/// What can be said of the ways that were measured, and of the `logs` that are there.
pub(super) fn of(file_system: Option<&str>, costs: &Costs, logs: &[Log]) -> Vec<String> {
    let cost = |way| cost(costs, way);
    let Some(log) = cost(LOG) else {
        return vec!["a log cannot be kept here: fdatasync does not work".into()];
    };
    let mut lines = vec![honesty(file_system, log.p50), rate(log)];
    lines.extend(cost(GROWING).map(|growing| growth(log, growing)));
    let new = new_log(file_system, costs);
    lines.push(match [DIRECT, TWO_DIRECT, OVERLAPPED].map(cost) {
        [Some(one), Some(two), Some(four)] => method(new, log, [one, two, four]),
        _ => format!("a new log here commits by {new}: there are no direct writes"),
    });
    lines.extend(logs.iter().map(|log| kept(log, new)));
    lines
}

fn honesty(file_system: Option<&str>, sync: Duration) -> String {
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

fn method(new: SyncMethod, log: Cost, direct: [Cost; 3]) -> String {
    let [one, two, four] = direct.map(|cost| cost.per_s / log.per_s);
    format!(
        "a new log here commits by {new}: direct writes come to {one:.1} times the rate of \
         fdatasync one at a time, to {two:.1} times with two in flight, to {four:.1} with four; a \
         log that is made measures it again, for some milliseconds"
    )
}

fn kept(log: &Log, new: SyncMethod) -> String {
    let Log { dir, method } = log;
    let kept = format!("the log in {} commits by {method}", dir.display());
    if *method == new {
        return kept;
    }
    format!("{kept}; a new one would do so by {new}: `Options::sync_method` changes it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(us: u64) -> Cost {
        let time = Duration::from_micros(us);
        Cost { writes: 10, per_s: 1e6 / us as f64, p50: time, p99: time }
    }

    /// What a write takes while so many are in flight.
    fn of_several(in_flight: u32, us: u64) -> Cost {
        Cost { per_s: f64::from(in_flight) * cost(us).per_s, ..cost(us) }
    }

    #[test]
    fn a_usual_disk_gets_its_rates_and_its_ways() {
        let costs = [(LOG, Some(cost(100))), (GROWING, Some(cost(150))), (DIRECT, Some(cost(110)))];
        let with_two = |two| {
            let several = [(TWO_DIRECT, Some(two)), (OVERLAPPED, Some(of_several(4, 100)))];
            of(Some("ext4"), &[&costs[..], &several].concat(), &[]).join("\n")
        };
        let lines = with_two(of_several(2, 79));
        for part in [
            "100.0 µs, as a device that writes",
            "10000 commits/s",
            "1.5 times slower",
            "a new log here commits by direct writes",
            "0.9 times the rate of fdatasync one at a time, to 2.5 times with two",
        ] {
            assert!(lines.contains(part), "{part} is not in {lines}");
        }
        let not_enough = with_two(of_several(2, 81));
        assert!(not_enough.contains("a new log here commits by fdatasync"), "{not_enough}");
    }

    #[test]
    fn memory_is_called_memory() {
        let in_memory = of(Some("tmpfs"), &[(LOG, Some(cost(100)))], &[]);
        assert!(in_memory[0].contains("tmpfs lies in memory"), "{in_memory:?}");
        let too_soon = of(None, &[(LOG, Some(cost(1)))], &[]);
        assert!(too_soon[0].contains("reaches no device"), "{too_soon:?}");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let lines = of(None, &[(LOG, Some(cost(100))), (DIRECT, None)], &[]);
        assert_eq!(lines.len(), 3);
        assert!(lines[2].contains("by fdatasync: there are no direct writes"), "{lines:?}");
        assert_eq!(of(None, &[(LOG, None)], &[]).len(), 1);
    }

    #[test]
    fn a_log_that_is_there_is_told_its_method_and_what_a_new_one_would_have() {
        let costs = [(LOG, 100), (DIRECT, 110), (TWO_DIRECT, 60), (OVERLAPPED, 40)]
            .map(|(way, us)| (way, Some(cost(us))));
        let log = |method| Log { dir: "/data/log".into(), method };
        let line = |file_system, method| of(file_system, &costs, &[log(method)]).pop().unwrap();
        let kept = line(Some("ext4"), SyncMethod::DataSync);
        assert!(kept.contains("/data/log commits by fdatasync; a new one would"), "{kept}");
        assert!(kept.contains("by direct writes: `Options::sync_method`"), "{kept}");
        let same = line(Some("ext4"), SyncMethod::Direct);
        assert_eq!(same, "the log in /data/log commits by direct writes");
        // Stalls of one way in a while do not count.
        let mut stalled = costs;
        stalled[1].1 = Some(Cost { per_s: 10.0, ..cost(110) });
        assert_eq!(new_log(Some("ext4"), &stalled), SyncMethod::Direct);
        // It does not overwrite in place.
        assert_eq!(new_log(Some("btrfs"), &costs), SyncMethod::DataSync);
    }
}
