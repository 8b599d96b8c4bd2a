//! Keys that lived too long, too short or for ever, and keys that hold no bucket:
//! rows D of the failure cases. D12, ten million calls, is in a binary of its own.

use std::time::Duration;

use tokenbucket_testkit::{module_path, Random, RawClient, Reply, Server};

use crate::support::command;
use crate::{expires_at_ms, held, running, stored, START};

const WRONGTYPE: &str = "WRONGTYPE the key holds a value that is not a token bucket";

// D01: with a rate above twice the capacity the time to live came out as 0, nothing
// was stored, and every call passed.
#[test]
fn a_fast_rate_on_a_small_bucket_is_stored() {
    let server = held();
    let mut client = server.raw();
    for (rate, ms) in [("3", 334), ("1000", 1), ("1e9", 1)] {
        let call = format!("TB.ACQUIRE k:{rate} 1 {rate} 1");
        let replies = transaction(&mut client, &call);
        assert_eq!(replies.len(), 100, "{rate}");
        for (number, reply) in replies.into_iter().enumerate() {
            let want = if number == 0 {
                [1, 0, 0, ms]
            } else {
                [0, 0, ms, ms]
            };
            assert_eq!(reply, want, "{rate}, call {number}");
        }
        let key = format!("k:{rate}");
        assert_eq!(client.text(&["PTTL", &key]).integer(), ms, "{rate}");
    }
    // Rounded up from 333.334 ms: it is there until the last of them.
    server.hold(START + 333_333);
    assert_eq!(client.ask("TB.ACQUIRE k:3 1 3 1"), [0, 0, 1, 1]);
    server.hold(START + 333_334);
    assert_eq!(client.ask("TB.ACQUIRE k:3 1 3 1"), [1, 0, 0, 334]);
}

// D01: the same on the running clock: what passes is what has flowed in meanwhile.
#[test]
fn a_fast_rate_on_a_small_bucket_while_time_runs() {
    let server = running();
    let mut client = server.raw();
    for rate in [3_u64, 1_000, 1_000_000_000] {
        let call = format!("TB.ACQUIRE k:{rate} 1 {rate} 1");
        let start = server.time_us();
        let replies = transaction(&mut client, &call);
        let elapsed = server.time_us().abs_diff(start);
        let allowed = replies.iter().filter(|reply| reply[0] == 1).count() as u64;
        let most = 1 + rate * elapsed / 1_000_000;
        assert!(
            (1..=most).contains(&allowed),
            "{allowed} of at most {most} at {rate}/s"
        );
    }
}

/// A hundred times the call in one transaction: no errors.
#[track_caller]
fn transaction(client: &mut RawClient, call: &str) -> Vec<[i64; 4]> {
    let mut calls = vec![command(call); 102];
    calls[0] = command("MULTI");
    calls[101] = command("EXEC");
    match client.pipeline(&calls).pop() {
        Some(Reply::Array(Some(replies))) => replies
            .into_iter()
            .map(|reply| reply.four().unwrap())
            .collect(),
        other => panic!("{call}: {other:?}"),
    }
}

// D02: a slow bucket was kept for capacity seconds, or twice that, and not for as
// long as it takes to fill: after a short pause it was full again.
#[test]
fn a_drained_slow_bucket_stays_drained() {
    let server = held();
    let mut client = server.raw();
    let call = "TB.ACQUIRE k 3 0.0666667 1";
    for reply in [[1, 2, 0, 15_000], [1, 1, 0, 30_000], [1, 0, 0, 45_000]] {
        assert_eq!(client.ask(call), reply);
        assert_eq!(client.text(&["PTTL", "k"]).integer(), reply[3]);
    }
    for idle in [3, 6, 14] {
        server.hold(START + idle * 1_000_000);
        let retry = 15_000 - idle * 1_000;
        let reset = 45_000 - idle * 1_000;
        assert_eq!(client.ask(call), [0, 0, retry, reset]);
        assert_eq!(client.text(&["PTTL", "k"]).integer(), reset);
    }
    server.hold(START + 20_000_000);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 25_000);
    for reply in [
        [1, 0, 0, 40_000],
        [0, 0, 10_000, 40_000],
        [0, 0, 10_000, 40_000],
    ] {
        assert_eq!(client.ask(call), reply);
        assert_eq!(client.text(&["PTTL", "k"]).integer(), 40_000);
    }
}

