//! One step away from a valid folder: what damage, mishandling and crashes do to files.

use palisade_store::block::BLOCK_BYTES;

use super::image::{Image, seal_if_whole};
use palisade_store::chance::Chance;

/// Changes the image a little; the same seed makes the same change.
pub fn mutate(image: &mut Image, seed: u64) {
    let mut random = Chance::new(seed);
    if image.files.is_empty() {
        return;
    }
    let file = random.index(image.files.len());
    match random.index(20) {
        0..=6 => flip(&mut image.files[file].1, &mut random),
        7 => cut(&mut image.files[file].1, &mut random),
        8 => drop(image.files.remove(file)),
        9 => swap(image, file, &mut random),
        10..=12 => copy_range(image, file, &mut random),
        13 => copy_file(image, file, &mut random),
        14 | 15 => overwrite(&mut image.files[file].1, &mut random, false),
        16 => overwrite(&mut image.files[file].1, &mut random, true),
        17 => copy_block(image, file, &mut random),
        18 => image.is_same_boot = !image.is_same_boot,
        _ => reseal(image, file, &mut random),
    }
}

/// Flips a bit, mostly one that means something.
fn flip(bytes: &mut [u8], random: &mut Chance) {
    let mut at = random.index(bytes.len());
    if random.index(4) > 0 {
        at += bytes[at..].iter().position(|byte| *byte != 0).unwrap_or(0);
    }
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.index(8);
    }
}

fn cut(bytes: &mut Vec<u8>, random: &mut Chance) {
    let len = random.index(bytes.len());
    bytes.truncate(if random.index(2) == 0 { len } else { len & !511 });
}

fn swap(image: &mut Image, file: usize, random: &mut Chance) {
    let other = random.index(image.files.len());
    let bytes = std::mem::take(&mut image.files[file].1);
    let bytes = std::mem::replace(&mut image.files[other].1, bytes);
    image.files[file].1 = bytes;
}

/// Copies a range of one file over another place, in the same file or another.
fn copy_range(image: &mut Image, file: usize, random: &mut Chance) {
    let from = &image.files[random.index(image.files.len())].1;
    let start = random.index(from.len()) & !7;
    let len = random.index((from.len() - start).min(2000)) & !7;
    let range = from[start..start + len].to_vec();
    let bytes = &mut image.files[file].1;
    let at = random.index(bytes.len()) & !7;
    let len = len.min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&range[..len]);
}

/// Copies a file under another name, over what had it.
fn copy_file(image: &mut Image, file: usize, random: &mut Chance) {
    let bytes = image.files[file].1.clone();
    let number = random.index(12);
    let name = match random.index(4) {
        0 => format!("spare-{number:06}"),
        1 => "buffer".to_owned(),
        _ => format!("segment-{number:020}"),
    };
    image.files.retain(|(other, _)| *other != name);
    image.files.push((name, bytes));
    image.files.sort();
}

/// Overwrites a range with zeros or garbage, as a torn write leaves it.
fn overwrite(bytes: &mut [u8], random: &mut Chance, with_zeros: bool) {
    let start = random.index(bytes.len());
    let len = random.index((bytes.len() - start).min(1500) + 1);
    let range = &mut bytes[start..start + len];
    if with_zeros { range.fill(0) } else { random.fill(range) }
}

fn copy_block(image: &mut Image, file: usize, random: &mut Chance) {
    let from = &image.files[random.index(image.files.len())].1;
    let blocks = from.len() / BLOCK_BYTES;
    let start = random.index(blocks) * BLOCK_BYTES;
    let Some(block) = from.get(start..start + BLOCK_BYTES).map(<[u8]>::to_vec) else { return };
    let bytes = &mut image.files[file].1;
    let at = random.index(bytes.len() / BLOCK_BYTES) * BLOCK_BYTES;
    if let Some(to) = bytes.get_mut(at..at + BLOCK_BYTES) {
        to.copy_from_slice(&block);
    }
}

/// Changes a field of a sealed block and makes its checksum right: what a writer that lies, or
/// one that has gone mad, would leave.
fn reseal(image: &mut Image, file: usize, random: &mut Chance) {
    let (name, bytes) = &mut image.files[file];
    let field = 24 + 8 * random.index(12);
    let values = [0, 1, 7, 4096, 1 << 32, 1 << 59, (1 << 60) - 8, 1 << 60, u64::MAX - 7, u64::MAX];
    let value = match random.index(values.len() + 2) {
        index if index < values.len() => values[index],
        _ => random.draw() >> random.index(64),
    };
    let change = |block: &mut [u8]| block[field..field + 8].copy_from_slice(&value.to_le_bytes());
    let mut changed = seal_if_whole(bytes, change);
    if name == "meta" {
        // Both copies, or the other one would be believed.
        changed |= seal_if_whole(bytes.get_mut(BLOCK_BYTES..).unwrap_or(&mut []), change);
    }
    image.is_resealed |= changed;
}
