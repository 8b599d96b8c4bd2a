//! The failure mode: real servers, real faults, one file per kind.
//!
//! Each test asserts where the decisions came from, how the breaker moved, how soon the
//! server was used again, and how much was admitted; and that no call took longer than its
//! deadline, with room for a busy machine. What a quiet machine shows is printed.
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

mod away;
mod breaker;
mod cluster;
mod recovery;
mod refused;
mod replies;
mod runtime;
mod sentinel;
mod setup;
mod support;
mod table;
