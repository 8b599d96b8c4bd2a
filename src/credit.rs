//! `TB.CREDIT key capacity rate amount`
//!
//! Gives `amount` tokens back to the bucket at `key`, never above the capacity. A
//! bucket that is full by it is deleted: a missing key is a full bucket.
//!
//! Answers four integers: 1, remaining tokens, 0 and `reset_after_ms`.

use crate::arguments::{self, AMOUNT, CAPACITY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};
use crate::store;

/// `TB.CREDIT`.
pub struct Credit;

impl Command for Credit {
    const SPEC: Spec = Spec {
        name: c"TB.CREDIT",
        flags: c"write fast",
        arity: 5,
        key_access: KeyAccess::Update,
        keys: Keys::First,
        summary: c"Gives tokens back to a bucket, never above its capacity.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"capacity", ArgKind::Amount),
            Arg::required(c"rate", ArgKind::Rate),
            Arg::required(c"amount", ArgKind::Amount),
        ],
    };

    const TALLY: &'static Tally = &stats::CREDIT;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(5, 5)?;
        let limit = arguments::limit(call, CAPACITY)?;
        let amount = arguments::amount(call, AMOUNT, Argument::Amount)?;

        store::update(call, &limit, |bucket, now| {
            bucket.credit(&limit, amount, now)
        })
    }
}
