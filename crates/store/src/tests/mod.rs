//! Tests of the store on a disk that they control.

mod no_descriptor;
mod no_space;
mod opening;
mod recycling;
pub(crate) mod support;
mod zeros;
