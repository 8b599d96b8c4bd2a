//! What is admitted in an outage and after it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokenbucket_client::{Client, Limiter, Source};
use tokenbucket_testkit::{Fault, FaultProxy};

use crate::support::*;

const RATE: f64 = 100.0;
const CLIENTS: u32 = 4;

/// One replica under more load than its share, with the instants of what it let through.
async fn hammer(limiter: Limiter, stop: Arc<AtomicBool>) -> Vec<(Instant, bool)> {
    let mut admitted = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let decision = limiter.acquire("user:42", 1).await.unwrap();
        if decision.is_allowed() {
            admitted.push((Instant::now(), decision.source() == Source::Redis));
        }
        pass(Duration::from_millis(2)).await;
    }
    admitted
}

/// F08: four replicas, a limit of 100 per second, ten seconds without a server. In the
/// outage they admit no more than the bound; in the second after it what one second's rate
/// is, and what they let through locally until they were back.
#[test]
fn four_replicas_in_an_outage_of_ten_seconds() {
    run(async {
        let server = with_module().start();
        let proxies: Vec<FaultProxy> = (0..CLIENTS)
            .map(|_| FaultProxy::to(server.port()))
            .collect();
        let clients: Vec<Client> = proxies
            .iter()
            .map(|proxy| builder(proxy.port()).replicas(CLIENTS).build().unwrap())
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let limiters: Vec<Limiter> = clients
            .iter()
            .map(|client| client.limiter(limit(RATE, RATE)).named("api"))
            .collect();
        for limiter in &limiters {
            until_redis(limiter, &mut Tally::default()).await;
        }
        // The outage begins with all callers there and the server's bucket empty.
        let drained = limiters[0].acquire("user:42", RATE).await.unwrap();
        assert!(drained.is_allowed());
        proxies.iter().for_each(FaultProxy::refuse);
        let begin = Instant::now();
        let tasks: Vec<_> = limiters
            .iter()
            .map(|limiter| tokio::spawn(hammer(limiter.clone(), Arc::clone(&stop))))
            .collect();
        pass(Duration::from_secs(10)).await;
        let end = Instant::now();
        proxies.iter().for_each(FaultProxy::listen_again);
        wait_until("all to be back", || {
            clients.iter().all(|client| !client.is_degraded())
        })
        .await;
        let back = Instant::now();
        let rest = Duration::from_secs(1).saturating_sub(end.elapsed());
        pass(rest + Duration::from_millis(50)).await;
        stop.store(true, Ordering::Relaxed);
        let mut admitted = Vec::new();
        for task in tasks {
            admitted.extend(task.await.unwrap());
        }

        let outage = (end - begin).as_secs_f64();
        let during = admitted.iter().filter(|(at, _)| *at <= end).count() as f64;
        let bound = RATE + RATE * outage;
        println!("outage of {outage:.2} s: {during} admitted, bound {bound:.0}");
        assert!(during <= bound, "{during} of {bound}");
        assert!(during >= 0.9 * bound, "{during} of {bound}");

        let second = end + Duration::from_secs(1);
        let after = admitted.iter().filter(|(at, _)| *at > end && *at <= second);
        let (redis, local): (Vec<(Instant, bool)>, Vec<_>) =
            after.copied().partition(|(_, redis)| *redis);
        let away = (back - end).as_secs_f64();
        println!(
            "the second after it: {} by the server, {} locally before all were back, {away:.3} s",
            redis.len(),
            local.len()
        );
        // One second's rate; the local share goes on until each is back; and a late comer's
        // deficit is debited when the others have taken what was there.
        let late = RATE / f64::from(CLIENTS) * f64::from(CLIENTS - 1) * away.min(1.0);
        let most = 1.1 * RATE + late;
        assert!((redis.len() as f64) <= most, "{} of {most}", redis.len());
        assert!(
            (local.len() as f64) <= RATE * away + 10.0,
            "{} locally",
            local.len()
        );
        let total = redis.len() + local.len();
        assert!(total as f64 >= 0.5 * RATE, "{total}");
        let settled: u64 = clients.iter().map(|client| client.counters().settled).sum();
        assert_eq!(settled, u64::from(CLIENTS), "each settles its bucket once");
    });
}

