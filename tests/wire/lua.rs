//! What README says of the usual Lua script beside TB.ACQUIRE, line by line, on
//! one server: the script is `benches/token_bucket.lua`.

use std::time::Duration;

use tokenbucket_testkit::{RawClient, Reply};

use crate::held;

const SCRIPT: &str = include_str!("../../benches/token_bucket.lua");

/// Whether the script lets the call through; `now` is the caller's clock.
fn script(client: &mut RawClient, key: &str, capacity: &str, rate: &str, now: &str) -> bool {
    match client.text(&["EVAL", SCRIPT, "1", key, capacity, rate, now, "1"]) {
        Reply::Array(Some(items)) => {
            // Nothing of when to come back.
            assert_eq!(items.len(), 2);
            items[0] == Reply::Integer(1)
        }
        other => panic!("no reply of the script: {other:?}"),
    }
}

fn module(client: &mut RawClient, key: &str, capacity: &str, rate: &str) -> bool {
    client
        .tb(&["TB.ACQUIRE", key, capacity, rate, "1"])
        .unwrap()[0]
        == 1
}

/// Two callers whose clocks are a second apart, taking turns while no time
/// passes: the script refills a second's worth with each turn.
#[test]
fn clocks_that_differ() {
    let server = held();
    let mut client = server.raw();
    let turns = || ["100", "101"].into_iter().cycle().take(1000);
    let by_script = turns()
        .filter(|now| script(&mut client, "s", "10", "10", now))
        .count();
    let by_module = turns()
        .filter(|_| module(&mut client, "m", "10", "10"))
        .count();
    assert_eq!(by_module, 10);
    assert_eq!(by_script, 1000);
}

/// A clock that goes back an hour and comes forth again: the script mints a full
/// bucket.
#[test]
fn a_clock_set_back_and_forth() {
    let server = held();
    let mut client = server.raw();
    let empty_both = |client: &mut RawClient, now: &str| {
        let mut counts = [0, 0];
        for _ in 0..20 {
            counts[0] += u32::from(script(client, "s", "10", "0.01", now));
            counts[1] += u32::from(module(client, "m", "10", "0.01"));
        }
        counts
    };
    assert_eq!(empty_both(&mut client, "7200"), [10, 10]);
    server.step_back(Duration::from_secs(3600));
    assert_eq!(empty_both(&mut client, "3600"), [0, 0]);
    server.advance(Duration::from_secs(1));
    assert_eq!(empty_both(&mut client, "7201"), [10, 0]);
}

/// A slow rate that is polled each second never refills by the script.
#[test]
fn fractions() {
    let server = held();
    let mut client = server.raw();
    let mut counts = [0, 0];
    for second in 0..95 {
        let now = (100 + second).to_string();
        counts[0] += u32::from(script(&mut client, "s", "5", "0.1111", &now));
        counts[1] += u32::from(module(&mut client, "m", "5", "0.1111"));
        server.advance(Duration::from_secs(1));
    }
    assert_eq!(counts, [5, 5 + 10]);
}

/// The script's key outlives what it says, or is deleted at once: then everyone
/// passes.
#[test]
fn expiry() {
    let server = held();
    let mut client = server.raw();
    script(&mut client, "s", "10", "1", "100");
    module(&mut client, "m", "10", "1");
    assert_eq!(client.text(&["PTTL", "s"]).integer(), 20_000);
    assert_eq!(client.text(&["PTTL", "m"]).integer(), 1000);

    let by_script = (0..100)
        .filter(|_| script(&mut client, "s3", "1", "3", "100"))
        .count();
    let by_module = (0..100)
        .filter(|_| module(&mut client, "m3", "1", "3"))
        .count();
    assert_eq!((by_script, by_module), (100, 1));
}

/// A denial by the script is a write, and goes to replicas and the AOF.
#[test]
fn denials() {
    let server = held();
    let mut client = server.raw();
    let dirty = || {
        server.info("persistence")["rdb_changes_since_last_save"]
            .parse::<i64>()
            .unwrap()
    };
    for _ in 0..10 {
        script(&mut client, "s", "10", "0.1", "100");
        module(&mut client, "m", "10", "0.1");
    }
    let before = dirty();
    assert!(!module(&mut client, "m", "10", "0.1"));
    assert_eq!(dirty(), before);
    assert!(!script(&mut client, "s", "10", "0.1", "100"));
    assert!(dirty() > before);
}

/// Rate 0: an error from inside the script, one clear error of the module.
#[test]
fn rate_zero() {
    let server = held();
    let mut client = server.raw();
    let error = client.text(&["EVAL", SCRIPT, "1", "s", "10", "0", "100", "1"]);
    assert!(error.error().unwrap().contains("script"), "{error:?}");
    // And the half that was done stays: a key without an expiry.
    assert_eq!(client.text(&["PTTL", "s"]).integer(), -1);
    let error = client.tb(&["TB.ACQUIRE", "m", "10", "0", "1"]);
    assert_eq!(
        error,
        Err("ERR rate must be above 0: at least 1e-12 per second".into())
    );
    assert_eq!(client.text(&["EXISTS", "m"]).integer(), 0);
}
