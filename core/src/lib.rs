//! Exact token bucket arithmetic, and the bytes in which a bucket is stored.
//!
//! A *bucket* is a balance of tokens. Tokens flow in at a *rate* up to a
//! *capacity*; a call takes its *cost* out when the *level* holds it. This crate
//! is that arithmetic and nothing else: it reads no clock, allocates nothing,
//! and has no dependency. The Redis module and the client's fallback both
//! decide with it, so they can't differ.
//!
//! | part | what it is |
//! |---|---|
//! | [`Amount`] | a capacity or a cost: whole picotokens, from 0 to 1e12 tokens |
//! | [`Rate`] | tokens per second, exact for decimals of up to 12 places |
//! | [`Limit`] | a capacity and a rate: what the caller says on every call |
//! | [`Bucket`] | a level and the instant it was true, as stored |
//! | [`Decision`] | what a call answers, and the [`Effect`] it leaves behind |
//!
//! # Units
//!
//! Levels are counted in attotokens (1e-18 token) in 128-bit integers, time in
//! whole microseconds since the Unix epoch. There is no floating point
//! anywhere: each write loses less than one attotoken, so a billion small
//! calls give what one large call gives, to the billionth of a token.
//!
//! ```
//! use tokenbucket_core::{Amount, Bucket, Limit, Outcome, Rate, Wait};
//!
//! let limit = Limit { capacity: Amount::parse(b"10")?, rate: Rate::parse(b"100/m")? };
//! let now = 1_700_000_000_000_000;
//! let decision = Bucket::full(&limit, now).acquire(&limit, Amount::parse(b"1")?, now);
//! assert_eq!(decision.outcome, Outcome::Allowed { wait: Wait::NONE });
//! assert_eq!(decision.remaining, 9);
//! assert_eq!(decision.reset_after.millis_ceil(), 600);
//! # Ok::<(), tokenbucket_core::NumberError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod amount;
mod bucket;
mod decimal;
mod decision;
mod rate;
mod rules;
mod stored;

pub use amount::Amount;
pub use bucket::{Bucket, Limit};
pub use decimal::{parse_whole_number, NumberError, MAX_NUMBER_LEN};
pub use decision::{Decision, Effect, Outcome, Wait, MAX_EXPIRY_MS};
pub use rate::Rate;
pub use stored::{NotABucket, MAX_LEVEL, MAX_STAMP, MIN_LEVEL, STORED_LEN};

/// Attotokens in one token.
pub(crate) const ATTO_PER_TOKEN: i128 = 1_000_000_000_000_000_000;
