//! The codecs LZ4 and Zstd, each with a feature of its name.

#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "zstd")]
mod zstd;

#[cfg(feature = "lz4")]
pub use lz4::Lz4;
#[cfg(feature = "zstd")]
pub use zstd::Zstd;

/// Shorter records gain a few bytes at most, and cost a compression.
#[cfg(any(feature = "lz4", feature = "zstd"))]
const DEFAULT_THRESHOLD: usize = 128;

#[cfg(any(feature = "lz4", feature = "zstd"))]
fn failed(what: &str, cause: impl std::error::Error + Send + Sync + 'static) -> crate::Error {
    crate::Error::new(crate::ErrorKind::Corrupt, what).with_source(cause)
}
