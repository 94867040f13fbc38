//! One run of the driver: contenders take turns, results are reported.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::cases::groups;
use crate::cli::Args;
use crate::contenders;
use crate::folder::{Folder, is_tmpfs};
use crate::plot;
use crate::table::{CSV_HEADER, csv_line, table};
use crate::workloads::measure;
use crate::{Kept, Measurement, Plan, Workload};

/// A contender acknowledged more records than it could read back: its results are worth nothing.
const EXIT_LOST: u8 = 3;

/// Does what the command line asks for. Returns how the program ends.
///
/// # Errors
/// If the folder is unusable, or a contender fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.workload == "list" {
        list(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let workloads = Workload::of_name(&args.workload, args.tasks.is_some());
    refuse_unknown_forms(args, &workloads)?;
    refuse_tmpfs(args, &workloads)?;
    let folder = Folder::take(&args.dir)?;
    let csv = args.csv.as_deref().map(begin_csv).transpose()?;
    let common = Measurement::of_run(args);
    let mut session = Session { args, folder, common, csv, is_lost: false };
    for workload in workloads {
        let results = session.measure(workload)?;
        if let Some(dir) = &args.plot {
            plot::draw(&results, dir)?;
        }
    }
    session.folder.clear()?;
    Ok(if session.is_lost { ExitCode::from(EXIT_LOST) } else { ExitCode::SUCCESS })
}

fn begin_csv(path: &Path) -> Result<File> {
    let mut file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    writeln!(file, "{CSV_HEADER}")?;
    Ok(file)
}

fn refuse_tmpfs(args: &Args, workloads: &[Workload]) -> Result<()> {
    // The folder may not exist yet, and is not made only to be refused.
    let dir = std::path::absolute(&args.dir)?;
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(&dir);
    if let Some(workload) = workloads.iter().find(|workload| workload.needs_a_disk())
        && !args.allow_tmpfs
        && is_tmpfs(existing)
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
    let known: Vec<String> = forms.map(|form| form.option()).collect();
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
    for workload in Workload::all() {
        let able = contenders::all().filter(|contender| contender.supports(*workload));
        let record_bytes = workload.default_record_bytes();
        let names: Vec<_> = workload.forms().iter().map(|form| form.option()).collect();
        let forms: Vec<_> = workload.forms().iter().map(|form| form.name).collect();
        let line = json!({
            "workload": workload.name(), "threads": workload.default_threads(),
            "record_bytes": record_bytes,
            "records": workload.default_records(record_bytes as usize),
            "batch": workload.default_batch(), "streams": workload.default_streams(),
            "shards": workload.default_shards(),
            "contenders": able.map(|contender| contender.name).collect::<Vec<_>>(),
            "about": workload.about(), "forms": forms, "form_names": names,
        });
        if args.json {
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(out, "{:17} {}", workload.name(), workload.about())?;
        let options = "threads record-bytes batch records streams shards forms contenders";
        for option in options.split(' ') {
            let key = if option == "forms" { "form_names" } else { &option.replace('-', "_") };
            let value = line[key].to_string().replace(['[', ']', '"'], "");
            if !["null", "plain", ""].contains(&value.as_str()) {
                writeln!(out, "                  --{option} {value}")?;
            }
        }
    }
    Ok(())
}

struct Session<'a> {
    args: &'a Args,
    folder: Folder,
    /// What all results have in common.
    common: Measurement,
    csv: Option<File>,
    is_lost: bool,
}

impl Session<'_> {
    fn measure(&mut self, workload: Workload) -> Result<Vec<Measurement>> {
        let (groups, notes) = groups(workload, self.args);
        notes.iter().for_each(|note| print_note(note));
        let entries = groups.iter().map(Vec::len).sum::<usize>() as u64;
        let progress = self.progress(entries * u64::from(self.args.rounds));
        let mut results = Vec::new();
        for group in groups {
            let outcomes = self.take_turns(&group, &progress)?;
            for (plan, rounds) in group.iter().zip(outcomes) {
                let result = self.result(plan).with_medians_of(&rounds);
                if self.args.json {
                    writeln!(std::io::stdout(), "{}", serde_json::to_string(&result)?)?;
                }
                if let Some(file) = &mut self.csv {
                    writeln!(file, "{}", csv_line(&result)?)?;
                }
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
        group: &[Plan],
        progress: &ProgressBar,
    ) -> Result<Vec<Vec<Measurement>>> {
        let time = Duration::from_secs_f64(self.args.seconds);
        let mut rounds = vec![Vec::new(); group.len()];
        for round in 0..self.args.rounds as usize {
            for place in turns(group.len(), round) {
                let Plan { contender, workload, threads, .. } = &group[place];
                let name = contender.name;
                progress.set_message(format!("{} {name} x{threads}", workload.name()));
                progress.tick();
                let plan = Plan { dir: self.folder.fresh(name)?, time, ..group[place].clone() };
                let outcome = measure(&plan)
                    .with_context(|| format!("{} of {name}", workload.full_name()))?;
                progress.suspend(|| self.check(&plan, &outcome));
                rounds[place].push(outcome);
                progress.inc(1);
            }
        }
        Ok(rounds)
    }

    fn check(&mut self, plan: &Plan, outcome: &Measurement) {
        if let Some(kept @ Kept { acknowledged, read_back }) = outcome.kept
            && kept.is_short()
        {
            self.is_lost = true;
            let (name, threads) = (plan.contender.name, plan.threads);
            print_note(&format!(
                "LOST: {name} on {threads} threads acknowledged {acknowledged} records, \
                 {read_back} were there after opening again"
            ));
        }
    }

    /// Returns what is known of the plan's result before it is measured. Numbers that the workload
    /// has no use for are left out.
    fn result(&self, plan: &Plan) -> Measurement {
        let Plan { contender, workload, form, .. } = plan;
        let has_records = workload.default_records(plan.record_bytes).is_some();
        let has_streams = !workload.default_streams().is_empty();
        Measurement {
            workload: workload.name(),
            contender: contender.name.into(),
            version: contender.version.map(Into::into),
            threads: plan.threads,
            record_bytes: plan.record_bytes,
            batch: workload.default_batch().map(|_| plan.batch),
            records: has_records.then_some(plan.records),
            streams: has_streams.then_some(plan.streams),
            shards: workload.has_shards().then_some(plan.shards),
            variant: (!form.name.is_empty()).then(|| form.name.into()),
            tasks: (*workload == Workload::Tasks).then_some(form.number as usize),
            ..self.common.clone()
        }
    }

    /// Returns a bar of the rounds. It hides itself if stderr is no terminal.
    fn progress(&self, rounds: u64) -> ProgressBar {
        if self.args.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (left: {eta})");
        ProgressBar::new(rounds).with_style(style.expect("the template is valid"))
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
