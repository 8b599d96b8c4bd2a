//! A Redis and Valkey module that holds token buckets natively.
//!
//! `TB.ACQUIRE key capacity rate cost` refills, debits and expires a bucket in
//! one step, inside the server and by the server's clock.
//!
//! | file | what it is |
//! |---|---|
//! | [`acquire`], [`peek`] | one command each: its documentation, and what it does |
//! | [`command`] | what a command is to the server: name, flags, keys, documentation |
//! | [`arguments`] | the texts of capacity, rate and cost into a limit |
//! | [`store`] | a bucket at a key: read, write, expire, replicate |
//! | [`reply`] | a decision into the four integers |
//! | [`error`] | every error text |
//! | [`ffi`] | all that is unsafe: the server's API behind safe types, and the guard that catches panics |
//!
//! The arithmetic is in the crate `tokenbucket-core`.
#![deny(unsafe_code)]

mod acquire;
mod arguments;
mod command;
mod error;
#[allow(unsafe_code)]
mod ffi;
#[cfg(feature = "panic-command")]
mod panic;
mod peek;
mod reply;
mod store;

use std::ffi::CStr;

/// The module's name in `MODULE LIST`.
const NAME: &CStr = c"tokenbucket";

/// The package's version as the server takes one: 1.2.3 is 10203.
const VERSION: i32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(text: &str) -> i32 {
    match i32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Registers what the module has. Called once by the server at load, behind the
/// guard.
fn on_load(loader: &ffi::Loader<'_>) -> Result<(), &'static CStr> {
    if loader.argument_count() != 0 {
        return Err(c"module arguments are refused: none are known");
    }
    loader.register::<acquire::Acquire>()?;
    loader.register::<peek::Peek>()?;
    #[cfg(feature = "panic-command")]
    loader.register::<panic::Panic>()?;
    Ok(())
}
