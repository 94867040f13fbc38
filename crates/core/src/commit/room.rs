//! Room in the log buffer, and how the end of the log is fixed.

use palisade_store::FilesTaken;
use palisade_store::ReadStore;
use palisade_store::sync::{Backoff, Ordering};

use super::Commit;
use crate::buffer::{Claim, NotFixed, Place, Reserved, Rest, Stop};
use crate::frame::no_lsn_left;
use crate::{Error, ErrorKind, Lsn, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Refuse,
}

impl Commit {
    pub(crate) fn stopped(&self, stop: Stop) -> Error {
        match (stop, self.check()) {
            (_, Err(error)) => error,
            (Stop::Closed, Ok(())) => Error::bare(ErrorKind::Closed),
            (Stop::Poisoned, Ok(())) => Error::bare(ErrorKind::Poisoned),
            (Stop::Paused, Ok(())) => Error::bare(ErrorKind::NoRoom),
            (Stop::Forked, Ok(())) => self.forked(),
        }
    }

    /// Refuses records with `NoSpace` if the segments pass `max_bytes`. The open calls this if the
    /// running epoch is empty. The next open frees its segment.
    pub(crate) fn refuse_above_limit(&self) {
        if self.check_limit().is_err() {
            self.buffer.stop(Stop::Paused);
            // Relaxed: no other thread has the log.
            self.refuses.store(1, Ordering::Relaxed);
        }
    }

    /// Checks `max_bytes` without the spares, which no truncation frees.
    fn check_limit(&self) -> Result<()> {
        let taken = FilesTaken { spares: 0, ..self.store.files_taken()? };
        taken.check_limit(0).map_err(|error| error.at_path(self.store.place()))
    }

    /// Ends the refusal if the segments do not pass the limit any more, or `anyway`. Returns
    /// whether it did.
    fn end_refusal(&self, anyway: bool) -> Result<bool> {
        // Relaxed, both: one swap returns 1, and the tail publishes the end of the pause.
        if self.refuses.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        if !anyway {
            self.check_limit()?;
        }
        let ends_it = self.refuses.swap(0, Ordering::Relaxed) == 1;
        if ends_it {
            self.buffer.resume(self.buffer.reserved(), self.buffer.seed());
        }
        Ok(ends_it)
    }

