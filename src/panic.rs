//! `TB.PANIC key kind`
//!
//! Panics while it holds the key open for writing, so that the tests can watch
//! the guard. Only in builds with the feature `panic-command`, which are never
//! installed.
//!
//! `kind` is `message`, `value` (a payload that is no text), `nul` (a text with
//! a NUL in it), `overflow` or `index`.
#![allow(
    clippy::panic,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "panicking is what it is for"
)]

use std::panic::panic_any;

use crate::arguments::KEY;
use crate::command::{Arg, ArgKind, Command, KeyAccess, Keys, Spec};
use crate::error::Error;
use crate::ffi::Call;
use crate::reply::Four;
use crate::stats::{self, Tally};

/// `TB.PANIC`.
pub struct Panic;

impl Command for Panic {
    const SPEC: Spec = Spec {
        name: c"TB.PANIC",
        flags: c"write deny-oom fast",
        arity: 3,
        key_access: KeyAccess::Update,
        keys: Keys::First,
        summary: c"Panics.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[
            Arg::required(c"key", ArgKind::Key),
            Arg::required(c"kind", ArgKind::Amount),
        ],
    };

    const TALLY: &'static Tally = &stats::ACQUIRE;

    type Reply = Four;

    fn run(call: &Call<'_>) -> Result<Self::Reply, Error> {
        call.check_arity(3, 3)?;
        let kind = call.argument(2)?;
        let _key = call.open_for_update(KEY)?;
        match kind {
            b"value" => panic_any(7),
            b"nul" => panic!("before\0after"),
            b"overflow" => panic!("{}", i64::MAX + kind.len() as i64),
            b"index" => panic!("{}", kind[kind.len()]),
            _ => panic!("asked to panic"),
        }
    }
}
