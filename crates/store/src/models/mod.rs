//! Models of the store under loom, on a file of the model: `verification/loom.sh` runs them.

mod handshake;
mod segment_file;
