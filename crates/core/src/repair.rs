//! Repair: plans a copy of a damaged log that holds what lies below the damage, and counts what it
//! gives up. The copy itself is that of [`copy`](crate::copy).

use std::sync::Arc;

use crate::copy::progress::{CopyProgress, CopyStep, OnProgress, PROGRESS_BYTES};
use crate::copy::{CopyPlan, CopyReport, GivenOut, highest_end};
use crate::inspect::{SALVAGE_READ_BYTES, Salvage, Salvaged};
use crate::store::{ReadStore, State};
use crate::{ErrorKind, Lsn, Result};

/// What a repair keeps and gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Where the copy begins: at the head of the damaged log; at the next epoch's base if the head
    /// lies between two epochs; at `base` if nothing is kept.
    pub head: Lsn,
    /// Records that are kept.
    pub records: u64,
    /// Bytes of log that are kept, including headers and padding.
    pub bytes: u64,
    /// Exclusive end of the last record that is kept.
    pub end: Lsn,
    /// The start of the part that is given up, as the caller named it.
    pub from: Lsn,
    /// Exclusive end of the part that is given up, as far as it is known.
    pub given_up_to: Lsn,
    /// Records at or above `from` that validate: `Inspector::salvage` reads them from the damaged
    /// log.
    pub given_up_records: u64,
    /// The LSN of the next append: above every LSN that the damaged log can have returned.
    pub base: Lsn,
    /// The copy's last epoch, in which appends continue.
    pub epoch: u64,
}

/// The plan of a repair: what it found and what a store has to write.
#[derive(Debug)]
pub struct RepairPlan {
    copy: CopyPlan,
    report: RepairReport,
}

impl RepairPlan {
    /// Reads the log in `store`, which is to end at `from`. `noted` is an LSN that was durable
    /// once, as far as the store knows. `salt` has 64 random bits.
    ///
    /// # Errors
    /// As [`CopyPlan::new`], with `from` as its end.
    pub fn new(
        store: Arc<dyn ReadStore>,
        from: Lsn,
        noted: Lsn,
        salt: u64,
        on_progress: OnProgress<'_>,
    ) -> Result<RepairPlan> {
        let given_out = GivenOut { lsn: noted, epoch: 0 };
        let copy = CopyPlan::new(Arc::clone(&store), from, given_out, salt, on_progress)?;
        let CopyReport { head, records, bytes, end, base, epoch, .. } = *copy.report();
        let (given_up_records, given_up_to) = count_given_up(&store, from, on_progress)?;
        let State { checkpoint, clean_end, .. } = *copy.source();
        let report = RepairReport {
            head,
            records,
            bytes,
            end,
            from,
            given_up_to: given_up_to.max(checkpoint).max(clean_end).max(noted),
            given_up_records,
            base,
            epoch,
        };
        Ok(RepairPlan { copy, report })
    }

    /// Returns what is kept and given up.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        &self.report
    }

    /// Returns the plan of the copy.
    #[must_use]
    pub fn copy(&self) -> &CopyPlan {
        &self.copy
    }
}

/// Returns the number of records at or above `from` that validate, and where the log ends that is
/// given up. Skips what cannot be read.
fn count_given_up(
    store: &Arc<dyn ReadStore>,
    from: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<(u64, Lsn)> {
    let highest_end = highest_end(&store.segments()?, store.state()?.segment_bytes);
    let total = highest_end.bytes_since(from.min(highest_end));
    let mut records = 0;
    let mut salvage = Salvage::new(store, Some(from), SALVAGE_READ_BYTES)?;
    let (mut end, mut reported_to) = (from, from);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => {
                records += 1;
                end = end.max(record.next_lsn());
            }
            Ok(Some(Salvaged::Gap(gap))) => end = end.max(gap.to),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error),
        }
        if end.bytes_since(reported_to) >= PROGRESS_BYTES {
            reported_to = end;
            let done = end.bytes_since(from).min(total);
            on_progress(CopyProgress { step: CopyStep::Count, done, total });
        }
    }
    Ok((records, end))
}
