//! How a bucket is stored, what is not a bucket, and what replicas and the AOF
//! are told.

use std::time::Duration;

use tokenbucket_core::{Bucket, STORED_LEN};
use tokenbucket_testkit::{module_path, wait_for, Reply, Server};

use crate::support::effects;
use crate::{expires_at_ms, held, stored, START};

const DEADLINE: Duration = Duration::from_secs(30);
const TOKEN: i128 = 1_000_000_000_000_000_000;
const WRONGTYPE: &str = "WRONGTYPE the key holds a value that is not a token bucket";

/// A plain string of twenty bytes: the stamp is the server's time, the level is
/// in attotokens.
#[test]
fn the_bytes_of_a_bucket() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "2.5"]).unwrap();
    assert_eq!(client.text(&["TYPE", "k"]), Reply::Simple("string".into()));
    let bytes = stored(&mut client, "k").unwrap();
    assert_eq!(bytes.len(), STORED_LEN);
    let bucket = Bucket::decode(&bytes).unwrap();
    assert_eq!(bucket, Bucket::new(7 * TOKEN + TOKEN / 2, START as u64));
    assert_eq!(bucket.encode()[..], bytes);
}

/// A bucket takes no more room than the same bytes with an expiry, set by hand
/// and in place as ours are.
#[test]
fn memory_of_a_bucket() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k1", "10", "1", "1"]).unwrap();
    client.text(&["SET", "k2", "", "PX", "60000"]);
    client.text(&["SETRANGE", "k2", "0", "01234567890123456789"]);
    let mut usage = |key| client.text(&["MEMORY", "USAGE", key]).integer();
    let (ours, plain) = (usage("k1"), usage("k2"));
    assert!(ours <= plain, "{ours} bytes against {plain}");
}

/// Every other type and every other string is refused, and is untouched with its
/// expiry.
#[test]
fn what_is_not_a_bucket() {
    let server = held();
    let mut client = server.raw();
    let twenty_digits = "12345678901234567890";
    let smallest_integer = "-9223372036854775808";
    let makers: &[&[&str]] = &[
        &["SET", "k", "hello"],
        &["SET", "k", ""],
        &["SET", "k", "0"],
        &["SET", "k", "12345"],
        &["SET", "k", twenty_digits],
        &["SET", "k", smallest_integer],
        &["SET", "k", "twenty bytes of text"],
        &["SETRANGE", "k", "19", "x"],
        &["SETBIT", "k", "159", "1"],
        &["RPUSH", "k", "x"],
        &["SADD", "k", "x"],
        &["SADD", "k", "1"],
        &["ZADD", "k", "1", "x"],
        &["HSET", "k", "f", "v"],
        &["XADD", "k", "1-1", "f", "v"],
        &["PFADD", "k", "x"],
    ];
    for make in makers {
        client.text(&["DEL", "k"]);
        assert_eq!(client.text(make).error(), None, "{make:?}");
        client.text(&["PEXPIRE", "k", "5000"]);
        let dump = client.text(&["DUMP", "k"]);
        for call in [
            &["TB.ACQUIRE", "k", "10", "1", "1"][..],
            &["TB.ACQUIRE", "k", "10", "1", "0"],
            &["TB.ACQUIRE", "k", "10", "1", "11"],
            &["TB.PEEK", "k", "10", "1"],
        ] {
            assert_eq!(client.tb(call), Err(WRONGTYPE.into()), "{make:?}: {call:?}");
        }
        assert_eq!(client.text(&["DUMP", "k"]), dump, "{make:?}");
        assert_eq!(client.text(&["PTTL", "k"]).integer(), 5000, "{make:?}");
    }
}

