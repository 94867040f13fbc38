//! What a run measures: every combination of what the command line asks for.

use crate::cli::Args;
use crate::contender::Contender;
use crate::contenders;
use crate::form::Form;
use crate::workload::Workload;

/// What contenders are compared in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Threads that work at the same time.
    pub threads: usize,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Records between two syncs, in workloads with batches.
    pub batch: Option<u32>,
    /// Records in the log, in workloads that read or open one.
    pub records: Option<u64>,
    /// Streams of the log, in workloads of streams that name a number.
    pub streams: Option<usize>,
    /// Shards of the set, in workloads of shards.
    pub shards: Option<usize>,
    /// The form of the workload.
    pub form: Form,
}

/// A contender in a case.
pub type ContenderCase = (Contender, Case);

/// The contenders of each case that take turns with each other, and what a user has to know about
/// those that cannot.
#[derive(Debug, Default)]
pub struct Groups {
    /// Contenders of the same case. One with a single thread has that thread in its case.
    pub groups: Vec<Vec<ContenderCase>>,
    /// Why a contender that was asked for is left out, a line each.
    pub notes: Vec<String>,
}

impl Groups {
    /// Returns the groups of cases that the command line asks for in this workload.
    #[must_use]
    pub fn of(workload: Workload, args: &Args) -> Groups {
        let threads = threads(workload, args);
        let (contenders, notes) = contenders(workload, args);
        // A contender with one thread enters once: beside others with one, if there are.
        let at = if threads.contains(&1) { 1 } else { threads[0] };
        let group = |case: Case| {
            let enter = |&contender: &Contender| {
                let has_one = (contender.has_one_thread)(workload);
                let has_streams =
                    case.streams.is_none_or(|streams| (contender.lacks_streams)(streams).is_none());
                let has_form = has_streams && (contender.lacks_form)(case.form).is_none();
                let threads = if has_one { 1 } else { case.threads };
                let enters = has_form && (!has_one || case.threads == at);
                enters.then_some((contender, Case { threads, ..case }))
            };
            contenders.iter().filter_map(enter).collect()
        };
        let groups = cases(workload, args, &threads).into_iter().map(group);
        let groups = if workload.forms_take_turns() { joined(groups) } else { groups.collect() };
        Groups { groups, notes }
    }
}

/// Puts the groups together that differ in their form alone.
fn joined(groups: impl Iterator<Item = Vec<ContenderCase>>) -> Vec<Vec<ContenderCase>> {
    let mut joined: Vec<Vec<ContenderCase>> = Vec::new();
    let plain = |group: &[ContenderCase]| {
        group.first().map(|(_, case)| Case { form: Form::Plain, ..*case })
    };
    for group in groups {
        match joined.iter_mut().find(|other| plain(other) == plain(&group)) {
            Some(other) => other.extend(group),
            None => joined.push(group),
        }
    }
    joined
}

fn contenders(workload: Workload, args: &Args) -> (Vec<Contender>, Vec<String>) {
    if args.contenders.is_empty() {
        let able = contenders::all().filter(|contender| contender.supports(workload));
        return (able.collect(), Vec::new());
    }
    let (mut able, mut notes) = (Vec::new(), Vec::new());
    for contender in &args.contenders {
        let name = contender.name;
        if let Some(reason) = (contender.lacks)(workload) {
            notes.push(format!("note: {name} has no {}, {reason}: skipped", workload.full_name()));
            continue;
        }
        for form in forms(workload, args) {
            if let Some(reason) = (contender.lacks_form)(form) {
                notes.push(format!("note: {name} has no {form}, {reason}: skipped"));
            }
        }
        for streams in counts(&args.streams, workload.default_streams()).into_iter().flatten() {
            if let Some(reason) = (contender.lacks_streams)(streams) {
                notes.push(format!("note: {name} has no {streams} streams, {reason}: skipped"));
            }
        }
        able.push(*contender);
    }
    (able, notes)
}

fn cases(workload: Workload, args: &Args, thread_counts: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes = given_or(&args.record_bytes, Some(workload.default_record_bytes()));
    for record_bytes in sizes.into_iter().flatten() {
        for records in given_or(&args.records, workload.default_records(record_bytes)) {
            for batch in given_or(&args.batch, workload.default_batch()) {
                for streams in counts(&args.streams, workload.default_streams()) {
                    for shards in counts(&args.shards, workload.default_shards()) {
                        for form in forms(workload, args) {
                            let case = |&threads| Case {
                                threads,
                                record_bytes,
                                batch,
                                records,
                                streams,
                                shards,
                                form,
                            };
                            cases.extend(thread_counts.iter().map(case));
                        }
                    }
                }
            }
        }
    }
    cases
}

/// Returns the numbers that were given, or the default ones. If the workload has no default, it has
/// no use for a number: the result is one `None`.
fn counts(given: &[usize], default: &[usize]) -> Vec<Option<usize>> {
    match default {
        [] => vec![None],
        default if given.is_empty() => default.iter().copied().map(Some).collect(),
        _ => given.iter().copied().map(Some).collect(),
    }
}

