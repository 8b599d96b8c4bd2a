//! `TB.PEEK key capacity rate [cost]`
//!
//! Answers what `TB.ACQUIRE` with the same arguments would answer now, and takes
//! nothing. The cost is 1 unless given. It never writes, so that it works on
//! replicas.

use tokenbucket_core::Amount;

use crate::arguments::{self, AMOUNT, CAPACITY, KEY};
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::{Argument, Error};
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};
use crate::store;

/// `TB.PEEK`.
pub struct Peek;

impl Command for Peek {
    const SPEC: Spec = Spec {
        name: c"TB.PEEK",
        flags: c"readonly fast",
        arity: -4,
        key_access: KeyAccess::Read,
        keys: Keys::First,
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

    const TALLY: &'static Tally = &stats::PEEK;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(4, 5)?;
        let limit = arguments::limit(call, CAPACITY)?;
        let cost = if call.has_argument(AMOUNT) {
            arguments::amount(call, AMOUNT, Argument::Cost)?
        } else {
            Amount::ONE
        };

        let now = call.now();
        let key = call.open_for_reading(KEY)?;
        let decision = store::load(&key, &limit, now)?.acquire(&limit, cost, now);
        Ok(Four::new(&decision))
    }
}
