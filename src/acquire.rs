//! `TB.ACQUIRE key capacity rate cost`
//!
//! Takes `cost` tokens out of the bucket at `key` if they are there.
//!
//! Answers four integers: allowed (1 or 0), remaining tokens, `retry_after_ms`
//! (0 when allowed, -1 when never) and `reset_after_ms`. A denial writes
//! nothing.

use crate::arguments::{self, AMOUNT, CAPACITY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};
use crate::store;

/// `TB.ACQUIRE`.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"TB.ACQUIRE",
        flags: c"write deny-oom fast",
        arity: 5,
        key_access: KeyAccess::Update,
        keys: Keys::First,
        summary: c"Takes tokens from a bucket if they are there.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"capacity", ArgKind::Amount),
            Arg::required(c"rate", ArgKind::Rate),
            Arg::required(c"cost", ArgKind::Amount),
        ],
    };

    const TALLY: &'static Tally = &stats::ACQUIRE;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(5, 5)?;
        let limit = arguments::limit(call, CAPACITY)?;
        let cost = arguments::amount(call, AMOUNT, Argument::Cost)?;

        store::update(call, &limit, |bucket, now| {
            bucket.acquire(&limit, cost, now)
        })
    }
}
