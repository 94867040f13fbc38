//! Durable writes that overlap: several leaders at a time, each with a range of its own.
//!
//! A device with a cache of its own takes several durable writes at a time. Where the store does
//! (`Store::writes_in_flight` is more than 1) up to so many waiters lead, and *durable* is the end
//! of the longest run of finished ranges.
//!
//! # Words
//! *Flight*: a range `[from, end)` of whole blocks that one leader is making durable, either with one
//! durable write straight out of the ring (*direct*), or, where some of it was written before, with
//! a write and a sync (*synced*). *Claimed*: the end of the last flight. *Landed*: its bytes are
//! durable; it is acknowledged with those below it. *Runway*: a lock that direct flights share and
//! buffered writes take alone.
//!
//! # States of a byte range above *durable*
//! | state | how it is known | who may write it to the store |
//! |---|---|---|
//! | filled | its slots hold ends | whoever holds runway and write lock |
//! | written | `end <= written`, above *claimed* | nobody: the next flight syncs it |
//! | in the air | in a flight | its leader |
//! | landed | in a flight that is marked | nobody; after a lack of space below, as filled |
//!
//! # Protocol
//! Leader: (1) share the runway, take the write lock; where the last block end is claimed, reserve
//! the rest of the tail's block, padding: a new block end. (2) All below it is filled and nothing
//! above *claimed* is written: claim it, move the write cursor, let the write lock go. (3) Write.
//! (4) Under the flights' lock mark the flight landed, take the landed ones off the front, note the
//! new end in the sync line, publish *durable* and *written*. (5) Let the runway go, settle.
//! Where something was written before, by an appender without room or for a reader: let the
//! runway go, write what is filled as ever, claim up to the block end, sync, then (4). One such flight
//! at a time: below a written range no direct one is in the air, so all below it is durable.
//! A leader whose record is claimed leaves: who lands the flights below serves it.
//! A hole below the block end: nothing is claimed; the leader polls.
//!
//! Lack of space: nothing more is claimed until all direct flights are down; then the write cursor
//! goes back to the lowest one that did not land. Those above it are written again: no byte of
//! them was acknowledged, and no older write of the same place is still under way. Any other
//! failure poisons the log, and is noted before the runway is let go of: neither *durable* nor
//! *written* passes the flight.
//!
//! # Why the runway
//! A buffered write beside a direct one to the same file may meet it in the page cache, and the
//! system answers with stale pages or a failed sync. Behind a buffered write no direct flight is in
//! the air, so *written* is one end: that of the write cursor, or the beginning of the lowest
//! direct flight. Zeros that the store writes ahead lie in blocks of their own.
//!
//! # Ordering pairs
//! P1, P2, P4, P5 (`commit`). Locks, in this order: runway, write lock, flights; the lock of synced
//! flights is taken before that of the flights, and under neither of the other two. The registry's lock
//! is taken with none of them held but the runway. Under the flights' lock the sync line is noted, and a
//! segment prepared where the preparer was late.
//!
//! # Checked by
//! `flights_land_in_any_order`, `a_flight_that_fails_is_never_passed`,
//! `a_lack_of_space_in_the_air_loses_nothing`, `a_full_ring_waits_for_the_lowest_flight`.

use std::collections::VecDeque;

use super::writer::Run;
use super::{Commit, PoisonOnPanic};
use crate::sync::{AtomicU64, Instant, Mutex, Ordering, RwLock};
use crate::{Error, ErrorKind, Lsn, Result};

/// A flight takes at most this part of the ring: the others, and appenders, need room.
const RING_SHARE: u64 = 4;

/// The ranges that leaders are making durable.
#[derive(Debug)]
pub(super) struct Flights {
    // How many waiters may lead at a time; 1: there are no flights.
    pub(super) most: usize,
    // Shared by direct flights; taken alone by whoever writes into the page cache.
    pub(super) runway: RwLock<()>,
    // Held by the leader of a synced flight: `sync` begins where *durable* ends.
    syncing: Mutex<()>,
    air: Mutex<Air>,
    // Mirror of `Air::claimed` for those who hold the registry's lock.
    claimed: AtomicU64,
}

#[derive(Debug)]
struct Air {
    // In LSN order, each beginning where the one before it ends; the first at *durable*.
    flights: VecDeque<Flight>,
    claimed: Lsn,
    // Where the next flight ends, or the last one did.
    block_end: Lsn,
    // A direct flight found no space: nothing is claimed until all are down.
    refused: Option<Error>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    from: Lsn,
    end: Lsn,
    is_direct: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InTheAir,
    Landed,
    Refused,
}

impl Flights {
    pub(super) fn new(most: usize, base: Lsn) -> Flights {
        let air = Air { flights: VecDeque::new(), claimed: base, block_end: base, refused: None };
        Flights {
            most,
            runway: RwLock::new(()),
            syncing: Mutex::new(()),
            air: Mutex::new(air),
            claimed: AtomicU64::new(base.as_u64()),
        }
    }

