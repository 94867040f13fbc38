//! The sources of a restore.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_store::disk::{DEFAULT_FILE_MODE, Disk, DiskFile};
use palisade_store::folder::{Folder, LOCK, META, segment_name};
use palisade_store::{FileReader, MAX_BUFFER_BYTES, ReadStore, Segment, State};

use super::{RestoreFrom, broken};
use crate::ArchiveReader;
use crate::archive::Contents;
use crate::copy::GivenOut;
use crate::inspect::{Inspector, Outcome};
use crate::recovery::listing::first_stray;
use crate::{Error, ErrorKind, Lsn, Result, Uuid};

const IS_IT_A_SEGMENT: &str = "get the segment from another copy, or, if the file is none, move it \
     away; or restore up to this LSN only";
const RESTORE_BELOW: &str = "get the segment from another copy, or restore up to this LSN only";
const IN_BOTH: &str = "the log's folder has this segment, too, and goes no further: if the \
     archived file is a copy of a segment that was in use, move it away; or restore up to this LSN \
     only";

/// An archive and the folder of its log, or one of them, as one log. Each segment is that of the
/// archive, or else that of the folder.
#[derive(Debug)]
pub(super) struct Sources {
    archive: Option<ArchiveReader>,
    log: Option<LogFolder>,
    paths: Vec<PathBuf>,
    state: State,
    segments: BTreeMap<u64, (SegmentOrigin, Segment)>,
    others: BTreeMap<u64, (SegmentOrigin, Segment)>,
    strays: Vec<PathBuf>,
}

#[derive(Debug)]
struct LogFolder {
    reader: FileReader,
    state: State,
    noted: Lsn,
    lock: Option<Box<dyn DiskFile>>,
    /// Where the epoch before ended in a copy whose last epoch has no records, if the archive
    /// continues it.
    dropped: Option<Lsn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentOrigin {
    Archive,
    Log,
}

impl Sources {
    /// Takes the lock of the log's folder, shared.
    pub(super) fn open(disk: &Arc<dyn Disk>, from: &RestoreFrom) -> Result<Sources> {
        let log = from.log.as_deref().map(|path| open_log(disk, path)).transpose()?;
        let uuid = log.as_ref().map(|log| log.state.uuid);
        let archive = from.archive.as_deref().map(|path| open_archive(disk, path, uuid));
        let archive = archive.transpose()?;
        if let (None, Some(log)) = (&archive, &log) {
            // Without the meta file nothing tells what was truncated. An archive has that, too.
            log.reader.meta()?;
        }
        let paths = [&from.archive, &from.log].into_iter().flatten().cloned().collect();
        let state = joined_state(archive.as_ref(), log.as_ref())?;
        let (segments, others, strays) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut sources = Sources { archive, log, paths, state, segments, others, strays };
        sources.join()?;
        Ok(sources)
    }

    fn join(&mut self) -> Result<()> {
        let mut of_log = match &self.log {
            Some(log) => log.reader.segments()?,
            None => Vec::new(),
        };
        if let Some(archive) = &self.archive {
            if let Some(log) = &mut self.log {
                log.dropped = log.drop_empty_epoch(&mut of_log, archive.end()?);
                if let Some(end) = log.dropped {
                    // Records of the archive lie between the two LSNs that such a note names.
                    self.state.bases.retain(|known| known.end_before < end);
                }
            }
            let Contents { segments, strays } = archive.contents()?;
            self.strays.extend(strays.into_iter().map(|number| archive.path_of(number)));
            for segment in segments {
                self.segments.insert(segment.number, (SegmentOrigin::Archive, segment));
            }
        }
        for segment in of_log {
            self.add_of_log(segment)?;
        }
        self.drop_strays();
        let mut salts = BTreeMap::new();
        for (_, segment) in self.segments.values() {
            let Ok(header) = &segment.header else { continue };
            if *salts.entry(header.epoch).or_insert(header.salt) != header.salt {
                return Err(self.two_sequences(segment.number));
            }
        }
        Ok(())
    }

    /// Prefers the archived segment, which is complete; the log's may have been copied before it
    /// was.
    fn add_of_log(&mut self, segment: Segment) -> Result<()> {
        let number = segment.number;
        let archived = self.segments.get(&number).map(|(_, archived)| &archived.header);
        match (archived, &segment.header) {
            (Some(Ok(archived)), Ok(header))
                if (archived.epoch, archived.salt) != (header.epoch, header.salt) =>
            {
                Err(self.two_sequences(number))
            }
            (Some(Ok(_)), Ok(_)) => {
                self.others.insert(number, (SegmentOrigin::Log, segment));
                Ok(())
            }
            (Some(Ok(_)), Err(_)) => Ok(()),
            (archived, _) => {
                if archived.is_some() {
                    self.strays.push(self.file_of(SegmentOrigin::Archive, number));
                }
                self.segments.insert(number, (SegmentOrigin::Log, segment));
                Ok(())
            }
        }
    }

