//! Names of keys, who may use them, and limits that change: rows I of the failure
//! cases. I03, a million keys, is in a binary of its own.

use std::fs;
use std::time::Duration;

use tokenbucket_testkit::{installed_server, RawClient, Reply};

use crate::support::Ideal;
use crate::{held, START};

const WRONGTYPE: &[u8] = b"-WRONGTYPE the key holds a value that is not a token bucket\r\n";

// I01: keys were taken for UTF-8: others were changed (and with them their slot), or
// stopped the server; and error texts gave them back to the terminal.
#[test]
fn keys_are_bytes() {
    let server = held();
    let mut client = server.raw();
    let mut keys: Vec<Vec<u8>> = [
        &b"\xff\x00\xfe"[..],
        b"",
        b"{}",
        b"a{b}c",
        b"a",
        b"b",
        b"a\nb",
        b"\n",
        b"\r\n",
        b"x\r\n+OK\r\n",
        b"\0",
        b"k\0",
        b"k",
        b" k",
        b"%s%n",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xef\xbf\xbd",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    let mut large = vec![b'k'; 1 << 20];
    keys.push(large.clone());
    // The same but for its last byte.
    large[(1 << 20) - 1] = 0xff;
    keys.push(large);
    keys.extend((0..=255).map(|byte| vec![b'b', byte]));
    keys.sort();

    // Each is a bucket of its own, in the order in which they are here.
    for (number, key) in keys.iter().enumerate() {
        let cost = format!("{}.5", number % 9);
        let left = 9 - number as i64 % 9;
        let reset = 500 + number as i64 % 9 * 1_000;
        let place = &key.escape_ascii().to_string()[..key.len().min(20)];
        let reply = client.call(&[b"TB.ACQUIRE", key, b"10", b"1", cost.as_bytes()]);
        assert_eq!(reply.four(), Ok([1, left, 0, reset]), "{place}");
        let reply = client.call(&[b"TB.PEEK", key, b"10", b"1", b"0"]);
        assert_eq!(reply.four(), Ok([1, left, 0, reset]), "{place}");
        assert_eq!(client.call(&[b"PTTL", key]).integer(), reset, "{place}");
    }
    assert_eq!(scan(&mut client), keys);

    // What is wrong with a call is said in the same words for every key.
    let argument = "-ERR capacity is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3\r\n";
    for key in &keys {
        let place = &key.escape_ascii().to_string()[..key.len().min(20)];
        for name in [b"TB.ACQUIRE", &b"TB.PEEK"[..]] {
            client.call(&[name, key, key_like(key), b"1", b"1"]);
            assert_eq!(client.last_bytes(), argument.as_bytes(), "{place}");
        }
        client.call(&[b"SET", key, b"text"]);
        for name in [b"TB.ACQUIRE", &b"TB.PEEK"[..]] {
            client.call(&[name, key, b"10", b"1", b"1"]);
            assert_eq!(client.last_bytes(), WRONGTYPE, "{place}");
        }
    }
    assert_eq!(client.text(&["PING"]), Reply::Simple("PONG".into()));
    assert_eq!(scan(&mut client), keys);
}

/// An argument that is no number and short enough to be looked at: the key itself
/// where that will do.
fn key_like(key: &[u8]) -> &[u8] {
    if key.len() <= 64 {
        key
    } else {
        &key[..64]
    }
}

// I01: the longest key that a server takes by default, a byte below 512 MiB.
#[test]
fn the_longest_key() {
    if available_kib() < 8 << 20 {
        eprintln!("skipped by name: a key of 512 MiB needs 8 GiB of memory available");
        return;
    }
    let server = held();
    let mut client = server.raw();
    client.set_read_timeout(Some(Duration::from_secs(300)));
    let mut key = vec![b'k'; (512 << 20) - 1];
    key[1] = 0xff;
    key[2] = 0;
    assert_eq!(
        with_long_key(&mut client, &key, "10").four(),
        Ok([1, 9, 0, 1_000])
    );
    assert_eq!(
        with_long_key(&mut client, &key, "x").error(),
        Some("ERR capacity is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3")
    );
    // Byte for byte, and not so that a message with it fills the terminal.
    assert!(scan(&mut client) == [key], "another key in SCAN");
    assert_eq!(client.text(&["PING"]), Reply::Simple("PONG".into()));
}

/// TB.ACQUIRE with a key that is not copied on the way.
fn with_long_key(client: &mut RawClient, key: &[u8], capacity: &str) -> Reply {
    client.send_bytes(format!("*5\r\n$10\r\nTB.ACQUIRE\r\n${}\r\n", key.len()).as_bytes());
    client.send_bytes(key);
    let length = capacity.len();
    let rest = format!("\r\n${length}\r\n{capacity}\r\n$1\r\n1\r\n$1\r\n1\r\n");
    client.send_bytes(rest.as_bytes());
    client.read_reply()
}

/// Memory that the system can still give, 0 where it does not say.
fn available_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

/// All keys that SCAN finds, in order.
fn scan(client: &mut RawClient) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let Reply::Array(Some(mut parts)) = client.call(&[b"SCAN", &cursor, b"COUNT", b"100"])
        else {
            panic!("no answer to SCAN")
        };
        let Some(Reply::Array(Some(found))) = parts.pop() else {
            panic!("no keys from SCAN")
        };
        keys.extend(found.into_iter().map(|key| key.bytes().unwrap()));
        cursor = parts.remove(0).bytes().unwrap();
        if cursor == b"0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}

// I02: keys that were not declared, or more commands than one, broke access rules:
// one command and one pattern are all that is needed.
#[test]
fn one_command_and_one_pattern_are_enough() {
    let server = held();
    let (mut admin, mut user) = (server.raw(), server.raw());
    let rule = ["ACL", "SETUSER", "u", "on", ">p", "~rl:*", "+tb.acquire"];
    assert_eq!(admin.text(&rule), Reply::Simple("OK".into()));
    assert_eq!(user.text(&["AUTH", "u", "p"]), Reply::Simple("OK".into()));
    // Taking, being denied, and asking alike.
    assert_eq!(user.ask("TB.ACQUIRE rl:a 10 1 4"), [1, 6, 0, 4_000]);
    assert_eq!(user.ask("TB.ACQUIRE rl:a 10 1 7"), [0, 6, 1_000, 4_000]);
    assert_eq!(user.ask("TB.ACQUIRE rl:a 10 1 0"), [1, 6, 0, 4_000]);
    for refused in [
        "TB.ACQUIRE other:a 10 1 1",
        "TB.ACQUIRE rl 10 1 1",
        "TB.PEEK rl:a 10 1 1",
        "GET rl:a",
        "DEL rl:a",
    ] {
        let words: Vec<&str> = refused.split(' ').collect();
        let reply = user.text(&words);
        let refusal = reply
            .error()
            .unwrap_or_else(|| panic!("{refused}: {reply:?}"));
        assert!(refusal.starts_with("NOPERM"), "{refused}: {refusal}");
    }
    assert_eq!(admin.text(&["DBSIZE"]).integer(), 1);

    if installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: ACL DRYRUN, %R~ and %W~ are not there before Redis 7.0");
        return;
    }
    let may = |admin: &mut RawClient, key: &str| {
        let call = ["ACL", "DRYRUN", "u", "TB.ACQUIRE", key, "10", "1", "1"];
        admin.text(&call).bytes().unwrap() == b"OK"
    };
    assert!(may(&mut admin, "rl:a"));
    assert!(!may(&mut admin, "other:a"));
    // The key is declared as read and as written: neither right alone will do.
    for (pattern, enough) in [("%R~rl:*", false), ("%W~rl:*", false), ("%RW~rl:*", true)] {
        admin.text(&["ACL", "SETUSER", "u", "resetkeys", pattern]);
        assert_eq!(may(&mut admin, "rl:a"), enough, "{pattern}");
        let reply = user.text(&["TB.ACQUIRE", "rl:a", "10", "1", "1"]);
        assert_eq!(reply.error().is_none(), enough, "{pattern}: {reply:?}");
    }
}

