//! The file at the path of a log: it names the log in the folder beside it.
//!
//! The published crate keeps a log in one file, and engines empty a log by removing the file. Here
//! the records lie in a folder, and this file stands for them. If it is missing or empty, the log
//! has no records: [`place`](crate::place) then empties the log in the folder.
//!
//! ```text
//! wal-db log, in the folder `.palisade` beside this file
//! log 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0
//! lsn 00000000000000000000 check 1a2b3c4d
//! file 00000000000000131586 01767225600000000000
//! ```
//!
//! The second line has the UUID of the log, the third one the position in it that has LSN 0, and
//! the CRC-32C of all bytes before. The fourth line has the inode of the file and its birth time,
//! so that a copy of the file shows that it is one. Bytes after it are ignored.

use std::io::{self, IoSlice};

use palisade::crc32c_append;
use palisade::disk::{Access, DiskFile, DiskFolder, FileIdentity};

const TITLE: &str = "wal-db log, in the folder `.palisade` beside this file\n";
const UUID_BYTES: usize = 36;
const ORIGIN_DIGITS: usize = 20;
const CHECK_DIGITS: usize = 8;
const IDENTITY_DIGITS: usize = 20;
const UUID_AT: usize = TITLE.len() + "log ".len();
const ORIGIN_AT: usize = UUID_AT + UUID_BYTES + "\nlsn ".len();
const CHECK_AT: usize = ORIGIN_AT + ORIGIN_DIGITS + " check ".len();
/// The length of the first three lines.
const ANCHOR_BYTES: usize = CHECK_AT + CHECK_DIGITS + "\n".len();
/// The length of the file.
const FILE_BYTES: usize = ANCHOR_BYTES + "file ".len() + 2 * (IDENTITY_DIGITS + 1);

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) uuid: String,
    pub(crate) origin: u64,
}

/// What is at the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AtPath {
    /// Nothing, or an empty file.
    Nothing,
    Anchor(Anchor),
    /// A file that this crate has not written, or that is damaged.
    Other,
}

impl Anchor {
    fn encode(&self) -> String {
        let Anchor { uuid, origin } = self;
        let text = format!("{TITLE}log {uuid}\nlsn {origin:0ORIGIN_DIGITS$} check ");
        let check = crc32c_append(0, text.as_bytes());
        format!("{text}{check:0CHECK_DIGITS$x}\n")
    }

    fn decode(bytes: &[u8]) -> Option<Anchor> {
        let text = str::from_utf8(bytes.get(..ANCHOR_BYTES)?).ok()?;
        let uuid = text.get(UUID_AT..UUID_AT + UUID_BYTES)?.to_owned();
        let origin = text.get(ORIGIN_AT..ORIGIN_AT + ORIGIN_DIGITS)?.parse().ok()?;
        Some(Anchor { uuid, origin }).filter(|anchor| anchor.encode() == text)
    }
}

/// Reads the file `name`.
pub(crate) fn read(folder: &dyn DiskFolder, name: &str) -> io::Result<AtPath> {
    let file = match folder.open(name, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AtPath::Nothing),
        opened => opened?,
    };
    if file.len()? == 0 {
        return Ok(AtPath::Nothing);
    }
    Ok(Anchor::decode(&start_of(file.as_ref())?).map_or(AtPath::Other, AtPath::Anchor))
}

/// Returns whether the file `name` is a copy of the file that was written. A file without a fourth
/// line counts as no copy.
pub(crate) fn is_copy(folder: &dyn DiskFolder, name: &str) -> io::Result<bool> {
    let file = folder.open(name, Access::Read)?;
    let bytes = start_of(file.as_ref())?;
    let line = bytes.get(ANCHOR_BYTES..).filter(|line| !line.is_empty());
    let own = fourth_line(file.identity()?);
    Ok(line.is_some_and(|line| line != own.as_bytes()))
}

fn fourth_line(FileIdentity { inode, born }: FileIdentity) -> String {
    format!("file {inode:0IDENTITY_DIGITS$} {born:0IDENTITY_DIGITS$}\n")
}

/// Returns whether the file `name` is as [`write`] leaves it.
pub(crate) fn is_written(
    folder: &dyn DiskFolder,
    name: &str,
    anchor: &Anchor,
    copied: Option<FileIdentity>,
) -> io::Result<bool> {
    let file = match folder.open(name, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let identity = copied.map_or_else(|| file.identity(), Ok)?;
    Ok(start_of(file.as_ref())? == (anchor.encode() + &fourth_line(identity)).as_bytes())
}

/// Writes the file `name`, durably: it has the old content or the new one after a crash. If it is
/// to be a copy of a file, `copied` is the identity of that file.
pub(crate) fn write(
    folder: &dyn DiskFolder,
    name: &str,
    anchor: &Anchor,
    copied: Option<FileIdentity>,
) -> io::Result<()> {
    let new = format!("{name}.palisade-new");
    let file = folder.open(&new, Access::Fresh)?;
    let bytes = anchor.encode() + &fourth_line(copied.map_or_else(|| file.identity(), Ok)?);
    let mut done = 0;
    while done < bytes.len() {
        let rest = [IoSlice::new(&bytes.as_bytes()[done..])];
        match file.write_at(done as u64, &rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    file.sync_data()?;
    drop(file);
    folder.rename(&new, name)?;
    folder.sync()
}

fn start_of(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; FILE_BYTES];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(done as u64, &mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
