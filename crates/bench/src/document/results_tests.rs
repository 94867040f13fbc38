use super::*;

const HEADER: &str = r#"{"machine":"a machine","date":"2026-01-02"}"#;

fn line(contender: &str, threads: usize, rest: &str) -> String {
    format!(
        r#"{{"workload":"commit","contender":"{contender}","threads":{threads},"record_bytes":256,"records_per_s":5.0{rest}}}"#
    )
}

fn read_lines(lines: &[&str]) -> Result<ResultFile> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    read(&path)
}

fn refusal(lines: &[&str]) -> String {
    format!("{:#}", read_lines(lines).unwrap_err())
}

#[test]
fn a_damaged_line_is_refused_with_its_place() {
    let good = line("naive", 1, "");
    let damaged: [(&str, &str); 5] = [
        (&good[..good.len() - 3], "not a JSON object"),
        (r#"{"workload":"commit"}"#, "without `contender`"),
        (&good.replace("5.0", "\"fast\""), "not a figure"),
        (&good.replace("records_per_s", "records"), "none of `records_per_s`"),
        ("[1]", "without `workload`"),
    ];
    for (bad, reason) in damaged {
        let refusal = refusal(&[HEADER, &good, bad]);
        assert!(refusal.contains("some.jsonl:3: "), "{refusal}");
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn a_file_that_does_not_say_where_it_is_from_is_refused() {
    assert!(refusal(&[&line("naive", 1, "")]).contains("some.jsonl:1: the first line has to say"));
    assert!(refusal(&[]).contains("is empty"));
}

#[test]
fn unknown_fields_are_passed_over() {
    let known = line("naive", 1, r#","a field of tomorrow":{"x":[1]}"#);
    let header = r#"{"machine":"m","date":"2026-01-02","mood":"good"}"#;
    let file = read_lines(&[header, &known]).unwrap();
    assert_eq!(file.name, "some");
    assert_eq!(file.runs[0].figures[0].records_per_s, 5.0);
}

#[test]
fn figures_that_were_not_taken_in_turns_are_in_different_runs() {
    let run_lengths = |lines: &[String]| {
        let mut all = vec![HEADER];
        all.extend(lines.iter().map(String::as_str));
        let runs = read_lines(&all).unwrap().runs;
        runs.iter().map(|run| run.figures.len()).collect::<Vec<_>>()
    };
    let [naive, palisade] = ["naive", "palisade"].map(|name| line(name, 1, ""));
    assert_eq!(run_lengths(&[naive.clone(), palisade.clone()]), [2]);
    assert_eq!(run_lengths(&[naive.clone(), palisade.clone(), naive.clone()]), [2, 1]);
    for apart in [r#","rounds":7"#, r#","began":9"#, r#","commit":"abc""#, r#","cores":8"#] {
        assert_eq!(run_lengths(&[naive.clone(), line("palisade", 1, apart)]), [1, 1], "{apart}");
    }
}

#[test]
fn the_latest_file_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    for (name, date) in [("b", "2026-01-02"), ("a", "2026-01-02"), ("c", "2026-02-01")] {
        let header = HEADER.replace("2026-01-02", date);
        fs::write(dir.path().join(format!("{name}.jsonl")), header).unwrap();
    }
    fs::write(dir.path().join("notes.txt"), "no result").unwrap();
    let files = read_all(dir.path()).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
}
