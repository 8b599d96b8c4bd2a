//! A cluster: every call at its owner, through moves and deaths.

use std::time::{Duration, Instant};

use tokenbucket_client::{Client, Limiter, Source};
use tokenbucket_testkit::{Cluster, Fault, FaultProxy};

use crate::support::*;

fn connected(cluster: &Cluster, record: &Record) -> (Client, Limiter) {
    // The primaries, as most people would write them.
    let addresses = (0..3).map(|node| address(cluster.node(node).port()));
    let client = Client::cluster(addresses)
        .unwrap()
        // A busy machine is not to be taken for a dead shard.
        .deadline(Duration::from_secs(2))
        .observer(record.clone())
        .build()
        .unwrap();
    let limiter = client.limiter(limit(1_000.0, 1e-9)).named("api");
    (client, limiter)
}

fn key(subject: usize) -> String {
    format!("{{user:{subject}}}:api")
}

/// A subject whose key is served by node `owner`.
fn subject_at(cluster: &Cluster, owner: usize) -> usize {
    (0..)
        .find(|subject| cluster.owner_of(key(*subject).as_bytes()) == owner)
        .unwrap()
}

async fn acquire_all(limiter: &Limiter) {
    for subject in 0..100 {
        let decision = limiter.acquire(format!("user:{subject}"), 1).await.unwrap();
        assert_eq!(decision.source(), Source::Redis, "user:{subject}");
        assert!(decision.is_allowed());
    }
}

/// E08, E09: a hundred keys, each at its owner, also while and after its slot moves.
#[test]
fn every_call_lands_at_its_owner() {
    run(async {
        let cluster = Cluster::start(&with_module(), 3);
        let record = Record::default();
        let (client, limiter) = connected(&cluster, &record);
        client.check().await.unwrap();
        let mut tally = Tally::default();
        until_redis(&limiter, &mut tally).await;
        acquire_all(&limiter).await;
        let of_nodes: Vec<u64> = (0..3)
            .map(|node| executed(cluster.node(node), "tb.acquire"))
            .collect();
        assert!(of_nodes.iter().all(|calls| *calls >= 20), "{of_nodes:?}");

        // ASK: the slot is on its way, the key has gone ahead.
        let subject = subject_at(&cluster, 0);
        let slot = cluster.slot_of(key(subject).as_bytes());
        cluster.begin_move(slot, 0, 1);
        cluster.move_key(key(subject).as_bytes(), 0, 1);
        let asked = limiter.acquire(format!("user:{subject}"), 1).await.unwrap();
        assert_eq!(asked.source(), Source::Redis);
        assert_eq!(asked.remaining(), 998, "the same bucket");
        // MOVED: it has arrived.
        cluster.end_move(slot, 0, 1);
        let moved = limiter.acquire(format!("user:{subject}"), 1).await.unwrap();
        assert_eq!((moved.source(), moved.remaining()), (Source::Redis, 997));
        acquire_all(&limiter).await;
        assert_eq!(record.moves(), []);

        // All limits of one subject lie in one slot.
        let hour = client.limiter(limit(5.0, 1e-9)).named("hour");
        let both = client
            .acquire_all("user:7", &[(&limiter, 1), (&hour, 1)])
            .await
            .unwrap();
        assert!(both.is_allowed());
        assert_eq!(both.each()[1].remaining(), 4);
    });
}

/// The client was built while no node could be reached, and one of its addresses is a node
/// that belongs to no cluster and knows of no slot.
#[test]
fn a_cluster_that_is_found_later() {
    run(async {
        let cluster = Cluster::start(&with_module(), 3);
        let blank = with_module().config("cluster-enabled", "yes").start();
        let proxy = FaultProxy::to(cluster.node(1).port());
        proxy.set(Fault::BlackHole);
        let record = Record::default();
        let client = Client::cluster([address(blank.port()), address(proxy.port())])
            .unwrap()
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(limit(1_000.0, 1e-9)).named("api");
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!((tally.local(), tally.errors), (3, 0), "{tally:?}");
        proxy.set(Fault::Forward);
        until_redis(&limiter, &mut Tally::default()).await;
        acquire_all(&limiter).await;
        assert!(!client.is_degraded());
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
        assert_eq!(record.moves().len(), 2, "{:?}", record.moves());
        client.check().await.unwrap();
    });
}

