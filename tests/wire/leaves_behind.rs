//! What a call leaves behind: nothing, or the new level with the expiry at the
//! millisecond at which the bucket is full.

use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, RawClient, Reply, Server};

use crate::{expires_at_ms, held, stored, START};

const DEADLINE: Duration = Duration::from_secs(30);

/// Calls that must leave nothing behind, on a bucket of 10 that holds 2.
const WITHOUT_TRACE: &[&[&str]] = &[
    &["TB.ACQUIRE", "k", "10", "1", "3"],
    &["TB.ACQUIRE", "k", "10", "1", "11"],
    &["TB.ACQUIRE", "k", "10", "1", "0"],
    &["TB.ACQUIRE", "k", "0", "1", "1"],
    &["TB.ACQUIRE", "k", "5", "2", "5"],
    &["TB.PEEK", "k", "10", "1"],
    &["TB.PEEK", "k", "10", "1", "0"],
    &["TB.PEEK", "k", "10", "1", "3"],
    &["TB.PEEK", "k", "1", "1", "1"],
    &["TB.ACQUIRE", "k", "10", "1", "x"],
    &["TB.ACQUIRE", "k", "10", "0", "1"],
    &["TB.ACQUIRE", "k", "10", "1"],
    &["TB.PEEK", "k", "10", "1", "1", "1"],
    &["TB.ACQUIRE", "fresh", "10", "1", "11"],
    &["TB.ACQUIRE", "fresh", "10", "1", "0"],
    &["TB.ACQUIRE", "fresh", "0", "1", "1"],
    &["TB.PEEK", "fresh", "10", "1"],
    &["TB.ACQUIRE", "text", "10", "1", "1"],
    &["TB.PEEK", "text", "10", "1"],
];

fn prepare(client: &mut RawClient) {
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "8"]).unwrap();
    client.text(&["SET", "text", "hello", "PX", "90000"]);
}

fn dirty(server: &Server) -> String {
    server.info("persistence")["rdb_changes_since_last_save"].clone()
}

/// No write, no key, no change of expiry, no dirty counter.
#[test]
fn nothing_in_the_data_set() {
    let server = held();
    let mut client = server.raw();
    prepare(&mut client);
    server.advance(Duration::from_millis(500));
    let look = |client: &mut RawClient| {
        (
            ["k", "text", "fresh"].map(|key| client.text(&["DUMP", key])),
            ["k", "text", "fresh"].map(|key| client.text(&["PTTL", key])),
            client.text(&["DBSIZE"]).integer(),
            dirty(&server),
        )
    };
    let before = look(&mut client);
    for call in WITHOUT_TRACE {
        client.text(call);
        assert_eq!(look(&mut client), before, "{call:?}");
    }
    // And the counter does move for a call that is allowed.
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]).unwrap();
    assert_ne!(dirty(&server), before.3);
}

/// WATCH is not broken by what leaves nothing behind, and is by what takes.
#[test]
fn nothing_for_watch() {
    let server = held();
    let (mut watcher, mut client) = (server.raw(), server.raw());
    prepare(&mut client);
    let mut exec_after = |call: &[&str]| {
        watcher.text(&["WATCH", "k", "fresh", "text"]);
        client.text(call);
        watcher.text(&["MULTI"]);
        watcher.text(&["PING"]);
        watcher.text(&["EXEC"])
    };
    for call in WITHOUT_TRACE {
        let done = Reply::Array(Some(vec![Reply::Simple("PONG".into())]));
        assert_eq!(exec_after(call), done, "{call:?}");
    }
    let refused = Reply::Array(None);
    assert_eq!(exec_after(&["TB.ACQUIRE", "k", "10", "1", "1"]), refused);
    assert_eq!(
        exec_after(&["TB.ACQUIRE", "fresh", "10", "1", "1"]),
        refused
    );
}

/// Client-side caches are not told of what leaves nothing behind.
#[test]
fn nothing_for_client_tracking() {
    let server = held();
    let (mut tracker, mut client) = (server.raw(), server.raw());
    prepare(&mut client);
    tracker.text(&["HELLO", "3"]);
    tracker.text(&["CLIENT", "TRACKING", "ON", "BCAST"]);
    for call in WITHOUT_TRACE {
        client.text(call);
    }
    // The message of the call that takes is the first that comes.
    client.tb(&["TB.ACQUIRE", "last", "10", "1", "1"]).unwrap();
    let keys = Reply::Array(Some(vec![Reply::Bulk(Some(b"last".to_vec()))]));
    let message = Reply::Push(vec![Reply::Bulk(Some(b"invalidate".to_vec())), keys]);
    assert_eq!(tracker.read_reply(), message);
}

