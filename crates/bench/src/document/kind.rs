//! What a contender is, by its name in the results.
//!
//! By name and not by [`Contender`](crate::contender::Contender): results of a driver that was
//! built with other crates are read by one that was built without them.

/// What a comparison with a contender means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Palisade with its defaults.
    Palisade,
    /// Palisade on files in another form.
    OwnForm,
    /// Palisade in memory, which keeps nothing.
    OwnMemory,
    /// What an application would write itself.
    HandWritten,
    /// A floor of the machine, which keeps nothing.
    Floor,
    /// Another crate that keeps nothing.
    MemoryPeer,
    /// Another crate on files.
    Peer,
}

impl Kind {
    pub(super) fn of(contender: &str) -> Kind {
        match contender {
            "palisade" => Kind::Palisade,
            "naive" => Kind::HandWritten,
            "raw" | "wake" => Kind::Floor,
            "palisade-mem" => Kind::OwnMemory,
            name if name.starts_with("palisade-") => Kind::OwnForm,
            name if name.ends_with("-mem") => Kind::MemoryPeer,
            _ => Kind::Peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::contender::Contender;

    #[test]
    fn every_contender_is_told_by_its_name() {
        for contender in Contender::value_variants() {
            let kind = Kind::of(contender.name());
            let is_own = matches!(kind, Kind::Palisade | Kind::OwnForm | Kind::OwnMemory);
            assert_eq!(is_own, contender.is_palisade(), "{contender:?}");
            assert_eq!(kind == Kind::Floor, contender.is_floor(), "{contender:?}");
        }
        assert_eq!(Kind::of("wal-db"), Kind::Peer);
        assert_eq!(Kind::of("wal-db-mem"), Kind::MemoryPeer);
    }
}