    /// Whether several waiters may lead.
    pub(super) fn overlap(&self) -> bool {
        self.most > 1
    }

    /// The end of the last flight: below it nobody needs to lead any more.
    pub(super) fn claimed(&self) -> Lsn {
        // Relaxed: who claims or goes back takes the registry's lock afterwards. A caller that
        // holds it comes after them and sees their end, or before them and is found there. For
        // all others it is a hint.
        Lsn::new(self.claimed.load(Ordering::Relaxed))
    }

    /// A new life begins at `base`; nothing is in the air.
    pub(super) fn restart(&self, base: Lsn) {
        let mut air = self.air.lock();
        debug_assert!(air.flights.is_empty(), "all is durable");
        (air.claimed, air.block_end) = (base, base);
        self.mirror(&air);
    }

    fn mirror(&self, air: &Air) {
        // Relaxed: see `claimed`.
        self.claimed.store(air.claimed.as_u64(), Ordering::Relaxed);
    }
}

impl Air {
    fn claim(&mut self, end: Lsn, is_direct: bool) -> Flight {
        let flight = Flight { from: self.claimed, end, is_direct, state: State::InTheAir };
        self.flights.push_back(flight);
        self.claimed = end;
        flight
    }

    fn mark(&mut self, flight: Flight, state: State) {
        let found = self.flights.iter_mut().find(|other| other.from == flight.from);
        found.expect("a flight stays in the list until it has come down").state = state;
    }

    /// Takes the landed flights off the front; says where the last of them ends.
    fn take_landed(&mut self) -> Option<Lsn> {
        let mut end = None;
        while self.flights.front().is_some_and(|first| first.state == State::Landed) {
            end = self.flights.pop_front().map(|landed| landed.end);
        }
        end
    }

    fn lowest_direct(&self) -> Option<Lsn> {
        let mut waiting = self.flights.iter().filter(|flight| flight.state != State::Landed);
        waiting.find(|flight| flight.is_direct).map(|flight| flight.from)
    }

    /// Once every direct flight is down and one of them was refused: forgets it and those above.
    fn go_back(&mut self) -> Option<Lsn> {
        let flies = |flight: &Flight| flight.is_direct && flight.state == State::InTheAir;
        if self.refused.is_none() || self.flights.iter().any(flies) {
            return None;
        }
        let at = self.flights.iter().position(|flight| flight.state == State::Refused)?;
        let from = self.flights[at].from;
        self.flights.truncate(at);
        (self.claimed, self.refused) = (from, None);
        Some(from)
    }
}

impl Commit {
    /// One flight, if there is anything to claim.
    pub(super) fn fly(&self) -> Result<()> {
        self.check()?;
        // Poisoning wakes wakers, which are foreign code: always after the locks.
        let guard = PoisonOnPanic::new(self);
        let flown = self.fly_directly().and_then(|took_off| match took_off {
            TookOff::Yes | TookOff::NothingToClaim => Ok(()),
            TookOff::WrittenBefore => self.fly_written(),
        });
        guard.disarm();
        self.poison_unless_no_space(flown)
    }

    fn fly_directly(&self) -> Result<TookOff> {
        let _runway = self.flights.runway.read();
        let (flight, run) = match self.claim_direct()? {
            Claim::Flight(flight, run) => (flight, run),
            Claim::Nothing => return Ok(TookOff::NothingToClaim),
            Claim::WrittenBefore => return Ok(TookOff::WrittenBefore),
        };
        let guard = FailOnPanic(self);
        self.cover(flight.end);
        let start = Instant::now();
        let written = self.write_durably(flight.from, flight.end);
        if written.is_ok() {
            self.counters.note_sync(start.elapsed().as_nanos() as u64, run.reservations);
            self.note_run(&run, flight.from);
        }
        let down = self.come_down(flight, written);
        std::mem::forget(guard);
        // Those who wait for what went back need a leader. This thread leads until it has seen to
        // them, here or when it settles.
        if self.flights.claimed() < flight.end {
            self.registry.lock().uncover();
        }
        down.map(|()| TookOff::Yes)
    }

