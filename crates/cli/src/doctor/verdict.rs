//! What the measured figures mean for a log in that folder, in plain words.

use super::figures::{Figure, Workload};
use super::probe::{Cost, GROWING};
use crate::units::text_of;

/// No device that keeps bytes without power answers so soon over any bus: whoever did not wait.
const IN_MEMORY_US: f64 = 2.0;
/// A cache that outlives the power answers so soon; a disk that has to write does not.
const CACHED_US: f64 = 20.0;
/// Rotating disks, and networks.
const SLOW_US: f64 = 2000.0;
/// A way has to be better by as much as this before it is called better: runs differ.
const BETTER: f64 = 1.2;
/// Below this gain many threads commit little more than one.
const GAIN: f64 = 2.0;
/// Above this share of raw syncs, a lone commit is as fast as the disk.
const NEAR: f64 = 0.8;
/// The rounds of an idle disk differ by less than this.
const STEADY: f64 = 1.5;

/// Returns lines that explain the costs of the disk, in the order of all ways, and the figures of a
/// log on it.
pub(super) fn of(
    file_system: Option<&str>,
    costs: &[Option<Cost>],
    figures: &[Figure],
) -> Vec<String> {
    let figure = |workload| figures.iter().find(|figure| figure.workload == workload);
    let mut lines = Vec::new();
    if let (Some(log), Some(growing)) = (costs[0], costs[GROWING]) {
        lines.push(growth(log, growing));
    }
    let Some(raw) = figure(Workload::RawSync) else { return lines };
    let sync = raw.p50_us.unwrap_or_default();
    lines.insert(0, honesty(file_system, sync));
    if let (Some(one), Some(many)) = (figure(Workload::Commit(1)), figure(Workload::Commit(64))) {
        lines.splice(..0, distrust(raw, one, many));
        lines.extend([group(one, many, sync), alone(one)]);
    }
    lines.extend(figure(Workload::Append).map(append));
    lines
}

/// Returns whether a sync that takes so long can have reached a medium.
fn honesty(file_system: Option<&str>, sync: f64) -> String {
    let took = text_of(sync);
    if let Some(name @ ("tmpfs" | "ramfs")) = file_system {
        return format!(
            "{name} lies in memory: nothing here survives a loss of power, whatever syncs say"
        );
    }
    let what = match sync {
        ..IN_MEMORY_US => "it reaches no device; nothing here survives a loss of power",
        ..CACHED_US => {
            "the device has a cache that outlives the power, or it does not wait for its medium; \
             find out which before you trust it"
        }
        ..SLOW_US => {
            return format!("a sync takes {took}, as a device that writes to its medium takes");
        }
        _ => {
            "a rotating disk, a network, or a busy device; many committing threads share one sync, \
             one alone waits for it"
        }
    };
    format!("a sync takes {took}: {what}")
}

fn growth(log: Cost, growing: Cost) -> String {
    let ratio = log.per_s / growing.per_s;
    if ratio < BETTER {
        return "a file that grows is synced as soon: writing ahead gains little here".into();
    }
    format!("a file that grows is {ratio:.1} times slower: the log writes its segments ahead")
}

fn gain(one: &Figure, many: &Figure) -> f64 {
    many.ratio / one.ratio
}

fn group(one: &Figure, many: &Figure, sync: f64) -> String {
    let gain = gain(one, many);
    let threads = many.workload.threads();
    if gain >= GAIN {
        let shared = many.records_per_sync.unwrap_or(1.0);
        return format!(
            "group commit gives {gain:.1} times the commits of one thread: {threads} threads make \
             {:.0}/s, with {shared:.0} records in each sync",
            many.per_s
        );
    }
    let why = match sync < CACHED_US {
        true => "a sync costs no more here than waking a thread",
        false => "something else uses the processors or the disk",
    };
    let little = format!("{threads} threads make {gain:.1} times the commits of one");
    format!("group commit gives little: {little}; {why}")
}

fn alone(one: &Figure) -> String {
    let ratio = one.ratio;
    let limit = match ratio >= NEAR {
        true => "the disk is the limit, not the log",
        false => "the log's own work, or another load, is the limit, not the disk",
    };
    format!("one thread alone makes {ratio:.2} commits in the time of a raw sync: {limit}")
}

