//! The reader of an archive.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_store::disk::{Access, DEFAULT_FILE_MODE, Disk, Kind, OsDisk, guarded, read_full};
use palisade_store::folder::{Folder, segment_name};
use palisade_store::meta::{self, rebuilt};
use palisade_store::segment::header::{self, HeaderFault, LogOf};
use palisade_store::segment::header::{damaged, listed};
use palisade_store::segment::segment_file::LOG_AT;
use palisade_store::{BadHeader, ReadStore, Segment, SegmentHeader, State};

use super::owner_name;
use crate::inspect::Inspector;
use crate::recovery::listing::first_stray;
use crate::{Error, ErrorKind, Lsn, Records, Result, Uuid};

const IS_IT_A_SEGMENT: &str = "get the segment from another copy, or, if the file is none, move it \
     away";
const READ_ABOVE: &str = "get the segment from another copy, or, if the file is none, move it \
     away; or read on from an LSN above";

/// The records of the segments in an [`Archive`](super::Archive), with their LSNs.
/// [`Restore`](crate::Restore) makes a log of them. An archive ends with a segment, at or below the
/// log's head. It breaks where a segment is missing or damaged, and where a
/// [`Repair`](crate::Repair) kept nothing; `records` reads on from an LSN above.
#[derive(Clone, Debug)]
pub struct ArchiveReader {
    folder: Folder,
    state: State,
}

#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) segments: Vec<Segment>,
    pub(crate) strays: Vec<u64>,
}

impl ArchiveReader {
    /// Finds archived segments in the folder `path`. Of several logs, reads the one that the file
    /// `archive-of-UUID` names, or else the one with the most segments.
    ///
    /// # Errors
    /// `NotFound`: there are none, or no folder. `Corrupt`: no file has a header that validates.
    /// `Unsupported`. `Foreign`: a segment's name is that of a folder or a link.
    /// `PermissionDenied`, `NoFiles`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<ArchiveReader> {
        ArchiveReader::open_on(Arc::new(OsDisk), path)
    }

    /// Opens as [`open`](ArchiveReader::open) does, on another disk.
    ///
    /// # Errors
    /// As [`open`](ArchiveReader::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<ArchiveReader> {
        ArchiveReader::open_of(disk, path.as_ref(), None)
    }

    /// Prefers `log`, if no file names the archive's log.
    pub(crate) fn open_of(
        disk: Arc<dyn Disk>,
        path: &Path,
        log: Option<Uuid>,
    ) -> Result<ArchiveReader> {
        let disk = guarded(disk);
        let kind = disk.kind(path);
        let kind = kind.map_err(|error| Error::io("look at the archive", error).at_path(path))?;
        if kind == Kind::Missing {
            let text = "the archive's folder does not exist";
            return Err(Error::new(ErrorKind::NotFound, text).at_path(path));
        }
        let folder = Folder::at(&disk, path, DEFAULT_FILE_MODE)?;
        let (names, looks) = (folder.names()?, look_at_all(&folder)?);
        let owner = owner_of(&names, &looks, log).ok_or_else(|| none_in(&folder, &looks))?;
        let head = Lsn::new(first_of(&looks, &owner).saturating_mul(owner.segment_bytes));
        Ok(ArchiveReader { state: meta::bare_state(&owner, head), folder })
    }

    /// Returns the records from the one at `from` on, or all.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: no header at or below `from` shows where the records begin; read from the
    /// next segment on. `Corrupt`: also if headers contradict each other. `NotFound`: the segments
    /// were removed. `PermissionDenied`, `NoFiles`. The iterator returns `Corrupt` at a record that
    /// is damaged or missing, and where nothing shows that the next epoch follows.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        self.check_begin(from)?;
        let records = Inspector::new(self.clone()).records_until(from, self.end()?);
        records.map_err(|error| match error.kind() {
            ErrorKind::Corrupt => error.with_advice(READ_ABOVE),
            _ => error,
        })
    }

    /// Refuses a start below which no header is known: the headers above would skip the segment.
    fn check_begin(&self, from: Option<Lsn>) -> Result<()> {
        let State { segment_bytes, head, .. } = self.state;
        let from = from.unwrap_or(head).max(head).segment(segment_bytes);
        let segments = self.contents()?.segments;
        let mut unknown = segments
            .iter()
            .map_while(|segment| segment.header.as_ref().err().map(|why| (segment.number, why)));
        let Some((number, why)) = unknown.find(|(number, _)| *number >= from) else {
            return Ok(());
        };
        let error = Error::new(why.kind(), format!("in the archived segment, {why}"));
        let error = error.at_path(self.path_of(number)).at_segment(number);
        Err(error.at_lsn(Lsn::new(number * segment_bytes)).with_advice(READ_ABOVE))
    }

    /// Returns the files with a segment's name that are of another log or segment, or have no valid
    /// header and are not near the log. A file near the log without one counts as a damaged
    /// segment.
    ///
    /// # Errors
    /// As [`open`](ArchiveReader::open), except `NotFound` and `Corrupt`.
    pub fn strays(&self) -> Result<Vec<PathBuf>> {
        Ok(self.contents()?.strays.into_iter().map(|number| self.path_of(number)).collect())
    }

    pub(crate) fn end(&self) -> Result<Lsn> {
        let last = self.contents()?.segments.pop().ok_or_else(|| none(&self.folder))?;
        self.end_of(&last)
    }

    /// Returns where the file ends, or, without a valid header, the segment.
    pub(crate) fn end_of(&self, segment: &Segment) -> Result<Lsn> {
        let segment_bytes = self.state.segment_bytes;
        let (base, name) = (segment.number * segment_bytes, segment_name(segment.number));
        let file = self.folder.open(&name, Access::Read)?;
        let len = file.len();
        let len = len.map_err(|error| self.folder.error("look at the segment", &name, error))?;
        // Without a header nothing says that the file is as long as it was.
        let bytes = if segment.header.is_ok() { len.saturating_sub(LOG_AT) } else { segment_bytes };
        Ok(Lsn::new(base).plus(bytes.min(segment_bytes)))
    }

    pub(crate) fn contents(&self) -> Result<Contents> {
        let State { uuid, segment_bytes, head, .. } = self.state;
        let (first, behind) = (head.segment(segment_bytes), Lsn::LIMIT.segment(segment_bytes));
        let looks = look_at_all(&self.folder)?;
        let is_own = |log: &LogOf| (log.uuid, log.segment_bytes) == (uuid, segment_bytes);
        let numbers = own_numbers(&looks, is_own);
        let mut contents = Contents { segments: Vec::new(), strays: Vec::new() };
        for (number, found) in looks {
            let header = match found {
                FoundFile::Of(log, header) if is_own(&log) => Some(Ok(header)),
                FoundFile::Misplaced(log, own, why) if is_own(&log) && !numbers.contains(&own) => {
                    Some(Err(BadHeader::Damaged(why)))
                }
                FoundFile::Of(..) | FoundFile::Misplaced(..) => None,
                FoundFile::Damaged(fault) if fault.is_unsupported() => {
                    return Err(fault_of(&self.folder, number, &fault));
                }
                FoundFile::Damaged(fault) => Some(Err(damaged(fault))),
                FoundFile::Unreadable(error) => {
                    Some(listed(number, Err(error), |_| unreachable!("there is no block"))?.header)
                }
            };
            match header.filter(|_| (first..behind).contains(&number)) {
                Some(header) => contents.segments.push(Segment { number, header }),
                None => contents.strays.push(number),
            }
        }
        let above = contents.segments.split_off(first_stray(&self.state, &contents.segments));
        contents.strays.extend(above.into_iter().map(|stray| stray.number));
        contents.strays.sort_unstable();
        Ok(contents)
    }

    pub(crate) fn path_of(&self, number: u64) -> PathBuf {
        self.folder.path().join(segment_name(number))
    }
}

