//! Power loss and the bytes of files.

use super::*;

/// Makes a file of three blocks of `o`, whose second one has `n` from 5000 to 5100, unsynced.
fn overwritten(disk: &SimDisk) -> Box<dyn DiskFile> {
    let (_, file) = with_file(disk, &[b'o'; 3 * 4096]);
    write_bytes(file.as_ref(), 5000, &[b'n'; 100]).unwrap();
    file
}

/// Makes a file of `sectors` sectors of `o`, overwrites them with `n`, and fails a sync of them.
fn failed_sync(disk: &SimDisk, sectors: usize) -> Box<dyn DiskFile> {
    let (_, file) = with_file(disk, &vec![b'o'; sectors * 512]);
    write_bytes(file.as_ref(), 0, &vec![b'n'; sectors * 512]).unwrap();
    disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
    file.sync_data().unwrap_err();
    file
}

fn is_all(bytes: &[u8], expected: u8) -> bool {
    bytes.iter().all(|&byte| byte == expected)
}

#[test]
fn a_kept_sector_is_new_a_dropped_one_old() {
    for (fate, expected) in [(Fate::Keep, b'n'), (Fate::Drop, b'o'), (Fate::Stale, b'o')] {
        let disk = SimDisk::new(1);
        let _file = overwritten(&disk);
        assert_eq!(disk.unsynced_sectors(), 1);
        lose_sectors(&disk, fate);
        let bytes = disk.file("file").unwrap();
        assert!(is_all(&bytes[5000..5100], expected), "{fate:?}");
        assert!(is_all(&bytes[..5000], b'o') && is_all(&bytes[5100..], b'o'), "{fate:?}");
        assert_eq!(disk.unsynced_sectors(), 0);
    }
}

#[test]
fn a_torn_sector_is_new_up_to_some_place_and_old_behind_it() {
    let mut ends = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let _file = overwritten(&disk);
        lose_sectors(&disk, Fate::Tear);
        let bytes = disk.file("file").unwrap();
        let new = bytes.iter().filter(|&&byte| byte == b'n').count();
        assert!(is_all(&bytes[5000..5000 + new], b'n') && is_all(&bytes[..5000], b'o'));
        assert!(is_all(&bytes[5000 + new..], b'o'));
        ends.insert(new);
    }
    assert!(ends.contains(&0) && ends.contains(&100) && ends.len() > 20, "{ends:?}");
}

#[test]
fn garbage_begins_at_the_write_and_ends_with_its_block() {
    let (mut to_the_sectors_end, mut to_the_blocks_end) = (0, 0);
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let _file = overwritten(&disk);
        lose_sectors(&disk, Fate::Garble);
        let bytes = disk.file("file").unwrap();
        assert!(is_all(&bytes[..5000], b'o') && is_all(&bytes[8192..], b'o'), "seed {seed}");
        to_the_sectors_end += usize::from(is_all(&bytes[5120..8192], b'o'));
        to_the_blocks_end += usize::from(!is_all(&bytes[5120..8192], b'o'));
    }
    assert!(to_the_sectors_end > 10 && to_the_blocks_end > 10);
}

#[test]
fn without_powersafe_overwrite_garbage_takes_exactly_one_block() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed).without_powersafe_overwrite();
        let _file = overwritten(&disk);
        lose_sectors(&disk, Fate::Garble);
        let bytes = disk.file("file").unwrap();
        assert!(is_all(&bytes[..4096], b'o') && is_all(&bytes[8192..], b'o'), "seed {seed}");
    }
    let disk = SimDisk::new(0).without_powersafe_overwrite();
    let _file = overwritten(&disk);
    let hit = (0..20).any(|seed| {
        let fork = disk.fork(seed);
        lose_sectors(&fork, Fate::Garble);
        !is_all(&fork.file("file").unwrap()[4096..5000], b'o')
    });
    assert!(hit, "what lies below the write in its block is never hit");
}

#[test]
fn a_stale_sector_has_the_bytes_of_an_earlier_write() {
    let disk = SimDisk::new(3);
    let file = overwritten(&disk);
    write_bytes(file.as_ref(), 5000, &[b'm'; 100]).unwrap();
    lose_sectors(&disk, Fate::Stale);
    assert!(is_all(&disk.file("file").unwrap()[5000..5100], b'n'));
}

#[test]
fn sectors_have_fates_of_their_own() {
    let disk = SimDisk::new(3);
    let (_, file) = with_file(&disk, &[b'o'; 2048]);
    write_bytes(file.as_ref(), 0, &[b'n'; 2048]).unwrap();
    disk.lose_power_choosing(&mut |loss| match loss {
        Loss::Sector { offset: 512 | 1536, .. } => Fate::Keep,
        _ => Fate::Drop,
    });
    let expected = [[b'o'; 512], [b'n'; 512], [b'o'; 512], [b'n'; 512]].concat();
    assert_eq!(disk.file("file").unwrap(), expected);
}

