//! Full memory, and floods of keys.

use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, Random, RawClient, Server};

use crate::START;

const FLOOD: usize = 1_000_000;
const BATCH: usize = 1_000;
const MAXMEMORY: i64 = 32 << 20;

/// Holds 10 tokens, and is full again after a second for each that is missing.
const LIMIT: &str = "10 1";

/// A server that evicts by `policy` above 32 MiB, its clock held. Few samples would
/// make an approximate policy more so.
fn server(policy: &str) -> Server {
    Server::builder()
        .module(module_path())
        .held_clock(START)
        .config("maxmemory", MAXMEMORY.to_string())
        .config("maxmemory-policy", policy)
        .config("maxmemory-samples", "10")
        .config("hz", "100")
        .config("active-expire-effort", "10")
        .start()
}

fn evicted(server: &Server) -> i64 {
    server.info("stats")["evicted_keys"].parse().unwrap()
}

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

/// Takes a token from each of the keys, in one pipeline, and gives what is left.
#[track_caller]
fn take_one(client: &mut RawClient, keys: &[String]) -> Vec<i64> {
    let calls: Vec<Vec<Vec<u8>>> = keys
        .iter()
        .map(|key| {
            format!("TB.ACQUIRE {key} {LIMIT} 1")
                .split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        })
        .collect();
    let replies = client.pipeline(&calls);
    replies
        .into_iter()
        .map(|reply| {
            let [allowed, remaining, retry_after_ms, reset_after_ms] =
                reply.four().expect("no error while keys are evicted");
            // The clock stands still, so the numbers follow from what is left.
            let missing = 10 - remaining;
            assert!((1..=10).contains(&missing), "{remaining} left");
            assert_eq!([allowed, retry_after_ms], [1, 0], "{remaining} left");
            assert_eq!(reset_after_ms, missing * 1000, "{remaining} left");
            remaining
        })
        .collect()
}

/// A million callers nobody has heard of, on a server that evicts. None of them is
/// answered an error or a wrong number, memory stays below its bound, a bucket that
/// comes again is either as it was or, when it was evicted, full; and everything is
/// gone after the time that a bucket takes to be full.
#[track_caller]
fn flood(policy: &str) {
    let server = server(policy);
    let mut client = server.raw();
    let mut random = Random::new(0xf100d);
    let mut keys = Vec::with_capacity(FLOOD);
    let mut calls = vec![0_i64; FLOOD];
    let (mut continued, mut forgotten) = (0, 0);
    while keys.len() < FLOOD {
        let fresh: Vec<String> = (0..BATCH)
            .map(|number| format!("caller:{:010}", keys.len() + number))
            .collect();
        assert_eq!(take_one(&mut client, &fresh), [9; BATCH], "new callers");
        calls[keys.len()..keys.len() + BATCH].fill(1);
        keys.extend(fresh);
        // Some come again: of the newest, who are there still, and of all.
        for nth in 0..20 {
            let from = [keys.len() - BATCH, 0][nth % 2];
            let at = from + random.below((keys.len() - from) as i64) as usize;
            let left = take_one(&mut client, &keys[at..=at])[0];
            if left == 10 - (calls[at] + 1) {
                continued += 1;
                calls[at] += 1;
            } else {
                assert_eq!(left, 9, "neither as it was nor full");
                forgotten += 1;
                calls[at] = 1;
            }
        }
    }
    let (evicted, used) = (evicted(&server), used_memory(&server));
    println!("{policy}: {evicted} of {FLOOD} evicted, {continued} went on, {forgotten} were full");
    assert!(evicted > FLOOD as i64 / 2, "{evicted}");
    assert!(continued > 1_000 && forgotten > 1_000);
    // The reply buffers and the batch on the way count as well.
    assert!(used < MAXMEMORY + (1 << 20), "{used} bytes used");

    server.advance(Duration::from_secs(10) + Duration::from_millis(1));
    wait_for("all buckets to go", Duration::from_secs(60), || {
        client.text(&["DBSIZE"]).integer() == 0
    });
}

