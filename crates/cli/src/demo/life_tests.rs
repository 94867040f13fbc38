use std::path::PathBuf;

use palisade::Lsn;

use super::*;
use crate::args::Promise;

fn listen(bytes: &[u8]) -> Result<(Round, Measured), Failure> {
    let listener = Listener {
        round: Round::new(1, 0, 2),
        measured: Measured::default(),
        acknowledged: Arc::default(),
    };
    // One byte less than a frame at a time: no read ends where a frame does.
    let (ready, _events) = mpsc::channel();
    listener.run(Pieces(bytes), &ready)
}

struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(FRAME_BYTES - 1);
        self.0.read(&mut into[..count])
    }
}

fn ack(thread: u32, seq: u64, lsn: u64) -> [u8; FRAME_BYTES] {
    Frame::Ack { thread, seq, lsn: Lsn::new(lsn) }.encode()
}

#[test]
fn a_frame_that_the_kill_cut_off_does_not_count() {
    let latency = Frame::Latency { p50_ns: 5, p99_ns: 9 }.encode();
    let frames = [Frame::Ready.encode(), ack(0, 0, 0), ack(1, 0, 64), latency, ack(0, 1, 128)];
    let bytes = frames.as_flattened();
    let (round, measured) = listen(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(round.acknowledged(), 2);
    assert_eq!(round.threads[0].trail().count, 1);
    assert_eq!(round.threads[1].lsn(0), Some(Lsn::new(64)));
    assert_eq!(measured.latency_ns, Some((5, 9)));
    assert_eq!(measured.syncs, None);
}

#[test]
fn reports_that_make_no_sense_are_refused() {
    for frames in [vec![ack(0, 1, 0)], vec![ack(2, 0, 0)], vec![[0; FRAME_BYTES]]] {
        let failure = listen(frames.as_flattened()).unwrap_err();
        assert!(failure.to_string().contains("garbled"), "{failure}");
    }
}

#[test]
fn a_writer_that_dies_by_itself_is_a_failure_with_its_words() {
    // The program that is started again is this test, which has no such arguments.
    let args = DemoArgs {
        seconds: Duration::from_secs(60),
        threads: 1,
        record_bytes: 32,
        dir: None,
        segment_bytes: None,
        buffer_bytes: None,
        rounds: 1,
        promise: Promise::Commit,
    };
    let failure = live(&args, &PathBuf::from("nowhere"), Round::new(1, 0, 1), |_, _| {})
        .expect_err("a test is no writer");
    let text = failure.to_string();
    assert!(text.contains("died by itself") && text.contains("'dir'"), "{text}");
}