/// Nothing for replicas, nothing for the AOF; one command for what takes.
#[test]
fn nothing_for_replicas_and_the_aof() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .appendonly()
        .start();
    let replica = server.start_replica();
    replica.wait_for_sync(&server);
    let mut client = server.raw();
    prepare(&mut client);
    let sets = |commands: &[Vec<Vec<u8>>]| commands.iter().filter(|c| c[0] == b"SET").count();
    server.wait_for_aof(DEADLINE, |commands| sets(commands) == 2);

    // Between the two the server may send PINGs and newlines of its own to its
    // replica, but no command: so the AOF is compared, and the stream by what
    // the replica has.
    for call in WITHOUT_TRACE {
        client.text(call);
    }
    client.tb(&["TB.ACQUIRE", "last", "10", "1", "1"]).unwrap();
    let commands = server.wait_for_aof(DEADLINE, |commands| sets(commands) >= 3);
    // One command may stand in a MULTI of its own (Redis 6.2).
    let frame = [&b"SELECT"[..], b"MULTI", b"EXEC"];
    let writes: Vec<_> = commands
        .iter()
        .filter(|command| !frame.contains(&command[0].to_ascii_uppercase().as_slice()))
        .map(|command| command[1].clone())
        .collect();
    assert_eq!(writes, [&b"k"[..], b"text", b"last"]);
    let mut on_replica = replica.raw();
    wait_for("the last key on the replica", DEADLINE, || {
        on_replica.text(&["EXISTS", "last"]).integer() == 1
    });
    assert_eq!(on_replica.text(&["DBSIZE"]).integer(), 3);
}

/// The replication stream does not grow by a byte.
#[test]
fn the_replication_offset_stands_still() {
    // A ping of the server's own to its replica would move it.
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .config("repl-ping-replica-period", "3600")
        .start();
    let replica = server.start_replica();
    replica.wait_for_sync(&server);
    let mut client = server.raw();
    prepare(&mut client);
    let offset = || server.info("replication")["master_repl_offset"].clone();
    let before = offset();
    for call in WITHOUT_TRACE {
        client.text(call);
    }
    assert_eq!(offset(), before);
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]).unwrap();
    assert_ne!(offset(), before);
}

/// The expiry is the millisecond in which the bucket is full, rounded up.
#[test]
fn the_expiry_is_the_millisecond_of_fullness() {
    let server = held();
    let mut client = server.raw();
    // Microseconds after the turn of a millisecond, rate, cost; expiry after START.
    for (after, capacity, rate, cost, expiry) in [
        (0, "10", "1", "1", 1000),
        (0, "10", "1", "10", 10_000),
        (1, "10", "1", "10", 10_001),
        (999, "10", "1", "10", 10_001),
        (0, "10", "1", "0.000000000001", 1),
        (0, "3", "0.0666667", "3", 45_000),
        (0, "1", "1/3s", "1", 3000),
        (0, "1", "1/d", "1", 86_400_000),
        (1, "1", "1/d", "1", 86_400_001),
        (0, "1", "1e12", "1", 1),
        (999, "1", "3000", "1", 2),
        (500, "1", "3000", "1", 1),
        (0, "1e12", "1e12", "1e12", 1000),
        // A hundred years are the most.
        (0, "1e12", "1e-12", "1e12", 3_153_600_000_000),
        (999, "1e12", "1e-12", "1e12", 3_153_600_000_000),
        (0, "1", "1e-12", "0.0031536", 3_153_600_000_000),
        (0, "1", "1e-12", "0.003153600001", 3_153_600_000_000),
        (0, "1", "1e-12", "0.003153599999", 3_153_599_999_000),
    ] {
        client.text(&["DEL", "k"]);
        server.hold(START + after);
        let reply = client
            .tb(&["TB.ACQUIRE", "k", capacity, rate, cost])
            .unwrap();
        assert_eq!(reply[0], 1);
        let place = format!("{cost} of {capacity} at {rate}, {after} us after");
        let got = expires_at_ms(&mut client, "k", START + after) - START / 1000;
        assert_eq!(got, expiry, "{place}");
    }
}

