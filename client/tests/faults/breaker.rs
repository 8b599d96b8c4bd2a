//! Probes: one at a time, real calls, and none that is lost for ever.

use std::future::Future;
use std::time::Duration;

use tokenbucket_client::{BreakerSettings, FailureMode, Outcome, Reason, Source};
use tokenbucket_testkit::{Fault, FaultProxy};

use crate::support::*;

/// A probe whose caller goes away frees its place: the next call is the probe.
#[test]
fn a_cancelled_probe_frees_its_place() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let pause = Duration::from_millis(20);
        let client = builder(proxy.port())
            .breaker(
                BreakerSettings::default()
                    .first_pause(pause)
                    .longest_pause(pause),
            )
            // So long that only cancelling ends a probe.
            .deadline(PATIENCE)
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        proxy.listen_again();
        proxy.set(Fault::BlackHole);
        for cancelled in 1..=5 {
            wait_until("a probe", || {
                // Polled once, which is enough to send it, and dropped.
                let acquire = limiter.acquire("probe", 1);
                let polled = tokio::task::unconstrained(acquire);
                poll_once(polled);
                client.counters().probes >= cancelled
            })
            .await;
        }
        assert!(client.is_degraded());
        proxy.set(Fault::Forward);
        let mut tally = Tally::default();
        until_redis(&limiter, &mut tally).await;
        assert!(!client.is_degraded());
    });
}

/// Callers with less patience than the deadline: they too find out that the server is away.
#[test]
fn callers_who_do_not_wait_for_the_deadline() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.set(Fault::BlackHole);
        let mut tried = 0;
        while !client.is_degraded() {
            tried += 1;
            assert!(tried < 100, "no breaker opens");
            let patience = Duration::from_millis(35);
            let _ = tokio::time::timeout(patience, limiter.acquire("a", 1)).await;
        }
        let mut tally = Tally::default();
        for _ in 0..100 {
            call(&limiter, "a", &mut tally).await;
        }
        assert!(tally.local() >= 99, "{tally:?}");
        proxy.set(Fault::Forward);
        until_redis(&limiter, &mut Tally::default()).await;
    });
}

/// Polls a future once and drops it, as a caller does who gives up.
fn poll_once<T>(future: impl Future<Output = T>) {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = future.as_mut().poll(&mut context);
}

/// The server answers PING while it is read-only: only a real call shows that it is not
/// back.
#[test]
fn a_probe_is_a_real_call() {
    run(async {
        let server = with_module().start();
        let client = patient(server.port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        server
            .raw()
            .text(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        until_degraded(&client, &limiter).await;
        let load = Load::start(&limiter, 4, Duration::from_millis(5));
        wait_until("probes", || client.counters().probes >= 4).await;
        let tally = load.stop().await;
        assert!(client.is_degraded());
        assert_eq!(tally.redis(), 0, "{tally:?}");
        assert!(
            tally.from(Source::Local(Reason::NoReplicas)) >= 1,
            "{tally:?}"
        );
        server
            .raw()
            .text(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        until_redis(&limiter, &mut Tally::default()).await;
    });
}

/// F11: a denial is the server's answer. It moves no breaker and asks no local bucket,
/// which would be more generous.
#[test]
fn a_denial_is_no_failure() {
    run(async {
        let server = with_module().start();
        let client = patient(server.port()).build().unwrap();
        let small = client.limiter(limit(2.0, 1e-9)).named("api");
        let mut tally = Tally::default();
        for _ in 0..20 {
            call(&small, "user:42", &mut tally).await;
        }
        let never = small.acquire("user:42", 3).await.unwrap();
        assert_eq!(never.outcome(), Outcome::Never);
        assert_eq!((tally.redis(), tally.allowed), (20, 2));
        let counters = client.counters();
        assert_eq!(
            (counters.local, counters.degraded, counters.denied),
            (0, 0, 19)
        );
    });
}

/// F04: each failure mode answers as it says, and an error is never a denial.
#[test]
fn the_four_failure_modes() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        proxy.refuse();
        let client = patient(proxy.port()).replicas(4).build().unwrap();
        let limiter = client.limiter(limit(8.0, 1e-9)).named("api");
        until_degraded(&client, &limiter).await;

        let mode = |mode| limiter.clone().on_failure(mode);
        let allow = mode(FailureMode::Allow).acquire("a", 1).await.unwrap();
        assert_eq!(allow.source(), Source::FailOpen);
        assert!(allow.is_allowed());
        let too_much = mode(FailureMode::Allow).acquire("a", 9).await.unwrap();
        assert_eq!(too_much.outcome(), Outcome::Never);

        let deny = mode(FailureMode::Deny);
        let denied = deny.acquire("a", 1).await.unwrap();
        assert_eq!(denied.source(), Source::FailClosed);
        assert!(denied.retry_after().unwrap() > Duration::ZERO);
        assert_eq!(
            deny.acquire("a", 9).await.unwrap().outcome(),
            Outcome::Never
        );
        assert!(deny.credit("a", 1).await.unwrap().is_allowed());

        let error = mode(FailureMode::Error).acquire("a", 1).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");

        let mut tally = Tally::default();
        for _ in 0..10 {
            call(&mode(FailureMode::LocalShare), "b", &mut tally).await;
        }
        assert_eq!((tally.local(), tally.allowed), (10, 2), "8 shared by 4");
    });
}

/// F18: one line when it begins, one when it is over, whatever the number of calls.
#[test]
fn one_line_for_an_outage() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let record = Record::default();
        let client = patient(proxy.port())
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        let mut tally = Tally::default();
        while tally.calls < 10_000 {
            call(&limiter, "user:42", &mut tally).await;
        }
        proxy.listen_again();
        until_redis(&limiter, &mut Tally::default()).await;
        assert_eq!(
            record.moves(),
            [Event::Degraded(Reason::Connection), Event::Recovered]
        );
        let counters = client.counters();
        assert!(counters.local >= 10_000, "{counters:?}");
        assert_eq!(counters.degraded, 1);
    });
}
