#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Without a server there is nothing to break, to say, or to owe.
#![cfg_attr(not(feature = "tokio"), allow(dead_code))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
mod breaker;
mod builder;
mod client;
mod clock;
mod cost;
mod decision;
mod error;
mod fault;
#[cfg(feature = "tower")]
mod headers;
mod key;
mod limit;
mod limiter;
#[cfg(feature = "tokio")]
mod link;
mod local;
mod observe;
mod replicas;
mod table;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod tower;

pub use breaker::BreakerSettings;
pub use builder::{Builder, Built};
pub use client::Client;
pub use clock::TestClock;
pub use cost::{Cost, IntoCost};
pub use decision::{Decision, Decisions, Outcome, Reason, Source};
pub use error::{Error, ErrorKind};
pub use key::Keys;
pub use limit::Limit;
pub use limiter::{FailureMode, Limiter};
pub use observe::{Counters, Observer};
pub use replicas::Replicas;
