//! Servers that are there and refuse: what each error reply means. The replies are real
//! wherever a server can be brought to give them; the others are the server's own texts,
//! put in by the proxy.

use std::fs;
use std::time::Duration;

use tokenbucket_client::{Client, Limiter, Reason, Source};
use tokenbucket_testkit::{installed_server, wait_for, Fault, FaultProxy, RawClient, Server};

use crate::support::*;

fn connected(server: &Server) -> (Client, Limiter, Record) {
    connected_at(&address(server.port()))
}

fn connected_at(address: &str) -> (Client, Limiter, Record) {
    let record = Record::default();
    let client = Client::builder(address)
        .unwrap()
        // A busy machine is not to be taken for one of these.
        .deadline(Duration::from_secs(5))
        .observer(record.clone())
        .build()
        .unwrap();
    let limiter = client.limiter(plenty()).named("api");
    (client, limiter, record)
}

/// F17: a server that is brought to refuse counts as away, with the right reason, and is
/// used again soon after it has come to its senses.
async fn refuses(server: &Server, reason: Reason, begin: impl FnOnce(), end: impl FnOnce()) {
    refuses_at(&address(server.port()), server, reason, begin, end).await;
}

async fn refuses_at(
    address: &str,
    server: &Server,
    reason: Reason,
    begin: impl FnOnce(),
    end: impl FnOnce(),
) {
    let (client, limiter, record) = connected_at(address);
    assert!(server.is_running());
    until_redis(&limiter, &mut Tally::default()).await;
    begin();
    let tally = until_degraded(&client, &limiter).await;
    assert_eq!(tally.from(Source::Local(reason)), 3, "{tally:?}");
    assert_eq!(tally.redis() + 3, tally.calls, "{tally:?}");
    assert!(tally.slowest < SLOWEST, "{tally:?}");
    assert_eq!(tally.errors, 0);
    end();
    let mut tally = Tally::default();
    let took = until_redis(&limiter, &mut tally).await;
    println!("{reason}: back after {took:?}");
    assert!(took < Duration::from_secs(1) + SLOWEST, "{took:?}");
    assert_eq!(record.moves(), [Event::Degraded(reason), Event::Recovered]);
}

fn set(server: &Server, name: &str, value: &str) {
    let reply = server.raw().text(&["CONFIG", "SET", name, value]);
    assert_eq!(reply.error(), None, "CONFIG SET {name}");
}

/// D08: the server is out of memory, and memory does not grow by our calls.
#[test]
fn out_of_memory() {
    run(async {
        let server = with_module().start();
        refuses(
            &server,
            Reason::OutOfMemory,
            || {
                set(&server, "maxmemory", "1");
            },
            || {
                set(&server, "maxmemory", "0");
            },
        )
        .await;
    });
}

#[test]
fn no_replicas() {
    run(async {
        let server = with_module().start();
        refuses(
            &server,
            Reason::NoReplicas,
            || set(&server, "min-replicas-to-write", "1"),
            || set(&server, "min-replicas-to-write", "0"),
        )
        .await;
    });
}

#[test]
fn can_not_save() {
    run(async {
        let server = with_module().config("save", "3600 1").start();
        refuses(
            &server,
            Reason::MisConf,
            || {
                // The dump can't take the place of a folder.
                fs::create_dir(server.dir().join("dump.rdb")).unwrap();
                server.raw().text(&["BGSAVE"]);
                wait_for("the save to fail", PATIENCE, || {
                    server.info("persistence")["rdb_last_bgsave_status"] == "err"
                });
            },
            || set(&server, "stop-writes-on-bgsave-error", "no"),
        )
        .await;
    });
}

#[test]
fn busy_with_a_script() {
    for database in [0, 1] {
        run(busy(database));
    }
}

/// In another database than the first one the connection itself is refused while it is.
async fn busy(database: u32) {
    let server = with_module().config("lua-time-limit", "1").start();
    let mut script = server.raw();
    let address = format!("{}{database}", address(server.port()));
    refuses_at(
        &address,
        &server,
        Reason::Busy,
        || {
            script.send(&[b"EVAL", b"while true do end", b"0"]);
            wait_for("the server to be busy", PATIENCE, || {
                let ping = server.raw().text(&["PING"]);
                ping.error().is_some_and(|error| error.starts_with("BUSY"))
            });
        },
        || {
            server.raw().text(&["SCRIPT", "KILL"]);
        },
    )
    .await;
}

