//! The server, and the client without one, give the same decisions.

use std::time::Duration;

use tokenbucket_client::{Client, Decision, Error, Limit, Limiter, Outcome, Source, TestClock};
use tokenbucket_testkit::Random;

use crate::*;

const START: i64 = 1_800_000_000_000_000;

/// A decision in whole milliseconds, rounded up as the server rounds.
#[derive(Debug, PartialEq)]
struct Rounded {
    allowed: bool,
    remaining: u64,
    wait_ms: Option<u128>,
    reset_ms: u128,
}

fn ms(time: Duration) -> u128 {
    time.as_micros().div_ceil(1000)
}

fn rounded(decision: &Decision) -> Rounded {
    Rounded {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        wait_ms: match decision.outcome() {
            Outcome::Allowed { wait } => Some(ms(wait)),
            Outcome::Denied { retry_after } => Some(ms(retry_after)),
            Outcome::Never => None,
        },
        reset_ms: ms(decision.reset_after()),
    }
}

async fn act(limiter: &Limiter, random: &mut Random) -> Result<Decision, Error> {
    let subject = format!("user:{}", random.below(3));
    let cost = match random.below(4) {
        0 => 0.0,
        1 => random.below(30) as f64 / 8.0,
        _ => random.below(12) as f64,
    };
    match random.below(8) {
        0 => limiter.peek(subject, cost).await,
        1 => limiter.credit(subject, cost).await,
        2 => limiter.debit(subject, cost).await,
        3 => {
            let wait = Duration::from_millis(random.below(4_000) as u64);
            limiter.reserve(subject, cost, wait).await
        }
        _ => limiter.acquire(subject, cost).await,
    }
}

/// 3,000 random calls of five commands and of `acquire_all`, on a server under a held clock
/// and in the process under a test clock: decision by decision the same.
#[tokio::test]
async fn the_server_and_the_process_decide_alike() {
    let server = with_module().held_clock(START).start();
    let clock = TestClock::new();
    let local = Client::in_process().test_clock(&clock).build().unwrap();
    let remote = connect(&server);
    let limits = [
        ("a", limit(10.0, 3.0)),
        ("b", Limit::per(7.0, Duration::from_millis(1_700)).unwrap()),
        ("c", limit(2.5, 0.125)),
        ("d", Limit::per_minute(100.0).unwrap()),
    ];
    let limiters: Vec<(Limiter, Limiter)> = limits
        .iter()
        .map(|(name, limit)| {
            (
                remote.limiter(*limit).named(*name),
                local.limiter(*limit).named(*name),
            )
        })
        .collect();
    let seed = 7;
    let (mut one, mut other) = (Random::new(seed), Random::new(seed));
    let mut denied = 0;
    for call in 0..3_000 {
        let step = Duration::from_micros(one.below(400_000) as u64);
        assert_eq!(other.below(400_000) as u128, step.as_micros());
        server.advance(step);
        clock.advance(step);
        let at = one.below(5) as usize;
        other.below(5);
        if let Some((remote, local)) = limiters.get(at) {
            let remote = act(remote, &mut one).await.unwrap();
            let local = act(local, &mut other).await.unwrap();
            assert_eq!(remote.source(), Source::Redis);
            assert_eq!(rounded(&remote), rounded(&local), "call {call}");
            denied += u32::from(!remote.is_allowed());
            continue;
        }
        let subject = format!("user:{}", one.below(3));
        other.below(3);
        let cost = one.below(5) as u64;
        other.below(5);
        let of_remote: Vec<_> = limiters.iter().map(|(remote, _)| (remote, cost)).collect();
        let of_local: Vec<_> = limiters.iter().map(|(_, local)| (local, cost)).collect();
        let of_remote = remote.acquire_all(&subject, &of_remote).await.unwrap();
        let of_local = local.acquire_all(&subject, &of_local).await.unwrap();
        assert_eq!(of_remote.is_allowed(), of_local.is_allowed(), "call {call}");
        assert_eq!(
            of_remote.retry_after().map(ms),
            of_local.retry_after().map(ms),
            "call {call}"
        );
        for (remote, local) in of_remote.each().iter().zip(of_local.each()) {
            assert_eq!(rounded(remote), rounded(local), "call {call}");
        }
    }
    assert!((300..2_700).contains(&denied), "{denied}");
    let counters = remote.counters();
    assert_eq!((counters.local, counters.errors, counters.dials), (0, 0, 1));
}

/// A07: 700 per minute are 700 per minute.
#[tokio::test]
async fn seven_hundred_per_minute() {
    let clock = TestClock::new();
    let client = Client::in_process().test_clock(&clock).build().unwrap();
    let limiter = client.limiter(Limit::per_minute(700.0).unwrap());
    assert!(limiter.acquire("user:42", 700).await.unwrap().is_allowed());
    let mut allowed = 0;
    for _ in 0..60_000 {
        clock.advance(Duration::from_millis(1));
        allowed += u32::from(limiter.acquire("user:42", 1).await.unwrap().is_allowed());
    }
    assert!((699..=701).contains(&allowed), "{allowed}");
}

/// I09: a limit per second and one per hour on one subject are two buckets; without names
/// too.
#[tokio::test]
async fn two_limits_never_share_a_bucket() {
    let server = with_module().start();
    for client in [connect(&server), Client::in_process().build().unwrap()] {
        let second = client.limiter(limit(2.0, 1e-6));
        let hour = client.limiter(limit(5.0, 1e-9));
        for left in [1, 0] {
            assert_eq!(
                second.acquire("user:42", 1).await.unwrap().remaining(),
                left
            );
            assert_eq!(
                hour.acquire("user:42", 1).await.unwrap().remaining(),
                left + 3
            );
        }
        let both = client
            .acquire_all("user:42", &[(&second, 1), (&hour, 1)])
            .await
            .unwrap();
        assert!(!both.is_allowed());
        assert_eq!(hour.peek("user:42", 0).await.unwrap().remaining(), 3);
    }
}

/// B04: what can never be is an outcome of its own, and no wait.
#[tokio::test]
async fn never_is_neither_a_wait_nor_a_yes() {
    let server = with_module().start();
    let client = connect(&server);
    let limiter = client.limiter(limit(5.0, 1.0)).named("api");
    let never = limiter.acquire("user:42", 6).await.unwrap();
    assert_eq!(never.outcome(), Outcome::Never);
    assert_eq!((never.retry_after(), never.remaining()), (None, 5));
    let blocked = client.limiter(limit(0.0, 1.0)).named("blocked");
    assert_eq!(
        blocked.acquire("a", 1).await.unwrap().outcome(),
        Outcome::Never
    );
    assert!(blocked.acquire("a", 0).await.unwrap().is_allowed());
}

/// I01: a subject is any bytes, and arrives as it is.
#[tokio::test]
async fn subjects_are_bytes() {
    let server = with_module().start();
    let client = connect(&server);
    let limiter = client.limiter(limit(5.0, 1e-9)).named("api");
    for subject in [
        &b"\xff\x00\xfe"[..],
        b"",
        b"{}",
        b"a{b}c",
        b"a\r\nb",
        &[b'x'; 100_000],
    ] {
        let first = limiter.acquire(subject, 1).await.unwrap();
        let second = limiter.acquire(subject, 1).await.unwrap();
        assert_eq!((first.remaining(), second.remaining()), (4, 3));
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 6);
    assert!(keys.keys().any(|key| key == b"{\xff\x00\xfe}:api"));
    assert!(keys.keys().all(|key| key.len() <= 256));
}
