//! Servers that are away: refused, silent, stopped, killed, black-holed, slow.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use tokenbucket_client::{Reason, Source};
use tokenbucket_testkit::{Fault, FaultProxy, Server};

use crate::support::*;

/// A service starts while the server is down, and uses it when it comes.
#[test]
fn refused_at_the_start() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        proxy.refuse();
        let record = Record::default();
        let client = patient(proxy.port())
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let error = client.check().await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!(tally.from(Source::Local(Reason::Connection)), tally.calls);
        assert_eq!(tally.calls, 3);
        proxy.listen_again();
        let mut tally = Tally::default();
        let took = until_redis(&limiter, &mut tally).await;
        println!(
            "back on the server after {took:?}; slowest call {:?}",
            tally.slowest
        );
        assert!(took < Duration::from_secs(1) + SLOWEST, "{took:?}");
        assert!(tally.slowest < SLOWEST);
        client.check().await.unwrap();
        assert_eq!(
            record.moves(),
            [Event::Degraded(Reason::Connection), Event::Recovered]
        );
    });
}

/// What happens to a server under load in the middle of it, and what is expected: the
/// source of the calls that met it first.
fn outage(
    name: &str,
    begin: impl FnOnce(&mut Server, &FaultProxy),
    end: impl FnOnce(&mut Server, &FaultProxy),
    reasons: &[Reason],
) {
    run(async {
        let mut server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let record = Record::default();
        let client = builder(proxy.port())
            .observer(record.clone())
            .replicas(4)
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let capped = client.limiter(limit(400.0, 400.0)).named("capped");
        let mut before = Tally::default();
        until_redis(&limiter, &mut before).await;

        let load = Load::start(&limiter, 50, Duration::from_millis(5));
        let greedy = Load::on_one(&capped, 20, Duration::from_millis(5));
        let started = Instant::now();
        begin(&mut server, &proxy);
        wait_until("the breaker to open", || client.is_degraded()).await;
        // It stays away for a while, and several probes are lost.
        let probes = client.counters().probes;
        wait_until("probes", || client.counters().probes >= probes + 4).await;
        let greedy = greedy.stop().await;
        let outage = started.elapsed().as_secs_f64();
        let during = load.stop().await;
        // This one's share of the bound: a quarter.
        let bound = 100.0 + 100.0 * outage;
        println!(
            "{name}: {} let through locally, bound {bound:.0}",
            greedy.allowed_locally
        );
        assert!(greedy.allowed_locally as f64 <= bound, "{name}: {greedy:?}");
        assert!(greedy.allowed_locally >= 100, "{name}: {greedy:?}");
        assert_eq!(during.errors, 0);
        assert!(during.slowest < SLOWEST, "{name}: {during:?}");
        let probes = usize::try_from(client.counters().probes).unwrap();
        println!(
            "{name}: {} calls, {} waited, of them {probes} probes; slowest {:?}; dials {}",
            during.calls,
            during.waited(),
            during.slowest,
            client.counters().dials,
        );
        assert!(during.local() > 0, "{name}: {during:?}");
        let Some(Event::Degraded(reason)) = record.moves().first().cloned() else {
            panic!("{name}: {:?}", record.moves());
        };
        assert!(reasons.contains(&reason), "{name}: {reason}");

        let load = Load::start(&limiter, 50, Duration::from_millis(5));
        end(&mut server, &proxy);
        let back = Instant::now();
        wait_until("the server to be used again", || !client.is_degraded()).await;
        let took = back.elapsed();
        let after = load.stop().await;
        println!("{name}: back after {took:?}");
        assert!(took < Duration::from_secs(1) + SLOWEST, "{name}: {took:?}");
        assert!(after.slowest < SLOWEST, "{name}: {after:?}");
        assert_eq!(after.errors, 0);
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
        let mut last = Tally::default();
        call(&limiter, "after", &mut last).await;
        assert_eq!(last.redis(), 1, "{name}");
    });
}

