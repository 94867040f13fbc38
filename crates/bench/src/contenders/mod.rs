//! All contenders: Palisade, what an application would write itself, floors, and other crates.

mod naive;
mod palisade;
#[cfg(feature = "peers")]
pub mod peers;
mod raw;
mod streams;
mod wake;

use crate::Contender;

pub use self::naive::NAIVE;
pub use self::palisade::{HEAP, PALISADE};
pub use self::raw::RAW;
pub use self::streams::{SHARDED, STREAMS};
pub use self::wake::WAKE;

const OWN: &[Contender] = &[PALISADE, palisade::MEMORY, HEAP, NAIVE, RAW, WAKE, STREAMS, SHARDED];

#[cfg(feature = "peers")]
const PEERS: &[Contender] = peers::ALL;
#[cfg(not(feature = "peers"))]
const PEERS: &[Contender] = &[];

/// Returns all contenders of this build.
pub fn all() -> impl Iterator<Item = Contender> {
    [OWN, PEERS].into_iter().flatten().copied()
}

/// Returns the contender of this name.
///
/// # Errors
/// If there is none: lists the names that there are.
pub fn find(name: &str) -> Result<Contender, String> {
    all().find(|contender| contender.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|contender| contender.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_is_found_by_its_name_alone() {
        for contender in all() {
            assert_eq!(find(contender.name).unwrap().name, contender.name);
        }
        let refusal = find("sqlite").unwrap_err();
        assert!(refusal.contains("palisade, palisade-mem, palisade-heap, naive, raw, wake"));
    }
}