/// Every length from 0 to 64, every first byte: only twenty bytes with the tag
/// and the version of a bucket are one, and no text is.
#[test]
fn only_our_format_is_read() {
    let server = held();
    let mut client = server.raw();
    let mut is_bucket = |bytes: &[u8]| {
        client.call(&[b"SET", b"k", bytes]);
        match client.tb(&["TB.PEEK", "k", "10", "1", "0"]) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, WRONGTYPE);
                false
            }
        }
    };
    for len in 0..=64 {
        assert_eq!(
            is_bucket(&vec![0x90; len]),
            len == STORED_LEN,
            "{len} bytes"
        );
    }
    for first in 0..=255_u8 {
        let mut bytes = [0; STORED_LEN];
        bytes[0] = first;
        assert_eq!(
            is_bucket(&bytes),
            first >> 4 == 0b1001,
            "first byte {first:#x}"
        );
    }
}

/// Bytes made by hand that pass as a bucket get sane answers: never below 0,
/// never above the capacity, and the next write is an ordinary bucket.
#[test]
fn bytes_made_by_hand() {
    let server = held();
    let mut client = server.raw();
    let stamps = [
        0,
        1,
        START as u64 - 1,
        START as u64,
        START as u64 + 1,
        (1 << 52) - 1,
    ];
    let levels = [i128::MIN, -TOKEN, -1, 0, 1, TOKEN, 11 * TOKEN, i128::MAX];
    for stamp in stamps {
        for level in levels {
            let bytes = Bucket::new(level, stamp).encode();
            let place = format!("level {level}, stamp {stamp}");
            client.call(&[b"SET", b"k", &bytes]);
            for cost in ["0", "1", "10", "11"] {
                let [allowed, remaining, retry, reset] =
                    client.tb(&["TB.PEEK", "k", "10", "1", cost]).unwrap();
                assert!((0..=10).contains(&remaining), "{place}: {remaining} left");
                assert!(reset >= 0, "{place}: reset {reset}");
                let want = if cost == "11" { -1 } else { 1 };
                assert!(
                    (allowed == 1 && retry == 0) || (allowed == 0 && (retry == -1) == (want == -1)),
                    "{place}"
                );
            }
            let reply = client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]).unwrap();
            if reply[0] == 1 {
                let now = START as u64;
                let bucket = Bucket::decode(&stored(&mut client, "k").unwrap()).unwrap();
                assert_eq!(bucket.stamp(), now, "{place}");
                assert!(bucket.level() <= 9 * TOKEN, "{place}");
                assert!(
                    (1..=10_001).contains(&client.text(&["PTTL", "k"]).integer()),
                    "{place}"
                );
            }
        }
    }
}

/// Replicas and the AOF get the effect, byte for byte, with its absolute expiry.
#[test]
fn the_effect_is_what_is_replicated() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .appendonly()
        .start();
    // The replica has no module, and its clock is an hour ahead.
    let replica = Server::builder()
        .held_clock(START + 3_600_000_000)
        .replica_of(&server)
        .start();
    replica.wait_for_sync(&server);
    let (mut client, mut on_replica) = (server.raw(), replica.raw());
    let mut expected: Vec<Vec<Vec<u8>>> = Vec::new();
    for step in 0..3 {
        server.advance(Duration::from_micros(1_234_567));
        client
            .tb(&["TB.ACQUIRE", "k\0\r\n", "100000", "1/h", "5"])
            .unwrap();
        let expiry = expires_at_ms(&mut client, "k\0\r\n", server.clock().now_us());
        let bytes = stored(&mut client, "k\0\r\n").unwrap();
        assert_eq!(bytes.len(), STORED_LEN);
        expected.push(vec![
            b"SET".to_vec(),
            b"k\0\r\n".to_vec(),
            bytes.clone(),
            b"PXAT".to_vec(),
            expiry.to_string().into_bytes(),
        ]);
        wait_for("the bucket on the replica", DEADLINE, || {
            stored(&mut on_replica, "k\0\r\n").as_ref() == Some(&bytes)
        });
        let now = replica.clock().now_us();
        let there = expires_at_ms(&mut on_replica, "k\0\r\n", now);
        assert_eq!(there, expiry, "step {step}");
    }
    // A bucket that is full after a clock set back is deleted.
    server.step_back(Duration::from_secs(1));
    client
        .tb(&["TB.ACQUIRE", "k\0\r\n", "2", "1", "0"])
        .unwrap();
    expected.push(vec![b"DEL".to_vec(), b"k\0\r\n".to_vec()]);

    // A module's effect may come inside a MULTI of its own (Redis 6.2).
    let frame = |command: &Vec<Vec<u8>>| {
        [&b"SELECT"[..], b"MULTI", b"EXEC"].contains(&command[0].to_ascii_uppercase().as_slice())
    };
    let mut effects = Vec::new();
    server.wait_for_aof(DEADLINE, |commands| {
        effects = commands.iter().filter(|c| !frame(c)).cloned().collect();
        effects.len() >= expected.len()
    });
    assert_eq!(effects, expected);
}

