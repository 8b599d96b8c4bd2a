//! The local buckets under load and under a flood.

use std::time::Instant;

use tokenbucket_client::{Client, Reason, Source};
use tokenbucket_testkit::FaultProxy;

use crate::support::*;

/// An abuser who has used up his tokens gets no new ones by a flood of other keys.
#[test]
fn a_flood_of_keys_frees_nobody() {
    run(async {
        let client = Client::in_process().local_buckets(1_024).build().unwrap();
        let limiter = client.limiter(limit(25.0, 1e-9)).named("api");
        let mut abuser = Tally::default();
        for key in 0..50_000_u32 {
            limiter.acquire(key.to_le_bytes(), 1).await.unwrap();
            if key % 10 == 0 {
                call(&limiter, "abuser", &mut abuser).await;
            }
        }
        assert_eq!(abuser.allowed, 25);
    });
}

/// While the breaker is open, threads decide side by side.
#[test]
fn decisions_of_two_threads() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        proxy.refuse();
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(limit(1e9, 1e-9)).named("api");
        until_degraded(&client, &limiter).await;
        drop(proxy);
        let start = Instant::now();
        let each = 50_000_u64;
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    for _ in 0..each {
                        let decision = limiter.acquire("user:42", 1).await.unwrap();
                        assert!(decision.is_allowed());
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.await.unwrap();
        }
        println!(
            "{} decisions of two threads in {:?}, unoptimised",
            2 * each,
            start.elapsed()
        );
        let left = limiter.peek("user:42", 0).await.unwrap();
        assert!(matches!(
            left.source(),
            Source::Local(Reason::BreakerOpen | Reason::Connection)
        ));
        assert_eq!(left.remaining(), 1_000_000_000 - 2 * each);
    });
}