/// The state is made up from the segments.
#[doc(hidden)]
impl ReadStore for ArchiveReader {
    fn state(&self) -> Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.contents().map(|contents| contents.segments)
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let segment_bytes = self.state.segment_bytes;
        let (number, offset) = (at.segment(segment_bytes), at.as_u64() % segment_bytes);
        let rest = segment_bytes - offset;
        let len = usize::try_from(rest).map_or(into.len(), |rest| rest.min(into.len()));
        let name = segment_name(number);
        let file = self.folder.open_if_there(&name, Access::Read)?;
        let Some(file) = file else { return Ok(0) };
        read_full(file.as_ref(), LOG_AT + offset, &mut into[..len]).map_err(|error| {
            let error = self.folder.error("read the archived segment", &name, error);
            error.at_segment(number).at_lsn(at)
        })
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn segment_place(&self, number: u64) -> String {
        self.path_of(number).display().to_string()
    }

    fn advice_on_damage(&self) -> Option<&'static str> {
        Some(READ_ABOVE)
    }
}

pub(super) type Look = (u64, FoundFile);

#[derive(Debug)]
pub(super) enum FoundFile {
    Of(LogOf, SegmentHeader),
    /// Another segment of this log, of this number, as the text says.
    Misplaced(LogOf, u64, String),
    Damaged(HeaderFault),
    Unreadable(Error),
}

