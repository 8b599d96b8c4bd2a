//! TB.RESERVE, TB.CREDIT, TB.DEBIT and TB.MACQUIRE, to the millisecond, under a
//! clock that stands still.

use std::time::Duration;

use tokenbucket_testkit::{module_path, RawClient, Reply, Server};

use crate::support::effects;
use crate::{held, stored, START};

const WRONGTYPE: &str = "WRONGTYPE the key holds a value that is not a token bucket";

/// Calls one after the other: milliseconds to wait before, the call, the reply.
type Calls = &'static [(u64, &'static str, [i64; 4])];

const TABLE: &[(&str, Calls)] = &[
    (
        "a reservation takes what is there at once",
        &[
            (0, "TB.RESERVE k 10 1 4 0", [1, 6, 0, 4000]),
            (0, "TB.RESERVE k 10 1 6 5000", [1, 0, 0, 10_000]),
        ],
    ),
    (
        "reservations queue one behind the other",
        &[
            (0, "TB.ACQUIRE k 10 2 10", [1, 0, 0, 5000]),
            (0, "TB.RESERVE k 10 2 1 10000", [1, 0, 500, 5500]),
            (0, "TB.RESERVE k 10 2 1 10000", [1, 0, 1000, 6000]),
            (0, "TB.RESERVE k 10 2 3 10000", [1, 0, 2500, 7500]),
            (500, "TB.RESERVE k 10 2 1 10000", [1, 0, 2500, 7500]),
        ],
    ),
    (
        "what would wait too long is denied until it would not",
        &[
            (0, "TB.RESERVE k 10 1 10 0", [1, 0, 0, 10_000]),
            (0, "TB.RESERVE k 10 1 5 5000", [1, 0, 5000, 15_000]),
            (0, "TB.RESERVE k 10 1 1 5999", [0, 0, 1, 15_000]),
            (0, "TB.RESERVE k 10 1 1 4000", [0, 0, 2000, 15_000]),
            (0, "TB.RESERVE k 10 1 1 0", [0, 0, 6000, 15_000]),
            (1999, "TB.RESERVE k 10 1 1 4000", [0, 0, 1, 13_001]),
            (1, "TB.RESERVE k 10 1 1 4000", [1, 0, 4000, 14_000]),
        ],
    ),
    (
        "more than the capacity is never, whatever the wait",
        &[
            (
                0,
                "TB.RESERVE k 10 1 11 99999999999999999999999999",
                [0, 10, -1, 0],
            ),
            (0, "TB.RESERVE k 0 1 1 5000", [0, 0, -1, 0]),
        ],
    ),
    (
        "a reservation of nothing waits until the debt is paid",
        &[
            (0, "TB.DEBIT k 10 1 13", [1, 0, 0, 13_000]),
            (0, "TB.RESERVE k 10 1 0 2999", [0, 0, 1, 13_000]),
            (0, "TB.RESERVE k 10 1 0 3000", [1, 0, 3000, 13_000]),
            (3000, "TB.RESERVE k 10 1 0 0", [1, 0, 0, 10_000]),
        ],
    ),
    (
        "a debit takes whatever the level, more than the capacity too",
        &[
            (0, "TB.DEBIT k 10 1 3.5", [1, 6, 0, 3500]),
            (0, "TB.DEBIT k 10 1 25", [1, 0, 0, 28_500]),
            (0, "TB.ACQUIRE k 10 1 1", [0, 0, 19_500, 28_500]),
            (0, "TB.ACQUIRE k 10 1 0", [0, 0, 18_500, 28_500]),
            (0, "TB.PEEK k 10 1", [0, 0, 19_500, 28_500]),
            (18_500, "TB.ACQUIRE k 10 1 0", [1, 0, 0, 10_000]),
            (1000, "TB.ACQUIRE k 10 1 1", [1, 0, 0, 10_000]),
        ],
    ),
    (
        "a debit of nothing, and on a capacity of nothing",
        &[
            (0, "TB.DEBIT k 10 1 0", [1, 10, 0, 0]),
            (0, "TB.DEBIT k 0 1 2", [1, 0, 0, 2000]),
            (0, "TB.DEBIT k 0 1 0", [1, 0, 0, 2000]),
        ],
    ),
    (
        "a credit gives back, and pays debts first",
        &[
            (0, "TB.DEBIT k 10 1 15", [1, 0, 0, 15_000]),
            (0, "TB.CREDIT k 10 1 3", [1, 0, 0, 12_000]),
            (0, "TB.CREDIT k 10 1 0", [1, 0, 0, 12_000]),
            (0, "TB.CREDIT k 10 1 4.25", [1, 2, 0, 7750]),
            (750, "TB.CREDIT k 10 1 6.999999999999", [1, 9, 0, 1]),
            (0, "TB.CREDIT k 10 1 0.000000000001", [1, 10, 0, 0]),
            (0, "TB.CREDIT k 10 1 1000", [1, 10, 0, 0]),
            (0, "TB.ACQUIRE k 10 1 10", [1, 0, 0, 10_000]),
        ],
    ),
    (
        "a credit lifts no bucket above the capacity it brings",
        &[
            (0, "TB.ACQUIRE k 1000 1 1", [1, 999, 0, 1000]),
            (0, "TB.CREDIT k 10 1 5", [1, 10, 0, 0]),
            (0, "TB.ACQUIRE k 10 1 10", [1, 0, 0, 10_000]),
        ],
    ),
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn answers() {
    let server = held();
    let mut client = server.raw();
    for (name, calls) in TABLE {
        client.text(&["FLUSHALL"]);
        for (step, (wait, call, reply)) in calls.iter().enumerate() {
            server.advance(Duration::from_millis(*wait));
            let got = client.tb(&words(call));
            assert_eq!(got, Ok(*reply), "{name}: call {}: {call}", step + 1);
        }
    }
}

/// The wait that a reservation names is enough, to the millisecond, for rates
/// that leave long fractions too: after it the level is at or above zero.
#[test]
fn the_wait_of_a_reservation_is_exact() {
    let server = held();
    let mut client = server.raw();
    for rate in ["1/3s", "0.7", "1/7ms", "3000", "100/m", "1/d", "0.1111"] {
        client.text(&["DEL", "k"]);
        client.tb(&["TB.ACQUIRE", "k", "5", rate, "5"]).unwrap();
        for cost in ["1", "0.3", "5", "2.2"] {
            // Somewhere within a token.
            server.advance(Duration::from_micros(1_000_003));
            let call = ["TB.RESERVE", "k", "5", rate, cost, "99999999999"];
            let [allowed, _, wait, _] = client.tb(&call).unwrap();
            assert_eq!(allowed, 1);
            let place = format!("{cost} at {rate}, {wait} ms");
            if wait > 0 {
                server.advance(Duration::from_millis(wait as u64 - 1));
                let early = client.tb(&["TB.PEEK", "k", "5", rate, "0"]).unwrap();
                assert_eq!((early[0], early[2]), (0, 1), "{place}, a millisecond early");
                server.advance(Duration::from_millis(1));
            }
            let then = client.tb(&["TB.PEEK", "k", "5", rate, "0"]).unwrap();
            assert_eq!((then[0], then[2]), (1, 0), "{place}");
        }
    }
}

/// What is written, and with which expiry.
#[test]
fn what_they_leave_behind() {
    let server = held();
    let mut client = server.raw();
    let dirty = || server.info("persistence")["rdb_changes_since_last_save"].clone();
    // Debt lengthens the life of the key.
    client.tb(&["TB.DEBIT", "k", "10", "1", "35"]).unwrap();
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 35_000);
    client
        .tb(&["TB.RESERVE", "k", "10", "1", "5", "30000"])
        .unwrap();
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 40_000);
    client.tb(&["TB.CREDIT", "k", "10", "1", "39"]).unwrap();
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 1000);
    // A full bucket is a missing key.
    client.tb(&["TB.CREDIT", "k", "10", "1", "1"]).unwrap();
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);

    // Nothing at all.
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "8"]).unwrap();
    client.text(&["SET", "text", "hello"]);
    let before = (
        dirty(),
        client.text(&["DUMP", "k"]),
        client.text(&["PTTL", "k"]),
    );
    for call in [
        "TB.RESERVE k 10 1 8 5999",
        "TB.RESERVE k 10 1 11 60000",
        "TB.RESERVE k 10 1 0 60000",
        "TB.RESERVE k 10 1 1 1.5",
        "TB.RESERVE k 10 1 1 -1",
        "TB.RESERVE k 10 1 1",
        "TB.CREDIT k 10 1 0",
        "TB.CREDIT k 10 1 -1",
        "TB.CREDIT k 10 1",
        "TB.CREDIT fresh 10 1 5",
        "TB.CREDIT text 10 1 5",
        "TB.DEBIT k 10 1 0",
        "TB.DEBIT k 10 1 x",
        "TB.DEBIT text 10 1 1",
        "TB.DEBIT fresh 10 1 0",
        "TB.MACQUIRE fresh 10 1 1 k 10 1 3",
        "TB.MACQUIRE fresh 10 1 1 k 10 1 11",
        "TB.MACQUIRE fresh 10 1 0 k 10 1 0",
        "TB.MACQUIRE fresh 10 1 1 text 10 1 1",
        "TB.MACQUIRE fresh 10 1 1 k 10 1 x",
        "TB.MACQUIRE fresh 10 1 1 fresh 10 1 1",
    ] {
        client.text(&words(call));
        let after = (
            dirty(),
            client.text(&["DUMP", "k"]),
            client.text(&["PTTL", "k"]),
        );
        assert_eq!(after, before, "{call}");
        assert_eq!(client.text(&["EXISTS", "fresh"]).integer(), 0, "{call}");
    }
}

