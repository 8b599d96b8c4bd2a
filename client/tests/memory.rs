//! F09: memory in an outage, however many keys come. Alone in its program, so that nothing
//! else allocates.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::fs;
use std::time::Instant;

use tokenbucket_client::{Client, Limit};

const KEYS: u64 = 10_000_000;

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.unwrap().split_whitespace();
    words.clone().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn ten_million_keys_take_no_more_than_the_table() {
    let client = Client::in_process().build().unwrap();
    let limiter = client.limiter(Limit::per_hour(10.0).unwrap()).named("api");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let run = |from: u64, to: u64| {
        let tasks: Vec<_> = (0..2)
            .map(|half| {
                let limiter = limiter.clone();
                runtime.spawn(async move {
                    for key in (from..to).filter(|key| key % 2 == half) {
                        let decision = limiter.acquire(key.to_le_bytes(), 1).await.unwrap();
                        assert!(decision.is_allowed());
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    };
    // Once around, so that every page of the table is there.
    run(0, 1_000_000);
    let before = resident();
    let start = Instant::now();
    run(1_000_000, KEYS);
    let after = resident();
    println!(
        "{KEYS} keys: {before} bytes resident after a tenth of them, {after} after all; {:?}",
        start.elapsed()
    );
    assert!(after < before + 1_000_000, "{before} {after}");
}