#[test]
fn allkeys_lru() {
    flood("allkeys-lru");
}

#[test]
fn allkeys_lfu() {
    flood("allkeys-lfu");
}

#[test]
fn allkeys_random() {
    flood("allkeys-random");
}

#[test]
fn volatile_lru() {
    flood("volatile-lru");
}

/// Every bucket has an expiry, so the volatile policies see them all.
#[test]
fn volatile_random() {
    flood("volatile-random");
}

/// The policy for a limiter: the bucket nearest to full goes first, which is the one
/// whose loss gives away least. Callers who are far from full are kept while
/// hundreds of thousands come once.
#[test]
fn volatile_ttl_keeps_those_who_took_most() {
    flood("volatile-ttl");

    let server = server("volatile-ttl");
    let mut client = server.raw();
    let heavy: Vec<String> = (0..1_000).map(|number| format!("heavy:{number}")).collect();
    for left in (0..10).rev() {
        assert_eq!(take_one(&mut client, &heavy), vec![left; heavy.len()]);
    }
    for batch in 0..FLOOD / 2 / BATCH {
        let light: Vec<String> = (0..BATCH)
            .map(|number| format!("light:{batch}:{number}"))
            .collect();
        assert_eq!(take_one(&mut client, &light), [9; BATCH]);
    }
    assert!(evicted(&server) > FLOOD as i64 / 4, "{}", evicted(&server));
    let empty = heavy
        .iter()
        .filter(|key| client.ask(&format!("TB.PEEK {key} {LIMIT} 1"))[0] == 0)
        .count();
    println!("volatile-ttl: {empty} of 1000 who had taken all are still denied");
    assert_eq!(empty, heavy.len());
}

/// Without a policy that evicts, whatever takes tokens is refused by the server in
/// its own words, and what gives them back or asks is not. A million refused calls
/// change no byte of memory that matters.
#[test]
fn noeviction_refuses_and_does_not_grow() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .start();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 4"), [1, 6, 0, 4_000]);
    let before = client.text(&["DUMP", "k"]);
    client.text(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    client.text(&["CONFIG", "SET", "maxmemory", "1"]);

    let mut used = 0;
    for batch in 0..FLOOD / BATCH {
        let calls: Vec<Vec<Vec<u8>>> = (0..BATCH)
            .map(|number| {
                let call = match number % 4 {
                    0 => format!("TB.ACQUIRE new:{batch}:{number} {LIMIT} 1"),
                    1 => format!("TB.RESERVE k {LIMIT} 1 1000"),
                    2 => format!("TB.DEBIT new:{batch}:{number} {LIMIT} 1"),
                    _ => format!("TB.MACQUIRE k {LIMIT} 1 new:{batch}:{number} {LIMIT} 1"),
                };
                call.split(' ')
                    .map(|word| word.as_bytes().to_vec())
                    .collect()
            })
            .collect();
        for reply in client.pipeline(&calls) {
            let error = reply.error().expect("refused").to_string();
            assert!(error.starts_with("OOM "), "{error}");
        }
        if batch == 10 {
            used = used_memory(&server);
        }
    }
    let grown = used_memory(&server) - used;
    println!("noeviction: {FLOOD} calls refused, used_memory {grown:+} bytes");
    assert!(grown.abs() < 100_000, "{grown}");
    assert_eq!(client.text(&["DUMP", "k"]), before);
    assert_eq!(client.ask("TB.PEEK k 10 1 0"), [1, 6, 0, 4_000]);
    assert_eq!(client.ask("TB.CREDIT k 10 1 1"), [1, 7, 0, 3_000]);
    assert_eq!(client.ask("TB.CREDIT k 10 1 3"), [1, 10, 0, 0]);
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
}
