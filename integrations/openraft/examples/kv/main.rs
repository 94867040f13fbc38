//! A replicated key-value store of three nodes, each a process of its own, and a driver that kills
//! them in turn while it writes.
//!
//! ```sh
//! cargo run --release --example kv            # 10 000 writes, 33 kills
//! cargo run --release --example kv -- 500 6   # other numbers
//! ```
//!
//! The exit status is 0 if no acknowledged write was lost on any node, no node has applied an entry
//! twice, each read returned what was acknowledged before it began or something newer, and nodes
//! have got snapshots.

#![expect(clippy::print_stdout, reason = "it reports its progress")]

mod driver;
mod history;
mod machine;
mod network;
mod node;

use std::path::Path;

/// Ends this process when the driver is gone, so that no node outlives it.
fn end_with_the_driver() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

#[tokio::main]
async fn main() -> driver::Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["node", id, address, snapshot_every, folder] => {
            end_with_the_driver();
            let snapshot_every = snapshot_every.parse()?;
            Ok(node::run(id.parse()?, address, snapshot_every, Path::new(folder)).await?)
        }
        [] => driver::run(10_000, 33).await,
        [writes, kills] => driver::run(writes.parse()?, kills.parse()?).await,
        _ => Err("usage: kv [WRITES KILLS]".into()),
    }
}
