//! What the module must answer, written from the contract alone and sharing no
//! line with the code under test.
//!
//! | part | what it gives |
//! |---|---|
//! | [`Amount`], [`Rate`], [`whole`] | the argument texts, read as exact fractions |
//! | [`SpecBucket`] | one bucket in whole attotokens: its arithmetic, its stored bytes |
//! | [`SpecStore`] | a keyspace of such buckets, and what each command answers and writes |
//! | [`Exact`] | the ideal bucket in fractions that are never rounded, to bound the drift |
//!
//! The first four agree with the module bit for bit; the last one must only be
//! near it. All of it is slow and simple on purpose.

mod bucket;
mod call;
mod exact;
mod store;
mod text;

pub use bucket::{capped_ms, level_floor, SpecBucket, LAST_STAMP_US};
pub use exact::Exact;
pub use store::{SpecReply, SpecStore};
pub use text::{whole, Amount, Rate, TextError};
