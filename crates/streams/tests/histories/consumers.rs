//! Consumers in a history: they read, acknowledge and seek.

use std::time::Duration;

use palisade::{ErrorKind, Result};
use palisade_streams::{Consumer, Streams};

use crate::model::{CONSUMERS, Change};
use crate::session::{Ended, Session};

impl Session {
    /// Opens a consumer, reads, and acknowledges: alone, or in a batch with what it appends.
    pub(crate) fn consume(&mut self, streams: &Streams) -> Ended {
        let (Some(name), Some(output)) = (self.existing(), self.existing()) else { return Ok(()) };
        let (stream, output_to) = (streams.stream(&name)?, streams.stream(&output)?);
        let called = self.dice.pick(&CONSUMERS).to_vec();
        let at = |index| (name.clone(), Change::Consumer(called.clone(), index));
        let mut consumer = match self.model()[&name].consumers.contains_key(&called) {
            true => stream.consumer(&called)?,
            false => {
                let begins = [at(self.model()[&name].first)];
                let Some(consumer) =
                    self.changing(streams, &begins, || stream.consumer(&called))?
                else {
                    return Ok(());
                };
                self.note_durable();
                consumer
            }
        };
        if !self.seek_if_truncated(streams, &mut consumer, &name)? {
            return Ok(());
        }
        let model = self.model()[&name].clone();
        let mut acked = model.consumers[&called].0;
        for _ in 0..self.dice.below(6) {
            let next = consumer.next(Duration::ZERO);
            let Some(entry) = self.unless_full(next)?.flatten() else { break };
            assert_eq!(entry.index(), acked, "it begins at the first that was not acknowledged");
            assert_eq!(entry.data(), model.entries[&acked]);
            acked += 1;
        }
        let Some(last) = acked.checked_sub(1).filter(|_| acked > model.consumers[&called].0) else {
            return Ok(());
        };
        self.count("reads by consumers", 1);
        match self.dice.below(4) {
            0 => {}
            1 => drop(self.changing(streams, &[at(acked)], || consumer.ack(last))?),
            _ => {
                let data = self.data();
                let both = [at(acked), (output, Change::Append(data.clone()))];
                let batch = streams.batch().ack(&consumer, last).append(&output_to, &data);
                drop(self.changing(streams, &both, || batch.apply())?);
            }
        }
        if self.dice.once_in(4) {
            self.note_waited(streams.sync())?;
        }
        Ok(())
    }

    /// Checks that a consumer whose entries were truncated says so, and moves it. Returns whether
    /// it can go on.
    fn seek_if_truncated(
        &mut self,
        streams: &Streams,
        consumer: &mut Consumer,
        name: &[u8],
    ) -> Result<bool> {
        let stream = &self.model()[name];
        let (acked, is_truncated) = stream.consumers[consumer.name()];
        if !is_truncated {
            return Ok(true);
        }
        let to = acked.max(stream.first);
        match consumer.next(Duration::ZERO) {
            Err(error) if error.kind() == ErrorKind::Truncated => {}
            other => panic!("{other:?} in the place of Truncated"),
        }
        self.count("seeks", 1);
        let sought = [(name.to_vec(), Change::Consumer(consumer.name().to_vec(), to))];
        let sought = self.changing(streams, &sought, || consumer.seek(to).map(drop))?;
        Ok(sought.is_some())
    }

    pub(crate) fn remove_consumer(&mut self, streams: &Streams) -> Ended {
        let Some(name) = self.existing() else { return Ok(()) };
        let Some(called) = self.model()[&name].consumers.keys().next().cloned() else {
            return Ok(());
        };
        let stream = streams.stream(&name)?;
        let removal = [(name, Change::RemoveConsumer(called.clone()))];
        self.changing(streams, &removal, || stream.remove_consumer(called)).map(drop)
    }
}
