//! What a service gets of the client: decisions, waiting, middleware, log lines, TLS.
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

mod blocking;
mod clock;
mod decisions;
mod examples;

mod logs;
mod middleware;
mod tls;
mod waiting;

use std::time::Duration;

use tokenbucket_client::{Client, Limit};
use tokenbucket_testkit::{module_path, Server, ServerBuilder};

const PATIENCE: Duration = Duration::from_secs(30);

fn with_module() -> ServerBuilder {
    Server::builder().module(module_path())
}

fn address(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

/// A client that waits for the server as long as that takes.
fn connect(server: &Server) -> Client {
    let builder = Client::builder(&address(server)).unwrap();
    builder.deadline(PATIENCE).build().unwrap()
}

fn limit(capacity: f64, rate: f64) -> Limit {
    Limit::per_second(rate).unwrap().burst(capacity).unwrap()
}