#[test]
fn refused_in_the_middle() {
    outage(
        "refused",
        |_, proxy| proxy.refuse(),
        |_, proxy| proxy.listen_again(),
        &[Reason::Connection],
    );
}

/// F01: packets that nobody answers, on connections old and new.
#[test]
fn black_holed() {
    outage(
        "black-holed",
        |_, proxy| proxy.set(Fault::BlackHole),
        |_, proxy| proxy.set(Fault::Forward),
        &[Reason::Deadline],
    );
}

#[test]
fn stalled() {
    outage(
        "stalled",
        |_, proxy| proxy.set(Fault::Stall),
        |_, proxy| proxy.set(Fault::Forward),
        &[Reason::Deadline],
    );
}

fn signal(server: &Server, signal: &str) {
    let kill = format!("kill -{signal} {}", server.pid());
    assert!(Command::new("sh")
        .args(["-c", &kill])
        .status()
        .unwrap()
        .success());
}

/// F02: the process stands still, its connections stay open.
#[test]
fn stopped_and_continued() {
    outage(
        "SIGSTOP",
        |server, _| signal(server, "STOP"),
        |server, _| signal(server, "CONT"),
        &[Reason::Deadline],
    );
}

#[test]
fn killed_and_restarted() {
    outage(
        "kill -9",
        |server, _| server.kill(),
        |server, _| server.restart(),
        &[Reason::Connection],
    );
}

#[test]
fn closes_every_connection() {
    outage(
        "closes",
        |_, proxy| proxy.set(Fault::Close),
        |_, proxy| proxy.set(Fault::Forward),
        &[Reason::Connection],
    );
}

/// Slower than the deadline is away; quicker is not.
#[test]
fn slow() {
    outage(
        "slow",
        |_, proxy| proxy.set(Fault::Delay(Duration::from_millis(150))),
        |_, proxy| proxy.set(Fault::Forward),
        &[Reason::Deadline],
    );
}

/// A port behind which nobody ever takes the connection: the handshake of TCP is the
/// kernel's own and succeeds.
#[test]
fn accepts_and_never_replies() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = builder(port).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!(tally.from(Source::Local(Reason::Deadline)), 3);
        assert!(tally.slowest < SLOWEST, "{tally:?}");
    });
}

/// 500 callers at the moment of failure: one dial at most at a time, at most 500 slow
/// calls, then none but one probe at a time.
async fn five_hundred(name: &str, fail: impl FnOnce(&FaultProxy)) {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    let record = Record::default();
    let client = builder(proxy.port())
        .observer(record.clone())
        .build()
        .unwrap();
    let limiter = client.limiter(plenty()).named("api");
    until_redis(&limiter, &mut Tally::default()).await;
    let dials = client.counters().dials;
    assert_eq!(dials, 1);

    let load = Load::start(&limiter, 500, Duration::from_millis(2));
    wait_until("all callers", || client.counters().redis > 1_000).await;
    fail(&proxy);
    wait_until("the breaker to open", || client.is_degraded()).await;
    let probes = client.counters().probes;
    wait_until("probes", || client.counters().probes >= probes + 5).await;
    let tally = load.stop().await;
    let counters = client.counters();
    println!(
        "500 callers, {name}: {} calls, {} waited, {} probes, {} dials; slowest {:?}",
        tally.calls,
        tally.waited(),
        counters.probes,
        counters.dials,
        tally.slowest
    );
    assert!(tally.slowest < SLOWEST, "{name}: {tally:?}");
    // One dial for each probe, and one for each of the calls that opened the breaker; none
    // for the five hundred.
    assert!(
        counters.dials <= dials + counters.probes + 3,
        "{name}: {counters:?}"
    );
    // Each has at most one call on its way when the breaker opens; after that only probes are.
    let events = record.events();
    let opened = |event: &Event| matches!(event, Event::Degraded(_));
    // For the last time: a busy machine may have opened it before the fault did.
    let opened = events.iter().rposition(opened).expect("it opened");
    let failed = |event: &&Event| matches!(event, Event::Failed(_));
    let waited = events[opened..].iter().filter(failed).count();
    let probes = usize::try_from(counters.probes).unwrap();
    assert!(waited <= 500 + probes, "{name}: {waited}");
    assert!(tally.local() > 1_000, "{name}: {tally:?}");
    assert_eq!((tally.allowed, tally.errors), (tally.calls, 0), "{name}");
}

