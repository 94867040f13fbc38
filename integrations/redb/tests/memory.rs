//! What a checkpoint allocates. A binary of its own, because the allocator counts for all of it.

#[path = "../../../crates/palisade/tests/common/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::{COUNT, LARGEST};
use palisade_redb::{Options, PalisadeBackend};
use redb::StorageBackend;

const PAGE: u64 = 4096;
const PAGES: u64 = 16 << 10;

/// Returns the most bytes that a checkpoint can have had allocated at a time.
fn bytes_of_a_checkpoint(backend: &PalisadeBackend) -> u64 {
    LARGEST.set(0);
    COUNT.set(Some(0));
    backend.checkpoint().unwrap();
    COUNT.take().unwrap() * LARGEST.get() as u64
}

/// Checks that it takes no memory for each page.
#[test]
fn after_shrink_and_growth_a_checkpoint_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let backend = Options::new().open(&path).unwrap();
    backend.write(0, &vec![7; (PAGES * PAGE) as usize]).unwrap();
    backend.sync_data().unwrap();
    backend.checkpoint().unwrap();

    backend.set_len(PAGE).unwrap();
    backend.set_len(PAGES * PAGE).unwrap();
    for page in [5, 1000, PAGES - 1] {
        backend.write(page * PAGE, &[page as u8; 4096]).unwrap();
    }
    backend.sync_data().unwrap();
    let most = bytes_of_a_checkpoint(&backend);
    assert!(most < PAGES * PAGE / 16, "{most} bytes");

    backend.close().unwrap();
    let file = std::fs::read(path.join("base.redb")).unwrap();
    for (page, bytes) in (0..PAGES).zip(file.chunks(4096)) {
        let fill = match page {
            0 => 7,
            5 | 1000 => page as u8,
            _ if page == PAGES - 1 => page as u8,
            _ => 0,
        };
        assert!(bytes.iter().all(|&byte| byte == fill), "page {page}");
    }
}
