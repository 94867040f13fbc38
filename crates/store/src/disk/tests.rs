use super::*;

#[test]
fn a_range_of_pieces_has_the_asked_bytes() {
    let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh")];
    for skip in 0..8 {
        for len in 0..=8 - skip {
            let mut window = [IoSlice::new(&[]); 4];
            let used = cut(&pieces, skip, len, &mut window);
            let taken: Vec<u8> = window[..used].iter().flat_map(|cut| cut.to_vec()).collect();
            assert_eq!(taken, b"abcdefgh"[skip..skip + len], "skip {skip}, len {len}");
        }
    }
}
