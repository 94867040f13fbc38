use clap::Parser;
use palisade::Lsn;

use super::*;
use crate::command::{Cli, Command};

fn ack(thread: u32, seq: u64) -> [u8; ACK_BYTES] {
    Ack { thread, seq, lsn: Lsn::new(64 * seq) }.encode()
}

#[test]
fn a_report_that_the_kill_tore_does_not_count() {
    let acks = [ack(0, 0), ack(1, 0), ack(0, 1)];
    let bytes = acks.as_flattened();
    let (began, events) = mpsc::channel();
    let round = read(&bytes[..bytes.len() - 1], Round::new(1, 0, 2), &began).unwrap();
    drop(began);
    assert_eq!((round.records(), events.iter().count()), (2, 1));
}

#[test]
fn reports_that_make_no_sense_are_refused() {
    for bytes in [ack(0, 1), ack(2, 0), [0xff; ACK_BYTES]] {
        let failure = read(&bytes[..], Round::new(1, 0, 2), &mpsc::channel().0).unwrap_err();
        assert!(failure.to_string().contains("garbled"), "{failure}");
    }
}

#[test]
fn a_writer_that_ends_by_itself_is_a_failure_with_its_words() {
    // The program that is started again is this test, which has no such arguments.
    let line = ["palisade", "demo", "--seconds", "60", "--threads", "1", "--record-bytes", "32"];
    let Command::Demo(args) = Cli::parse_from(line).command else { unreachable!("it is a demo") };
    let failure = run(&args, Path::new("nowhere"), Round::new(1, 0, 1)).unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("ended by itself") && text.contains("'dir'"), "{text}");
}
