//! The module on a real server, asked as a client asks it.
//!
//! One file per concern. Nothing here sleeps: the server's clock stands still
//! and is moved by the test, or something is waited for with a deadline.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests: a broken expectation stops at the place it broke"
)]

use tokenbucket_testkit::{module_path, RawClient, Server};

mod answers;
mod arguments;
mod configuration;
mod events;
mod failures_arguments;
mod failures_arithmetic;
mod failures_keys;
mod failures_lifetime;
mod failures_reply;
mod family;
mod guard;
mod info;
mod introspection;
mod leaves_behind;
mod live_changes;
mod loading;
mod lua;
mod readme;
mod redis_cli;
mod stored;
mod support;
mod sweep;

/// Where the held clocks start: microseconds since the Unix epoch, in January
/// 2027, at the turn of a second.
pub const START: i64 = 1_800_000_000_000_000;

/// A server with the module, its clock held still at [`START`].
#[track_caller]
pub fn held() -> Server {
    Server::builder()
        .module(module_path())
        .held_clock(START)
        .start()
}

/// A server with the module, on the running clock.
#[track_caller]
pub fn running() -> Server {
    Server::builder().module(module_path()).start()
}

/// What is stored at `key`: `None` for nothing.
#[track_caller]
pub fn stored(client: &mut RawClient, key: &str) -> Option<Vec<u8>> {
    client.text(&["GET", key]).bytes()
}

/// The absolute expiry of `key` in milliseconds, from its PTTL under a clock
/// that stands still at `now_us`. (PEXPIRETIME is not there before Redis 7.0.)
#[track_caller]
pub fn expires_at_ms(client: &mut RawClient, key: &str, now_us: i64) -> i64 {
    let pttl = client.text(&["PTTL", key]).integer();
    assert!(pttl >= 0, "{key} has no expiry: PTTL is {pttl}");
    now_us / 1000 + pttl
}