/// Every write that takes moves the expiry with the level.
#[test]
fn the_expiry_follows_the_level() {
    let server = held();
    let mut client = server.raw();
    for (wait_ms, cost, expiry) in [(0, "4", 4000), (1000, "4", 8000), (500, "1", 9000)] {
        server.advance(Duration::from_millis(wait_ms));
        client.tb(&["TB.ACQUIRE", "k", "10", "1", cost]).unwrap();
        let now = server.clock().now_us();
        assert_eq!(expires_at_ms(&mut client, "k", now) - START / 1000, expiry);
    }
}

/// A full bucket is a missing key: it goes when it is full, and not before.
#[test]
fn the_key_goes_when_the_bucket_is_full() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "10"]).unwrap();
    server.advance(Duration::from_millis(9_999));
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "10", "1", "0"]),
        Ok([1, 9, 0, 1])
    );
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 1);
    // The server keeps a key through the millisecond of its expiry.
    server.advance(Duration::from_millis(2));
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "10", "1", "0"]),
        Ok([1, 10, 0, 0])
    );
}

/// An expiry that was taken away comes back with the next write, and with no
/// other call.
#[test]
fn persist_does_not_last() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "8"]).unwrap();
    assert_eq!(client.text(&["PERSIST", "k"]).integer(), 1);
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "3"]).unwrap();
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "0"]).unwrap();
    client.tb(&["TB.PEEK", "k", "10", "1"]).unwrap();
    assert_eq!(client.text(&["PTTL", "k"]).integer(), -1);
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]).unwrap();
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 9000);

    // Full by now, and with no expiry the key is still there: as good as new.
    assert_eq!(client.text(&["PERSIST", "k"]).integer(), 1);
    server.advance(Duration::from_secs(3600));
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 1000);
}

/// After the clock was set back any TB.ACQUIRE, even one that takes nothing,
/// stores the present instant with the level as it was, so that refill goes on
/// at once. TB.PEEK only reads: it answers the same and writes nothing.
#[test]
fn a_clock_set_back_is_met_once() {
    for (cost, allowed) in [("5", 0), ("0", 1), ("11", 0)] {
        let server = held();
        let mut client = server.raw();
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "7"]).unwrap();
        server.step_back(Duration::from_secs(86_400));
        let before = dirty(&server);
        let bytes = stored(&mut client, "k");

        let wait = if cost == "5" {
            2000
        } else if cost == "0" {
            0
        } else {
            -1
        };
        let peek = client.tb(&["TB.PEEK", "k", "10", "1", cost]);
        assert_eq!(peek, Ok([allowed, 3, wait, 7000]));
        assert_eq!(
            (dirty(&server), stored(&mut client, "k")),
            (before.clone(), bytes.clone())
        );

        let reply = client.tb(&["TB.ACQUIRE", "k", "10", "1", cost]);
        assert_eq!(reply, Ok([allowed, 3, wait, 7000]));
        let rebased = stored(&mut client, "k");
        assert_ne!(rebased, bytes, "the stamp is new");
        assert_eq!(
            rebased.as_ref().unwrap()[7..],
            bytes.unwrap()[7..],
            "the level is not"
        );
        assert_eq!(client.text(&["PTTL", "k"]).integer(), 7000);
        assert_ne!(dirty(&server), before);

        // From then on as ever: a denial leaves nothing, and tokens flow in.
        let before = dirty(&server);
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "5"]).unwrap();
        assert_eq!(dirty(&server), before);
        server.advance(Duration::from_secs(2));
        assert_eq!(
            client.tb(&["TB.ACQUIRE", "k", "10", "1", "5"]),
            Ok([1, 0, 0, 10_000])
        );
    }
}

/// A bucket that is full by the numbers of the call that meets a clock set back
/// is a missing key.
#[test]
fn a_clock_set_back_on_a_full_bucket() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "7"]).unwrap();
    server.step_back(Duration::from_secs(60));
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "2", "1", "0"]),
        Ok([1, 2, 0, 0])
    );
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
}
