//! Random transactions of redb, and the model that they are compared with.

use std::collections::{BTreeMap, BTreeSet};

use redb::{
    Database, Durability, MultimapTableDefinition, ReadableDatabase, ReadableMultimapTable,
    ReadableTable, TableDefinition, WriteTransaction,
};

use crate::dice::Dice;

const TABLES: [TableDefinition<'_, u64, &[u8]>; 2] =
    [TableDefinition::new("first"), TableDefinition::new("second")];
const SETS: MultimapTableDefinition<'_, u64, u64> = MultimapTableDefinition::new("sets");
const KEYS: u64 = 300;

/// What the database has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    tables: [BTreeMap<u64, Vec<u8>>; 2],
    sets: BTreeMap<u64, BTreeSet<u64>>,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    OnePhase,
    TwoPhases,
    QuickRepair,
    NotDurable,
    Aborted,
}

impl Ending {
    pub(crate) fn is_durable(self) -> bool {
        !matches!(self, Ending::NotDurable | Ending::Aborted)
    }
}

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

impl Model {
    /// Reads the whole database.
    pub(crate) fn read(db: &Database) -> Done<Model> {
        let mut model = Model::default();
        let transaction = db.begin_read()?;
        for (definition, entries) in TABLES.iter().zip(&mut model.tables) {
            let Ok(table) = transaction.open_table(*definition) else { continue };
            for entry in table.iter()? {
                let (key, value) = entry?;
                entries.insert(key.value(), value.value().to_vec());
            }
        }
        if let Ok(table) = transaction.open_multimap_table(SETS) {
            for entry in table.iter()? {
                let (key, values) = entry?;
                let values = values.map(|value| value.map(|value| value.value()));
                model.sets.insert(key.value(), values.collect::<Result<_, _>>()?);
            }
        }
        Ok(model)
    }

    /// Makes some random changes, in the transaction and here.
    pub(crate) fn change(&mut self, transaction: &WriteTransaction, dice: &mut Dice) -> Done {
        let which = dice.below(2) as usize;
        let (entries, mut table) =
            (&mut self.tables[which], transaction.open_table(TABLES[which])?);
        let mut sets = transaction.open_multimap_table(SETS)?;
        for _ in 0..=dice.below(12) {
            let key = dice.below(KEYS);
            match dice.below(20) {
                0..10 => {
                    let longest = match dice.below(60) {
                        0 => 250_000,
                        1..7 => 30_000,
                        _ => 300,
                    };
                    let value = vec![dice.below(256) as u8; dice.below(longest) as usize];
                    table.insert(key, &value[..])?;
                    entries.insert(key, value);
                }
                10..14 => {
                    table.remove(key)?;
                    entries.remove(&key);
                }
                14 if dice.once_in(4) => {
                    table.retain(|kept, _| kept % 3 != 0)?;
                    entries.retain(|kept, _| kept % 3 != 0);
                }
                15..18 => {
                    let value = dice.below(KEYS);
                    sets.insert(key % 20, value)?;
                    self.sets.entry(key % 20).or_default().insert(value);
                }
                18 => {
                    drop(sets.remove_all(key % 20)?);
                    self.sets.remove(&(key % 20));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a random transaction. Returns what the database has if its commit returned `Ok`, and
    /// how the transaction ended. `begun` gets the same before the commit.
    pub(crate) fn transaction(
        &self,
        db: &Database,
        dice: &mut Dice,
        begun: &mut dyn FnMut(&Model),
    ) -> Done<(Model, Ending)> {
        let mut after = self.clone();
        let mut transaction = db.begin_write()?;
        let ending = match (dice.below(5), dice.below(4)) {
            (0, _) => Ending::NotDurable,
            (_, 0) => Ending::TwoPhases,
            (_, 1) => Ending::QuickRepair,
            _ => Ending::OnePhase,
        };
        match ending {
            Ending::NotDurable => transaction.set_durability(Durability::None)?,
            Ending::TwoPhases => transaction.set_two_phase_commit(true),
            Ending::QuickRepair => transaction.set_quick_repair(true),
            Ending::OnePhase | Ending::Aborted => {}
        }
        let savepoint = dice.once_in(6).then(|| transaction.ephemeral_savepoint());
        after.change(&transaction, dice)?;
        if let Some(savepoint) = savepoint {
            transaction.restore_savepoint(&savepoint?)?;
            after = self.clone();
            after.change(&transaction, dice)?;
        }
        if dice.once_in(6) {
            transaction.abort()?;
            return Ok((self.clone(), Ending::Aborted));
        }
        begun(&after);
        transaction.commit()?;
        Ok((after, ending))
    }
}