// I05: a new limit had no effect until somebody deleted the key, or filled the bucket
// at once.
#[test]
fn a_raised_limit_rules_from_the_next_call_on() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [1, 9, 0, 1_000]);
    assert_eq!(client.ask("TB.ACQUIRE k 100 50 1"), [1, 8, 0, 1_840]);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 1_840);
    // 50/s are one in 20 ms.
    for step in 0..=100 {
        server.hold(START + step * 20_000);
        let reply = client.ask("TB.PEEK k 100 50 0");
        let (left, reset) = (8 + step, 1_840 - step * 20);
        assert_eq!(reply, [1, left.min(100), 0, reset.max(0)], "step {step}");
        if step > 0 && step <= 92 {
            server.hold(START + step * 20_000 - 1);
            let just_before = client.ask("TB.PEEK k 100 50 0");
            assert_eq!(
                just_before,
                [1, left - 1, 0, reset + 1],
                "before step {step}"
            );
        }
    }
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
}

// I06: after a limit was lowered from 1000 to 10, 999 more calls passed.
#[test]
fn a_lowered_limit_rules_from_the_next_call_on() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 1000 1 1"), [1, 999, 0, 1_000]);
    for left in (0..10).rev() {
        let reply = client.ask("TB.ACQUIRE k 10 1 1");
        assert_eq!(reply, [1, left, 0, (10 - left) * 1_000]);
    }
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [0, 0, 1_000, 10_000]);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 10_000);
    // Nor do they come back with the old limit.
    assert_eq!(
        client.ask("TB.ACQUIRE k 1000 1 1"),
        [0, 0, 1_000, 1_000_000]
    );
}

