//! Where Palisade is slower than somebody else.

use super::kind::Kind;
use super::quantity::{Quantity, times};
use super::results::{Case, ResultFile, Run};
use super::text::table;
use crate::report::Figure;

/// A comparison that Palisade loses.
#[derive(Debug)]
struct Loss<'a> {
    /// Below 1.
    advantage: f64,
    case: Case,
    ours: &'a Figure,
    theirs: &'a Figure,
    file: &'a str,
}

/// All comparisons with others that Palisade loses, then those with its own other form on files.
pub(super) fn section(files: &[ResultFile]) -> String {
    let (own, others): (Vec<_>, Vec<_>) =
        all(files).into_iter().partition(|loss| Kind::of(&loss.theirs.contender) == Kind::OwnForm);
    let others = listed(&others, "No contender that is not a floor was faster in any case.");
    let own = listed(&own, "It was not faster in any case.");
    format!("{others}\nAgainst its own other form on files, with the buffer on the heap:\n\n{own}")
}

fn all(files: &[ResultFile]) -> Vec<Loss<'_>> {
    let mut losses: Vec<Loss<'_>> = Vec::new();
    for file in files {
        losses.extend(file.runs.iter().flat_map(|run| of_run(run, &file.name)));
    }
    losses.sort_by(|one, other| one.advantage.total_cmp(&other.advantage));
    losses
}

fn of_run<'a>(run: &'a Run, file: &'a str) -> Vec<Loss<'a>> {
    let mut losses = Vec::new();
    for case in run.cases() {
        let Some(ours) = run.find(&case, "palisade") else { continue };
        for theirs in run.of_case(&case) {
            let kind = Kind::of(&theirs.contender);
            let advantage = Quantity::of(&case.workload).advantage(ours, theirs);
            if let Some(advantage) = advantage.filter(|advantage| *advantage < 1.0)
                && !matches!(kind, Kind::Floor | Kind::Palisade | Kind::OwnMemory)
            {
                losses.push(Loss { advantage, case: case.clone(), ours, theirs, file });
            }
        }
    }
    losses
}

fn listed(losses: &[Loss<'_>], none: &str) -> String {
    if losses.is_empty() {
        return format!("{none}\n");
    }
    let header = ["Palisade is", "in", "of", "palisade", "contender", "results"];
    let rows: Vec<Vec<String>> = losses.iter().map(Loss::row).collect();
    table(&header.map(String::from), &rows)
}

impl Loss<'_> {
    fn row(&self) -> Vec<String> {
        let quantity = Quantity::of(&self.case.workload);
        let keeps = match Kind::of(&self.theirs.contender) {
            Kind::MemoryPeer => " (keeps nothing)",
            _ => "",
        };
        let theirs = with_spread(self.theirs, quantity);
        vec![
            times(self.advantage),
            self.case.words(),
            quantity.name().into(),
            with_spread(self.ours, quantity),
            format!("`{}`{keeps}: {theirs}", self.theirs.contender),
            format!("`{}`", self.file),
        ]
    }
}

/// A value, with the slowest and the fastest round where they are known.
fn with_spread(figure: &Figure, quantity: Quantity) -> String {
    let value = quantity.value(figure).map_or_else(|| "-".into(), |value| quantity.show(value));
    if quantity != Quantity::Rate {
        return value;
    }
    let [least, most] = [figure.records_per_s_min, figure.records_per_s_max];
    format!("{value} ({} to {})", crate::report::rate(least), crate::report::rate(most))
}
