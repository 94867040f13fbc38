//! One run of the driver: contenders take turns, figures are reported.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::Args;
use crate::contender::Contender;
use crate::environment::Environment;
use crate::folder::Folder;
use crate::plan::Plan;
use crate::plot;
use crate::report::{Csv, Figure, table};
use crate::workload::{Choice, Outcome, Variant, Workload};

/// Whether the figures are worth anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Whatever was acknowledged was there after opening again.
    AllReadBack,
    /// A contender acknowledged records that were not there.
    Lost,
}

/// Does what the command line says.
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
    let environment = Environment::of(&args.dir);
    let csv = args.csv.as_deref().map(Csv::create).transpose()?;
    let verdict = Verdict::AllReadBack;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let mut session = Session { args, folder, environment, began, csv, verdict };
    for workload in workloads {
        let figures = session.measure(workload)?;
        if let Some(dir) = &args.plot {
            plot::draw(&figures, dir)?;
        }
    }
    session.folder.clear()?;
    Ok(session.verdict)
}

fn refuse_tmpfs(args: &Args, workloads: &[Workload]) -> Result<()> {
    // The folder may not be there yet, and is not to be made only to be refused.
    let dir = std::path::absolute(&args.dir)?;
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(&dir);
    if let Some(workload) = workloads.iter().find(|workload| workload.needs_a_disk())
        && !args.allow_tmpfs
        && Environment::of(existing).is_tmpfs()
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
    let variants = workloads.iter().flat_map(|workload| workload.default_variants());
    let known: Vec<String> = variants.map(|variant| variant.name()).collect();
    match args.forms.iter().find(|form| !known.contains(form)) {
        Some(form) => bail!("there is no form {form}; there are {}", known.join(", ")),
        None => Ok(()),
    }
}

/// Says something on stderr. Where it cannot be said, nobody reads it.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn list(args: &Args) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for workload in Workload::ALL {
        let takes_part = |contender: &&Contender| contender.supports(workload);
        let contenders: Vec<_> = all().iter().filter(takes_part).map(|c| c.name()).collect();
        let record_bytes = workload.default_record_bytes();
        let records = workload.default_records(record_bytes);
        let threads = workload.default_threads();
        let variants = workload.default_variants();
        let forms: Vec<_> = variants.iter().map(|variant| variant.name()).collect();
        if args.json {
            let line = serde_json::json!({
                "workload": workload.name(), "threads": threads, "record_bytes": record_bytes,
                "records": records, "batch": workload.default_batch(), "contenders": contenders, "about": workload.about(),
                "forms": variants.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "form_names": forms,
            });
            writeln!(out, "{line}")?;
            continue;
        }
        let threads: Vec<_> = threads.iter().map(ToString::to_string).collect();
        let records = records.map_or(String::new(), |records| format!(" --records {records}"));
        let batch =
            workload.default_batch().map_or(String::new(), |batch| format!(" --batch {batch}"));
        writeln!(out, "{:9} {}", workload.name(), workload.about())?;
        writeln!(
            out,
            "          --threads {} --record-bytes {record_bytes}{batch}{records} --contenders {}",
            threads.join(","),
            contenders.join(",")
        )?;
        if forms != ["plain"] {
            writeln!(out, "          --forms {}", forms.join(","))?;
        }
    }
    Ok(())
}

fn all() -> &'static [Contender] {
    <Contender as clap::ValueEnum>::value_variants()
}

struct Session<'a> {
    args: &'a Args,
    folder: Folder,
    environment: Environment,
    /// Seconds since 1970.
    began: Option<u64>,
    csv: Option<Csv>,
    verdict: Verdict,
}

/// What contenders are compared with.
#[derive(Clone, Copy, Debug)]
struct Case {
    threads: usize,
    record_bytes: u32,
    batch: Option<u32>,
    records: Option<u64>,
    variant: Variant,
}

/// One contender in one case, and what its rounds gave.
struct Entry {
    contender: Contender,
    case: Case,
    rounds: Vec<Outcome>,
}