/// Capacity and rate of the buckets that are asked with the same numbers always.
const LIMITS: [(&str, &str); 10] = [
    ("10", "1"),
    ("1", "1/d"),
    ("3", "0.0666667"),
    ("1000000", "100/m"),
    ("1", "3"),
    ("1", "8000"),
    ("2.5", "1e-9"),
    ("1e12", "1e12"),
    ("5", "0.1111"),
    ("0", "1"),
];
const COSTS: [&str; 9] = ["0", "1", "1", "0.5", "1e-12", "2.5", "10", "11", "1e12"];
const BAD: [&str; 11] = [
    "", "nan", "-1", "+1", "inf", "0x10", "5 ", "1e13", "1e400", "1/0s", "1e-13",
];
/// Keys that hold no bucket, with what makes them.
const NO_BUCKETS: [&[&str]; 4] = [
    &["SET", "text", "hello"],
    &["RPUSH", "list", "x"],
    &["HSET", "hash", "f", "v"],
    &["ZADD", "zset", "1", "x"],
];
/// Longer than the test's clock runs.
const LONG_MS: i64 = 1_000_000_000;

// D04: keys were left with a time to live of -1, by a call that failed or was denied
// between write and expiry: callers were locked out for good, and the server filled.
#[test]
fn no_key_is_left_without_an_expiry() {
    let server = held();
    let mut client = server.raw();
    for make in NO_BUCKETS {
        assert_eq!(client.text(make).error(), None);
        client.text(&["PEXPIRE", make[1], &LONG_MS.to_string()]);
    }
    let mut random = Random::new(0xd04);
    let mut answers = [0; 4];
    for _ in 0..100 {
        server.advance(Duration::from_micros(
            random.below(1_500_000).unsigned_abs(),
        ));
        let calls: Vec<_> = (0..1_000).map(|_| any_call(&mut random)).collect();
        for (reply, call) in client.pipeline(&calls).into_iter().zip(&calls) {
            answers[match reply.four() {
                Ok([1, ..]) => 0,
                Ok(_) => 1,
                Err(error) if error == WRONGTYPE => 2,
                Err(error) => {
                    assert!(error.starts_with("ERR "), "{call:?}: {error}");
                    3
                }
            }] += 1;
        }
        let keys = all_keys(&mut client);
        for (key, pttl) in keys.iter().zip(expiries(&mut client, &keys)) {
            assert_ne!(pttl, -1, "{key}");
        }
    }
    assert_eq!(answers.iter().sum::<i32>(), 100_000);
    assert!(answers.iter().all(|count| *count > 5_000), "{answers:?}");

    // At the turn of a millisecond the expiry is the very time to fullness. The
    // fastest buckets are full by then: none is in its last millisecond, PTTL 0.
    server.hold(server.clock().now_us() / 1_000 * 1_000 + 5_000);
    let keys = all_keys(&mut client);
    assert!(keys.len() > 60, "only {} keys", keys.len());
    let mut same = 0;
    for (key, pttl) in keys.iter().zip(expiries(&mut client, &keys)) {
        assert!(pttl > 0, "{key}: PTTL is {pttl}");
        if let Some(number) = key.strip_prefix("same:") {
            let (capacity, rate) = limit_of(number.parse().unwrap());
            let [.., reset] = client.ask(&format!("TB.PEEK {key} {capacity} {rate} 0"));
            assert_eq!(pttl, reset, "{key}: {capacity} {rate}");
            same += 1;
        } else if !key.starts_with("other:") {
            let passed_ms = (server.clock().now_us() - START) / 1_000;
            assert_eq!(pttl, LONG_MS - passed_ms, "{key} is untouched");
        }
    }
    assert!(same > 30, "only {same} of them");

    // Each gets its expiry back at its next write, and at no other call.
    let buckets: Vec<_> = keys.into_iter().filter(|key| key.contains(':')).collect();
    server.advance(Duration::from_secs(1));
    for key in &buckets {
        if client.text(&["PERSIST", key]).integer() == 0 {
            assert_eq!(client.text(&["EXISTS", key]).integer(), 0, "{key}");
            continue;
        }
        for call in ["1001", "0", "x"] {
            client.text(&["TB.ACQUIRE", key, "1000", "1", call]);
            assert_eq!(client.text(&["PTTL", key]).integer(), -1, "{key}: {call}");
        }
        let [allowed, _, _, reset] = client.ask(&format!("TB.ACQUIRE {key} 1000 1 0.5"));
        assert_eq!(allowed, 1, "{key} has had a second");
        assert_eq!(client.text(&["PTTL", key]).integer(), reset, "{key}");
        assert!((500..=1_000_000).contains(&reset), "{key}: {reset}");
    }
}