#[test]
fn growth_is_lost_or_kept_in_part_or_reads_as_zeros() {
    let grown = |seed| {
        let disk = SimDisk::new(seed);
        let (_, file) = with_file(&disk, &[b'o'; 1000]);
        write_bytes(file.as_ref(), 1000, &[b'n'; 3000]).unwrap();
        disk
    };
    let lost = |growth: Fate, sectors: Fate| {
        let disk = grown(7);
        disk.lose_power_choosing(&mut |loss| if loss.is_sector() { sectors } else { growth });
        disk.file("file").unwrap()
    };
    assert_eq!(lost(Fate::Drop, Fate::Keep), [b'o'; 1000]);
    assert_eq!(lost(Fate::Keep, Fate::Drop), [&[b'o'; 1000][..], &[0; 3000][..]].concat());
    assert_eq!(lost(Fate::Keep, Fate::Keep), [&[b'o'; 1000][..], &[b'n'; 3000][..]].concat());
    let len = lost(Fate::Tear, Fate::Keep).len();
    assert!((1000..=4000).contains(&len), "{len}");
}

#[test]
fn a_dropped_truncation_brings_the_old_bytes_back() {
    let truncated = |fate: Fate| {
        let disk = SimDisk::new(5);
        let log = begin(&disk);
        drop(durable_file(&log, "file", &[b'o'; 2000]));
        let file = log.open("file", Access::Fresh).unwrap();
        write_bytes(file.as_ref(), 0, &[b'n'; 100]).unwrap();
        assert_eq!(disk.file("file").unwrap(), [b'n'; 100]);
        disk.lose_power_choosing(&mut |loss| match loss {
            Loss::Truncation { .. } | Loss::Growth { .. } => fate,
            _ => Fate::Drop,
        });
        disk.file("file").unwrap()
    };
    assert_eq!(truncated(Fate::Drop), [b'o'; 2000]);
    assert_eq!(truncated(Fate::Keep), [0; 100]);
}

#[test]
fn a_sync_covers_the_bytes_the_length_and_the_truncation() {
    let disk = SimDisk::new(5);
    let log = begin(&disk);
    drop(durable_file(&log, "file", &[b'o'; 2000]));
    let file = log.open("file", Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 600, b"new").unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.losses(), []);
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    assert_eq!(disk.file("file").unwrap(), [&[0; 600][..], b"new"].concat());
}

#[test]
fn bytes_of_a_failed_sync_read_back_until_the_power_is_lost() {
    let mut reached = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = failed_sync(&disk, 8);
        let lost = disk.unsynced_sectors();
        assert!(is_all(&content(file.as_ref()), b'n'), "seed {seed}");
        // From here on the system may drop the pages.
        file.sync_data().unwrap();
        disk.lose_power();
        let bytes = disk.file("file").unwrap();
        let old = bytes.chunks(512).filter(|sector| is_all(sector, b'o')).count();
        assert_eq!(old, lost, "seed {seed}");
        reached += usize::from(old < 8);
    }
    assert!((10..90).contains(&reached), "{reached} of 100 failed syncs reached some sectors");
}

#[test]
fn an_orderly_shutdown_does_not_write_what_a_failed_sync_forgot() {
    let disk = SimDisk::new(4);
    let file = failed_sync(&disk, 2);
    let forgotten = disk.unsynced_sectors();
    write_bytes(file.as_ref(), 1024, &[b'n'; 1024]).unwrap();
    disk.reboot();
    let bytes = disk.file("file").unwrap();
    assert_eq!(bytes[..1024].chunks(512).filter(|sector| is_all(sector, b'o')).count(), forgotten);
    assert!(forgotten > 0 && is_all(&bytes[1024..], b'n'));
}

#[test]
fn what_is_written_again_after_a_failed_sync_can_be_synced() {
    let disk = SimDisk::new(4);
    let file = failed_sync(&disk, 2);
    write_bytes(file.as_ref(), 512, &[b'n'; 512]).unwrap();
    file.sync_data().unwrap();
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    assert!(is_all(&disk.file("file").unwrap()[512..], b'n'));
}

#[test]
fn a_seeded_loss_reaches_every_fate() {
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let _file = overwritten(&disk);
        disk.lose_power();
        let bytes = disk.file("file").unwrap();
        let new = bytes[5000..5100].iter().take_while(|&&byte| byte == b'n').count();
        let fate = match new {
            0 if is_all(&bytes, b'o') => "dropped",
            100 if is_all(&bytes[5100..], b'o') => "kept",
            _ if is_all(&bytes[5000 + new..], b'o') => "torn",
            _ => "garbled",
        };
        *seen.entry(fate).or_default() += 1;
    }
    assert!(seen.len() == 4 && seen.values().all(|&count| count >= 5), "{seen:?}");
}

#[test]
fn a_slow_sync_covers_what_was_written_before_it_began() {
    let mut node = super::super::node::Node::default();
    node.write(0, &[b'o'; 100]);
    let point = node.begin_sync();
    for _ in 0..20 {
        node.write(100, &[b'n'; 100]);
    }
    node.end_sync(point);
    assert!(is_all(&node.stable, b'o') && node.stable.len() == 100);
    // Garbage may begin at the later write only.
    assert_eq!(node.dirty[&0].from(), 100);
    let point = node.begin_sync();
    node.end_sync(point);
    assert!(node.dirty.is_empty() && node.stable.len() == 200);
}