fn append(append: &Figure) -> String {
    let ratio = append.ratio;
    format!(
        "one thread appends {ratio:.0} records in the time of one sync: let several records share \
         a commit where you can"
    )
}

/// Returns why the figures are those of a machine that is busy, if they are.
fn distrust(raw: &Figure, one: &Figure, many: &Figure) -> Option<String> {
    let (gain, threads) = (gain(one, many), many.workload.threads());
    let why = if gain > threads as f64 {
        format!("{threads} threads cannot gain {gain:.0} times by sharing syncs")
    } else if raw.spread > STEADY {
        format!("raw syncs differed between rounds by {:.1} times", raw.spread)
    } else {
        return None;
    };
    Some(format!(
        "do not trust these figures: {why}; something else uses the disk or the processors, so \
         measure again on an idle machine"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: [Option<Cost>; 5] = [Some(cost(100.0)), None, None, Some(cost(150.0)), None];

    const fn cost(us: f64) -> Cost {
        Cost { calls: 10, per_s: 1e6 / us, p50_us: us, p99_us: us }
    }

    fn figure(workload: Workload, per_s: f64, ratio: f64, p50_us: f64) -> Figure {
        let p50_us = Some(p50_us);
        let records_per_sync = Some(19.4);
        Figure { workload, per_s, ratio, p50_us, p99_us: p50_us, records_per_sync, spread: 1.1 }
    }

    fn figures(sync_us: f64, one: f64, many: f64) -> [Figure; 4] {
        let raw = 1e6 / sync_us;
        [
            figure(Workload::RawSync, raw, 1.0, sync_us),
            figure(Workload::Commit(1), one, one / raw, sync_us),
            figure(Workload::Commit(64), many, many / raw, sync_us),
            figure(Workload::Append, 3e6, 3e6 / raw, 1.0),
        ]
    }

    #[test]
    fn a_usual_disk_gets_its_gain_from_groups() {
        let lines = of(Some("ext4"), &COSTS, &figures(200.0, 4900.0, 98_000.0));
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[1].contains("1.5 times slower"), "{lines:?}");
        assert!(lines[0].contains("200.0 µs, as a device that writes"), "{lines:?}");
        let gain = "gives 20.0 times the commits of one thread: 64 threads make 98000/s, with 19";
        assert!(lines[2].contains(gain), "{lines:?}");
        assert!(lines[3].contains("0.98 commits") && lines[3].contains("disk is the limit"));
        assert!(lines[4].contains("appends 600 records in the time of one sync"), "{lines:?}");
    }

    #[test]
    fn a_disk_that_does_not_wait_is_named() {
        let lines = of(Some("ext4"), &COSTS, &figures(1.0, 300_000.0, 330_000.0));
        assert!(lines[0].contains("it reaches no device"), "{lines:?}");
        assert!(lines[2].contains("little: 64 threads make 1.1 times"), "{lines:?}");
        assert!(lines[2].contains("no more here than waking a thread"), "{lines:?}");
        assert!(lines[3].contains("not the disk"), "{lines:?}");
        let cached = of(None, &COSTS, &figures(10.0, 90_000.0, 400_000.0));
        assert!(cached[0].contains("find out which before you trust it"), "{cached:?}");
    }

    #[test]
    fn differing_rounds_and_missing_gain_point_at_another_load() {
        let mut figures = figures(200.0, 4900.0, 5000.0);
        figures[0].spread = 2.26;
        let lines = of(None, &COSTS, &figures);
        assert!(lines[0].contains("differed between rounds by 2.3 times"), "{lines:?}");
        assert!(lines[3].contains("something else uses the processors"), "{lines:?}");
        let too_good = of(None, &COSTS, &self::figures(200.0, 300.0, 98_000.0));
        assert!(too_good[0].contains("64 threads cannot gain 327 times"), "{too_good:?}");
    }

    #[test]
    fn memory_is_called_memory() {
        let lines = of(Some("tmpfs"), &[None; 5], &figures(200.0, 4900.0, 98_000.0));
        assert!(lines[0].contains("tmpfs lies in memory"), "{lines:?}");
        assert!(!lines[1].contains("slower"), "{lines:?}");
    }
}
