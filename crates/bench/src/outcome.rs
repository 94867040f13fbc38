//! What one round of one contender gave.

/// Milliseconds since the round began, the longest latency in microseconds, and appends that came
/// first in their segment: a piece of a round's time.
pub type Moment = (f64, f64, u32);

/// What one round of one contender gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Records a second, of all threads.
    pub records_per_s: f64,
    /// Median, 99th, 99.9th and 99.99th percentile of the latency in microseconds.
    pub quantiles_us: Option<[f64; 4]>,
    /// Device syncs a second.
    pub syncs_per_s: Option<f64>,
    /// Records that one device sync covered on average.
    pub records_per_sync: Option<f64>,
    /// What `recover` and `reopen` alone measure.
    pub opened: Option<Opened>,
    /// Records that were due a second, in `open-loop`.
    pub offered_per_s: Option<f64>,
    /// Microseconds of an append that came first in its segment, in `rotation`.
    pub rotation_us: Option<f64>,
    /// Records a second that a scan read, in `codec`.
    pub scan_records_per_s: Option<f64>,
    /// Bytes that the log stores for each byte of a record, in `codec`.
    pub stored_ratio: Option<f64>,
    /// The median latency in multiples of an overwrite and a sync, in `opens` and `suffix`.
    pub in_raw_syncs: Option<f64>,
    /// Bytes that a new log takes on the device, in `opens`.
    pub disk_bytes: Option<u64>,
    /// What happened when, in `rotation`.
    pub timeline: Vec<Moment>,
    /// What was acknowledged and what could be read back, if the contender keeps records.
    pub kept: Option<Kept>,
}

/// An open of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opened {
    /// How long it took, in milliseconds.
    pub open_ms: f64,
    /// Bytes and segments of the log, if it is Palisade's.
    pub size: Option<(u64, u64)>,
}

/// The check of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Records whose call returned success.
    pub acknowledged: u64,
    /// Records that were there after the log was opened again.
    pub read_back: u64,
}

impl Kept {
    /// Whether records are missing that were acknowledged.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.read_back < self.acknowledged
    }
}
