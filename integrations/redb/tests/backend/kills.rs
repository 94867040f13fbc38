//! Processes that commit are killed at random moments. All commits that they have reported are
//! there, whole, and nothing else.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::small;
use crate::dice::Dice;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

const FOLDER: &str = "PALISADE_REDB_KILLED";
const NAME: &str = "kills::a_kill_loses_no_commit";
const KILLS: usize = 12;
const TABLES: [TableDefinition<'_, u64, &[u8]>; 2] =
    [TableDefinition::new("left"), TableDefinition::new("right")];

fn open(path: &Path) -> Database {
    let backend = small().open(path).unwrap();
    Builder::new().set_cache_size(64 << 10).create_with_backend(backend).unwrap()
}

/// Commits the numbers from `next` on, each in both tables, and reports each one.
fn commit_until_killed(path: &Path) {
    let db = open(path);
    let mut next = count(&db);
    let mut dice = Dice::new(next);
    let mut reports = std::io::stderr();
    loop {
        let mut transaction = db.begin_write().unwrap();
        transaction.set_quick_repair(dice.once_in(3));
        let long = if dice.once_in(10) { 100_000 } else { 500 };
        let value = vec![next as u8; dice.below(long) as usize];
        for table in TABLES {
            transaction.open_table(table).unwrap().insert(next, &value[..]).unwrap();
        }
        transaction.commit().unwrap();
        writeln!(reports, "{next}").unwrap();
        next += 1;
    }
}

/// Returns how many numbers there are. Checks that both tables have the same ones, without gaps.
fn count(db: &Database) -> u64 {
    let transaction = db.begin_read().unwrap();
    let counts = TABLES.map(|table| {
        let Ok(table) = transaction.open_table(table) else { return 0 };
        let mut count = 0;
        for entry in table.iter().unwrap() {
            let (key, value) = entry.unwrap();
            assert_eq!(key.value(), count);
            assert!(value.value().iter().all(|&byte| byte == count as u8));
            count += 1;
        }
        count
    });
    assert_eq!(counts[0], counts[1]);
    counts[0]
}

#[test]
fn a_kill_loses_no_commit() {
    if let Some(path) = std::env::var_os(FOLDER) {
        return commit_until_killed(path.as_ref());
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("db");
    let mut dice = Dice::new(u64::from(std::process::id()));
    for kill in 0..KILLS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(FOLDER, &path);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let reports = BufReader::new(child.stderr.take().unwrap());
        let before = 1 + dice.below(150) as usize;
        let mut reported = 0;
        for (line, report) in reports.lines().enumerate() {
            let report = report.unwrap();
            reported = report.parse::<u64>().unwrap_or_else(|_| panic!("{report}")) + 1;
            if line + 1 == before {
                child.kill().unwrap(); // what it has reported meanwhile is read, too
            }
        }
        child.wait().unwrap();
        let mut db = open(&path);
        let found = count(&db);
        assert!((reported..=reported + 1).contains(&found), "kill {kill}: {reported}, {found}");
        assert!(db.check_integrity().unwrap(), "kill {kill}");
    }
}
