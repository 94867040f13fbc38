//! Models of the store under the model checker loom: `verification/loom.sh` runs them.
//!
//! They run the store's own code on a file that exists in the model only.

mod handshake;
mod segment_file;
