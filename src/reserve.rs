//! `TB.RESERVE key capacity rate cost max_wait_ms`
//!
//! Takes `cost` tokens out of the bucket at `key` now, going into debt when the
//! tokens will have flowed in within `max_wait_ms`. The caller waits as long as
//! `retry_after_ms` says, then acts.
//!
//! Answers four integers: allowed (1 or 0), remaining tokens, `retry_after_ms`
//! (when allowed the wait before acting; when denied the wait until the same call
//! would be allowed; -1 when never) and `reset_after_ms`. A denial writes nothing.

use crate::arguments::{self, AMOUNT, CAPACITY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};
use crate::store;

/// `TB.RESERVE`.
pub struct Reserve;

impl Command for Reserve {
    const SPEC: Spec = Spec {
        name: c"TB.RESERVE",
        flags: c"write deny-oom fast",
        arity: 6,
        key_access: KeyAccess::Update,
        keys: Keys::First,
        summary: c"Takes tokens now that may still have to flow in, and tells how long to wait.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"capacity", ArgKind::Amount),
            Arg::required(c"rate", ArgKind::Rate),
            Arg::required(c"cost", ArgKind::Amount),
            Arg::required(c"max_wait_ms", ArgKind::Milliseconds),
        ],
    };

    const TALLY: &'static Tally = &stats::RESERVE;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(6, 6)?;
        let limit = arguments::limit(call, CAPACITY)?;
        let cost = arguments::amount(call, AMOUNT, Argument::Cost)?;
        let max_wait_ms = arguments::max_wait_ms(call)?;

        store::update(call, &limit, |bucket, now| {
            bucket.reserve(&limit, cost, max_wait_ms, now)
        })
    }
}