// I09: a limit per minute and one per hour at the same key fought over one counter.
// They share the bucket, which is wrong of the caller, but mints nothing.
#[test]
fn two_limits_at_one_key_mint_nothing() {
    let server = held();
    let mut client = server.raw();
    let [minute, hour] = [("2", "0.0333"), ("5", "0.00139")];
    assert_eq!(client.ask("TB.ACQUIRE u 2 0.0333 1"), [1, 1, 0, 30_031]);
    assert_eq!(client.ask("TB.ACQUIRE u 5 0.00139 1"), [1, 0, 0, 3_597_123]);
    for _ in 0..50 {
        assert_eq!(
            client.ask("TB.ACQUIRE u 2 0.0333 1"),
            [0, 0, 30_031, 60_061]
        );
        assert_eq!(
            client.ask("TB.ACQUIRE u 5 0.00139 1"),
            [0, 0, 719_425, 3_597_123]
        );
    }

    // An hour of both in turn, a second apart: what exact fractions say.
    let mut ideal = Ideal::new("2", "0.0333", START);
    ideal.acquire("2", START);
    let mut allowed = 0;
    for second in 1..=3_600 {
        let (capacity, rate) = if second % 2 == 1 { minute } else { hour };
        let now = START + second * 1_000_000;
        server.hold(now);
        ideal.set_limit(capacity, rate);
        let reply = client.ask(&format!("TB.ACQUIRE u {capacity} {rate} 1"));
        assert_eq!(reply, ideal.acquire("1", now), "second {second}");
        allowed += reply[0];
    }
    // At most what the faster of the two alone lets through.
    assert!((1..=119).contains(&allowed), "{allowed} in an hour");
}

// I09: with the limit's name in the key, each is what it is alone.
#[test]
fn two_limits_at_two_keys_are_apart() {
    let server = held();
    let mut client = server.raw();
    let mut minute = Ideal::new("2", "0.0333", START);
    let mut hour = Ideal::new("5", "0.00139", START);
    let mut allowed = [0; 2];
    for second in 0..3_600 {
        let now = START + second * 1_000_000;
        server.hold(now);
        let replies = [
            client.ask("TB.ACQUIRE u:minute 2 0.0333 1"),
            client.ask("TB.ACQUIRE u:hour 5 0.00139 1"),
        ];
        let wants = [minute.acquire("1", now), hour.acquire("1", now)];
        assert_eq!(replies, wants, "second {second}");
        for (count, reply) in allowed.iter_mut().zip(replies) {
            *count += reply[0];
        }
    }
    // 2 and 119.8 in 3599 s, and 5 and 5.003.
    assert_eq!(allowed, [121, 10]);
}