fn limit_of(number: usize) -> (&'static str, &'static str) {
    LIMITS[number % LIMITS.len()]
}

/// One call in five can't be understood, one in ten goes to a key that holds no
/// bucket.
fn any_call(random: &mut Random) -> Vec<Vec<u8>> {
    let mut below = |end: usize| random.below(end as i64) as usize;
    let number = below(50);
    let (key, (capacity, rate)) = match below(10) {
        0 => (NO_BUCKETS[below(4)][1].to_string(), limit_of(number)),
        1..=6 => (format!("same:{number}"), limit_of(number)),
        _ => (format!("other:{number}"), limit_of(below(LIMITS.len()))),
    };
    let name = ["TB.ACQUIRE", "TB.ACQUIRE", "TB.ACQUIRE", "TB.PEEK"][below(4)];
    let mut words = vec![name, &key, capacity, rate, COSTS[below(COSTS.len())]];
    if below(5) == 0 {
        match below(4) {
            0 => words.push("1"),
            at => words[1 + at] = BAD[below(BAD.len())],
        }
    }
    words
        .into_iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// The keys that SCAN finds, in order.
fn all_keys(client: &mut RawClient) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_string();
    loop {
        let Reply::Array(Some(parts)) = client.text(&["SCAN", &cursor, "COUNT", "1000"]) else {
            panic!("no answer to SCAN")
        };
        let [next, Reply::Array(Some(found))] = &parts[..] else {
            panic!("{parts:?}")
        };
        let text = |reply: &Reply| String::from_utf8(reply.clone().bytes().unwrap()).unwrap();
        keys.extend(found.iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}

fn expiries(client: &mut RawClient, keys: &[String]) -> Vec<i64> {
    let calls: Vec<_> = keys
        .iter()
        .map(|key| command(&format!("PTTL {key}")))
        .collect();
    let replies = client.pipeline(&calls).into_iter();
    replies.map(Reply::integer).collect()
}

// D05: milliseconds were stored as seconds, so that keys lived 1000 times too long,
// and an hour became a minute.
#[test]
fn the_units_of_an_expiry() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 10"), [1, 0, 0, 10_000]);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 10_000);
    assert_eq!(client.text(&["TTL", "k"]).integer(), 10);

    for (rate, ms) in [
        ("1/ms", 1),
        ("1/s", 1_000),
        ("1/m", 60_000),
        ("1/h", 3_600_000),
        ("60/h", 60_000),
        ("1/60m", 3_600_000),
        ("1/3600s", 3_600_000),
        ("1/3600000ms", 3_600_000),
        ("1/d", 86_400_000),
        ("24/d", 3_600_000),
    ] {
        server.hold(START);
        let call = format!("TB.ACQUIRE {rate} 1 {rate} 1");
        assert_eq!(client.ask(&call), [1, 0, 0, ms], "{rate}");
        assert_eq!(
            expires_at_ms(&mut client, rate, START),
            START / 1_000 + ms,
            "{rate}"
        );
        // There to the last of its time, and not a moment longer.
        server.hold(START + ms * 1_000 - 1);
        assert_eq!(client.ask(&call), [0, 0, 1, 1], "{rate}");
        server.hold(START + ms * 1_000);
        assert_eq!(client.ask(&call), [1, 0, 0, ms], "{rate}");
    }
}

// D08: without the deny-oom flag the module went on growing above maxmemory; with
// it, calls are refused by the server, in its own words, and nothing grows.
#[test]
fn above_maxmemory_nothing_grows() {
    let server = held();
    let mut client = server.raw();
    let flags = flags_of(&mut client, "TB.ACQUIRE");
    assert!(flags.contains(&"write".into()), "{flags:?}");
    assert!(flags.contains(&"denyoom".into()), "{flags:?}");
    let flags = flags_of(&mut client, "TB.PEEK");
    assert!(flags.contains(&"readonly".into()), "{flags:?}");
    assert!(!flags.contains(&"denyoom".into()), "{flags:?}");

    assert_eq!(client.ask("TB.ACQUIRE k 10 1 4"), [1, 6, 0, 4_000]);
    client.text(&["SETRANGE", "filler", "4194304", "x"]);
    set(&mut client, "maxmemory-policy", "noeviction");
    set(&mut client, "maxmemory", "1mb");
    let before = stored(&mut client, "k");
    for call in [
        "new 10 1 1",
        "k 10 1 1",
        "k 10 1 11",
        "k 10 1 0",
        "k 10 x 1",
    ] {
        let words = format!("TB.ACQUIRE {call}");
        let words: Vec<&str> = words.split(' ').collect();
        let error = client.tb(&words).unwrap_err();
        assert!(error.starts_with("OOM "), "{call}: {error}");
    }
    assert_eq!(stored(&mut client, "k"), before);
    // Asking needs no memory.
    assert_eq!(client.ask("TB.PEEK k 10 1 0"), [1, 6, 0, 4_000]);
    assert_eq!(client.ask("TB.PEEK new 10 1 0"), [1, 10, 0, 0]);

    // 20,000 keys would take 2 MB; buffers of the connection have their size after
    // the first batch.
    let mut used = 0;
    for batch in 0..200 {
        let calls: Vec<_> = (0..100)
            .map(|number| command(&format!("TB.ACQUIRE new:{batch}:{number} 10 1 1")))
            .collect();
        for reply in client.pipeline(&calls) {
            let error = reply.four().unwrap_err();
            assert!(error.starts_with("OOM "), "{error}");
        }
        if batch == 0 {
            used = used_memory(&server);
        }
    }
    let grown = used_memory(&server) - used;
    assert!(grown < 100_000, "{grown} bytes more");
    assert_eq!(client.text(&["DBSIZE"]).integer(), 2);

    set(&mut client, "maxmemory", "0");
    assert_eq!(client.ask("TB.ACQUIRE new 10 1 1"), [1, 9, 0, 1_000]);
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [1, 5, 0, 5_000]);
}