/// The reply of TB.MACQUIRE, taken apart.
fn all(client: &mut RawClient, call: &str) -> (i64, i64, Vec<[i64; 4]>) {
    match client.text(&words(call)) {
        Reply::Array(Some(items)) => match &items[..] {
            [Reply::Integer(allowed), Reply::Integer(wait), Reply::Array(Some(each))] => {
                let each = each.iter().map(|one| one.clone().four().unwrap());
                (*allowed, *wait, each.collect())
            }
            other => panic!("{call}: {other:?}"),
        },
        other => panic!("{call}: {other:?}"),
    }
}

/// All or nothing: after the debit when all allow, untouched when one does not.
#[test]
fn all_or_nothing() {
    let server = held();
    let mut client = server.raw();
    // 10 per second and 100 per hour.
    let call = "TB.MACQUIRE a 10 10 4 b 100 100/h 4";
    assert_eq!(
        all(&mut client, call),
        (1, 0, vec![[1, 6, 0, 400], [1, 96, 0, 144_000]])
    );
    assert_eq!(
        all(&mut client, call),
        (1, 0, vec![[1, 2, 0, 800], [1, 92, 0, 288_000]])
    );
    let denied = (0, 200, vec![[0, 2, 200, 800], [1, 92, 0, 288_000]]);
    assert_eq!(all(&mut client, call), denied);
    assert_eq!(all(&mut client, call), denied);
    server.advance(Duration::from_millis(200));
    assert_eq!(all(&mut client, call).0, 1);
    // The longest wait of all; never is longer than any.
    client.text(&["FLUSHALL"]);
    all(&mut client, "TB.MACQUIRE a 10 1 10 b 10 2 10");
    let waits = |client: &mut RawClient, call| {
        let (allowed, wait, each) = all(client, call);
        (
            allowed,
            wait,
            each.iter().map(|four| four[2]).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        waits(&mut client, "TB.MACQUIRE a 10 1 1 b 10 2 8"),
        (0, 4000, vec![1000, 4000])
    );
    assert_eq!(
        waits(&mut client, "TB.MACQUIRE b 10 2 8 a 10 1 1"),
        (0, 4000, vec![4000, 1000])
    );
    assert_eq!(
        waits(&mut client, "TB.MACQUIRE a 10 1 1 b 10 2 11"),
        (0, -1, vec![1000, -1])
    );
    assert_eq!(
        waits(&mut client, "TB.MACQUIRE c 10 1 1 b 10 2 11"),
        (0, -1, vec![0, -1])
    );
    assert_eq!(waits(&mut client, "TB.MACQUIRE c 10 1 0"), (1, 0, vec![0]));
}

/// From 1 to 64 buckets, a key at most once.
#[test]
fn how_many_buckets() {
    let server = held();
    let mut client = server.raw();
    let call = |count: usize| {
        (0..count).fold("TB.MACQUIRE".to_string(), |call, number| {
            format!("{call} k{number} 10 1 1")
        })
    };
    for count in [1, 2, 63, 64] {
        client.text(&["FLUSHALL"]);
        let (allowed, wait, each) = all(&mut client, &call(count));
        assert_eq!((allowed, wait, each), (1, 0, vec![[1, 9, 0, 1000]; count]));
        assert_eq!(client.text(&["DBSIZE"]).integer(), count as i64);
    }
    client.text(&["FLUSHALL"]);
    let arity = "ERR wrong number of arguments for 'TB.MACQUIRE' command";
    let twice = "ERR key is given twice: at most once in a call";
    for (call, error) in [
        (call(65), "ERR too many buckets: at most 64 in a call"),
        (call(200), "ERR too many buckets: at most 64 in a call"),
        ("TB.MACQUIRE".into(), arity),
        ("TB.MACQUIRE k".into(), arity),
        ("TB.MACQUIRE k 10 1".into(), arity),
        ("TB.MACQUIRE k 10 1 1 l".into(), arity),
        ("TB.MACQUIRE k 10 1 1 l 10 1".into(), arity),
        ("TB.MACQUIRE k 10 1 1 k 10 1 1".into(), twice),
        ("TB.MACQUIRE k 10 1 1 l 10 1 1 k 20 1 1".into(), twice),
    ] {
        assert_eq!(
            client.text(&words(&call)),
            Reply::Error(error.into()),
            "{call}"
        );
    }
    for (call, name) in [
        ("TB.MACQUIRE k 10 1 1 l x 1 1", "capacity"),
        ("TB.MACQUIRE k 10 1 1 l 10 0 1", "rate"),
        ("TB.MACQUIRE k 10 1 1 l 10 1 -1", "cost"),
    ] {
        let error = client.text(&words(call));
        assert!(
            error.error().unwrap().starts_with(&format!("ERR {name} ")),
            "{call}: {error:?}"
        );
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
}

/// A wrong type at any key refuses the whole call, and touches nothing.
#[test]
fn wrong_types() {
    let server = held();
    let mut client = server.raw();
    client.text(&["RPUSH", "list", "x"]);
    client.text(&["SET", "text", "hello"]);
    for key in ["list", "text"] {
        for call in [
            format!("TB.RESERVE {key} 10 1 1 0"),
            format!("TB.CREDIT {key} 10 1 1"),
            format!("TB.DEBIT {key} 10 1 1"),
            format!("TB.MACQUIRE {key} 10 1 1"),
            format!("TB.MACQUIRE a 10 1 1 {key} 10 1 1 b 10 1 1"),
            format!("TB.MACQUIRE a 10 1 11 b 10 1 1 {key} 10 1 1"),
        ] {
            assert_eq!(
                client.text(&words(&call)),
                Reply::Error(WRONGTYPE.into()),
                "{call}"
            );
        }
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), 2);
    assert_eq!(stored(&mut client, "text").unwrap(), b"hello");
}

/// After the clock was set back, a denied TB.MACQUIRE brings the stamps of its
/// buckets back to the present, and their levels stay.
#[test]
fn a_clock_set_back() {
    let server = held();
    let mut client = server.raw();
    all(&mut client, "TB.MACQUIRE a 10 1 7 b 10 1 10");
    server.step_back(Duration::from_secs(3600));
    let denied = (0, 1000, vec![[1, 3, 0, 7000], [0, 0, 1000, 10_000]]);
    assert_eq!(all(&mut client, "TB.MACQUIRE a 10 1 1 b 10 1 1"), denied);
    server.advance(Duration::from_secs(1));
    assert_eq!(all(&mut client, "TB.MACQUIRE a 10 1 1 b 10 1 1").0, 1);
}

/// The effects of one TB.MACQUIRE are one block, one command for each bucket that
/// changed.
#[test]
fn effects_are_one_block() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .appendonly()
        .start();
    let mut client = server.raw();
    all(&mut client, "TB.MACQUIRE a 10 1 1 b 10 1 0 c 10 1 2");
    client.tb(&["TB.DEBIT", "d", "10", "1", "1"]).unwrap();
    client.tb(&["TB.CREDIT", "d", "10", "1", "1"]).unwrap();
    client
        .tb(&["TB.RESERVE", "e", "10", "1", "1", "0"])
        .unwrap();
    let mut seen = Vec::new();
    server.wait_for_aof(Duration::from_secs(30), |commands| {
        seen = effects(commands);
        seen.iter().any(|line| line == "SET e")
    });
    assert_eq!(seen[..4], ["MULTI", "SET a", "SET c", "EXEC"]);
    // One command alone may stand in a block of its own (Redis 6.2).
    seen.retain(|line| !["MULTI", "EXEC"].contains(&line.as_str()));
    assert_eq!(seen, ["SET a", "SET c", "SET d", "DEL d", "SET e"]);
}

