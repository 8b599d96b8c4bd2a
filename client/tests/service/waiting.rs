//! Waiting for a bucket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokenbucket_client::{Client, Observer, Outcome, Source, TestClock};

use crate::*;

/// Counts the calls that were denied.
#[derive(Clone, Default)]
struct Denied(Arc<AtomicU64>);

impl Observer for Denied {
    fn decided(&self, _: &str, outcome: Outcome, _: Source) {
        if !matches!(outcome, Outcome::Allowed { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// F19: a hundred wait for one drained bucket. Each gets its token, none comes back before
/// it was told to, and they do not come back together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_wait_for_one_bucket() {
    let server = with_module().start();
    let denied = Denied::default();
    let client = Client::builder(&address(&server))
        .unwrap()
        .deadline(PATIENCE)
        .observer(denied.clone())
        .build()
        .unwrap();
    let limiter = client.limiter(limit(100.0, 100.0)).named("api");
    assert!(limiter.acquire("user:42", 100).await.unwrap().is_allowed());
    let start = Instant::now();
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let deadline = start + PATIENCE;
                let decision = limiter.acquire_until("user:42", 1, deadline).await.unwrap();
                assert!(decision.is_allowed());
                start.elapsed()
            })
        })
        .collect();
    let mut times = Vec::new();
    for waiter in waiters {
        times.push(waiter.await.unwrap());
    }
    times.sort();
    let denied = denied.0.load(Ordering::Relaxed);
    println!(
        "100 waiters at 100 per second: the last after {:?}, {denied} denials",
        times[99]
    );
    // The bucket's own rate.
    for (at, time) in times.iter().enumerate() {
        let soonest = Duration::from_millis(at as u64 * 10);
        assert!(*time >= soonest, "number {at} after {time:?}");
    }
    assert!(times[99] < PATIENCE);
}

/// Every wait is at least what the decision said, and at most a half longer.
#[tokio::test]
async fn waits_are_never_cut_short() {
    let far = Instant::now() + Duration::from_secs(3_600);
    let mut waits = Vec::new();
    for _ in 0..50 {
        let clock = TestClock::new();
        let client = Client::in_process().test_clock(&clock).build().unwrap();
        let limiter = client.limiter(limit(2.0, 0.1)).named("api");
        assert!(limiter.acquire("user:42", 2).await.unwrap().is_allowed());
        let waited = limiter.acquire_until("user:42", 1, far).await.unwrap();
        assert!(waited.is_allowed());
        // It was allowed at the second try: what had flowed in until then shows the wait.
        let surplus = 20.0 - waited.reset_after().as_secs_f64();
        assert!((0.0..=5.0).contains(&surplus), "{surplus} s more than 10 s");
        waits.push((surplus * 1_000.0) as u64);
        assert_eq!(client.counters().denied, 1);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 25, "{waits:?}");
}

/// What can't be in time is answered at once; so is what can never be.
#[tokio::test]
async fn no_wait_that_is_in_vain() {
    let clock = TestClock::new();
    let client = Client::in_process().test_clock(&clock).build().unwrap();
    let limiter = client.limiter(limit(1.0, 0.1)).named("api");
    assert!(limiter.acquire("user:42", 1).await.unwrap().is_allowed());
    let soon = Instant::now() + Duration::from_secs(9);
    let denied = limiter.acquire_until("user:42", 1, soon).await.unwrap();
    assert!(denied.retry_after().is_some());
    let never = limiter.acquire_until("user:42", 2, soon).await.unwrap();
    assert_eq!(never.outcome(), Outcome::Never);
    assert_eq!(client.counters().local, 3);
    let past = Instant::now();
    let denied = limiter.acquire_until("user:42", 1, past).await.unwrap();
    assert!(denied.retry_after().is_some());
}