/// Returns the numbers that were given, or the default one. If the workload has no default, it has
/// no use for a number: the result is one `None`.
fn given_or<T: Copy>(given: &[T], default: Option<T>) -> Vec<Option<T>> {
    match default {
        Some(_) if !given.is_empty() => given.iter().copied().map(Some).collect(),
        default => vec![default],
    }
}

fn threads(workload: Workload, args: &Args) -> Vec<usize> {
    match &args.threads {
        none if none.is_empty() => workload.default_threads().to_vec(),
        _ if !workload.has_threads() => vec![1],
        given => given.clone(),
    }
}

fn forms(workload: Workload, args: &Args) -> Vec<Form> {
    match (workload, args.rate, args.tasks) {
        (Workload::OpenLoop, Some(rate), _) => vec![Form::Rate(rate)],
        (Workload::Tasks, _, Some(tasks)) => vec![Form::Tasks(tasks as usize)],
        _ => {
            let all = workload.forms().iter().copied();
            let asked: Vec<Form> = all.filter(|form| args.forms.contains(&form.name())).collect();
            // If several workloads are measured, the names may be those of another one's forms.
            if asked.is_empty() { workload.forms().to_vec() } else { asked }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn groups(line: &str) -> Groups {
        let args = Args::parse_from(line.split(' '));
        Groups::of(args.workload.workloads(args.tasks.is_some())[0], &args)
    }

    #[test]
    fn each_combination_is_a_group_and_the_floor_has_one_thread() {
        let line = "x commit --contenders raw,palisade --threads 8,1 --record-bytes 100,256";
        let groups = groups(line).groups;
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|(c, case)| (c.name, case.threads, case.record_bytes)))
            .map(Vec::from_iter)
            .collect();
        let with_floor = |bytes| vec![("raw", 1, bytes), ("palisade", 1, bytes)];
        let alone = |bytes| vec![("palisade", 8, bytes)];
        assert_eq!(shape, [alone(100), with_floor(100), alone(256), with_floor(256)]);
    }

    #[test]
    fn forms_that_are_compared_take_turns() {
        let groups = groups("x release --contenders palisade --threads 2,8 --records 10").groups;
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|(_, case)| (case.threads, case.form)))
            .map(Vec::from_iter)
            .collect();
        let forms = [Form::Alone, Form::Release, Form::Background];
        assert_eq!(shape, [2, 8].map(|threads| forms.map(|form| (threads, form)).to_vec()));
    }

    #[test]
    fn a_contender_without_the_workload_is_left_out_with_a_note() {
        let groups = groups("x recover --contenders naive,palisade-mem --forms plain,64-KiB-torn");
        let entries: Vec<usize> = groups.groups.iter().map(Vec::len).collect();
        assert_eq!(entries, [1, 0]);
        assert_eq!(groups.notes.len(), 2, "{:?}", groups.notes);
        assert!(groups.notes[1].contains("palisade-mem has no 64 KiB torn, it has no files"));
    }

    #[test]
    fn each_stream_count_is_a_group_of_contenders_that_support_it() {
        let line = "x streams-append --contenders palisade,palisade-streams --streams 1,7";
        let groups = groups(line);
        let shape: Vec<_> = groups
            .groups
            .iter()
            .map(|group| group.iter().map(|(_, case)| case.streams).collect::<Vec<_>>())
            .collect();
        assert_eq!(shape, [[Some(1); 2], [Some(7); 2]]);
        assert!(groups.notes.is_empty(), "{:?}", groups.notes);
    }

    /// Checks also that the others are left out with a note.
    #[test]
    fn each_shard_count_is_a_group_of_contenders_that_have_shards() {
        let line = "x shards-batch --contenders palisade,palisade-sharded --shards 2,7 --threads 1";
        let groups = groups(line);
        let shape: Vec<_> = groups
            .groups
            .iter()
            .map(|group| group.iter().map(|(c, case)| (c.name, case.shards)).collect::<Vec<_>>())
            .collect();
        assert_eq!(shape, [2, 7].map(|shards| vec![("palisade-sharded", Some(shards))]));
        assert!(groups.notes[0].contains("it has no set of shards"), "{:?}", groups.notes);
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_contender_without_so_many_streams_is_left_out_with_a_note() {
        let line = "x streams-append --contenders ironwal,palisade-streams --streams 9,1000000";
        let groups = groups(line);
        let entries: Vec<usize> = groups.groups.iter().map(Vec::len).collect();
        assert_eq!(entries, [2, 1]);
        assert!(groups.notes[0].contains("ironwal has no 1000000 streams"), "{:?}", groups.notes);
    }

    #[test]
    fn a_workload_of_one_thread_ignores_other_thread_counts() {
        let groups = groups("x rotation --contenders palisade --threads 2");
        assert!(groups.groups.iter().all(|group| group[0].1.threads == 1));
        assert!(groups.notes.is_empty(), "{:?}", groups.notes);
    }
}