    /// Reads the segment that holds `at` from the other source. Returns false if that lacks it.
    pub(super) fn exchange(&mut self, at: Lsn) -> bool {
        let number = at.segment(self.state.segment_bytes);
        let (Some(read), Some(other)) =
            (self.segments.get_mut(&number), self.others.get_mut(&number))
        else {
            return false;
        };
        std::mem::swap(read, other);
        let is_stray = other.0 == SegmentOrigin::Archive;
        let file = self.file_of(SegmentOrigin::Archive, number);
        self.strays.retain(|stray| *stray != file);
        self.strays.extend(is_stray.then_some(file));
        true
    }

    /// Removes what is out of reach, as an open does.
    fn drop_strays(&mut self) {
        let found: Vec<Segment> = self.segments.values().map(|(_, found)| found.clone()).collect();
        for stray in &found[first_stray(&self.state, &found)..] {
            if let Some((origin, _)) = self.segments.remove(&stray.number) {
                self.strays.push(self.file_of(origin, stray.number));
            }
        }
    }

    fn two_sequences(&self, number: u64) -> Error {
        let text = "the sources hold two sequences of records that went on apart from each other: \
                    two processes continued copies of one log";
        let error = Error::new(ErrorKind::Mismatch, text).at_path(self.place());
        error.at_segment(number).with_advice("restore from one of them")
    }

    pub(super) fn given_out(&self, above: Lsn) -> GivenOut {
        let Some(log) = &self.log else { return GivenOut { lsn: above, epoch: 0 } };
        let State { checkpoint, clean_end, epoch_base, epoch, segment_bytes, .. } = log.state;
        let lsns = [checkpoint, clean_end, epoch_base.plus(segment_bytes), log.noted, above];
        GivenOut { lsn: lsns.into_iter().fold(Lsn::ZERO, Lsn::max), epoch }
    }

    pub(super) fn end(&self) -> Result<Lsn> {
        let archive = match (&self.archive, self.last_archived()) {
            (Some(archive), Some(segment)) => archive.end_of(segment)?,
            _ => Lsn::ZERO,
        };
        let log = self
            .log
            .as_ref()
            .map_or(Ok(Lsn::ZERO), |log| log.end(self.path_of(SegmentOrigin::Log)));
        Ok(archive.max(log?))
    }

    fn last_archived(&self) -> Option<&Segment> {
        let found = self.segments.values().chain(self.others.values());
        let archived = found.filter(|(origin, _)| *origin == SegmentOrigin::Archive);
        archived.map(|(_, segment)| segment).max_by_key(|segment| segment.number)
    }

    pub(super) fn strays(&self) -> &[PathBuf] {
        &self.strays
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        let (ErrorKind::OutOfRange, Some(at)) = (error.kind(), error.lsn()) else { return error };
        let number = at.segment(self.state.segment_bytes);
        if let Some(error) = self.unknown_above(at) {
            return error;
        }
        let Some((origin, _)) = self.segments.get(&number) else {
            let Some((&next, _)) = self.segments.range(number..).next() else {
                return self.ends_below(at);
            };
            return self.missing(at, next);
        };
        if self.end().is_ok_and(|end| at >= end) {
            return self.ends_below(at);
        }
        let (origin, advice) = match self.others.contains_key(&number) {
            true => (SegmentOrigin::Archive, IN_BOTH),
            false => (*origin, RESTORE_BELOW),
        };
        let what = match origin {
            SegmentOrigin::Archive => "an archived segment",
            SegmentOrigin::Log => "a segment of the log",
        };
        let text = format!("no valid record where one must begin, in {what}");
        broken(text, at, number).at_path(self.file_of(origin, number)).with_advice(advice)
    }

