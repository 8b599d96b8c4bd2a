//! G01: the clock of a client has no say over the server.

use std::time::Duration;

use tokenbucket_client::{Client, TestClock};

use crate::*;

/// Two clients whose clocks are an hour apart share one bucket, and refill it by nothing.
#[tokio::test]
async fn clients_with_different_clocks_share_a_bucket() {
    let server = with_module().held_clock(1_800_000_000_000_000).start();
    let (early, late) = (TestClock::new(), TestClock::new());
    late.advance(Duration::from_secs(3_600));
    let limiters = [&early, &late].map(|clock| {
        let client = Client::builder(&address(&server))
            .unwrap()
            .deadline(PATIENCE)
            .test_clock(clock)
            .build()
            .unwrap();
        client.limiter(limit(150.0, 150.0)).named("api")
    });
    let mut allowed = 0;
    for call in 0..600 {
        let limiter = &limiters[call % 2];
        allowed += u32::from(limiter.acquire("user:42", 1).await.unwrap().is_allowed());
        early.advance(Duration::from_secs(1));
    }
    assert_eq!(allowed, 150);
}