#[track_caller]
fn set(client: &mut RawClient, name: &str, value: &str) {
    let reply = client.text(&["CONFIG", "SET", name, value]);
    assert_eq!(reply, Reply::Simple("OK".into()), "{name}");
}

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

/// The flags of a command, as COMMAND INFO lists them.
fn flags_of(client: &mut RawClient, name: &str) -> Vec<String> {
    let Reply::Array(Some(entries)) = client.text(&["COMMAND", "INFO", name]) else {
        panic!("no COMMAND INFO")
    };
    let Reply::Array(Some(fields)) = &entries[0] else {
        panic!("{name} is not known")
    };
    let Reply::Array(Some(flags)) = &fields[2] else {
        panic!("{name} has no flags")
    };
    let text = |flag: &Reply| String::from_utf8(flag.clone().bytes().unwrap()).unwrap();
    flags.iter().map(text).collect()
}

// D09: at a leftover key of another type each call failed, the failure became NaN
// and everyone was let in; and the call that set the expiry kept the key alive.
#[test]
fn a_leftover_list_is_an_error_and_goes_in_its_time() {
    let server = held();
    let mut client = server.raw();
    client.text(&["LPUSH", "k", "x"]);
    client.text(&["EXPIRE", "k", "5"]);
    for step in 0..3 {
        for call in [
            &["TB.ACQUIRE", "k", "10", "1", "1"][..],
            &["TB.ACQUIRE", "k", "10", "1", "0"],
            &["TB.ACQUIRE", "k", "10", "1", "11"],
            &["TB.PEEK", "k", "10", "1"],
        ] {
            assert_eq!(client.tb(call), Err(WRONGTYPE.into()), "{call:?}");
        }
        assert_eq!(client.text(&["PTTL", "k"]).integer(), 5_000 - step * 1_000);
        assert_eq!(client.text(&["TYPE", "k"]), Reply::Simple("list".into()));
        let items = Reply::Array(Some(vec![Reply::Bulk(Some(b"x".to_vec()))]));
        assert_eq!(client.text(&["LRANGE", "k", "0", "-1"]), items);
        server.advance(Duration::from_secs(1));
    }
    server.hold(START + 5_001_000);
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [1, 9, 0, 1_000]);
    assert_eq!(client.text(&["TYPE", "k"]), Reply::Simple("string".into()));
}

