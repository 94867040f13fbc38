//! Databases on the backend: a random workload against a model, in one process without a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::small;
use crate::dice::Dice;
use crate::model::Model;
use crate::seeds::{Seeded, sweep};
use palisade::disk::MemDisk;
use palisade::sim::{CallKind, FaultDisk, Target};
use palisade_redb::Options;
use redb::{Builder, Database, ReadableDatabase, TableDefinition};

fn open(disk: &MemDisk) -> Database {
    let backend = small().open_on(Arc::new(disk.clone()), "/db").unwrap();
    // With so little cache redb writes pages before the commit, and reads them back.
    Builder::new().set_cache_size(64 << 10).create_with_backend(backend).unwrap()
}

/// A database without crashes.
struct Workload {
    dice: Dice,
    step: u32,
}

impl Seeded for Workload {
    fn new(seed: u64) -> Workload {
        Workload { dice: Dice::new(seed), step: 0 }
    }

    fn run(&mut self) {
        let Workload { dice, step } = self;
        let disk = MemDisk::new();
        let mut model = Model::default();
        let mut db = open(&disk);
        let mut savepoint = None;
        while *step < 60 {
            match dice.below(24) {
                0 => {
                    drop(db);
                    db = open(&disk);
                }
                1 => drop(db.compact()), // fails if there is a savepoint
                2 => assert!(db.check_integrity().unwrap()),
                3 if savepoint.is_none() => {
                    let transaction = db.begin_write().unwrap();
                    savepoint = Some((transaction.persistent_savepoint().unwrap(), model.clone()));
                    transaction.commit().unwrap();
                }
                4 => {
                    if let Some((id, saved)) = savepoint.take() {
                        let mut transaction = db.begin_write().unwrap();
                        let found = transaction.get_persistent_savepoint(id).unwrap();
                        transaction.restore_savepoint(&found).unwrap();
                        transaction.delete_persistent_savepoint(id).unwrap();
                        transaction.commit().unwrap();
                        model = saved;
                    }
                }
                _ => model = model.transaction(&db, dice, &mut |_| {}).unwrap().0,
            }
            assert!(Model::read(&db).unwrap() == model);
            *step += 1;
        }
    }

    fn describe(&self) -> String {
        format!("step {}", self.step)
    }
}

#[test]
fn a_random_workload_agrees_with_a_model() {
    let command = "--manifest-path integrations/redb/Cargo.toml --test backend a_random_workload";
    sweep(command, 20, |_: Workload| {});
}

#[test]
fn a_commit_of_each_kind_waits_for_one_sync() {
    const TABLE: TableDefinition<'_, u64, u64> = TableDefinition::new("table");
    const COMMITS: u64 = 50;
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    let backend = Options::new().open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = Builder::new().create_with_backend(backend).unwrap();
    for kind in ["one phase", "two phases", "quick repair"] {
        let before = disk.count((CallKind::Sync, Target::Segment));
        for key in 0..COMMITS {
            let mut transaction = db.begin_write().unwrap();
            transaction.set_two_phase_commit(kind == "two phases");
            transaction.set_quick_repair(kind == "quick repair");
            transaction.open_table(TABLE).unwrap().insert(key, key).unwrap();
            transaction.commit().unwrap();
        }
        let syncs = disk.count((CallKind::Sync, Target::Segment)) - before;
        assert_eq!(syncs as u64, COMMITS, "{kind}");
    }
}

#[test]
fn readers_see_whole_commits_beside_checkpoints() {
    const TABLES: [TableDefinition<'_, u64, u64>; 2] =
        [TableDefinition::new("left"), TableDefinition::new("right")];
    const KEYS: u64 = 500;
    let backend = small().open_on(Arc::new(MemDisk::new()), "/db").unwrap();
    let builder = &mut Builder::new();
    let db = builder.set_cache_size(64 << 10).create_with_backend(backend.clone()).unwrap();
    let commit = |value: u64| {
        let transaction = db.begin_write().unwrap();
        for table in TABLES {
            let mut table = transaction.open_table(table).unwrap();
            (value..value + 20).for_each(|key| drop(table.insert(key % KEYS, value).unwrap()));
        }
        transaction.commit().unwrap();
    };
    commit(0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let transaction = db.begin_read().unwrap();
                    let [left, right] = TABLES.map(|table| transaction.open_table(table).unwrap());
                    for key in 0..KEYS {
                        let [left, right] = [&left, &right].map(|table| table.get(key).unwrap());
                        let values = [left, right].map(|value| value.map(|value| value.value()));
                        assert_eq!(values[0], values[1], "key {key}");
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                backend.checkpoint().unwrap();
            }
        });
        (1..400).for_each(commit);
        is_done.store(true, Ordering::Relaxed);
    });
}
