//! What a run measures: every combination of what the command line asks for.

use crate::cli::Args;
use crate::contenders::{self, PALISADE};
use crate::{Form, Plan, Workload};

/// Returns the groups of plans that the command line asks for in this workload, and why contenders
/// that were asked for are left out, a line each.
///
/// The plans of a group take turns with each other: they differ in their contenders, or also in
/// their forms. A contender with a single thread has that thread in its plan.
pub fn groups(workload: Workload, args: &Args) -> (Vec<Vec<Plan>>, Vec<String>) {
    let asked = match &args.contenders {
        none if none.is_empty() => contenders::all().collect(),
        some => some.clone(),
    };
    let forms = forms(workload, args);
    let threads = if workload.has_threads() { &args.threads[..] } else { &[] };
    let threads = or_default(threads, workload.default_threads());
    // A contender with one thread enters once: beside others with one, if there are.
    let at = if threads.contains(&1) { 1 } else { threads[0] };
    let mut notes = Vec::new();
    let mut enter = |case: &Plan| -> Vec<Plan> {
        let mut entries = Vec::new();
        for &contender in &asked {
            let has_one = (contender.has_one_thread)(workload);
            let threads = if has_one { 1 } else { case.threads };
            let plan = Plan { contender, threads, ..case.clone() };
            match plan.refusal().map(|refusal| format!("note: {refusal}: skipped")) {
                Some(note) if args.contenders.is_empty() || notes.contains(&note) => {}
                Some(note) => notes.push(note),
                None if has_one && case.threads != at => {}
                None => entries.push(plan),
            }
        }
        entries
    };
    let at_a_time = if workload.forms_take_turns() { forms.len() } else { 1 };
    let cases = cases(workload, args, threads, &forms);
    let group = |cases: &[Plan]| cases.iter().flat_map(&mut enter).collect();
    (cases.chunks(at_a_time).map(group).collect(), notes)
}

/// Returns a plan for each combination; its contender is any one. Plans that differ in their form
/// alone follow each other.
fn cases(workload: Workload, args: &Args, threads: &[usize], forms: &[Form]) -> Vec<Plan> {
    let mut cases = Vec::new();
    for &record_bytes in or_default(&args.record_bytes, &[workload.default_record_bytes()]) {
        let record_bytes = record_bytes as usize;
        let case = Plan { record_bytes, ..Plan::new(PALISADE, workload) };
        let records = workload.default_records(record_bytes);
        let records = or_default(&args.records, records.as_slice());
        cases.extend(each(vec![case], records, |case, &records| case.records = records));
    }
    let batches = workload.default_batch();
    let batches = or_default(&args.batch, batches.as_slice());
    let streams = or_default(&args.streams, workload.default_streams());
    let shards = or_default(&args.shards, workload.default_shards());
    cases = each(cases, batches, |case, &batch| case.batch = batch);
    cases =
        each(cases, threads, |case, &threads| (case.threads, case.streams) = (threads, threads));
    cases = each(cases, streams, |case, &streams| case.streams = streams);
    cases = each(cases, shards, |case, &shards| case.shards = shards);
    each(cases, forms, |case, &form| case.form = form)
}

/// Returns each case once with each of the values, or as it is if there is none.
fn each<T>(cases: Vec<Plan>, values: &[T], set: fn(&mut Plan, &T)) -> Vec<Plan> {
    if values.is_empty() {
        return cases;
    }
    let with = |case: &Plan, value| {
        let mut case = case.clone();
        set(&mut case, value);
        case
    };
    cases.iter().flat_map(|case| values.iter().map(move |value| with(case, value))).collect()
}

/// Returns the values that were given, or the default ones. A workload without a default has no
/// use for a value.
fn or_default<'a, T>(given: &'a [T], default: &'a [T]) -> &'a [T] {
    if given.is_empty() || default.is_empty() { default } else { given }
}

