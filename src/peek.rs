//! `TB.PEEK key capacity rate [cost]`
//!
//! Answers what `TB.ACQUIRE` with the same arguments would answer now, and takes
//! nothing. The cost is 1 unless given. It never writes, so that it works on
//! replicas.

use tokenbucket_core::Amount;

use crate::arguments::{self, COST, KEY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Spec};
use crate::error::Error;
use crate::ffi::Call;
use crate::reply::{reply, Reply};
use crate::store;

/// `TB.PEEK`.
pub struct Peek;

impl Command for Peek {
    const SPEC: Spec = Spec {
        name: c"TB.PEEK",
        flags: c"readonly fast",
        arity: -4,
        key_access: KeyAccess::Read,
        summary: c"Tells what TB.ACQUIRE would answer now, and takes nothing.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"capacity", ArgKind::Amount),
            Arg::required(c"rate", ArgKind::Rate),
            Arg::optional(c"cost", ArgKind::Amount),
        ],
    };

    fn run(call: &Call<'_>) -> Result<Reply, Error> {
        call.check_arity(4, 5)?;
        let limit = arguments::limit(call)?;
        let cost = if call.has_argument(COST) {
            arguments::cost(call)?
        } else {
            Amount::ONE
        };

        let now = call.now();
        let key = call.open_for_reading(KEY)?;
        let bucket = store::load(&key, &limit, now)?;
        Ok(reply(&bucket.acquire(&limit, cost, now)))
    }
}
