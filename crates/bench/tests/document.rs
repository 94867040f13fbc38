//! BENCHMARKS.md is what its template and the result files give.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use palisade_bench::document::Document;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn differs(root: &Path) -> Option<String> {
    Document::generate(root).unwrap().difference(root).unwrap()
}

/// A folder with the template and the results of `tests/document`, and nothing generated.
fn small() -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/document/benches");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(dir.path().join("benches/results")).unwrap();
    for file in ["BENCHMARKS.in.md", "results/small.jsonl"] {
        fs::copy(from.join(file), dir.path().join("benches").join(file)).unwrap();
    }
    dir
}

fn report(root: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade-bench-report"));
    command.args(args).arg("--root").arg(root).output().unwrap()
}

#[test]
fn the_committed_document_is_what_the_committed_results_give() {
    let difference = differs(&checkout());
    assert_eq!(difference, None, "run `cargo run -p palisade-bench --bin palisade-bench-report`");
}

#[test]
fn a_small_result_file_gives_the_document_beside_it() {
    let dir = small();
    assert_eq!(report(dir.path(), &[]).status.code(), Some(0));
    let given = fs::read_to_string(dir.path().join("BENCHMARKS.md")).unwrap();
    assert_eq!(given, include_str!("document/BENCHMARKS.md"));
    assert_eq!(report(dir.path(), &["--check"]).status.code(), Some(0));
}

#[test]
fn a_check_names_the_first_line_that_differs() {
    let dir = small();
    report(dir.path(), &[]);
    let document = dir.path().join("BENCHMARKS.md");
    let edited = fs::read_to_string(&document).unwrap().replace("# A small one", "# A large one");
    fs::write(&document, edited).unwrap();
    let checked = report(dir.path(), &["--check"]);
    assert_eq!(checked.status.code(), Some(1));
    let stderr = String::from_utf8(checked.stderr).unwrap();
    let expected = "BENCHMARKS.md:2: found \"# A large one\", expected \"# A small one\"";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[test]
fn pictures_are_those_that_the_results_give() {
    let dir = small();
    let folder = dir.path().join("benches/results/plots");
    let picture = folder.join("small-commit-throughput.svg");
    report(dir.path(), &[]);
    assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    fs::write(folder.join("old.svg"), "<svg/>").unwrap();
    assert!(differs(dir.path()).unwrap().ends_with("old.svg: no result gives this picture"));
    report(dir.path(), &[]);
    assert_eq!(differs(dir.path()), None);
    fs::remove_file(&picture).unwrap();
    assert!(differs(dir.path()).unwrap().ends_with("small-commit-throughput.svg: missing"));
}

#[test]
fn a_damaged_line_ends_the_report_with_its_place() {
    let dir = small();
    let results = dir.path().join("benches/results/small.jsonl");
    let text = fs::read_to_string(&results).unwrap();
    fs::write(&results, text.replace("\"contender\":\"okaywal\"", "\"contender\"")).unwrap();
    let refused = report(dir.path(), &[]);
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("small.jsonl:8: not a JSON object"), "{stderr}");
    assert!(!dir.path().join("BENCHMARKS.md").exists());
}
