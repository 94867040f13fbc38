//! The state of a log without its meta file, from the headers of its segments, for tools that only
//! read. It lacks the head's place in its segment, the checkpoint and the clean end.

use std::collections::BTreeMap;

use super::bare_state;
use crate::folder::Folder;
use crate::segment::header::{self, LogOf};
use crate::{CodecId, ErrorKind, Lsn, Result, Uuid};
use crate::{SegmentHeader, State};

type LogIdentity = ([u8; 16], u64, Option<CodecId>);

/// Returns the state of the log with the most segments, if a header is valid.
pub(crate) fn state_of(folder: &Folder) -> Result<Option<State>> {
    let present = folder.segment_numbers(1)?;
    // With the lowest header and how many there are.
    let mut logs: BTreeMap<LogIdentity, (SegmentHeader, usize)> = BTreeMap::new();
    for &number in &present {
        if let Some((log, header)) = header_of(folder, number)? {
            logs.entry(log).or_insert((header, 0)).1 += 1;
        }
    }
    let most = logs.into_iter().max_by_key(|(_, (_, count))| *count);
    Ok(most.map(|((uuid, segment_bytes, codec), (lowest, _))| {
        let first = first_of(&present, &lowest, segment_bytes);
        let log = LogOf { uuid: Uuid(uuid), segment_bytes, codec };
        bare_state(&log, Lsn::new(first.saturating_mul(segment_bytes)))
    }))
}

/// Returns the first segment of a log whose lowest valid header is `lowest`. Files right below it,
/// or below the end of the epoch that it names, count as segments with damaged headers.
pub fn first_of(present: &[u64], lowest: &SegmentHeader, segment_bytes: u64) -> u64 {
    let is_present = |number: &u64| present.binary_search(number).is_ok();
    let ended = lowest.predecessor.and_then(|before| before.end.as_u64().checked_sub(1));
    let ended = ended.map(|last| last / segment_bytes).filter(is_present);
    let first = ended.map_or(lowest.number, |number| number.min(lowest.number));
    let damaged = (0..first).rev().take_while(is_present).count() as u64;
    first - damaged
}

fn header_of(folder: &Folder, number: u64) -> Result<Option<(LogIdentity, SegmentHeader)>> {
    let block = match folder.header_block(number) {
        // As one that does not validate.
        Err(error) if error.kind() == ErrorKind::Io => None,
        block => block?,
    };
    let Some(block) = block else { return Ok(None) };
    let Ok(LogOf { uuid, segment_bytes, codec }) = header::log_of(&block) else { return Ok(None) };
    let header = header::decode(&block, uuid, segment_bytes, number).ok();
    Ok(header.map(|header| ((uuid.0, segment_bytes, codec), header)))
}
