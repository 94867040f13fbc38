//! A message queue: a topic, and two groups of consumers that process each message exactly once.
//!
//! `cargo run -p palisade-streams --example message_queue`
//!
//! - A topic is a stream. All producers append to it.
//! - A group has a stream of its own for its output. Its position in the topic is a value of that
//!   stream. One batch appends the output of a message and saves the position, so both survive a
//!   kill, or neither does.
//! - The topic is truncated below the position of the slowest group.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use palisade::{Error, ErrorKind, Result};
use palisade_streams::{Stream, Streams};

const PRODUCERS: u64 = 4;
const GROUPS: [&str; 2] = ["mail", "index"];
const POSITION: &[u8] = b"position";
/// Messages after which a group truncates the topic.
const TRUNCATE_AFTER: u64 = 100;

/// Appends messages from several threads, and waits once for those of each thread.
fn produce(topic: &Stream, messages: u64) -> Result<()> {
    let one = |producer: u64| -> Result<()> {
        let mut last = None;
        for number in 0..messages {
            last = Some(topic.append(format!("{producer}:{number}"))?);
        }
        last.map_or(Ok(0), |ticket| ticket.wait()).map(drop)
    };
    thread::scope(|scope| {
        let start = |producer| scope.spawn(move || one(producer));
        let threads: Vec<_> = (0..PRODUCERS).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

/// Returns the index of the message that a group processes next.
fn position(output: &Stream) -> Result<u64> {
    let Some(saved) = output.value(POSITION)? else { return Ok(0) };
    let bytes = saved.try_into().map_err(|_| Error::new(ErrorKind::Corrupt, "not 8 bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Processes messages of the topic until `enough` are done.
fn consume(streams: &Streams, group: &str, enough: u64) -> Result<()> {
    let (topic, output) = (streams.stream("topic")?, streams.stream(group)?);
    let mut tail = topic.tail(position(&output)?)?;
    for done in 1..=enough {
        let Some(message) = tail.next(Duration::from_secs(10))? else { return Ok(()) };
        let processed = format!("{group} has {}", String::from_utf8_lossy(message.data()));
        let next = (message.index() + 1).to_le_bytes();
        let batch = streams.batch().append(&output, processed.as_bytes());
        let ticket = batch.put(&output, POSITION, &next).apply()?;
        if done % TRUNCATE_AFTER == 0 {
            // Only what is durable may be truncated for it.
            ticket.wait()?;
            truncate(streams)?;
        }
    }
    streams.sync()
}

/// Truncates the topic below the position of the slowest group.
fn truncate(streams: &Streams) -> Result<()> {
    let position_of = |group: &&str| position(&streams.stream(group)?);
    let positions = GROUPS.iter().map(position_of).collect::<Result<Vec<_>>>()?;
    let slowest = positions.into_iter().min().unwrap_or_default();
    // The position of another group may not be durable yet.
    streams.sync()?;
    streams.stream("topic")?.truncate_before(slowest).map(drop)
}

fn open(folder: &Path) -> Result<Streams> {
    let streams = Streams::open(folder)?;
    for name in GROUPS.iter().chain(["topic"].iter()) {
        streams.stream_or_create(name)?;
    }
    Ok(streams)
}

/// Each group consumes up to `enough` messages, in a thread of its own.
fn consume_all(streams: &Streams, enough: [u64; 2]) -> Result<()> {
    thread::scope(|scope| {
        let start = |(group, enough)| scope.spawn(move || consume(streams, group, enough));
        let threads: Vec<_> = GROUPS.into_iter().zip(enough).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

/// Checks that a group has processed each message exactly once.
fn check(streams: &Streams, group: &str, messages: u64) -> Result<()> {
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    let output = streams.stream(group)?.range(..)?.map(|entry| Ok(text(entry?.data())));
    let found = output.collect::<Result<Vec<_>>>()?;
    let all = (0..PRODUCERS).flat_map(|producer| (0..messages).map(move |n| (producer, n)));
    let expected = all.map(|(producer, n)| format!("{group} has {producer}:{n}"));
    assert_eq!(found.len() as u64, PRODUCERS * messages, "{group}");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected.collect());
    Ok(())
}

/// Runs the queue in `folder`, with a kill in the middle. Returns how many messages were truncated.
fn run(folder: &Path, messages: u64) -> Result<u64> {
    let all = messages * PRODUCERS;
    let streams = open(folder)?;
    produce(&streams.stream("topic")?, messages)?;
    let mail = streams.stream("mail")?;
    let killed = thread::scope(|scope| {
        let consumers = scope.spawn(|| consume_all(&streams, [all, all]));
        while !consumers.is_finished() && position(&mail).is_ok_and(|at| at < all / 3) {
            thread::yield_now();
        }
        // In the middle of their work, as a kill of the process would.
        streams.log().clone().abandon();
        consumers.join().expect("it does not panic")
    });
    let kind = killed.err().map(|error| error.kind());
    assert!(matches!(kind, None | Some(ErrorKind::Poisoned)), "{kind:?}");
    drop((mail, streams));

    let streams = open(folder)?;
    let (mail, index) = (position(&streams.stream("mail")?)?, position(&streams.stream("index")?)?);
    println!("the kill left the groups at {mail} and {index} of {all} messages");
    consume_all(&streams, [all - mail, all - index])?;
    GROUPS.iter().try_for_each(|group| check(&streams, group, messages))?;
    truncate(&streams)?;
    let first = streams.stream("topic")?.first_index()?;
    streams.close()?;
    Ok(first)
}

fn main() -> Result<()> {
    let name = format!("palisade-message-queue-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let truncated = run(&folder, 500)?;
    println!("each group has processed each message once; {truncated} messages were truncated");
    std::fs::remove_dir_all(&folder).map_err(|error| Error::io("remove the folder", error))
}

#[test]
fn each_group_processes_each_message_once_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(folder.path(), 200).unwrap(), 200 * PRODUCERS);
}
