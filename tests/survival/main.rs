//! What buckets outlive: restarts, failover, clusters, clocks, hostile bytes,
//! full memory. Real servers, real faults, one file per kind.
//!
//! `docs/reliability.md` says which promise each file holds.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests: a broken expectation stops at the place it broke"
)]

mod aof;
mod clock;
mod cluster;
mod hostile;
mod memory;
mod rdb;
mod replication;
mod sentinel;
mod unload;

/// Where the held clocks start: microseconds since the Unix epoch, in January
/// 2027, at the turn of a second.
pub const START: i64 = 1_800_000_000_000_000;
