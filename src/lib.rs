//! A Redis and Valkey module that holds token buckets natively.
//!
//! `TB.ACQUIRE key capacity rate cost` refills, debits and expires a bucket in
//! one step, inside the server and by the server's clock.
//!
//! | file | what it is |
//! |---|---|
//! | [`acquire`], [`peek`], [`reserve`], [`credit`], [`debit`], [`macquire`] | one command each: its documentation, and what it does |
//! | [`command`] | what a command is to the server: name, flags, keys, documentation |
//! | [`arguments`] | the texts of the arguments into what they mean |
//! | [`store`] | a bucket at a key: read, write, expire, replicate |
//! | [`reply`] | decisions into the integers of the answer |
//! | [`stats`] | what `INFO tokenbucket` counts |
//! | [`error`] | every error text |
//! | [`ffi`] | all that is unsafe: the server's API behind safe types, and the guard that catches panics |
//!
//! The arithmetic is in the crate `tokenbucket-core`.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the library of a module has no public items: its documentation is of the private ones"
)]

mod acquire;
mod arguments;
mod command;
mod credit;
mod debit;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod macquire;
#[cfg(feature = "panic-command")]
mod panic;
mod peek;
mod reply;
mod reserve;
mod stats;
mod store;

use std::ffi::CStr;

/// The module's name in `MODULE LIST`.
const NAME: &CStr = c"tokenbucket";

/// The package's version as the server takes one: 1.2.3 is 10203.
const VERSION: i32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// The package's version as people read one.
const VERSION_TEXT: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"unknown",
    };

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
    stats::reset();
    loader.register::<acquire::Acquire>()?;
    loader.register::<peek::Peek>()?;
    loader.register::<reserve::Reserve>()?;
    loader.register::<credit::Credit>()?;
    loader.register::<debit::Debit>()?;
    loader.register::<macquire::Macquire>()?;
    loader.register_info()?;
    #[cfg(feature = "panic-command")]
    loader.register::<panic::Panic>()?;
    Ok(())
}
