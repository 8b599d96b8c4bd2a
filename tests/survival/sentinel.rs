//! Failover by Sentinel.

use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, Keys, RawClient, Reply, Sentinels, Server};

const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing that matters flows in during a test.
const FULL: i64 = 1_000_000;
const LIMIT: &str = "1000000 1/36500d";

fn server() -> tokenbucket_testkit::ServerBuilder {
    Server::builder().config("repl-diskless-sync-delay", "0")
}

/// What a server holds: bytes, and expiries where they can be read (from 7.0 on).
fn held(server: &Server) -> Keys {
    let mut keys = server.keys();
    if server.version() < (7, 0, 0) {
        keys.values_mut().for_each(|(_, expiry)| *expiry = 0);
    }
    keys
}

/// The server at `port`.
fn at(servers: &[Server], port: u16) -> &Server {
    let found = servers.iter().find(|server| server.port() == port);
    found.expect("a server of ours")
}

/// Takes one token after the other until the server does not answer any more. Gives
/// how many were taken, and how many of them a replica is not known to have.
fn take_until_it_dies(mut client: RawClient, key: &str, done: impl Fn(i64)) -> (i64, i64) {
    let (mut taken, mut at_risk) = (0, 0);
    let words = format!("TB.ACQUIRE {key} {LIMIT} 1");
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    while let Ok(reply) = client.try_call(&words) {
        assert_eq!(reply.four().unwrap()[0], 1, "there is more than is taken");
        taken += 1;
        at_risk += 1;
        done(taken);
        if let Ok(Reply::Integer(1..)) = client.try_call(&[b"WAIT", b"1", b"100"]) {
            at_risk = 0;
        }
    }
    (taken, at_risk)
}

/// The primary is killed under traffic: the sentinels make a replica the primary,
/// which goes on with each bucket; what it had been told of stays taken, to the token.
/// The old one comes back as a replica, and in the end all hold the same bytes: so
/// does a replica without the module, which is never promoted (priority 0).
#[test]
fn a_replica_takes_over() {
    let primary = server().module(module_path()).start();
    let replica = || server().replica_of(&primary);
    let mut servers = vec![
        replica().module(module_path()).start(),
        replica().module(module_path()).start(),
        replica().config("replica-priority", "0").start(),
    ];
    for replica in &servers {
        replica.wait_for_sync(&primary);
    }
    servers.insert(0, primary);
    let sentinels = Sentinels::watch(&servers[0], 3);
    let old = servers[0].port();

    let mut client = servers[0].raw();
    client.ask(&format!("TB.ACQUIRE quiet {LIMIT} 1000"));
    let quiet = client.text(&["GET", "quiet"]);
    assert_eq!(client.text(&["WAIT", "3", "30000"]).integer(), 3);

    let caller = servers[0].raw();
    let (taken, at_risk) = take_until_it_dies(caller, "busy", |taken| {
        if taken == 500 {
            servers[0].kill_at_once();
        }
    });
    servers[0].kill();
    let new = sentinels.wait_for_failover(old);
    let heir = at(&servers, new);
    wait_for("the replica to be the primary", PATIENCE, || {
        heir.info("replication")["role"] == "master"
    });
    let mut client = heir.raw();
    assert_eq!(client.text(&["GET", "quiet"]), quiet);
    let left = client.ask(&format!("TB.PEEK busy {LIMIT} 0"))[1];
    let over = taken + left - FULL;
    println!("{taken} tokens taken, {at_risk} at risk when the primary died, {over} given again");
    // The call under way may have been carried out and told to the replica.
    assert!((-1..=at_risk).contains(&over), "{over}");
    assert_eq!(
        client.ask(&format!("TB.ACQUIRE busy {LIMIT} 1"))[1],
        left - 1
    );

    servers[0].restart();
    sentinels.wait_until_agreed(new, 3);
    let heir = at(&servers, new);
    let all = held(heir);
    assert_eq!(all.len(), 2);
    for server in servers.iter().filter(|server| server.port() != new) {
        server.wait_for_sync(heir);
        assert_eq!(held(server), all, "at {}", server.port());
    }
}

/// Why the module is loaded on every node: one without it holds the buckets and knows
/// none of the commands, were it made the primary.
#[test]
fn a_replica_without_the_module_knows_no_commands() {
    let primary = server().module(module_path()).start();
    let replica = server().replica_of(&primary).start();
    primary.raw().ask(&format!("TB.ACQUIRE k {LIMIT} 1"));
    replica.wait_for_sync(&primary);
    let kept = held(&primary);
    assert_eq!(held(&replica), kept);
    drop(primary);
    let mut client = replica.raw();
    assert_eq!(client.text(&["REPLICAOF", "NO", "ONE"]).error(), None);
    for call in ["TB.ACQUIRE", "TB.PEEK"] {
        let reply = client.text(&[call, "k", "1000000", "1/36500d", "1"]);
        let error = reply.error().unwrap_or_default();
        assert!(error.starts_with("ERR unknown command"), "{reply:?}");
    }
    assert_eq!(held(&replica), kept);
}
