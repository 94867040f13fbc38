//! BENCHMARKS.md: a template with the prose, filled with what the result files say.
//!
//! Prose is written by hand, figures are not: the template names what is put in as `{{files}}`,
//! `{{bars}}`, `{{losses}}` and `{{figures}}`. The same results and template give the same bytes,
//! so a test can say that the committed document is the generated one.

mod bars;
mod figures;
mod kind;
mod losses;
mod quantity;
mod results;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::results::ResultFile;
use crate::plot::{self, Picture};
use crate::report::Figure;

const DOCUMENT: &str = "BENCHMARKS.md";
const TEMPLATE: &str = "benches/BENCHMARKS.in.md";
const RESULTS: &str = "benches/results";
const PICTURES: &str = "benches/results/plots";
const MARK: &str = "<!-- Generated from benches/BENCHMARKS.in.md and benches/results by \
                    `cargo run -p palisade-bench --bin palisade-bench-report`. -->\n";

/// The files that the results of a checkout give, by their paths in it.
#[derive(Debug)]
pub struct Document {
    files: BTreeMap<PathBuf, String>,
}

impl Document {
    /// Reads template and results below `root`.
    ///
    /// # Errors
    /// If a file cannot be read, a line of the results is damaged (says which), or the template
    /// names what is unknown.
    pub fn generate(root: &Path) -> Result<Document> {
        let path = root.join(TEMPLATE);
        let template =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let results = results::read_all(&root.join(RESULTS))?;
        let mut files = BTreeMap::new();
        let mut figures = Vec::new();
        for file in &results {
            let pictures = pictures(file)?;
            figures.push(figures::section(file, &pictures, PICTURES));
            for picture in pictures {
                files.insert(Path::new(PICTURES).join(picture.file), picture.svg);
            }
        }
        let fill = |name: &str| match name {
            "files" => Some(figures::files(&results)),
            "bars" => Some(bars::section(&results)),
            "losses" => Some(losses::section(&results)),
            "figures" => Some(figures.join("\n")),
            _ => None,
        };
        let document = filled(&template, fill).with_context(|| path.display().to_string())?;
        files.insert(DOCUMENT.into(), format!("{MARK}{document}"));
        Ok(Document { files })
    }

    /// Writes what differs below `root`, and removes pictures that no result gives.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        let folder = root.join(PICTURES);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        for stale in self.stale_pictures(root)? {
            let path = root.join(stale);
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        for (path, text) in &self.files {
            let path = root.join(path);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The first place where the files below `root` are not these; `None` if they are.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn difference(&self, root: &Path) -> Result<Option<String>> {
        if let Some(stale) = self.stale_pictures(root)?.first() {
            return Ok(Some(format!("{}: no result gives this picture", stale.display())));
        }
        for (path, expected) in &self.files {
            let found = match fs::read_to_string(root.join(path)) {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Some(format!("{}: missing", path.display())));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("reading {}", path.display()));
                }
            };
            if let Some(difference) = first_difference(&found, expected) {
                return Ok(Some(format!("{}:{difference}", path.display())));
            }
        }
        Ok(None)
    }

    fn stale_pictures(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let folder = root.join(PICTURES);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", folder.display()));
            }
        };
        let mut stale = Vec::new();
        for entry in entries {
            let name = entry.with_context(|| format!("reading {}", folder.display()))?.file_name();
            let path = Path::new(PICTURES).join(name);
            let is_picture = path.extension().is_some_and(|ending| ending == "svg");
            if is_picture && !self.files.contains_key(&path) {
                stale.push(path);
            }
        }
        stale.sort();
        Ok(stale)
    }
}

/// Line and content of the first line that differs.
fn first_difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let mut pairs = (1..).zip(found.split_inclusive('\n').zip(expected.split_inclusive('\n')));
    let differing = pairs.find(|(_, (found, expected))| found != expected);
    let at_the_end = || found.lines().count().min(expected.lines().count()) + 1;
    Some(match differing {
        Some((number, (found, expected))) => {
            format!("{number}: found {:?}, expected {:?}", found.trim_end(), expected.trim_end())
        }
        None if found.len() < expected.len() => format!("{}: lines are missing", at_the_end()),
        None => format!("{}: more lines than expected", at_the_end()),
    })
}

/// The template with each `{{name}}` on a line of its own replaced.
fn filled(template: &str, fill: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut text = String::new();
    for (number, line) in (1..).zip(template.lines()) {
        match line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}")) {
            None => text += &format!("{line}\n"),
            Some(name) => match fill(name) {
                Some(section) => text += &section,
                None => bail!("line {number} asks for {name:?}, which is unknown"),
            },
        }
    }
    Ok(text)
}

/// A file's pictures, those of a workload's second run apart from those of its first. Of timelines
/// only Palisade's: each takes a picture.
fn pictures(file: &ResultFile) -> Result<Vec<Picture>> {
    let mut all: Vec<Picture> = Vec::new();
    for run in &file.runs {
        for title in run.titles() {
            let mut figures: Vec<Figure> = run.under(&title).into_iter().cloned().collect();
            for figure in figures.iter_mut().filter(|figure| figure.contender != "palisade") {
                figure.timeline.clear();
            }
            for picture in plot::pictures(&figures)? {
                let name = |number: usize| match number {
                    1 => format!("{}-{}", file.name, picture.file),
                    _ => format!("{}-{number}-{}", file.name, picture.file),
                };
                let is_free = |name: &String| !all.iter().any(|other| other.file == *name);
                let file = (1..).map(name).find(is_free).unwrap_or_default();
                all.push(Picture { file, ..picture });
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let difference = first_difference("a\nb\n", "a\nc\n").unwrap();
        assert_eq!(difference, "2: found \"b\", expected \"c\"");
        assert_eq!(first_difference("a\n", "a\nb\n").unwrap(), "2: lines are missing");
        assert_eq!(first_difference("a\nb\n", "a\n").unwrap(), "2: more lines than expected");
    }

    #[test]
    fn a_template_is_filled_line_by_line() {
        let fill = |name: &str| (name == "bars").then(|| "| x |\n".into());
        assert_eq!(filled("a\n{{bars}}\nb {{bars}}\n", fill).unwrap(), "a\n| x |\nb {{bars}}\n");
        let error = filled("a\n{{bards}}\n", fill).unwrap_err();
        assert!(error.to_string().contains("line 2 asks for \"bards\""), "{error}");
    }
}
