//! A callback for released segments that waits.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use palisade::{OnRelease, ReleasedSegment, Result};

/// A callback that waits for its results: one for each segment.
#[derive(Debug)]
pub(crate) struct Held {
    results: Mutex<Receiver<Result<()>>>,
    begun: Sender<u64>,
}

impl OnRelease for Held {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        self.begun.send(segment.header.number).unwrap();
        self.results.lock().unwrap().recv().unwrap()
    }
}

pub(crate) fn held() -> (Held, Sender<Result<()>>, Receiver<u64>) {
    let ((results, waits), (begun, begins)) = (channel(), channel());
    (Held { results: Mutex::new(waits), begun }, results, begins)
}