/// The deficit, and not all that was spent, is debited: once, ahead of the call's own
/// tokens.
#[test]
fn the_deficit_is_settled_once() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = patient(proxy.port()).replicas(2).build().unwrap();
        let limiter = client.limiter(limit(100.0, 1e-9)).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        let local = limiter.acquire("user:42", 30).await.unwrap();
        assert_eq!((local.is_allowed(), local.remaining()), (true, 20));
        proxy.listen_again();
        until_redis(&limiter, &mut Tally::default()).await;

        let settled = executed(&server, "tb.debit");
        let decision = limiter.acquire("user:42", 1).await.unwrap();
        assert_eq!(
            (decision.source(), decision.remaining()),
            (Source::Redis, 69)
        );
        let decision = limiter.acquire("user:42", 1).await.unwrap();
        assert_eq!(decision.remaining(), 68);
        assert_eq!(executed(&server, "tb.debit"), settled + 1);
        // A look settles nothing, as it writes nothing.
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        assert!(limiter.acquire("other", 30).await.unwrap().is_allowed());
        proxy.listen_again();
        until_redis(&limiter, &mut Tally::default()).await;
        let before = executed(&server, "tb.debit");
        assert_eq!(limiter.peek("other", 1).await.unwrap().remaining(), 99);
        assert_eq!(executed(&server, "tb.debit"), before);
    });
}

/// The reply to a settlement is lost: it is not sent again, and the local bucket goes on
/// as it was.
#[test]
fn a_lost_settlement_is_not_sent_again() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = patient(proxy.port()).build().unwrap();
        let limiter = client.limiter(limit(100.0, 1e-9)).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        assert!(limiter.acquire("user:42", 30).await.unwrap().is_allowed());
        proxy.listen_again();
        until_redis(&limiter, &mut Tally::default()).await;

        proxy.set(Fault::CutAfterExecution);
        let debits = executed(&server, "tb.debit");
        let lost = limiter.acquire("user:42", 1).await.unwrap();
        assert!(matches!(lost.source(), Source::Local(_)), "{lost:?}");
        assert_eq!(lost.remaining(), 69, "not refilled");
        assert_eq!(executed(&server, "tb.debit"), debits + 1);
        proxy.set(Fault::Forward);
        // 30 and the lost call's 1 are at the server. What was let through locally in its
        // place is the same request, and is not charged twice.
        let decision = loop {
            let decision = limiter.acquire("user:42", 1).await.unwrap();
            if decision.source() == Source::Redis {
                break decision;
            }
        };
        assert_eq!(decision.remaining(), 68);
    });
}

/// A settlement that never left is owed still.
#[test]
fn a_settlement_that_never_left_is_kept() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = patient(proxy.port()).build().unwrap();
        let limiter = client.limiter(limit(100.0, 1e-9)).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        assert!(limiter.acquire("user:42", 30).await.unwrap().is_allowed());
        proxy.listen_again();
        until_redis(&limiter, &mut Tally::default()).await;

        // Two failures: the breaker stays closed. The first one meets a connection that is
        // broken, the second finds that none can be made.
        proxy.refuse();
        assert!(limiter.acquire("other", 1).await.is_ok());
        let away = limiter.acquire("user:42", 1).await.unwrap();
        assert!(matches!(away.source(), Source::Local(_)), "{away:?}");
        assert!(!client.is_degraded());
        proxy.listen_again();
        let decision = loop {
            let decision = limiter.acquire("user:42", 1).await.unwrap();
            if decision.source() == Source::Redis {
                break decision;
            }
        };
        assert_eq!(decision.remaining(), 68, "30, 1 and its own");
    });
}

/// Another number of replicas takes hold at once, and refills nothing.
#[test]
fn the_number_of_replicas_changes_in_an_outage() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let replicas = Arc::new(AtomicU32::new(2));
        let client = patient(proxy.port())
            .replicas(Arc::clone(&replicas))
            .build()
            .unwrap();
        let limiter = client.limiter(limit(100.0, 1e-9)).named("api");
        proxy.refuse();
        until_degraded(&client, &limiter).await;
        let mut tally = Tally::default();
        for _ in 0..60 {
            call(&limiter, "user:42", &mut tally).await;
        }
        assert_eq!(tally.allowed, 50);
        for count in [4, 1, 2] {
            replicas.store(count, Ordering::Relaxed);
            call(&limiter, "user:42", &mut tally).await;
            assert_eq!(tally.allowed, 50, "{count} replicas");
        }
        replicas.store(10, Ordering::Relaxed);
        for _ in 0..20 {
            call(&limiter, "user:43", &mut tally).await;
        }
        assert_eq!(tally.allowed, 60);
    });
}
