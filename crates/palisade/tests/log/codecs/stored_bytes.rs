//! Stored bytes that no codec made, or that another one made: the fuzz target's body, over its
//! corpus and over inputs made from it.

use crate::prelude::*;
use crate::stored_bytes::read_stored_bytes;

const INPUTS: u64 = 1500;

fn corpus() -> Vec<Vec<u8>> {
    watch();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/stored_bytes");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(inputs.len() >= 4, "the corpus is missing");
    inputs
}

/// What the log stores of `data`, after the byte that stands for the codec.
fn input(which: u8, data: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    match which {
        0 => Lz4::new().encode(0, data, &mut stored).unwrap(),
        _ => Zstd::new().encode(0, data, &mut stored).unwrap(),
    }
    [&[which], &stored[..], &(data.len() as u32).to_le_bytes()].concat()
}

#[test]
fn the_corpus_gives_records_or_typed_errors() {
    let read: Vec<_> = corpus().iter().map(|input| read_stored_bytes(input)).collect();
    assert!(read.iter().any(Result::is_ok) && read.iter().any(Result::is_err));
}

#[test]
fn stored_bytes_of_any_kind_give_a_record_or_a_typed_error() {
    let mut dice = Dice::new(0x5707_ed00);
    let mut inputs = corpus();
    for which in [0, 1] {
        for len in [0, 1, 130, 3000, 20_000] {
            inputs.push(input(which, &vec![7; len]));
            inputs.push(input(which, &b"{\"key\": 17, \"value\": null}".repeat(len / 26 + 1)));
        }
    }
    let mut failed = 0;
    for _ in 0..INPUTS {
        let mut bytes = dice.pick(&inputs.iter().collect::<Vec<_>>()).clone();
        match dice.below(4) {
            0 => {
                bytes = vec![0; 1 + dice.below(300) as usize];
                fill(dice.next(), &mut bytes);
            }
            1 => bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize),
            // The codec of the other.
            2 => bytes.iter_mut().take(1).for_each(|which| *which ^= 1),
            _ => {}
        }
        for _ in 0..dice.below(4) {
            let at = dice.below(bytes.len().max(1) as u64) as usize;
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << dice.below(8));
        }
        failed += u64::from(read_stored_bytes(&bytes).is_err());
    }
    assert!(failed > INPUTS / 3, "{failed}");
}

#[test]
fn what_a_codec_made_is_decoded_to_what_was_encoded() {
    for which in [0, 1] {
        for data in [vec![], vec![1], vec![7; 9000], b"abcdefgh".repeat(400)] {
            assert_eq!(read_stored_bytes(&input(which, &data)).unwrap(), data.len());
        }
    }
}

#[test]
fn a_length_that_lies_is_refused_whatever_it_says() {
    for which in [0, 1] {
        let whole = input(which, &[7; 3000]);
        for lie in [0, 1, 2999, 3001, 32_744, 32_745, 1 << 24, u32::MAX] {
            let mut lying = whole.clone();
            let at = lying.len() - 4;
            lying[at..].copy_from_slice(&lie.to_le_bytes());
            let error = read_stored_bytes(&lying).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{lie}: {error}");
        }
    }
}
