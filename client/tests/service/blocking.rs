//! The client for code that blocks.

use std::time::{Duration, Instant};

use tokenbucket_client::blocking::Client;
use tokenbucket_client::{FailureMode, Reason, Source, TestClock};
use tokenbucket_testkit::{FaultProxy, Server};

use crate::*;

fn connect(server: &Server) -> Client {
    let builder = Client::builder(&address(server)).unwrap();
    builder.deadline(PATIENCE).build().unwrap()
}

#[test]
fn all_calls_on_a_server() {
    let server = with_module().start();
    let client = connect(&server);
    client.check().unwrap();
    let limiter = client.limiter(limit(10.0, 1e-9)).named("api");
    let hour = client.limiter(limit(5.0, 1e-9)).named("hour");
    assert_eq!((limiter.name(), limiter.limit().capacity()), ("api", 10.0));
    let left = |decision: tokenbucket_client::Decision| {
        assert_eq!(decision.source(), Source::Redis);
        decision.remaining()
    };
    assert_eq!(left(limiter.acquire("a", 3).unwrap()), 7);
    assert_eq!(left(limiter.peek("a", 7).unwrap()), 0);
    assert_eq!(left(limiter.credit("a", 1).unwrap()), 8);
    assert_eq!(left(limiter.debit("a", 2.5).unwrap()), 5);
    assert_eq!(
        left(limiter.reserve("a", 1, Duration::from_secs(1)).unwrap()),
        4
    );
    let both = client
        .acquire_all("a", &[(&limiter, 1), (&hour, 1)])
        .unwrap();
    assert!(both.is_allowed());
    assert!(limiter.acquire("a", -1).is_err());
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(!limiter.acquire_until("a", 9, soon).unwrap().is_allowed());
    assert!(!client.is_degraded());
    assert_eq!(client.counters().dials, 1);
}

/// Threads share one connection, and no token is lost between them.
#[test]
fn threads_share_a_client() {
    let server = with_module().start();
    let client = connect(&server);
    let limiter = client.limiter(limit(500.0, 1e-9)).named("api");
    let allowed: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let acquire = |_| u32::from(limiter.acquire("a", 1).unwrap().is_allowed());
                    (0..100).map(acquire).sum::<u32>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(allowed, 500);
    assert_eq!(client.counters().dials, 1);
}

/// The same failure mode, decided on the calling thread.
#[test]
fn the_server_is_away() {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    proxy.refuse();
    let client = Client::builder(&format!("redis://127.0.0.1:{}/", proxy.port()))
        .unwrap()
        .replicas(2)
        .build()
        .unwrap();
    let limiter = client.limiter(limit(10.0, 1e-9)).named("api");
    let mut allowed = 0;
    for _ in 0..20 {
        let decision = limiter.acquire("a", 1).unwrap();
        assert!(
            matches!(decision.source(), Source::Local(_)),
            "{decision:?}"
        );
        allowed += u32::from(decision.is_allowed());
    }
    assert_eq!(allowed, 5);
    assert!(client.is_degraded());
    let error = limiter
        .clone()
        .on_failure(FailureMode::Error)
        .acquire("a", 1);
    assert!(error.unwrap_err().is_unavailable());
    proxy.listen_again();
    tokenbucket_testkit::wait_for("the server to be used", PATIENCE, || {
        limiter.acquire("b", 1).unwrap().source() == Source::Redis
    });
}

#[test]
fn without_a_server() {
    let clock = TestClock::new();
    let client = Client::in_process().test_clock(&clock).build().unwrap();
    let limiter = client.limiter(limit(1.0, 1.0)).named("api");
    let decision = limiter.acquire("a", 1).unwrap();
    assert_eq!(decision.source(), Source::Local(Reason::NoServer));
    assert!(!limiter.acquire("a", 1).unwrap().is_allowed());
    let far = Instant::now() + Duration::from_secs(60);
    assert!(limiter.acquire_until("a", 1, far).unwrap().is_allowed());
    let other = client.limiter(limit(1.0, 1.0)).named("other");
    assert!(client
        .acquire_all("b", &[(&limiter, 1), (&other, 1)])
        .unwrap()
        .is_allowed());
    client.check().unwrap();
}

/// It is called, and dropped, where blocking is frowned upon, and does not panic.
#[test]
fn within_an_asynchronous_runtime() {
    let server = with_module().start();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let client = connect(&server);
            let limiter = client.limiter(limit(10.0, 1.0)).named("api");
            assert_eq!(limiter.acquire("a", 1).unwrap().source(), Source::Redis);
            drop((client, limiter));
        });
}
