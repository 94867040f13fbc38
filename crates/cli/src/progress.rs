//! What `repair`, `restore` and `backup` show and check while they copy.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use palisade::{Error, ErrorKind, RepairProgress, RepairStep};

use crate::exit::Failure;

/// Refuses a folder for the copy that is not empty, before the log is read. The copy looks again.
pub(crate) fn check_empty(into: &Path) -> Result<(), Failure> {
    match into.read_dir().map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            let text = "the folder for the copy (--into) is not empty";
            let error = Error::new(ErrorKind::InvalidArgument, text).at_path(into);
            Err(error.with_advice("name one that is missing or empty").into())
        }
        // What is wrong with the path, if anything is, the copy says.
        _ => Ok(()),
    }
}

/// A bar on standard error, if that is a terminal. It goes away with the step.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new() -> Progress {
        let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress(ProgressBar::no_length().with_style(style))
    }

    pub(crate) fn show(&self, progress: RepairProgress) {
        self.0.set_message(match progress.step {
            RepairStep::Check => "checking",
            RepairStep::Count => "counting",
            _ => "copying",
        });
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
