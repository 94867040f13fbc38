//! What the fuzz targets of `fuzz/` run, and the programs that the scripts of `verification/` run.

pub mod fuzzing;
