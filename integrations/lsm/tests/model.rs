//! Random calls beside a model: a map for each keyspace, and a copy of all maps for each snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;

use palisade_lsm::{Database, Keyspace, Options, Range, Snapshot};
use proptest::prelude::*;

const KEYSPACES: [&str; 3] = ["a", "b", "c"];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type World = [Map; KEYSPACES.len()];

#[derive(Clone, Debug)]
enum Step {
    /// Keyspace, key, and the length of the value; none deletes.
    Write(Vec<(usize, u8, Option<u16>)>),
    Flush,
    Compact,
    Snapshot,
    DropSnapshot(usize),
    Reopen {
        kind: u8,
    },
    Range(usize, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..KEYSPACES.len(), 0..30_u8, prop::option::weighted(0.7, 0..600_u16));
    prop_oneof![
        12 => prop::collection::vec(change, 1..5).prop_map(Step::Write),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        2 => Just(Step::Snapshot),
        2 => (0..8_usize).prop_map(Step::DropSnapshot),
        1 => (0..3_u8).prop_map(|kind| Step::Reopen { kind }),
        3 => (0..KEYSPACES.len(), 0..30_u8, 0..30_u8)
            .prop_map(|(keyspace, from, to)| Step::Range(keyspace, from, to)),
    ]
}

struct Run {
    folder: tempfile::TempDir,
    database: Option<Database>,
    keyspaces: Vec<Keyspace>,
    world: World,
    snapshots: Vec<(Snapshot, World)>,
    writes: u64,
}

impl Run {
    fn new() -> Run {
        let mut run = Run {
            folder: tempfile::tempdir().unwrap(),
            database: None,
            keyspaces: Vec::new(),
            world: World::default(),
            snapshots: Vec::new(),
            writes: 0,
        };
        run.open();
        run
    }

    fn open(&mut self) {
        let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
        let options = Options::new().memtable_bytes(4 << 10).cache_bytes(64 << 10).log(log);
        let database = options.open(self.folder.path()).unwrap();
        self.keyspaces =
            KEYSPACES.iter().map(|name| database.keyspace_or_create(name).unwrap()).collect();
        self.database = Some(database);
    }

    fn take(&mut self, step: Step) {
        let database = self.database.as_ref().unwrap();
        match step {
            Step::Write(changes) => {
                self.writes += 1;
                let mut batch = database.batch();
                for (number, key, len) in changes {
                    let keyspace = &self.keyspaces[number];
                    let key = vec![b'k', key];
                    if let Some(len) = len {
                        let mut value = self.writes.to_le_bytes().to_vec();
                        value.resize(8 + usize::from(len), 0);
                        batch.put(keyspace, &key, &value).unwrap();
                        self.world[number].insert(key, value);
                    } else {
                        batch.delete(keyspace, &key).unwrap();
                        self.world[number].remove(&key);
                    }
                }
                batch.append().unwrap();
            }
            Step::Flush => database.flush().unwrap(),
            Step::Compact => database.compact().unwrap(),
            Step::Snapshot => {
                database.sync().unwrap();
                self.snapshots.push((database.snapshot(), self.world.clone()));
            }
            Step::DropSnapshot(number) if number < self.snapshots.len() => {
                self.snapshots.swap_remove(number);
            }
            Step::DropSnapshot(_) => {}
            Step::Reopen { kind } => {
                self.snapshots.clear();
                self.keyspaces.clear();
                let database = self.database.take().unwrap();
                match kind {
                    0 => database.close().unwrap(),
                    1 => drop(database),
                    _ => {
                        database.sync().unwrap();
                        database.log().clone().abandon();
                        drop(database); // its thread may be compacting
                    }
                }
                self.open();
            }
            Step::Range(number, from, to) => {
                let (from, to) = (vec![b'k', from.min(to)], vec![b'k', from.max(to)]);
                let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
                let found = collect(self.keyspaces[number].range(bounds.clone()));
                let expected = self.world[number].range((bounds.0, bounds.1));
                assert!(expected.map(|(key, value)| (key.clone(), value.clone())).eq(found));
            }
        }
    }

    fn check(&self) {
        for (number, keyspace) in self.keyspaces.iter().enumerate() {
            assert_eq!(collect(keyspace.range::<&[u8]>(..)), self.world[number]);
            for key in 0..30 {
                let found = keyspace.get([b'k', key]).unwrap();
                let expected = self.world[number].get([b'k', key].as_slice());
                assert_eq!(found.as_deref(), expected.map(Vec::as_slice));
            }
            for (snapshot, world) in &self.snapshots {
                assert_eq!(collect(snapshot.range::<&[u8]>(keyspace, ..)), world[number]);
                for key in 0..30 {
                    let found = snapshot.get(keyspace, [b'k', key]).unwrap();
                    let expected = world[number].get([b'k', key].as_slice());
                    assert_eq!(found.as_deref(), expected.map(Vec::as_slice));
                }
            }
        }
    }
}

fn collect(range: Range) -> Map {
    range.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_read_agrees_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for (number, step) in steps.into_iter().enumerate() {
            run.take(step);
            if number % 8 == 0 {
                run.check();
            }
        }
        run.check();
    }
}
