//! A message queue: a topic, and two groups of consumers that process each message exactly once.
//!
//! `cargo run -p palisade-streams --example message_queue`
//!
//! - A topic is a stream. All producers append to it.
//! - Each group is a consumer of the topic, and has a stream of its own for its output. One batch
//!   appends the output of a message and acknowledges the message, so both survive a kill, or
//!   neither does.
//! - The topic is truncated up to the first message that a group has not acknowledged.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use palisade::{Error, ErrorKind, Result};
use palisade_streams::{Stream, Streams};

const PRODUCERS: u64 = 4;
const GROUPS: [&str; 2] = ["mail", "index"];
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

/// Processes messages of the topic until the group has all `messages`.
fn consume(streams: &Streams, group: &str, messages: u64) -> Result<()> {
    let (topic, output) = (streams.stream("topic")?, streams.stream(group)?);
    let mut consumer = topic.consumer(group)?;
    while consumer.position() < messages {
        let Some(message) = consumer.next(Duration::from_secs(10))? else { return Ok(()) };
        let processed = format!("{group} has {}", String::from_utf8_lossy(message.data()));
        let batch = streams.batch().append(&output, processed.as_bytes());
        batch.ack(&consumer, message.index()).apply()?;
        if consumer.position() % TRUNCATE_AFTER == 0 {
            truncate(&topic)?;
        }
    }
    streams.sync()
}

/// Truncates the topic up to the position of the slowest group. A crash that undoes one of the
/// acknowledgements undoes the truncation, too: it came later.
fn truncate(topic: &Stream) -> Result<()> {
    topic.lowest_acked()?.map_or(Ok(()), |first| topic.truncate_before(first).map(drop))
}

fn open(folder: &Path) -> Result<Streams> {
    let streams = Streams::open(folder)?;
    let topic = streams.stream_or_create("topic")?;
    for group in GROUPS {
        streams.stream_or_create(group)?;
        // So that no truncation overtakes a group which has not begun.
        topic.consumer(group)?;
    }
    Ok(streams)
}

/// Each group consumes all `messages`, in a thread of its own.
fn consume_all(streams: &Streams, messages: u64) -> Result<()> {
    thread::scope(|scope| {
        let start = |group| scope.spawn(move || consume(streams, group, messages));
        let threads: Vec<_> = GROUPS.into_iter().map(start).collect();
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
    let topic = streams.stream("topic")?;
    produce(&topic, messages)?;
    let killed = thread::scope(|scope| {
        let consumers = scope.spawn(|| consume_all(&streams, all));
        let is_early = |acked: Option<u64>| acked.is_some_and(|acked| acked < all / 3);
        while !consumers.is_finished() && topic.lowest_acked().is_ok_and(is_early) {
            thread::yield_now();
        }
        // In the middle of their work, as a kill of the process would.
        streams.log().clone().abandon();
        consumers.join().expect("it does not panic")
    });
    let kind = killed.err().map(|error| error.kind());
    assert!(matches!(kind, None | Some(ErrorKind::Poisoned)), "{kind:?}");
    drop((topic, streams));

    let streams = open(folder)?;
    let topic = streams.stream("topic")?;
    for group in topic.consumers()? {
        let (name, acked) = (group.name.escape_ascii(), group.acked);
        println!("the kill left group {name} at {acked} of {all} messages");
    }
    consume_all(&streams, all)?;
    GROUPS.iter().try_for_each(|group| check(&streams, group, messages))?;
    truncate(&topic)?;
    let first = topic.first_index()?;
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
