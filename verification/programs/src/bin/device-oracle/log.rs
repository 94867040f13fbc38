//! The log that the oracle writes: Palisade, or the control.

use palisade::{Lsn, OpenMode, Options, Result, Wal};

use crate::OracleArgs;
use crate::plain::Plain;

/// An open log. Clones are the same log.
#[derive(Clone, Debug)]
pub(crate) enum Log {
    Palisade(Wal),
    Plain(Plain),
}

impl Log {
    /// Opens the log; makes it unless it `must_exist`.
    pub(crate) fn open(args: &OracleArgs, must_exist: bool) -> Result<Log> {
        if args.control {
            return Plain::open(&args.dir, must_exist).map(Log::Plain);
        }
        let options =
            Options::new().segment_bytes(args.segment_bytes).buffer_bytes(args.buffer_bytes);
        let mode = if must_exist { OpenMode::MustExist } else { OpenMode::CreateIfMissing };
        options.open_mode(mode).open(&args.dir).map(Log::Palisade)
    }

    /// Returns the LSN where the log begins.
    pub(crate) fn head(&self) -> Lsn {
        match self {
            Log::Palisade(wal) => wal.head_lsn(),
            Log::Plain(_) => Lsn::ZERO,
        }
    }

    /// Describes the end that recovery found.
    pub(crate) fn report(&self) -> String {
        match self {
            Log::Palisade(wal) => {
                let report = wal.recovery_report();
                format!("end={} base={}", report.end, report.base)
            }
            Log::Plain(_) => "control".into(),
        }
    }

    /// Hands all records to `f`, in order.
    pub(crate) fn each(&self, mut f: impl FnMut(Lsn, &[u8])) -> Result<()> {
        match self {
            Log::Palisade(wal) => {
                let mut records = wal.records()?;
                while let Some(record) = records.next()? {
                    f(record.lsn(), record.data());
                }
                Ok(())
            }
            Log::Plain(log) => log.each(f),
        }
    }

    /// Appends a record.
    pub(crate) fn append(&self, data: &[u8]) -> Result<Lsn> {
        match self {
            Log::Palisade(wal) => wal.append(data).map(|ticket| ticket.lsn()),
            Log::Plain(log) => log.append(data),
        }
    }

    /// Appends a record and makes it durable.
    pub(crate) fn commit(&self, data: &[u8]) -> Result<Lsn> {
        match self {
            Log::Palisade(wal) => wal.commit(data),
            Log::Plain(log) => {
                let lsn = log.append(data)?;
                log.sync().map_err(|error| error.after_append(lsn))?;
                Ok(lsn)
            }
        }
    }

    /// Makes durable what was appended before. Returns the end of that.
    pub(crate) fn sync(&self) -> Result<Lsn> {
        match self {
            Log::Palisade(wal) => {
                let end = wal.reserved_lsn();
                wal.sync().map(|()| end)
            }
            Log::Plain(log) => log.sync(),
        }
    }

    /// Truncates below `lsn`. The control keeps all records.
    pub(crate) fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        match self {
            Log::Palisade(wal) => wal.truncate_before(lsn),
            Log::Plain(_) => Ok(()),
        }
    }

    /// Closes the log.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Log::Palisade(wal) => wal.close(),
            Log::Plain(log) => log.sync().map(drop),
        }
    }
}
