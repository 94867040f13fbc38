//! What the command line asks for.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::Workload;

/// A workload's name on the command line, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    One(Workload),
    /// Print all workloads with their parameters.
    List,
    /// Measure all of them.
    All,
}

impl Choice {
    /// The workloads to measure.
    #[must_use]
    pub fn workloads(self, has_tasks: bool) -> Vec<Workload> {
        match self {
            Choice::One(Workload::Commit) if has_tasks => vec![Workload::Tasks],
            Choice::One(workload) => vec![workload],
            Choice::List | Choice::All => Workload::ALL.to_vec(),
        }
    }
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Choice] {
        static CHOICES: LazyLock<Vec<Choice>> = LazyLock::new(|| {
            // Futures are asked for by an option of `commit`.
            let named = Workload::ALL.into_iter().filter(|workload| *workload != Workload::Tasks);
            named.map(Choice::One).chain([Choice::List, Choice::All]).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = match self {
            Choice::One(workload) => (workload.name(), workload.about()),
            Choice::List => ("list", "print all workloads with their parameters"),
            Choice::All => ("all", "measure all of them"),
        };
        Some(PossibleValue::new(name).help(about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_a_name_of_its_own_on_the_command_line() {
        let names: Vec<String> = Choice::value_variants()
            .iter()
            .map(|choice| choice.to_possible_value().unwrap().get_name().into())
            .collect();
        assert_eq!(names.len(), Workload::ALL.len() - 1 + 2);
        for (place, name) in names.iter().enumerate() {
            assert!(!names[..place].contains(name), "{name}");
            assert_eq!(Choice::from_str(name, false), Ok(Choice::value_variants()[place]));
        }
    }

    #[test]
    fn futures_commit_where_they_are_asked_for() {
        let commit = Choice::One(Workload::Commit);
        assert_eq!(commit.workloads(false), [Workload::Commit]);
        assert_eq!(commit.workloads(true), [Workload::Tasks]);
    }
}