    /// Names the first archived file at or above the end of the records whose header does not
    /// validate, unless a segment continues at that end.
    fn unknown_above(&self, end: Lsn) -> Option<Error> {
        let number = end.segment(self.state.segment_bytes);
        let is_end = match &self.log {
            Some(log) => log.end(self.path_of(SegmentOrigin::Log)).is_ok_and(|log| end >= log),
            None => !self.segments.range(number + 1..).any(|(_, (_, above))| above.header.is_ok()),
        };
        let mut archived =
            self.segments.range(number..).filter_map(|(number, (origin, segment))| {
                let why =
                    segment.header.as_ref().err().filter(|_| *origin == SegmentOrigin::Archive)?;
                Some((*number, why))
            });
        let (unknown, why) = archived.next().filter(|_| is_end)?;
        let text = format!(
            "the records end here, and at or above is a file with a segment's name that is damaged \
             or no segment of the log: {why}"
        );
        let error =
            broken(text, end, unknown).at_path(self.file_of(SegmentOrigin::Archive, unknown));
        Some(error.with_advice(IS_IT_A_SEGMENT))
    }

    fn missing(&self, at: Lsn, next: u64) -> Error {
        let State { segment_bytes, .. } = self.state;
        let number = at.segment(segment_bytes);
        let stray = self.stray_in_place_of(number);
        let text = format!(
            "the segments {number} to {} are missing: no source has the records from LSN {at} to \
             LSN {}{}",
            next - 1,
            Lsn::new(next * segment_bytes),
            stray
                .as_ref()
                .map_or("", |_| "; the file with this name is another segment, or another log's"),
        );
        let place = stray.unwrap_or_else(|| self.place().into());
        broken(text, at, number).at_path(place).with_advice(RESTORE_BELOW)
    }

    /// Adds to the error for a missing header the file that should have it: the segment right
    /// below, or the stray file in its place.
    pub(super) fn name_break(&self, error: Error) -> Error {
        let below = error.lsn().map_or(0, |at| at.segment(self.state.segment_bytes));
        let Some(number) = below.checked_sub(1) else { return error };
        let is_damaged = |(_, segment): &&(SegmentOrigin, Segment)| segment.header.is_err();
        let damaged = self.segments.get(&number).filter(is_damaged);
        let file = damaged.map(|(origin, _)| self.file_of(*origin, number));
        match file.or_else(|| self.stray_in_place_of(number)) {
            Some(file) => error.at_path(file).at_segment(number),
            None => error,
        }
    }

    fn stray_in_place_of(&self, number: u64) -> Option<PathBuf> {
        let name = segment_name(number);
        let is_missing = !self.segments.contains_key(&number);
        self.strays.iter().find(|stray| is_missing && stray.ends_with(&name)).cloned()
    }

    fn ends_below(&self, end: Lsn) -> Error {
        let text = format!("the records of the sources end at LSN {end}, below the LSN asked for");
        let error = Error::new(ErrorKind::OutOfRange, text).at_path(self.place()).at_lsn(end);
        error.with_advice("name this LSN, or that of a record below it, or none for all records")
    }

    pub(super) fn look_again(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        log.reader.check_unchanged(log.lock.is_some(), &log.state)
    }

    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.paths
    }

    fn path_of(&self, origin: SegmentOrigin) -> &Path {
        let index = usize::from(origin == SegmentOrigin::Log && self.archive.is_some());
        &self.paths[index]
    }

    fn file_of(&self, origin: SegmentOrigin, number: u64) -> PathBuf {
        self.path_of(origin).join(segment_name(number))
    }
}

impl LogFolder {
    /// Leaves out what only a log buffer holds.
    fn end(&self, path: &Path) -> Result<Lsn> {
        if let Some(end) = self.dropped {
            return Ok(end);
        }
        let disk = Arc::clone(self.reader.folder().shared_disk());
        let verdict = Inspector::new(FileReader::open_on(disk, path)?).verify()?;
        if verdict.outcome != Outcome::Corrupt {
            return Ok(verdict.end);
        }
        let why = verdict.why.unwrap_or_default();
        let error = Error::new(ErrorKind::Corrupt, format!("the log is damaged: {why}"));
        let advice = "name the LSN up to which to restore: this one, or that of a record below it";
        Err(error.at_path(path).at_lsn(verdict.end).with_advice(advice))
    }

    /// Removes the last epoch of a copy, if it has no records and the original log, as the archive
    /// shows, continued the epoch before. Returns where that one ended in the copy.
    fn drop_empty_epoch(&self, segments: &mut Vec<Segment>, archived_to: Lsn) -> Option<Lsn> {
        let State { clean, clean_end, epoch, epoch_base, .. } = self.state;
        let mut headers = segments.iter().filter_map(|segment| segment.header.as_ref().ok());
        let first = headers.find(|header| header.epoch == epoch && header.base == epoch_base);
        let end = first?.predecessor?.end;
        if !clean || clean_end != epoch_base || archived_to <= end {
            return None;
        }
        segments
            .retain(|segment| segment.header.as_ref().map_or(true, |header| header.epoch != epoch));
        Some(end)
    }
}