/// 3.25 tokens at START, as the first format has it.
const FIRST_FORMAT: [u8; 20] = [
    0x96, 0x65, 0x17, 0x28, 0x98, 0x80, 0x00, // version 1, stamp
    0x00, 0x00, 0x00, 0x00, 0x00, 0x2d, 0x1a, 0x51, 0xc7, 0xe0, 0x05, 0x00, 0x00, // level
];

// D10: after an upgrade the old keys were errors. What was ever written is read for
// ever: these bytes must never change.
#[test]
fn the_first_format_is_read() {
    let server = held();
    let mut client = server.raw();
    client.call(&[b"SET", b"old", &FIRST_FORMAT, b"PX", b"6750"]);
    assert_eq!(client.ask("TB.PEEK old 10 1 0"), [1, 3, 0, 6_750]);
    assert_eq!(client.ask("TB.PEEK old 10 1 4"), [0, 3, 750, 6_750]);
    assert_eq!(client.ask("TB.ACQUIRE old 10 1 3"), [1, 0, 0, 9_750]);
    // And it is what is written now.
    assert_eq!(client.ask("TB.ACQUIRE new 10 1 6.75"), [1, 3, 0, 6_750]);
    assert_eq!(stored(&mut client, "new").unwrap(), FIRST_FORMAT);
}

// D10: after a rollback the new keys were errors, or wrong numbers, or the server did
// not load its file any more. A version that is not known is WRONGTYPE, and is kept
// as it is, also over a restart from the RDB or the AOF.
#[test]
fn an_unknown_version_is_refused_and_kept() {
    let with_version = |version: u8| {
        let mut bytes = FIRST_FORMAT;
        bytes[0] = bytes[0] & 0b1100_1111 | version << 4;
        bytes.to_vec()
    };
    let mut longer = with_version(2);
    longer.extend([0; 4]);
    let mut unknown = vec![
        ("older", with_version(0)),
        ("newer", with_version(2)),
        ("newest", with_version(3)),
        ("longer", longer),
    ];
    unknown.push(("shorter", FIRST_FORMAT[..16].to_vec()));
    for appendonly in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let builder = Server::builder()
            .module(module_path())
            .held_clock(START)
            .dir(folder.path());
        let mut server = match appendonly {
            true => builder.appendonly().start(),
            false => builder.start(),
        };
        let mut client = server.raw();
        for (key, bytes) in &unknown {
            client.call(&[b"SET", key.as_bytes(), bytes, b"PX", b"90000"]);
        }
        assert_eq!(client.ask("TB.ACQUIRE k 10 1 4"), [1, 6, 0, 4_000]);
        for restarted in [false, true] {
            if restarted {
                if !appendonly {
                    assert_eq!(client.text(&["SAVE"]), Reply::Simple("OK".into()));
                }
                server.restart();
                client = server.raw();
            }
            for (key, bytes) in &unknown {
                for (name, cost) in [
                    ("TB.ACQUIRE", "1"),
                    ("TB.ACQUIRE", "0"),
                    ("TB.ACQUIRE", "11"),
                    ("TB.PEEK", "1"),
                ] {
                    let reply = client.tb(&[name, key, "10", "1", cost]);
                    assert_eq!(reply, Err(WRONGTYPE.into()), "{key}: {name} {cost}");
                }
                assert_eq!(stored(&mut client, key).as_ref(), Some(bytes), "{key}");
                assert_eq!(client.text(&["PTTL", key]).integer(), 90_000, "{key}");
            }
            assert_eq!(client.ask("TB.PEEK k 10 1 0"), [1, 6, 0, 4_000]);
            assert_eq!(client.text(&["DBSIZE"]).integer(), 6);
        }
    }
}

