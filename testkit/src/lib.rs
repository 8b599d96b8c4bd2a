//! What the tests of the token-bucket module stand on.
//!
//! | part | what it gives |
//! |---|---|
//! | [`Server`], [`ServerBuilder`] | a real server in a folder of its own, on a free port, killed on drop |
//! | [`Cluster`], [`Wanderer`] | such servers as a cluster, and a caller that goes where it is sent |
//! | [`Sentinels`] | three sentinels that watch such a server |
//! | [`FaultProxy`] | a proxy between a client and such a server, which injects a [`Fault`] |
//! | [`HeldClock`] | the wall clock of that server, held still or shifted |
//! | [`RawClient`], [`Reply`] | a client that sees the bytes of each reply |
//! | [`Keys`], [`Server::keys`] | all that a server holds, to be compared |
//! | [`Caller`], [`Traffic`] | calls of all six commands, each answer compared with the model |
//! | [`ReplicationStream`] | what a primary sends to its replicas |
//! | [`Random`] | numbers that look random and are the same at every run |
//! | [`Stop`] | ends the threads of a test, also when that fails |
//! | [`wait_for`], [`try_wait_for`] | waiting with a deadline instead of sleeping |
//! | [`fuzz`] | properties that hold for any bytes |
//! | [`model`] | what the module must answer, in big integers and in exact fractions |
//!
//! Environment variables:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `TOKENBUCKET_SERVER` | the server to start, with leading arguments if it has spaces | `redis-server` |
//! | `TOKENBUCKET_GENTLE` | whatever its value: servers are asked to end at the end of a test, and killed only when they do not | they are killed |
//! | `TOKENBUCKET_MODULE` | the module to load | `target/release/libtokenbucket.so` |
//! | `TOKENBUCKET_PANIC_MODULE` | the module built with TB.PANIC | `target/panic/release/libtokenbucket.so` |
//!
//! ```no_run
//! use tokenbucket_testkit::{module_path, Server};
//!
//! let server = Server::builder()
//!     .module(module_path())
//!     .held_clock(1_700_000_000_000_000)
//!     .start();
//! let mut client = server.raw();
//! assert_eq!(client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]), Ok([1, 9, 0, 1000]));
//! server.advance(std::time::Duration::from_secs(1));
//! assert_eq!(client.tb(&["TB.PEEK", "k", "10", "1", "0"]), Ok([1, 10, 0, 0]));
//! ```
#![forbid(unsafe_code)]
// A test crate: a broken expectation must stop the test at the place it broke,
// and a panic in here reaches no server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions
)]

mod aof;
mod builder;
mod clock;
mod cluster;
pub mod fuzz;
mod inspect;
mod keys;
mod launch;
pub mod model;
mod paths;
mod persist;
mod proxy;
mod random;
mod raw;
mod reply;
mod sentinel;
mod server;
mod stop;
mod stream;
mod traffic;
mod wait;

pub use builder::ServerBuilder;
pub use clock::HeldClock;
pub use cluster::{Cluster, Wanderer};
pub use keys::Keys;
pub use launch::{installed_server, StartError};
pub use paths::{module_path, other_module_path, panic_module_path, workspace};
pub use proxy::{Fault, FaultProxy};
pub use random::Random;
pub use raw::RawClient;
pub use reply::Reply;
pub use sentinel::Sentinels;
pub use server::Server;
pub use stop::{Stop, StopAtEnd};
pub use stream::ReplicationStream;
pub use traffic::{Caller, Limits, Traffic, MIXED, SLOW};
pub use wait::{try_wait_for, wait_for};