/// Each command in MULTI, in a script and in a function: the answers are those of
/// the same calls one by one, and they see one instant.
#[test]
fn in_transactions_scripts_and_functions() {
    let server = held();
    let mut client = server.raw();
    let calls = [
        "TB.ACQUIRE {k}a 10 1 4",
        "TB.PEEK {k}a 10 1",
        "TB.RESERVE {k}a 10 1 8 9000",
        "TB.CREDIT {k}a 10 1 5",
        "TB.DEBIT {k}a 10 1 20",
        "TB.MACQUIRE {k}b 10 1 1 {k}c 5 1 5",
    ];
    let one_by_one: Vec<Reply> = calls.iter().map(|call| client.text(&words(call))).collect();
    assert!(
        one_by_one.iter().all(|reply| reply.error().is_none()),
        "{one_by_one:?}"
    );
    let want = Reply::Array(Some(one_by_one));

    client.text(&["FLUSHALL"]);
    client.text(&["MULTI"]);
    for call in calls {
        client.text(&words(call));
    }
    assert_eq!(client.text(&["EXEC"]), want, "in MULTI");

    let lua = |call: &str| {
        let args: Vec<String> = words(call).iter().map(|word| format!("'{word}'")).collect();
        format!("redis.call({})", args.join(", "))
    };
    let body = calls.map(lua).join(", ");
    let keys = ["{k}a", "{k}b", "{k}c"];
    client.text(&["FLUSHALL"]);
    let script = format!("return {{ {body} }}");
    let reply = client.text(&[&["EVAL", &script, "3"], &keys[..]].concat());
    assert_eq!(reply, want, "in a script");

    if tokenbucket_testkit::installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: functions are not there before Redis 7.0");
        return;
    }
    client.text(&["FLUSHALL"]);
    let library =
        format!("#!lua name=lib\nredis.register_function('f', function() return {{ {body} }} end)");
    assert_eq!(client.text(&["FUNCTION", "LOAD", &library]).error(), None);
    let reply = client.text(&[&["FCALL", "f", "3"], &keys[..]].concat());
    assert_eq!(reply, want, "in a function");
}

/// On a running clock too a transaction, a script and a function see one instant,
/// where the server has a cached time (Redis 7.2, Valkey 7.2 and newer): a fast
/// bucket that is drained inside of one stays drained.
#[test]
fn one_instant_on_a_running_clock() {
    if tokenbucket_testkit::installed_server().1 < (7, 2, 0) {
        eprintln!("skipped by name: no cached time before Redis 7.2");
        return;
    }
    let server = crate::running();
    let mut client = server.raw();
    let script = "local n = 0 for i = 1, 20000 do n = n + redis.call('TB.ACQUIRE', KEYS[1], 10, 1000000, 1)[1] end return n";
    assert_eq!(client.text(&["EVAL", script, "1", "k"]).integer(), 10);
    client.text(&["MULTI"]);
    for _ in 0..2000 {
        client.text(&["TB.ACQUIRE", "m", "10", "1000000", "1"]);
    }
    let Reply::Array(Some(replies)) = client.text(&["EXEC"]) else {
        panic!("no EXEC")
    };
    let allowed: i64 = replies
        .into_iter()
        .map(|reply| reply.four().unwrap()[0])
        .sum();
    assert_eq!(allowed, 10);
}