/// Inside the caller's MULTI or script the effects are one block.
#[test]
fn effects_of_a_transaction_are_one_block() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .appendonly()
        .start();
    let mut client = server.raw();
    client.text(&["MULTI"]);
    client.text(&["TB.ACQUIRE", "a", "10", "1", "1"]);
    client.text(&["TB.ACQUIRE", "b", "10", "1", "11"]);
    client.text(&["TB.ACQUIRE", "c", "10", "1", "1"]);
    client.text(&["EXEC"]);
    let script = "redis.call('TB.ACQUIRE', KEYS[1], 10, 1, 1) return redis.call('TB.ACQUIRE', KEYS[2], 10, 1, 1)";
    client.text(&["EVAL", script, "2", "d", "e"]);
    let mut block = Vec::new();
    server.wait_for_aof(DEADLINE, |commands| {
        block = effects(commands);
        block.len() >= 8
    });
    assert_eq!(
        block,
        ["MULTI", "SET a", "SET c", "EXEC", "MULTI", "SET d", "SET e", "EXEC"]
    );
}

/// A replica answers TB.PEEK, by its own clock, and refuses TB.ACQUIRE.
#[test]
fn replicas_peek() {
    let server = held();
    let replica = server.start_replica();
    replica.wait_for_sync(&server);
    let (mut client, mut on_replica) = (server.raw(), replica.raw());
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "4"]).unwrap();
    wait_for("the bucket on the replica", DEADLINE, || {
        on_replica.tb(&["TB.PEEK", "k", "10", "1", "0"]) == Ok([1, 6, 0, 4000])
    });
    let refusal = on_replica
        .tb(&["TB.ACQUIRE", "k", "10", "1", "1"])
        .unwrap_err();
    assert!(refusal.starts_with("READONLY"), "{refusal}");
}

/// The AOF and the RDB hold the very same bytes and expiry after a restart, and
/// load without the module.
#[test]
fn restarts_hold_the_same_bytes() {
    for appendonly in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let builder = || {
            let builder = Server::builder().held_clock(START).dir(folder.path());
            if appendonly {
                builder.appendonly()
            } else {
                builder.config("dbfilename", "buckets.rdb")
            }
        };
        let mut server = builder().module(module_path()).start();
        let mut client = server.raw();
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "7.25"]).unwrap();
        let look = |server: &Server| {
            let mut client = server.raw();
            (
                stored(&mut client, "k"),
                expires_at_ms(&mut client, "k", START),
            )
        };
        let before = look(&server);
        if !appendonly {
            assert_eq!(client.text(&["SAVE"]), Reply::Simple("OK".into()));
        }
        server.kill();
        server.restart();
        assert_eq!(look(&server), before);
        server.advance(Duration::from_secs(1));
        assert_eq!(
            server.raw().tb(&["TB.PEEK", "k", "10", "1", "0"]),
            Ok([1, 3, 0, 6250])
        );
        server.kill();
        let without = builder().start();
        assert_eq!(look(&without), before);
    }
}
