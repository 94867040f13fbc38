//! One run of the driver: contenders take turns, results are reported.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cases::{Case, ContenderCase, Groups};
use crate::cli::Args;
use crate::contender::Contender;
use crate::contenders;
use crate::environment;
use crate::folder::Folder;
use crate::form::Form;
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;
use crate::plot;
use crate::table::{Csv, table};
use crate::workload::{Choice, Workload};
use crate::workloads::measure;

/// Whether the results are worth anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// All acknowledged records were there after opening again.
    AllReadBack,
    /// A contender acknowledged records that were not there.
    Lost,
}

/// Does what the command line asks for.
///
/// # Errors
/// If the folder is unusable, or a contender fails.
pub fn run(args: &Args) -> Result<Verdict> {
    if args.workload == Choice::List {
        return list(args).map(|()| Verdict::AllReadBack);
    }
    let workloads = args.workload.workloads(args.tasks.is_some());
    refuse_unknown_forms(args, &workloads)?;
    refuse_tmpfs(args, &workloads)?;
    let folder = Folder::take(&args.dir)?;
    let csv = args.csv.as_deref().map(Csv::create).transpose()?;
    let verdict = Verdict::AllReadBack;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let common = Measurement {
        seconds: args.seconds,
        rounds: args.rounds,
        began,
        ..environment::of(&args.dir)
    };
    let mut session = Session { args, folder, common, csv, verdict };
    for workload in workloads {
        let results = session.measure(workload)?;
        if let Some(dir) = &args.plot {
            plot::draw(&results, dir)?;
        }
    }
    session.folder.clear()?;
    Ok(session.verdict)
}

fn refuse_tmpfs(args: &Args, workloads: &[Workload]) -> Result<()> {
    // The folder may not exist yet, and is not made only to be refused.
    let dir = std::path::absolute(&args.dir)?;
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(&dir);
    if let Some(workload) = workloads.iter().find(|workload| workload.needs_a_disk())
        && !args.allow_tmpfs
        && environment::is_tmpfs(existing)
    {
        bail!(
            "{} is on tmpfs, where `{}` measures nothing: give a --dir on a disk, or --allow-tmpfs",
            args.dir.display(),
            workload.name()
        );
    }
    Ok(())
}

fn refuse_unknown_forms(args: &Args, workloads: &[Workload]) -> Result<()> {
    let forms = workloads.iter().flat_map(|workload| workload.forms());
    let known: Vec<String> = forms.map(|form| form.name()).collect();
    match args.forms.iter().find(|form| !known.contains(form)) {
        Some(form) => bail!("there is no form {form}; there are {}", known.join(", ")),
        None => Ok(()),
    }
}

/// Prints a line on stderr. An error of stderr itself has no place to go.
pub fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn list(args: &Args) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for workload in Workload::ALL {
        let takes_part = |contender: &Contender| contender.supports(workload);
        let contenders: Vec<_> = contenders::all().filter(takes_part).map(|c| c.name).collect();
        let record_bytes = workload.default_record_bytes();
        let names: Vec<_> = workload.forms().iter().map(|form| form.name()).collect();
        let forms: Vec<_> = workload.forms().iter().map(ToString::to_string).collect();
        let line = json!({
            "workload": workload.name(), "threads": workload.default_threads(),
            "record_bytes": record_bytes, "records": workload.default_records(record_bytes),
            "batch": workload.default_batch(), "streams": workload.default_streams(),
            "shards": workload.default_shards(),
            "contenders": contenders,
            "about": workload.about(), "forms": forms, "form_names": names,
        });
        if args.json {
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(out, "{:17} {}", workload.name(), workload.about())?;
        let keys = "threads record_bytes batch records streams shards form_names contenders";
        for key in keys.split(' ') {
            let (option, value) =
                (key.replace('_', "-").replace("form-names", "forms"), &line[key]);
            let is_given = !value.is_null() && *value != json!(["plain"]) && *value != json!([]);
            if is_given {
                writeln!(out, "                  --{option} {}", words(value))?;
            }
        }
    }
    Ok(())
}

fn words(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct Session<'a> {
    args: &'a Args,
    folder: Folder,
    /// What all results have in common.
    common: Measurement,
    csv: Option<Csv>,
    verdict: Verdict,
}

