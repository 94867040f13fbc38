//! Tests of the backend: as a storage of bytes, under redb, and through crashes and damage.

mod common;
mod damage;
mod database;
mod full;
mod kills;
mod locks;
mod model;
mod power_loss;
mod storage;
