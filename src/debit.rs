//! `TB.DEBIT key capacity rate amount`
//!
//! Takes `amount` tokens out of the bucket at `key` whatever its level, into debt
//! if need be: usage that is known only afterwards. It may take more than the
//! capacity.
//!
//! Answers four integers: 1, remaining tokens (0 in debt), 0 and
//! `reset_after_ms`.

use crate::arguments::{self, AMOUNT, CAPACITY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};
use crate::store;

/// `TB.DEBIT`.
pub struct Debit;

impl Command for Debit {
    const SPEC: Spec = Spec {
        name: c"TB.DEBIT",
        flags: c"write deny-oom fast",
        arity: 5,
        key_access: KeyAccess::Update,
        keys: Keys::First,
        summary: c"Takes tokens from a bucket whatever its level, into debt if need be.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"capacity", ArgKind::Amount),
            Arg::required(c"rate", ArgKind::Rate),
            Arg::required(c"amount", ArgKind::Amount),
        ],
    };

    const TALLY: &'static Tally = &stats::DEBIT;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(5, 5)?;
        let limit = arguments::limit(call, CAPACITY)?;
        let amount = arguments::amount(call, AMOUNT, Argument::Amount)?;

        store::update(call, &limit, |bucket, now| {
            bucket.debit(&limit, amount, now)
        })
    }
}
