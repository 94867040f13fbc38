//! A reservation that its owner holds open.

use std::sync::mpsc::channel;
use std::thread;

use palisade::Wal;

/// Calls `beyond` while a reservation of `len` bytes is held open. It is filled when `beyond`
/// calls what it is given; its owner calls the log never again.
pub(crate) fn with_a_hole<R>(wal: &Wal, len: usize, beyond: impl FnOnce(&dyn Fn()) -> R) -> R {
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let filled = wal.append_with(len, |_, bytes| {
                bytes.fill(0xee);
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
            });
            drop(filled.unwrap());
        });
        has_begun.recv().unwrap();
        beyond(&|| go_on.send(()).unwrap())
    })
}
