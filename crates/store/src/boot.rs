//! What tells one run of the operating system from the next.

/// 128 bits that differ in every run of the operating system.
pub(crate) type BootId = [u8; 16];

/// The identity of the running operating system.
///
/// Linux has one, if `/proc` is there. Elsewhere there is `None`: a log that is opened again may be
/// in the same boot or in another, and recovery believes nothing that is true in one of them only.
pub(crate) fn boot_id() -> Option<BootId> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    parse(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

fn parse(text: &str) -> Option<BootId> {
    let digits: String = text.trim().chars().filter(|&digit| digit != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_form_and_refuses_others() {
        let id = parse("00010203-0405-0607-0809-0a0b0c0d0e0f\n").unwrap();
        assert_eq!(id, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(parse("0001"), None);
        assert_eq!(parse("zz010203-0405-0607-0809-0a0b0c0d0e0f"), None);
    }
}