impl Session<'_> {
    fn measure(&mut self, workload: Workload) -> Result<Vec<Figure>> {
        let groups = self.groups(workload);
        let entries = groups.iter().map(Vec::len).sum::<usize>() as u64;
        let progress = self.progress(entries * u64::from(self.args.rounds));
        let mut figures = Vec::new();
        for mut group in groups {
            self.take_turns(workload, &mut group, &progress)?;
            for entry in &group {
                let figure = self.figure(workload, entry);
                self.publish(&figure)?;
                figures.push(figure);
            }
        }
        progress.finish_and_clear();
        if !self.args.json && !figures.is_empty() {
            writeln!(std::io::stdout(), "{}", table(&figures))?;
        }
        Ok(figures)
    }

    /// Contenders that take turns with each other: those in the same case.
    fn groups(&self, workload: Workload) -> Vec<Vec<Entry>> {
        let contenders = self.contenders(workload);
        let thread_counts = self.thread_counts(workload);
        let group = |case: Case| {
            let has_threads = |contender: &Contender| match contender.only_threads(workload) {
                Some(only) if thread_counts.contains(&only) => case.threads == only,
                Some(_) => case.threads == thread_counts[0],
                None => true,
            };
            let enters = |contender: &&Contender| {
                contender.lacks_form(case.variant).is_none() && has_threads(contender)
            };
            let entry = |&contender: &Contender| {
                let threads = contender.only_threads(workload).unwrap_or(case.threads);
                Entry { contender, case: Case { threads, ..case }, rounds: Vec::new() }
            };
            contenders.iter().filter(enters).map(entry).collect()
        };
        self.cases(workload, &thread_counts).into_iter().map(group).collect()
    }

    /// Each combination of what the command line asks for.
    fn cases(&self, workload: Workload, thread_counts: &[usize]) -> Vec<Case> {
        let mut sizes = self.args.record_bytes.clone();
        if sizes.is_empty() {
            sizes.push(workload.default_record_bytes());
        }
        let mut cases = Vec::new();
        for &record_bytes in &sizes {
            for records in self.record_counts(workload, record_bytes) {
                for batch in self.batches(workload) {
                    for variant in self.variants(workload) {
                        let case = |&threads: &usize| Case {
                            threads,
                            record_bytes,
                            batch,
                            records,
                            variant,
                        };
                        cases.extend(thread_counts.iter().map(case));
                    }
                }
            }
        }
        cases
    }

    fn batches(&self, workload: Workload) -> Vec<Option<u32>> {
        match workload.default_batch() {
            Some(_) if !self.args.batch.is_empty() => {
                self.args.batch.iter().copied().map(Some).collect()
            }
            default => vec![default],
        }
    }

    fn record_counts(&self, workload: Workload, record_bytes: u32) -> Vec<Option<u64>> {
        match workload.default_records(record_bytes) {
            Some(_) if !self.args.records.is_empty() => {
                self.args.records.iter().copied().map(Some).collect()
            }
            default => vec![default],
        }
    }

    fn variants(&self, workload: Workload) -> Vec<Variant> {
        match (workload, self.args.rate, self.args.tasks) {
            (Workload::OpenLoop, Some(rate), _) => vec![Variant::Rate(rate)],
            (Workload::Tasks, _, Some(tasks)) => vec![Variant::Tasks(tasks as usize)],
            _ => {
                let all = workload.default_variants().to_vec();
                let is_asked_for = |variant: &Variant| self.args.forms.contains(&variant.name());
                let wanted: Vec<_> = all.iter().copied().filter(is_asked_for).collect();
                // Forms of other workloads, where several are measured.
                if wanted.is_empty() { all } else { wanted }
            }
        }
    }

    fn contenders(&self, workload: Workload) -> Vec<Contender> {
        let wanted = if self.args.contenders.is_empty() { all() } else { &self.args.contenders };
        let able: Vec<Contender> =
            wanted.iter().copied().filter(|contender| contender.supports(workload)).collect();
        let is_asked_for = !self.args.contenders.is_empty();
        for contender in wanted.iter().filter(|_| is_asked_for) {
            if let Some(reason) = contender.lacks(workload) {
                let (name, workload) = (contender.name(), workload.full_name());
                tell(&format!("note: {name} has no {workload}, {reason}: skipped"));
            }
        }
        for contender in able.iter().filter(|_| is_asked_for) {
            for variant in self.variants(workload) {
                if let Some(reason) = contender.lacks_form(variant) {
                    let name = contender.name();
                    tell(&format!("note: {name} has no {variant}, {reason}: skipped"));
                }
            }
        }
        for contender in &able {
            if let Some(only) = contender.only_threads(workload)
                && is_asked_for
                && self.thread_counts(workload) != [only]
            {
                tell(&format!("note: {} is measured with {only} thread only", contender.name()));
            }
        }
        able
    }

    fn thread_counts(&self, workload: Workload) -> Vec<usize> {
        if self.args.threads.is_empty() {
            return workload.default_threads().to_vec();
        }
        if !workload.has_threads() && self.args.threads != [1] {
            tell(&format!("note: {} has one thread", workload.name()));
            return vec![1];
        }
        self.args.threads.clone()
    }

    fn take_turns(
        &mut self,
        workload: Workload,
        group: &mut [Entry],
        progress: &ProgressBar,
    ) -> Result<()> {
        for round in 0..self.args.rounds as usize {
            for place in turns(group.len(), round) {
                let entry = &mut group[place];
                let name = entry.contender.name();
                progress.set_message(format!("{} {name} x{}", workload.name(), entry.case.threads));
                progress.tick();
                let plan = self.plan(entry)?;
                let outcome = workload
                    .measure(entry.contender, &plan)
                    .with_context(|| format!("{} of {name}", workload.full_name()))?;
                progress.suspend(|| self.check(entry, &outcome));
                entry.rounds.push(outcome);
                progress.inc(1);
            }
        }
        Ok(())
    }

    fn plan(&self, entry: &Entry) -> Result<Plan> {
        let Case { threads, record_bytes, batch, records, variant } = entry.case;
        Ok(Plan {
            dir: self.folder.fresh(entry.contender.name())?,
            threads,
            record_bytes: record_bytes as usize,
            batch: batch.unwrap_or(1),
            records: records.unwrap_or_default(),
            variant,
            time: Duration::from_secs_f64(self.args.seconds),
        })
    }

    fn check(&mut self, entry: &Entry, outcome: &Outcome) {
        if let Some(kept) = outcome.kept
            && kept.is_short()
        {
            self.verdict = Verdict::Lost;
            tell(&format!(
                "LOST: {} on {} threads acknowledged {} records, {} were there after opening again",
                entry.contender.name(),
                entry.case.threads,
                kept.acknowledged,
                kept.read_back
            ));
        }
    }

    fn publish(&mut self, figure: &Figure) -> Result<()> {
        if self.args.json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(figure)?)?;
        }
        self.csv.as_mut().map_or(Ok(()), |csv| csv.write(figure))
    }

    fn figure(&self, workload: Workload, entry: &Entry) -> Figure {
        let variant = entry.case.variant;
        let figure = Figure {
            workload: workload.name().into(),
            contender: entry.contender.name().into(),
            version: entry.contender.version().map(Into::into),
            threads: entry.case.threads,
            record_bytes: entry.case.record_bytes as usize,
            batch: entry.case.batch,
            seconds: self.args.seconds,
            rounds: self.args.rounds,
            dir_fs: self.environment.dir_fs.clone(),
            cpu: self.environment.cpu.clone(),
            cores: self.environment.cores,
            commit: self.environment.commit.clone(),
            records: entry.case.records,
            began: self.began,
            variant: (variant != Variant::Plain).then(|| variant.to_string()),
            tasks: if let Variant::Tasks(tasks) = variant { Some(tasks) } else { None },
            ..Figure::default()
        };
        figure.with_medians_of(&entry.rounds)
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

/// Who comes after whom in `round`: there and back, then from the next contender on, so that none
/// always pays for what the same one left behind, and each comes first equally often.
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
