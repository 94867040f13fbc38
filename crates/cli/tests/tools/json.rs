//! `--json`: every command has it, and the names and values of the fields are those of the help.

use super::*;

#[test]
fn info_as_json_has_the_fields_of_its_help() {
    let (folder, lsns) = written();
    let (exit, closed) = json(folder.path(), &["info"]);
    let (_, verdict) = json(folder.path(), &["verify"]);
    assert_eq!((exit, &closed["state"], &closed["buffer"]), (0, &"closed".into(), &"none".into()));
    assert_eq!(closed["end"], verdict["end"]);
    assert_eq!((&closed["head"], &closed["segments"]), (&0.into(), &1.into()));
    let nothing = ["checkpoint", "last_end", "buffer_file"].map(|name| closed[name].is_null());
    assert_eq!((nothing, closed.get("segment_list")), ([true; 3], None));

    let wal = options().open(folder.path()).unwrap();
    wal.checkpoint(lsns[50]).unwrap();
    wal.truncate_before(lsns[40]).unwrap();
    let (_, open) = json(folder.path(), &["info", "--segments"]);
    assert_eq!((&open["state"], &open["end"]), (&"open".into(), &Value::Null));
    assert_eq!((&open["head"], &open["checkpoint"]), (&at(lsns[40]), &at(lsns[50])));
    assert_eq!(open["last_end"], closed["end"]);
    let expected = r#"[{"number":0,"base":0,"epoch":1,"error":null}]"#;
    assert_eq!(open["segment_list"].to_string(), expected_value(expected));
    is_documented("info", [&open]);
    drop(wal);
    assert_eq!(json(folder.path(), &["info"]).1["state"], "unclean");
    fs::remove_file(folder.path().join("meta")).unwrap();
    let (exit, lost) = json(folder.path(), &["info"]);
    assert_eq!((exit, &lost["state"], &lost["buffer"]), (0, &"lost".into(), &"unknown".into()));
}

#[test]
fn a_copy_that_could_not_be_synced_is_called_so() {
    let (folder, _) = written();
    fs::copy(folder.path().join("meta"), folder.path().join("meta.unsynced")).unwrap();
    assert_eq!(json(folder.path(), &["info"]).1["state"], "unsynced");
    let (exit, verdict) = json(folder.path(), &["verify"]);
    assert_eq!((exit, &verdict["outcome"]), (4, &"corrupt".into()));
    assert!(verdict["why"].to_string().contains("could not sync"), "{verdict}");
    let told = text(&palisade(folder.path(), &["verify"]).stdout);
    assert!(told.contains("copy the log again") && !told.contains("repair"), "{told}");
    assert!(text(&palisade(folder.path(), &["info"]).stdout).contains("could not sync"));
}

fn at(lsn: Lsn) -> Value {
    lsn.as_u64().into()
}

fn expected_value(text: &str) -> String {
    serde_json::from_str::<Value>(text).unwrap().to_string()
}

#[test]
fn verify_as_json_has_the_fields_of_its_help_and_its_exit_code() {
    let (folder, lsns) = written();
    let (exit, clean) = json(folder.path(), &["verify"]);
    assert_eq!((exit, &clean["outcome"], &clean["records"]), (0, &"clean".into(), &100.into()));
    assert!(clean["why"].is_null() && clean["floor"] == clean["end"], "{clean}");
    is_documented("verify", [&clean]);
    let wal = options().open(folder.path()).unwrap();
    assert_eq!(json(folder.path(), &["verify"]).1["outcome"], "unfinished");
    let last = wal.append(&[7; 500]).unwrap().lsn();
    drop(wal);
    assert_eq!(json(folder.path(), &["verify"]).1["outcome"], "unclean");
    damage(folder.path(), last.plus(100));
    let (exit, torn) = json(folder.path(), &["verify", "--deep"]);
    assert_eq!((exit, &torn["outcome"], &torn["end"]), (1, &"torn_tail".into(), &at(last)));
    assert!(torn["torn_bytes"].as_u64().unwrap() >= 500, "{torn}");
    damage(folder.path(), lsns[50].plus(25));
    let (exit, corrupt) = json(folder.path(), &["verify"]);
    assert_eq!((exit, &corrupt["outcome"], &corrupt["end"]), (4, &"corrupt".into(), &at(lsns[50])));
    let place = [&corrupt["bad_places"][0]["lsn"], &corrupt["bad_places"][0]["segment"]];
    assert_eq!(place, [&at(lsns[50]), &0.into()]);
    assert!(corrupt["why"].as_str().unwrap().contains("LSN"), "{corrupt}");
}

#[test]
fn dump_and_salvage_as_json_have_the_fields_of_the_help() {
    let (folder, lsns) = written();
    let objects = |tool: &str| -> Vec<Value> {
        let output = palisade(folder.path(), &[tool, "--json"]);
        assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
        let lines = text(&output.stdout);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let dumped = objects("dump");
    assert_eq!(dumped, objects("salvage"));
    assert_eq!((dumped.len(), &dumped[99]["lsn"]), (RECORDS, &at(lsns[99])));
    for tool in ["dump", "salvage"] {
        is_documented(tool, &dumped[..1]);
    }
}

#[test]
fn every_command_that_prints_data_documents_its_json_fields() {
    for tool in [
        "info", "map", "stat", "dump", "verify", "salvage", "repair", "restore", "backup", "doctor",
    ] {
        let help = help(tool);
        assert!(help.contains("      --json") && help.contains("\nFields of "), "{tool}: {help}");
    }
}