    /// Waits for room before anything is reserved. The caller keeps the `place` until then.
    fn make_room<'a>(
        &'a self,
        bytes: u64,
        when_full: WhenFull,
        place: &mut Option<Place<'a>>,
    ) -> Result<()> {
        let mut backoff = Backoff::default();
        let mut stall = None;
        loop {
            self.check()?;
            let tail = match self.buffer.tail() {
                Ok(tail) => tail,
                Err(Stop::Paused) if self.end_refusal(false)? => continue,
                Err(Stop::Paused) if when_full == WhenFull::Wait => {
                    // Nothing is reserved. The truncating thread sends no wake-up, and neither does
                    // the owner of a hole, so poll.
                    backoff.wait();
                    continue;
                }
                Err(stop) => return Err(self.stopped(stop)),
            };
            let needed = tail.plus(bytes);
            if self.buffer.admits(needed, place.as_ref()) {
                self.counters.end_stall(stall);
                return Ok(());
            }
            if needed > Lsn::LIMIT {
                return Err(no_lsn_left(needed));
            }
            if when_full == WhenFull::Refuse {
                return self.try_make_room(bytes);
            }
            stall.get_or_insert_with(|| self.counters.begin_stall());
            place.get_or_insert_with(|| self.buffer.take_place(tail));
            self.write_for_room(&mut backoff)?;
        }
    }

    /// Writes what is filled, but does not wait for another writer, whose lock is free only after
    /// the whole buffer: each piece makes room.
    fn write_for_room(&self, backoff: &mut Backoff) -> Result<()> {
        let before = self.buffer.written.read();
        self.try_write_filled()?;
        if self.buffer.written.read() > before {
            *backoff = Backoff::default();
        } else {
            backoff.wait();
        }
        Ok(())
    }

    /// Turns `claim`, which lacks room or crosses a segment end, into a range in one segment.
    #[cold]
    pub(crate) fn make_fit(
        &self,
        claim: Claim,
        bytes: u64,
        when_full: WhenFull,
    ) -> Result<Reserved<'_>> {
        let reserved = self.wait_for_room(&claim, bytes)?;
        if !self.buffer.crosses(&claim, bytes) {
            return Ok(reserved);
        }
        reserved.pad();
        let claim = self.claim(bytes, when_full)?;
        self.wait_for_room(&claim, bytes)
    }

    /// Waits for room and for the end of a pause, then reserves.
    #[cold]
    pub(crate) fn claim(&self, bytes: u64, when_full: WhenFull) -> Result<Claim> {
        let mut place = None;
        loop {
            self.make_room(bytes, when_full, &mut place)?;
            match self.buffer.reserve(bytes) {
                Ok(claim) if self.buffer.crosses(&claim, bytes) => {
                    self.wait_for_room(&claim, bytes)?.pad();
                }
                Ok(claim) => return Ok(claim),
                Err(Stop::Paused) => {}
                Err(stop) => return Err(self.stopped(stop)),
            }
        }
    }

    /// Tries once to make room: no other thread may come to write a piece that failed.
    fn try_make_room(&self, bytes: u64) -> Result<()> {
        self.try_write_filled()?;
        let tail = self.buffer.tail().map_err(|stop| self.stopped(stop))?;
        let has_room = self.buffer.admits(tail.plus(bytes), None);
        if has_room { Ok(()) } else { Err(Error::bare(ErrorKind::NoRoom)) }
    }

    /// Fixes the end of the log with a flag, with `pad_to_block` at the end of a block, after a
    /// truncation that is under way. If a full disk leaves no room for the rest of the block, sets
    /// no flag.
    pub(crate) fn fix_end(&self, stop: Stop) -> Result<Lsn> {
        let mut backoff = Backoff::default();
        let mut place = None;
        loop {
            self.check()?;
            match self.buffer.stop_at_block(stop) {
                Ok((end, rest)) => return self.fill_rest(rest).map(|()| end),
                Err(NotFixed::NoRoom(bytes)) => {
                    self.make_room(bytes, WhenFull::Wait, &mut place)?;
                }
                // A close and a truncation of the suffix take no space, or more than the limit.
                Err(NotFixed::Stopped(Stop::Paused)) if self.end_refusal(true)? => {}
                Err(NotFixed::Stopped(Stop::Paused)) => backoff.wait(),
                Err(NotFixed::Stopped(stop)) => return Err(self.stopped(stop)),
            }
        }
    }

    fn fill_rest(&self, rest: Option<Rest>) -> Result<()> {
        let Some(Rest { claim, bytes }) = rest else { return Ok(()) };
        self.wait_for_room(&claim, bytes).map(Reserved::pad)
    }

    /// Waits until the bytes of `claim` are free, also on a full disk: an unfilled range would be a
    /// hole.
    fn wait_for_room(&self, claim: &Claim, bytes: u64) -> Result<Reserved<'_>> {
        let mut backoff = Backoff::default();
        let mut stall = None;
        loop {
            self.check()?;
            if let Some(reserved) = self.occupy(claim, bytes, self.buffer.limit()) {
                self.counters.end_stall(stall);
                return Ok(reserved);
            }
            if claim.end(bytes) > Lsn::LIMIT {
                // Other threads reserved after this thread had looked. Its range can never be
                // filled.
                return Err(self.poison(no_lsn_left(claim.end(bytes))));
            }
            stall.get_or_insert_with(|| self.counters.begin_stall());
            match self.write_for_room(&mut backoff) {
                Err(error) if error.is_shortage() => backoff.wait(),
                other => other?,
            }
        }
    }
}