fn open_archive(disk: &Arc<dyn Disk>, path: &Path, uuid: Option<Uuid>) -> Result<ArchiveReader> {
    if let Ok(folder) = Folder::at(disk, path, DEFAULT_FILE_MODE)
        && folder.names()?.iter().any(|name| [META, LOCK].contains(&name.as_str()))
    {
        let text = "the archive's folder is a log's; expected a folder that an archive wrote";
        let error = Error::new(ErrorKind::InvalidArgument, text).at_path(path);
        return Err(error.with_advice("name it as the log"));
    }
    ArchiveReader::open_of(Arc::clone(disk), path, uuid)
}

fn open_log(disk: &Arc<dyn Disk>, path: &Path) -> Result<LogFolder> {
    let reader = FileReader::open_on(Arc::clone(disk), path)?;
    let lock = reader.lock_out_writers().map_err(|error| match error.kind() {
        ErrorKind::Locked => error.with_advice(
            "stop the process that writes the log, or call Wal::backup_to in that process",
        ),
        _ => error,
    })?;
    let noted = reader.noted_in_the_buffer()?;
    let state = reader.state()?;
    Ok(LogFolder { reader, state, noted, lock, dropped: None })
}

fn joined_state(archive: Option<&ArchiveReader>, log: Option<&LogFolder>) -> Result<State> {
    let archived = archive.map(ReadStore::state).transpose()?;
    let unknown = MAX_BUFFER_BYTES as u64;
    let (archived, log) = match (archived, log) {
        (None, None) => unreachable!("a restore has a source"),
        (None, Some(log)) => return Ok(log.state.clone()),
        // The greatest log buffer that the lost log can have had.
        (Some(state), None) => {
            return Ok(State { buffer_bytes: unknown, ..state });
        }
        (Some(archived), Some(log)) => (archived, log),
    };
    let State { uuid, segment_bytes, .. } = log.state;
    if uuid != archived.uuid || segment_bytes != archived.segment_bytes {
        let text = format!(
            "the archive holds segments of log {}, the log {} is {uuid}",
            archived.uuid,
            log.reader.place()
        );
        let error = Error::new(ErrorKind::Mismatch, text);
        let error = archive.map(ReadStore::place).map_or(error.clone(), |at| error.at_path(at));
        return Err(error.with_advice("name the archive of this log"));
    }
    Ok(with_archive(log, archived.head))
}

/// Returns the state of `log` if it is read with an archive from `archived_from` on. Names each
/// field, so that a new one does not compile before somebody decides about it.
fn with_archive(log: &LogFolder, archived_from: Lsn) -> State {
    let State {
        // The same in the archive's headers.
        uuid,
        segment_bytes,
        codec,
        buffer_bytes,
        head,
        // What an archive lacks. The plan lowers a checkpoint above the end of the copy.
        checkpoint,
        cursors,
        // `join` removes those that the archive disproves.
        bases,
        // The headers of all segments give the epochs and their ends: an archive that went on after
        // a backup has later ones than the log's folder. `given_out` has what these fields name.
        epoch: _,
        epoch_base: _,
        epoch_salt: _,
        clean_end: _,
        clean: _,
        epochs: _,
    } = log.state.clone();
    let is_rebuilt = log.reader.has_rebuilt_state();
    State {
        uuid,
        segment_bytes,
        codec,
        buffer_bytes: if is_rebuilt { MAX_BUFFER_BYTES as u64 } else { buffer_bytes },
        head: head.min(archived_from),
        checkpoint,
        cursors,
        bases,
        epoch: 0,
        epoch_base: Lsn::ZERO,
        epoch_salt: 0,
        clean_end: Lsn::ZERO,
        clean: false,
        epochs: Vec::new(),
    }
}

impl ReadStore for Sources {
    fn state(&self) -> Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(self.segments.values().map(|(_, segment)| segment.clone()).collect())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let number = at.segment(self.state.segment_bytes);
        match (self.segments.get(&number), &self.archive, &self.log) {
            (Some((SegmentOrigin::Archive, _)), Some(archive), _) => archive.read(at, into),
            (Some((SegmentOrigin::Log, _)), _, Some(log)) => log.reader.read(at, into),
            _ => Ok(0),
        }
    }

    fn place(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(" and ")
    }
}