/// A dead shard degrades its own keys only; its replica takes over, and they are back.
#[test]
fn one_shard_dies() {
    run(async {
        let mut cluster = Cluster::start(
            &with_module().config("cluster-require-full-coverage", "no"),
            3,
        );
        let record = Record::default();
        let (client, limiter) = connected(&cluster, &record);
        let mut tally = Tally::default();
        until_redis(&limiter, &mut tally).await;
        acquire_all(&limiter).await;
        let dead = format!("user:{}", subject_at(&cluster, 0));
        let alive = format!("user:{}", subject_at(&cluster, 1));

        cluster.node_mut(0).kill();
        let killed = Instant::now();
        let mut of_dead = Tally::default();
        let mut of_alive = Tally::default();
        while !client.is_degraded() {
            assert!(killed.elapsed() < PATIENCE);
            call(&limiter, &dead, &mut of_dead).await;
        }
        assert_eq!(of_dead.redis(), 0, "{of_dead:?}");
        for _ in 0..200 {
            call(&limiter, &alive, &mut of_alive).await;
        }
        assert_eq!(of_alive.redis(), 200, "{of_alive:?}");

        let mut promoted = None;
        while of_dead.redis() == 0 {
            assert!(killed.elapsed() < 2 * PATIENCE, "{of_dead:?}");
            call(&limiter, &dead, &mut of_dead).await;
            call(&limiter, &alive, &mut of_alive).await;
            let role = cluster.node(3).info("replication")["role"].clone();
            if promoted.is_none() && role == "master" {
                promoted = Some(Instant::now());
            }
            pass(Duration::from_millis(5)).await;
        }
        let took = promoted.map_or(Duration::ZERO, |at| at.elapsed());
        println!(
            "a shard's replica is used {took:?} after it was promoted, {:?} after the death; slowest call {:?}",
            killed.elapsed(),
            of_dead.slowest
        );
        assert!(took < Duration::from_secs(2) + SLOWEST, "{took:?}");
        assert_eq!(
            (of_alive.local(), of_alive.errors, of_dead.errors),
            (0, 0, 0)
        );
        assert!(of_dead.slowest < SLOWEST, "{of_dead:?}");
        wait_until("no target to be degraded", || !client.is_degraded()).await;
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
    });
}

/// The whole cluster is away, from the start and later.
#[test]
fn no_node_answers() {
    run(async {
        let mut cluster = Cluster::start(&with_module(), 3);
        let record = Record::default();
        let (client, limiter) = connected(&cluster, &record);
        until_redis(&limiter, &mut Tally::default()).await;
        for node in 0..6 {
            cluster.node_mut(node).kill();
        }
        let mut tally = Tally::default();
        for subject in 0..100 {
            call(&limiter, &format!("user:{subject}"), &mut tally).await;
        }
        assert_eq!((tally.local(), tally.errors), (100, 0), "{tally:?}");
        assert!(tally.slowest < SLOWEST, "{tally:?}");

        // A client that has never seen it.
        let (client_too, limiter) = connected(&cluster, &Record::default());
        let tally = until_degraded(&client_too, &limiter).await;
        assert_eq!((tally.local(), tally.errors), (3, 0), "{tally:?}");
        drop(client);
    });
}

/// A slot that nobody serves: CLUSTERDOWN, or no node for it. Other keys go on.
#[test]
fn a_slot_is_not_served() {
    run(async {
        let cluster = Cluster::start(&with_module(), 3);
        let record = Record::default();
        let (client, limiter) = connected(&cluster, &record);
        until_redis(&limiter, &mut Tally::default()).await;
        let subject = subject_at(&cluster, 0);
        let slot = cluster.slot_of(key(subject).as_bytes()).to_string();
        cluster.node(0).raw().text(&["CLUSTER", "DELSLOTS", &slot]);
        // With full coverage required the node refuses all keys then.
        let mut tally = Tally::default();
        wait_until("CLUSTERDOWN", || {
            let reply = cluster.node(0).raw().text(&["GET", &key(subject)]);
            reply
                .error()
                .is_some_and(|error| error.starts_with("CLUSTERDOWN"))
        })
        .await;
        while !client.is_degraded() {
            call(&limiter, &format!("user:{subject}"), &mut tally).await;
            assert!(tally.calls < 100, "{tally:?}");
        }
        assert_eq!((tally.redis(), tally.errors), (0, 0), "{tally:?}");
        cluster.node(0).raw().text(&["CLUSTER", "ADDSLOTS", &slot]);
        let mut tally = Tally::default();
        let start = Instant::now();
        while tally.redis() == 0 {
            assert!(start.elapsed() < PATIENCE, "{tally:?}");
            call(&limiter, &format!("user:{subject}"), &mut tally).await;
            pass(Duration::from_millis(5)).await;
        }
        println!(
            "a slot is used {:?} after it was served again",
            start.elapsed()
        );
    });
}

/// One server that is no cluster, and a node of a cluster that is asked as one server: the
/// error says what to build instead.
#[test]
fn the_wrong_kind_of_client() {
    run(async {
        let server = with_module().start();
        let client = Client::cluster([address(server.port())])
            .unwrap()
            .deadline(PATIENCE)
            .build()
            .unwrap();
        let error = client.limiter(plenty()).acquire("a", 1).await.unwrap_err();
        assert!(error.to_string().contains("Client::builder"), "{error}");
        let cluster = Cluster::start(&with_module(), 3);
        let client = patient(cluster.node(0).port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let elsewhere = format!("user:{}", subject_at(&cluster, 1));
        let error = limiter.acquire(elsewhere, 1).await.unwrap_err();
        assert!(error.to_string().contains("Client::cluster"), "{error}");
        assert!(!client.is_degraded());
    });
}