impl FoundFile {
    fn in_block(block: &[u8], number: u64) -> std::result::Result<FoundFile, HeaderFault> {
        let log = header::log_of(block).map_err(HeaderFault::Block)?;
        match header::decode(block, log.uuid, log.segment_bytes, number) {
            Ok(header) => Ok(FoundFile::Of(log, header)),
            Err(HeaderFault::Misplaced(why)) => {
                let own = header::number_of(block).map_err(HeaderFault::Block)?;
                Ok(FoundFile::Misplaced(log, own, why))
            }
            Err(fault) => Err(fault),
        }
    }
}

pub(super) fn look_at_all(folder: &Folder) -> Result<Vec<Look>> {
    let numbers = folder.segment_numbers(1)?.into_iter();
    numbers.filter_map(|number| look(folder, number).transpose()).collect()
}

pub(super) fn look(folder: &Folder, number: u64) -> Result<Option<Look>> {
    let found = match folder.header_block(number) {
        Ok(None) => return Ok(None),
        Ok(Some(block)) => FoundFile::in_block(&block, number).unwrap_or_else(FoundFile::Damaged),
        Err(error) if error.kind() == ErrorKind::Io => {
            FoundFile::Unreadable(error.at_segment(number))
        }
        Err(error) => return Err(error.at_segment(number)),
    };
    Ok(Some((number, found)))
}

/// Returns the log with a segment here that a name names, or else the log `uuid`, or else the one
/// with the most segments.
pub(super) fn owner_of(names: &[String], looks: &[Look], uuid: Option<Uuid>) -> Option<LogOf> {
    let mut logs: Vec<(LogOf, usize)> = Vec::new();
    for (_, found) in looks {
        let FoundFile::Of(log, _) = found else { continue };
        match logs.iter_mut().find(|(known, _)| known == log) {
            Some((_, count)) => *count += 1,
            None => logs.push((*log, 1)),
        }
    }
    let rank = |(log, count): &(LogOf, usize)| {
        (names.contains(&owner_name(log.uuid)), uuid == Some(log.uuid), *count)
    };
    logs.into_iter().max_by_key(rank).map(|(log, _)| log)
}

fn own_numbers(looks: &[Look], is_own: impl Fn(&LogOf) -> bool) -> BTreeSet<u64> {
    let own = |(number, found): &Look| match found {
        FoundFile::Of(log, _) if is_own(log) => Some(*number),
        _ => None,
    };
    looks.iter().filter_map(own).collect()
}

/// Returns the lowest segment whose header validates, or a damaged one that belongs below it.
fn first_of(looks: &[Look], owner: &LogOf) -> u64 {
    let numbers = own_numbers(looks, |log| log == owner);
    let may_be_own = |(number, found): &Look| match found {
        FoundFile::Of(..) => numbers.contains(number),
        FoundFile::Misplaced(log, own, _) => log == owner && !numbers.contains(own),
        FoundFile::Damaged(_) | FoundFile::Unreadable(_) => true,
    };
    let present: Vec<u64> =
        looks.iter().filter(|look| may_be_own(look)).map(|look| look.0).collect();
    let lowest = looks.iter().find_map(|(_, found)| match found {
        FoundFile::Of(log, header) if log == owner => Some(header),
        _ => None,
    });
    lowest.map_or(0, |header| rebuilt::first_of(&present, header, owner.segment_bytes))
}

fn none_in(folder: &Folder, looks: &[Look]) -> Error {
    let unsupported =
        |found: &FoundFile| matches!(found, FoundFile::Damaged(fault) if fault.is_unsupported());
    let newer = looks.iter().find(|(_, found)| unsupported(found));
    match newer.or(looks.first()) {
        Some((number, FoundFile::Damaged(fault))) => fault_of(folder, *number, fault),
        Some((_, FoundFile::Unreadable(error))) => error.clone(),
        Some((number, FoundFile::Misplaced(_, _, why))) => misplaced(folder, *number, why),
        _ => none(folder),
    }
}

fn none(folder: &Folder) -> Error {
    let text = "the folder holds no archived segment";
    Error::new(ErrorKind::NotFound, text).at_path(folder.path())
}

pub(super) fn fault_of(folder: &Folder, number: u64, fault: &HeaderFault) -> Error {
    let is_unsupported = fault.is_unsupported();
    let kind = if is_unsupported { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
    let error = Error::new(kind, format!("in the archived segment, {fault}"));
    let error = error.at_path(folder.path().join(segment_name(number))).at_segment(number);
    if is_unsupported { error } else { error.with_advice(IS_IT_A_SEGMENT) }
}

pub(super) fn misplaced(folder: &Folder, number: u64, why: &str) -> Error {
    let error =
        Error::new(ErrorKind::Corrupt, format!("an archived segment has a wrong name: {why}"));
    let error = error.at_path(folder.path().join(segment_name(number))).at_segment(number);
    error.with_advice(IS_IT_A_SEGMENT)
}