    /// Claims all up to a block end for a direct flight. The caller shares the runway.
    fn claim_direct(&self) -> Result<Claim> {
        let mut cursor = self.cursor.lock();
        let mut air = self.flights.air.lock();
        if let Some(error) = &air.refused {
            return Err(error.clone());
        }
        air.block_end = self.next_block_end(air.block_end, air.claimed);
        let (from, end) = (air.claimed, air.block_end);
        if end <= from {
            let has_more = self.buffer.reserved() > from;
            return Ok(if has_more { Claim::WrittenBefore } else { Claim::Nothing });
        }
        let is_large = end.bytes_since(from) > self.buffer.ring_bytes() / RING_SHARE;
        if cursor.written() != from || !self.buffer.is_block_end(from) || is_large {
            return Ok(Claim::WrittenBefore);
        }
        let run = cursor.collect(&self.buffer, u64::MAX, end);
        if run.end < end {
            return Ok(Claim::Nothing);
        }
        self.filled.publish(end.max(self.filled.peek()));
        if self.store.prepared() < end {
            self.store.prepare(end)?;
        }
        cursor.move_to(end);
        let flight = air.claim(end, true);
        self.flights.mirror(&air);
        drop(air);
        self.store.prepare_ahead(end);
        Ok(Claim::Flight(flight, run))
    }

    /// Where something was written before: writes the rest, and syncs.
    fn fly_written(&self) -> Result<()> {
        let wrote = self.write_filled();
        if wrote.as_ref().is_err_and(|error| error.kind() != ErrorKind::NoSpace) {
            return wrote.map(drop);
        }
        let _syncing = self.flights.syncing.lock();
        let flight = {
            let mut air = self.flights.air.lock();
            air.block_end = self.next_block_end(air.block_end, air.claimed);
            // Acquire in `read`: all below it is in the store before its sync begins [P5].
            let is_written = air.block_end <= self.buffer.written.read();
            let may_claim = air.refused.is_none() && air.block_end > air.claimed && is_written;
            let end = air.block_end;
            let flight = may_claim.then(|| air.claim(end, false));
            self.flights.mirror(&air);
            flight
        };
        let Some(flight) = flight else { return wrote.map(drop) };
        self.cover(flight.end);
        let synced = self.counters.synced_appends.value();
        let covered = self.counters.appends.value().saturating_sub(synced);
        let start = Instant::now();
        let synced = self.store.sync(flight.from, flight.end);
        self.counters.note_sync(start.elapsed().as_nanos() as u64, covered);
        self.come_down(flight, synced)?;
        wrote.map(drop)
    }

    /// Marks the flight, whose device call gave `result`, and lets the watermarks follow.
    fn come_down(&self, flight: Flight, result: Result<()>) -> Result<()> {
        let lacks_space = matches!(&result, Err(error) if error.kind() == ErrorKind::NoSpace);
        if let Err(error) = &result
            && !(lacks_space && flight.is_direct)
        {
            // It stays in the list, and nothing passes it.
            return Err(self.fail(error.clone()));
        }
        // The cursor may have to go back. A flight that was synced leaves it alone, and need not
        // wait for who is writing.
        let mut cursor = flight.is_direct.then(|| self.cursor.lock());
        let mut air = self.flights.air.lock();
        // A flight that failed meanwhile has told everyone that nothing more is acknowledged.
        self.check()?;
        air.mark(flight, if lacks_space { State::Refused } else { State::Landed });
        if let Err(error) = &result {
            air.refused.get_or_insert_with(|| error.clone());
        }
        let durable = air.take_landed();
        if let Some(cursor) = &mut cursor {
            if let Some(from) = air.go_back() {
                cursor.move_to(from);
                self.flights.mirror(&air);
            }
            // No buffered write comes between: this flight shares the runway.
            self.buffer.written.publish(air.lowest_direct().unwrap_or(air.claimed));
        }
        if let Some(durable) = durable {
            // For good, lack of space, too: who was taken off the front is not acknowledged.
            self.store.mark_durable(durable).map_err(|error| self.fail(error))?;
            self.durable.publish(durable);
        }
        result
    }

    #[expect(unsafe_code, reason = "a flight's leader reads what others published")]
    fn write_durably(&self, from: Lsn, to: Lsn) -> Result<()> {
        let write = |pieces: &[std::io::IoSlice<'_>; 2]| {
            let used = if pieces[1].is_empty() { 1 } else { 2 };
            self.store.write_durable(from, &pieces[..used])
        };
        // SAFETY:
        // - claimed: `[from, to)` is this flight's alone, and *written* stays at or below `from`
        //   until it has come down: `come_down` is the only one to publish it while the runway is
        //   shared, as this thread does.
        // - published: `claim_direct` has followed the slots from `from` to `to`.
        unsafe { self.buffer.read(from, to, write) }
    }
}

/// A store that panics with a flight in the air fails the log while the runway is shared still:
/// who takes it next, to write, must not pass the flight.
struct FailOnPanic<'a>(&'a Commit);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(PoisonOnPanic::error());
    }
}

/// Whether a leader has made a direct flight.
enum TookOff {
    Yes,
    /// Nothing is there, or a hole.
    NothingToClaim,
    WrittenBefore,
}

/// What there is to claim for a direct flight.
enum Claim {
    Flight(Flight, Run),
    /// Nothing, or a hole.
    Nothing,
    WrittenBefore,
}