// D11: one call at a key with plain text, or with an empty string, killed the server.
#[test]
fn no_type_of_value_stops_the_server() {
    let server = held();
    let mut client = server.raw();
    // Too long for the compact encodings.
    let long = "v".repeat(300);
    let long = long.as_str();
    let makers: &[&[&str]] = &[
        &["SET", "k", "hello"],
        &["SET", "k", ""],
        &["SET", "k", "1"],
        &["SET", "k", "-9223372036854775808"],
        &["SET", "k", "twenty bytes of text"],
        &["SET", "k", long],
        &["APPEND", "k", "twenty bytes of text"],
        &["SETBIT", "k", "159", "1"],
        &["PFADD", "k", "x"],
        &["RPUSH", "k", "x"],
        &["RPUSH", "k", long],
        &["SADD", "k", "1"],
        &["SADD", "k", "x"],
        &["SADD", "k", long],
        &["ZADD", "k", "1", "x"],
        &["ZADD", "k", "1", long],
        &["GEOADD", "k", "13.4", "52.5", "x"],
        &["HSET", "k", "f", "v"],
        &["HSET", "k", "f", long],
        &["XADD", "k", "1-1", "f", "v"],
        // A type of another module, where the server comes with one.
        &["VADD", "k", "VALUES", "2", "0.5", "0.25", "x"],
    ];
    for make in makers {
        client.text(&["DEL", "k"]);
        match client.text(make).error() {
            None => {}
            Some(error) if make[0] == "VADD" && error.contains("unknown command") => {
                eprintln!("skipped by name: this server has no vector sets");
                continue;
            }
            Some(error) => panic!("{make:?}: {error}"),
        }
        refused_and_untouched(&mut client, &format!("{make:?}"));
    }
}

// D11: the same for random bytes of every length.
#[test]
fn no_bytes_stop_the_server() {
    let server = held();
    let mut client = server.raw();
    let mut random = Random::new(0xd11);
    let mut lengths: Vec<usize> = (0..=64).flat_map(|length| [length; 8]).collect();
    // A sixteenth of them have tag and version of a bucket.
    lengths.extend([20; 200]);
    lengths.extend((0..60).map(|_| 65 + random.below(20_000) as usize));
    let mut buckets = 0;
    for length in lengths {
        let bytes = random.bytes(length);
        let place = format!("{length} bytes, {}", bytes[..length.min(20)].escape_ascii());
        let set = client.call(&[b"SET", b"k", &bytes]);
        assert_eq!(set, Reply::Simple("OK".into()), "{place}");
        if length == 20 && bytes[0] >> 4 == 0b1001 {
            buckets += 1;
            for (name, cost) in [("TB.PEEK", "1"), ("TB.ACQUIRE", "0"), ("TB.ACQUIRE", "1")] {
                let reply = client.ask(&format!("{name} k 15 1 {cost}"));
                assert!((0..=15).contains(&reply[1]), "{place}: {reply:?}");
                assert_eq!(reply[0] == 1, reply[2] == 0, "{place}: {reply:?}");
            }
            assert_eq!(
                client.text(&["PING"]),
                Reply::Simple("PONG".into()),
                "{place}"
            );
        } else {
            refused_and_untouched(&mut client, &place);
        }
    }
    assert!(buckets > 5, "only {buckets} passed as buckets");
}

/// Every call at `k` is WRONGTYPE, and the value is as before, with its expiry.
#[track_caller]
fn refused_and_untouched(client: &mut RawClient, place: &str) {
    client.text(&["PEXPIRE", "k", "5000"]);
    let dump = client.text(&["DUMP", "k"]);
    let kind = client.text(&["TYPE", "k"]);
    for (name, cost) in [
        ("TB.PEEK", "1"),
        ("TB.ACQUIRE", "0"),
        ("TB.ACQUIRE", "16"),
        ("TB.ACQUIRE", "1"),
    ] {
        let reply = client.tb(&[name, "k", "15", "1", cost]);
        assert_eq!(reply, Err(WRONGTYPE.into()), "{place}: {name} {cost}");
        assert_eq!(
            client.text(&["PING"]),
            Reply::Simple("PONG".into()),
            "{place}"
        );
    }
    assert_eq!(client.text(&["DUMP", "k"]), dump, "{place}");
    assert_eq!(client.text(&["TYPE", "k"]), kind, "{place}");
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 5_000, "{place}");
}