impl Session<'_> {
    fn measure(&mut self, workload: Workload) -> Result<Vec<Measurement>> {
        let Groups { groups, notes } = Groups::of(workload, self.args);
        notes.iter().for_each(|note| print_note(note));
        let entries = groups.iter().map(Vec::len).sum::<usize>() as u64;
        let progress = self.progress(entries * u64::from(self.args.rounds));
        let mut results = Vec::new();
        for group in groups {
            let outcomes = self.take_turns(workload, &group, &progress)?;
            for (entry, rounds) in group.iter().zip(outcomes) {
                let result = self.result(workload, entry).with_medians_of(&rounds);
                self.publish(&result)?;
                results.push(result);
            }
        }
        progress.finish_and_clear();
        if !self.args.json && !results.is_empty() {
            writeln!(std::io::stdout(), "{}", table(&results))?;
        }
        Ok(results)
    }

    fn take_turns(
        &mut self,
        workload: Workload,
        group: &[ContenderCase],
        progress: &ProgressBar,
    ) -> Result<Vec<Vec<Measurement>>> {
        let mut rounds = vec![Vec::new(); group.len()];
        for round in 0..self.args.rounds as usize {
            for place in turns(group.len(), round) {
                let (contender, case) = &group[place];
                let name = contender.name;
                progress.set_message(format!("{} {name} x{}", workload.name(), case.threads));
                progress.tick();
                let plan = self.plan(name, case)?;
                let outcome = measure(workload, contender, &plan)
                    .with_context(|| format!("{} of {name}", workload.full_name()))?;
                progress.suspend(|| self.check(name, case, &outcome));
                rounds[place].push(outcome);
                progress.inc(1);
            }
        }
        Ok(rounds)
    }

    fn plan(&self, name: &str, case: &Case) -> Result<Plan> {
        let Case { threads, record_bytes, batch, records, streams, shards, form } = *case;
        Ok(Plan {
            dir: self.folder.fresh(name)?,
            threads,
            record_bytes: record_bytes as usize,
            batch: batch.unwrap_or(1),
            records: records.unwrap_or_default(),
            streams: streams.unwrap_or(threads),
            shards: shards.unwrap_or(1),
            form,
            time: Duration::from_secs_f64(self.args.seconds),
        })
    }

    fn check(&mut self, name: &str, case: &Case, outcome: &Measurement) {
        if let Some(kept @ Kept { acknowledged, read_back }) = outcome.kept
            && kept.is_short()
        {
            self.verdict = Verdict::Lost;
            print_note(&format!(
                "LOST: {name} on {} threads acknowledged {acknowledged} records, {read_back} were \
                 there after opening again",
                case.threads
            ));
        }
    }

    fn publish(&mut self, result: &Measurement) -> Result<()> {
        if self.args.json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(result)?)?;
        }
        self.csv.as_mut().map_or(Ok(()), |csv| csv.write(result))
    }

    fn result(&self, workload: Workload, (contender, case): &ContenderCase) -> Measurement {
        let Case { threads, record_bytes, batch, records, streams, shards, form } = *case;
        Measurement {
            workload: workload.name().into(),
            contender: contender.name.into(),
            version: contender.version.map(Into::into),
            threads,
            record_bytes: record_bytes as usize,
            batch,
            records,
            streams,
            shards,
            variant: (form != Form::Plain).then(|| form.to_string()),
            tasks: if let Form::Tasks(tasks) = form { Some(tasks) } else { None },
            ..self.common.clone()
        }
    }

    fn progress(&self, rounds: u64) -> ProgressBar {
        if self.args.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (left: {eta})");
        let bar = ProgressBar::new(rounds);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }
}

/// Returns the order of the contenders in `round`: forwards in even rounds and backwards in odd
/// ones, and two rounds later from the next contender on. No contender always pays for what the
/// same other one left behind, and each comes first equally often.
fn turns(contenders: usize, round: usize) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..contenders).collect();
    turns.rotate_left(round / 2 % contenders.max(1));
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn each_contender_comes_first_equally_often() {
        assert_eq!([turns(2, 0), turns(2, 1)], [[0, 1], [1, 0]]);
        for contenders in 2..=5 {
            let mut first = vec![0; contenders];
            (0..2 * contenders).for_each(|round| first[turns(contenders, round)[0]] += 1);
            assert_eq!(first, vec![2; contenders]);
        }
        assert!(turns(0, 1).is_empty());
    }
}