#[test]
fn too_many_clients() {
    run(async {
        let server = with_module().start();
        let (client, limiter, record) = connected(&server);
        set(&server, "maxclients", "40");
        let mut others: Vec<RawClient> = Vec::new();
        wait_for("no place to be left", PATIENCE, || {
            let mut other = RawClient::connect(server.port());
            let refused = other.try_call(&[b"PING"]).map_or(true, |reply| {
                reply
                    .error()
                    .is_some_and(|error| error.contains("max number"))
            });
            others.push(other);
            refused
        });
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!((tally.local(), tally.errors), (3, 0), "{tally:?}");
        drop(others);
        until_redis(&limiter, &mut Tally::default()).await;
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
    });
}

/// The server reads its data.
#[test]
fn loading() {
    if installed_server().1 < (7, 0, 0) {
        println!("skipped: before 7.0 a server can't be told to look up while it loads");
        return;
    }
    run(async {
        let server = with_module()
            .debug_commands()
            .config("key-load-delay", "50")
            .config("loading-process-events-interval-bytes", "1024")
            .start();
        let script = "for i = 1, 20000 do redis.call('SET', 'k' .. i, i) end";
        server.raw().text(&["EVAL", script, "0"]);
        let mut reload = server.raw();
        let loads = || {
            let reply = server.raw().text(&["TB.PEEK", "k", "1", "1"]);
            reply
                .error()
                .is_some_and(|error| error.starts_with("LOADING"))
        };
        refuses(
            &server,
            Reason::Loading,
            || {
                reload.send(&[b"DEBUG", b"RELOAD"]);
                wait_for("the server to load", PATIENCE, loads);
            },
            || wait_for("the server to have loaded", PATIENCE, || !loads()),
        )
        .await;
    });
}

/// F05: the address leads to another server now, and the old one, demoted, keeps its
/// connections open: it is left, and the address is dialed anew.
#[test]
fn read_only_then_moved() {
    run(async {
        let old = with_module().start();
        let new = with_module().replica_of(&old).start();
        new.wait_for_sync(&old);
        let proxy = FaultProxy::to(old.port());
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;

        let load = Load::start(&limiter, 20, Duration::from_millis(2));
        let start = std::time::Instant::now();
        proxy.retarget(new.port());
        new.raw().text(&["REPLICAOF", "NO", "ONE"]);
        let port = new.port().to_string();
        old.raw().text(&["REPLICAOF", "127.0.0.1", &port]);
        wait_until("calls at the new primary", || {
            executed(&new, "tb.acquire") > 0
        })
        .await;
        let took = start.elapsed();
        let tally = load.stop().await;
        println!("READONLY: at the new primary after {took:?}");
        assert!(took < Duration::from_secs(1) + SLOWEST, "{took:?}");
        assert_eq!(tally.errors, 0);
        assert!(tally.slowest < SLOWEST, "{tally:?}");
    });
}

/// The replies that one server alone does not give, in its own words.
#[test]
fn replies_of_a_cluster_and_of_a_replica() {
    run(async {
        let server = with_module().start();
        for (reply, reason) in [
            ("CLUSTERDOWN The cluster is down", Reason::ClusterDown),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Reason::MasterDown,
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Reason::TryAgain,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Reason::Loading,
            ),
        ] {
            let proxy = FaultProxy::to(server.port());
            let client = patient(proxy.port()).build().unwrap();
            let limiter = client.limiter(plenty()).named("api");
            until_redis(&limiter, &mut Tally::default()).await;
            proxy.set(Fault::Replace(format!("-{reply}\r\n").into_bytes()));
            let mut tally = Tally::default();
            call(&limiter, "user:42", &mut tally).await;
            assert_eq!(tally.from(Source::Local(reason)), 1, "{reply}: {tally:?}");
            proxy.set(Fault::Forward);
            call(&limiter, "user:42", &mut tally).await;
            assert_eq!(tally.redis(), 1, "{reply}: {tally:?}");
        }
    });
}