fn forms(workload: Workload, args: &Args) -> Vec<Form> {
    let only = |number: f64, unit: &str| {
        vec![Form { number, ..Form::named(format!("{number}{unit}").leak()) }]
    };
    match (workload, args.rate, args.tasks) {
        (Workload::OpenLoop, Some(rate), _) => only(rate, "/s"),
        (Workload::Tasks, _, Some(tasks)) => only(tasks.into(), " tasks"),
        _ => {
            let mut asked = workload.forms().to_vec();
            asked.retain(|form| args.forms.contains(&form.option()));
            // If several workloads are measured, the names may be those of another one's forms.
            if asked.is_empty() { workload.forms().to_vec() } else { asked }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn groups_of(line: &str) -> (Vec<Vec<Plan>>, Vec<String>) {
        let args = Args::parse_from(line.split(' '));
        groups(Workload::of_name(&args.workload, args.tasks.is_some())[0], &args)
    }

    #[test]
    fn each_combination_is_a_group_and_the_floor_has_one_thread() {
        let line = "x commit --contenders raw,palisade --threads 8,1 --record-bytes 100,256";
        let (groups, _) = groups_of(line);
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|p| (p.contender.name, p.threads, p.record_bytes)))
            .map(Vec::from_iter)
            .collect();
        let with_floor = |bytes| vec![("raw", 1, bytes), ("palisade", 1, bytes)];
        let alone = |bytes| vec![("palisade", 8, bytes)];
        assert_eq!(shape, [alone(100), with_floor(100), alone(256), with_floor(256)]);
    }

    #[test]
    fn forms_that_are_compared_take_turns() {
        let line = "x release --contenders palisade --threads 2,8 --records 10";
        let (groups, _) = groups_of(line);
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|plan| (plan.threads, plan.form.name)))
            .map(Vec::from_iter)
            .collect();
        let forms = ["alone", "release", "background"];
        assert_eq!(shape, [2, 8].map(|threads| forms.map(|form| (threads, form)).to_vec()));
    }

    #[test]
    fn a_contender_without_the_workload_is_left_out_with_a_note() {
        let line = "x recover --contenders naive,palisade-mem --forms plain,64-KiB-torn";
        let (groups, notes) = groups_of(line);
        let entries: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(entries, [1, 0]);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].contains("palisade-mem has no 64 KiB torn, it has no files"));
    }

    #[test]
    fn each_stream_count_is_a_group_of_contenders_that_support_it() {
        let line = "x streams-append --contenders palisade,palisade-streams --streams 1,7";
        let (groups, notes) = groups_of(line);
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|plan| plan.streams).collect::<Vec<_>>())
            .collect();
        assert_eq!(shape, [[1; 2], [7; 2]]);
        assert!(notes.is_empty(), "{notes:?}");
    }

    /// Checks also that the others are left out with a note.
    #[test]
    fn each_shard_count_is_a_group_of_contenders_that_have_shards() {
        let line = "x shards-batch --contenders palisade,palisade-sharded --shards 2,7 --threads 1";
        let (groups, notes) = groups_of(line);
        let shape: Vec<_> = groups
            .iter()
            .map(|group| group.iter().map(|p| (p.contender.name, p.shards)).collect::<Vec<_>>())
            .collect();
        assert_eq!(shape, [2, 7].map(|shards| vec![("palisade-sharded", shards)]));
        assert!(notes[0].contains("it has no set of shards"), "{notes:?}");
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_contender_without_so_many_streams_is_left_out_with_a_note() {
        let line = "x streams-append --contenders ironwal,palisade-streams --streams 9,1000000";
        let (groups, notes) = groups_of(line);
        let entries: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(entries, [2, 1]);
        assert!(notes[0].contains("ironwal has no 1000000 streams"), "{notes:?}");
    }

    #[test]
    fn a_workload_of_one_thread_ignores_other_thread_counts() {
        let (groups, notes) = groups_of("x rotation --contenders palisade --threads 2");
        assert!(groups.iter().all(|group| group[0].threads == 1));
        assert!(notes.is_empty(), "{notes:?}");
    }
}