#[test]
fn five_hundred_callers_and_a_dead_server() {
    run(five_hundred("dead", FaultProxy::refuse));
}

#[test]
fn five_hundred_callers_and_a_stalled_server() {
    run(five_hundred("stalled", |proxy| proxy.set(Fault::Stall)));
}

#[test]
fn five_hundred_callers_and_a_black_hole() {
    run(five_hundred("black-holed", |proxy| {
        proxy.set(Fault::BlackHole)
    }));
}

#[test]
fn five_hundred_callers_and_a_read_only_server() {
    let reply = b"-READONLY You can't write against a read only replica.\r\n".to_vec();
    run(five_hundred("read-only", |proxy| {
        proxy.set(Fault::Replace(reply))
    }));
}

/// Up and down every 300 ms: no storm of dials, no panic, and the server is used while it is
/// there.
#[test]
fn flapping() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let record = Record::default();
        let client = builder(proxy.port())
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let load = Load::start(&limiter, 50, Duration::from_millis(1));
        let start = Instant::now();
        for _ in 0..5 {
            pass(Duration::from_millis(300)).await;
            proxy.refuse();
            pass(Duration::from_millis(300)).await;
            proxy.listen_again();
        }
        wait_until("the server to be used again", || !client.is_degraded()).await;
        let took = start.elapsed();
        let tally = load.stop().await;
        let dials = client.counters().dials;
        println!(
            "flapping for {took:?}: {dials} dials, {} calls, {} of the server, slowest {:?}",
            tally.calls,
            tally.redis(),
            tally.slowest
        );
        assert_eq!(tally.errors, 0);
        assert!(tally.slowest < SLOWEST, "{tally:?}");
        assert!(tally.redis() > 0 && tally.local() > 0, "{tally:?}");
        // Three failures open the breaker, and a pause has at least 50 ms.
        let most = 5 * 4 + took.as_millis() / 50;
        assert!(u128::from(dials) <= most, "{dials} dials in {took:?}");
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
    });
}

/// F15: killed and restarted again and again under one client, which is never rebuilt.
#[test]
fn killed_every_half_second() {
    run(async {
        let mut server = with_module().start();
        // A restarted server may get another port; the proxy's stays.
        let proxy = FaultProxy::to(server.port());
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let load = Load::start(&limiter, 4, Duration::from_millis(1));
        for _ in 0..8 {
            pass(Duration::from_millis(500)).await;
            server.restart();
            proxy.retarget(server.port());
        }
        wait_until("the server to be used again", || !client.is_degraded()).await;
        let tally = load.stop().await;
        assert_eq!(tally.errors, 0);
        assert!(tally.slowest < SLOWEST, "{tally:?}");
        assert!(tally.redis() > 0, "{tally:?}");
        let mut last = Tally::default();
        until_redis(&limiter, &mut last).await;
    });
}

/// F15: a proxy that closes idle connections costs a call at most.
#[test]
fn idle_connections_are_closed() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = patient(proxy.port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let mut tally = Tally::default();
        for _ in 0..20 {
            until_redis(&limiter, &mut Tally::default()).await;
            proxy.cut_all();
            call(&limiter, "idle", &mut tally).await;
            call(&limiter, "idle", &mut tally).await;
        }
        assert_eq!(tally.errors, 0);
        assert!(!client.is_degraded());
        assert!(tally.redis() >= 20, "{tally:?}");
    });
}
