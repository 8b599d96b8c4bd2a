//! What TB.ACQUIRE and TB.PEEK answer, to the millisecond, under a clock that
//! stands still.

use std::time::Duration;

use tokenbucket_testkit::Reply;

use crate::{held, START};

/// Calls one after the other on one key: `(wait in microseconds before the
/// call, capacity, rate, cost, reply)`.
type Calls = &'static [(u64, &'static str, &'static str, &'static str, [i64; 4])];

const TABLE: &[(&str, Calls)] = &[
    (
        "ten calls from full, then one each second",
        &[
            (0, "10", "1", "1", [1, 9, 0, 1000]),
            (0, "10", "1", "1", [1, 8, 0, 2000]),
            (0, "10", "1", "8", [1, 0, 0, 10_000]),
            (0, "10", "1", "1", [0, 0, 1000, 10_000]),
            (0, "10", "1", "3", [0, 0, 3000, 10_000]),
            (999_999, "10", "1", "1", [0, 0, 1, 9001]),
            (1, "10", "1", "1", [1, 0, 0, 10_000]),
            (10_000_000, "10", "1", "0", [1, 10, 0, 0]),
        ],
    ),
    (
        "parts of a token flow in and are kept",
        &[
            (0, "1", "0.4", "1", [1, 0, 0, 2500]),
            (0, "1", "0.4", "1", [0, 0, 2500, 2500]),
            (1_250_000, "1", "0.4", "0.5", [1, 0, 0, 2500]),
            (1_250_000, "1", "0.4", "1", [0, 0, 1250, 1250]),
            (1_250_000, "1", "0.4", "1", [1, 0, 0, 2500]),
        ],
    ),
    (
        "remaining is the whole tokens only",
        &[
            (0, "10", "1", "0.1", [1, 9, 0, 100]),
            (0, "10", "1", "8.9", [1, 1, 0, 9000]),
            (0, "10", "1", "0.000000000001", [1, 0, 0, 9001]),
            (0, "2.5", "1", "0", [1, 0, 0, 1501]),
        ],
    ),
    (
        "a capacity that is not whole",
        &[
            (0, "2.5", "1", "0", [1, 2, 0, 0]),
            (0, "2.5", "1", "1", [1, 1, 0, 1000]),
            (0, "2.5", "1", "2", [0, 1, 500, 1000]),
        ],
    ),
    (
        "never, on a fresh bucket and on a drained one",
        &[
            (0, "5", "1", "10", [0, 5, -1, 0]),
            (0, "5", "1", "5.000000000001", [0, 5, -1, 0]),
            (0, "5", "1", "5", [1, 0, 0, 5000]),
            (0, "5", "1", "10", [0, 0, -1, 5000]),
            (0, "5", "1", "1e12", [0, 0, -1, 5000]),
        ],
    ),
    (
        "capacity 0 blocks, and asking for nothing is allowed",
        &[
            (0, "0", "1", "1", [0, 0, -1, 0]),
            (0, "0", "1e12", "1e-12", [0, 0, -1, 0]),
            (1_000_000_000, "0", "1e12", "1", [0, 0, -1, 0]),
            (0, "0", "1", "0", [1, 0, 0, 0]),
        ],
    ),
    (
        "cost 0 asks without taking",
        &[
            (0, "10", "1", "0", [1, 10, 0, 0]),
            (0, "10", "1", "10", [1, 0, 0, 10_000]),
            (0, "10", "1", "0", [1, 0, 0, 10_000]),
            (2_500_000, "10", "1", "0", [1, 2, 0, 7500]),
        ],
    ),
    (
        "waits are rounded up, and are at least one millisecond",
        &[
            (0, "1", "3000", "1", [1, 0, 0, 1]),
            (0, "1", "3000", "1", [0, 0, 1, 1]),
            (333, "1", "3000", "1", [0, 0, 1, 1]),
            (1, "1", "3000", "1", [1, 0, 0, 1]),
        ],
    ),
    (
        "a third per second is three seconds",
        &[
            (0, "1", "1/3s", "1", [1, 0, 0, 3000]),
            (2_999_999, "1", "1/3s", "1", [0, 0, 1, 1]),
            (1, "1", "1/3s", "1", [1, 0, 0, 3000]),
        ],
    ),
    (
        "one per day is a day",
        &[
            (0, "1", "1/d", "1", [1, 0, 0, 86_400_000]),
            (86_399_999_999, "1", "1/d", "1", [0, 0, 1, 1]),
            (1, "1", "1/d", "1", [1, 0, 0, 86_400_000]),
        ],
    ),
    (
        "the largest numbers, idle for ten years",
        &[
            (0, "1e12", "1e12", "1e12", [1, 0, 0, 1000]),
            (315_360_000_000_000, "1e12", "1e12", "1e12", [1, 0, 0, 1000]),
            (0, "1e12", "1e12", "1e12", [0, 0, 1000, 1000]),
        ],
    ),
    (
        "the longest waits: what does not fit is the largest integer",
        &[
            (0, "1e12", "1e-12", "1e12", [1, 0, 0, i64::MAX]),
            (0, "1e12", "1e-12", "1e12", [0, 0, i64::MAX, i64::MAX]),
            (
                0,
                "1e12",
                "1e-12",
                "1",
                [0, 0, 1_000_000_000_000_000, i64::MAX],
            ),
            (0, "1e12", "1e-12", "1e-12", [0, 0, 1000, i64::MAX]),
            (1_000_000, "1e12", "1e-12", "1e-12", [1, 0, 0, i64::MAX]),
        ],
    ),
    (
        "the smallest numbers",
        &[
            (0, "1e-12", "1e-12", "1e-12", [1, 0, 0, 1000]),
            (0, "1e-12", "1e-12", "1e-12", [0, 0, 1000, 1000]),
            (0, "1e-12", "1e-12", "2e-12", [0, 0, -1, 1000]),
            (1_000_000, "1e-12", "1e-12", "1e-12", [1, 0, 0, 1000]),
        ],
    ),
];

/// Each reply of the table, and before each call the same reply from TB.PEEK.
#[test]
fn acquire_and_peek() {
    let server = held();
    let mut client = server.raw();
    for (number, (name, calls)) in TABLE.iter().enumerate() {
        server.hold(START);
        let key = format!("case:{number}");
        for (step, (wait, capacity, rate, cost, reply)) in calls.iter().enumerate() {
            server.advance(Duration::from_micros(*wait));
            let place = format!("{name}: call {}", step + 1);
            let peek = client.tb(&["TB.PEEK", &key, capacity, rate, cost]);
            assert_eq!(peek, Ok(*reply), "{place}, peeked");
            let acquire = client.tb(&["TB.ACQUIRE", &key, capacity, rate, cost]);
            assert_eq!(acquire, Ok(*reply), "{place}");
        }
    }
}

/// The cost of a peek is 1 unless given, and a peek takes nothing.
#[test]
fn peek_takes_nothing() {
    let server = held();
    let mut client = server.raw();
    for _ in 0..3 {
        assert_eq!(client.tb(&["TB.PEEK", "k", "10", "1"]), Ok([1, 9, 0, 1000]));
        assert_eq!(
            client.tb(&["TB.PEEK", "k", "10", "1", "1"]),
            Ok([1, 9, 0, 1000])
        );
        assert_eq!(
            client.tb(&["TB.PEEK", "k", "10", "1", "10"]),
            Ok([1, 0, 0, 10_000])
        );
    }
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "10"]).unwrap();
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "10", "1"]),
        Ok([0, 0, 1000, 10_000])
    );
}

/// Whoever waits as long as told is let through, and a millisecond earlier is
/// not: from an empty bucket, and from one that holds a long fraction.
#[test]
fn the_wait_is_enough_and_not_too_long() {
    let server = held();
    let mut client = server.raw();
    for rate in [
        "1/3s", "0.7", "1/7ms", "999.9", "3000", "100/m", "1/d", "0.1111",
    ] {
        for (cost, after_a_while) in [
            ("0.000000000001", false),
            ("1", false),
            ("1", true),
            ("3.3", true),
            ("5", true),
        ] {
            let place = format!("{cost} at {rate}");
            client.text(&["DEL", "k"]);
            client.tb(&["TB.ACQUIRE", "k", "5", rate, "5"]).unwrap();
            let mut denied = || {
                let [allowed, _, wait, _] =
                    client.tb(&["TB.ACQUIRE", "k", "5", rate, cost]).unwrap();
                assert_eq!(allowed, 0, "{place}");
                assert!(wait >= 1, "{place}");
                wait as u64
            };
            let mut wait = denied();
            if after_a_while {
                server.advance(Duration::from_micros(wait * 1000 / 3));
                wait = denied();
            }
            server.advance(Duration::from_millis(wait - 1));
            let early = client.tb(&["TB.PEEK", "k", "5", rate, cost]).unwrap();
            assert_eq!(
                (early[0], early[2]),
                (0, 1),
                "{place}, after {} ms",
                wait - 1
            );
            server.advance(Duration::from_millis(1));
            let reply = client.tb(&["TB.ACQUIRE", "k", "5", rate, cost]).unwrap();
            assert_eq!((reply[0], reply[2]), (1, 0), "{place}, after {wait} ms");
        }
    }
}

/// One array of four integers, the same bytes in RESP2 and in RESP3.
#[test]
fn the_shape_is_the_same_in_both_protocols() {
    let server = held();
    let mut client = server.raw();
    for protocol in ["2", "3"] {
        assert_eq!(client.text(&["HELLO", protocol]).error(), None);
        client.text(&["DEL", "k"]);
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]).unwrap();
        assert_eq!(client.last_bytes(), b"*4\r\n:1\r\n:9\r\n:0\r\n:1000\r\n");
        client.tb(&["TB.PEEK", "k", "10", "1", "11"]).unwrap();
        assert_eq!(client.last_bytes(), b"*4\r\n:0\r\n:9\r\n:-1\r\n:1000\r\n");
    }
}

/// Inside MULTI and inside a script the commands answer as outside of them.
#[test]
fn in_transactions_and_scripts() {
    let server = held();
    let mut client = server.raw();
    client.text(&["MULTI"]);
    for _ in 0..3 {
        client.text(&["TB.ACQUIRE", "k", "2", "1", "1"]);
    }
    let integers = |numbers: [i64; 4]| Reply::Array(Some(numbers.map(Reply::Integer).to_vec()));
    let replies = [[1, 1, 0, 1000], [1, 0, 0, 2000], [0, 0, 1000, 2000]].map(integers);
    assert_eq!(client.text(&["EXEC"]), Reply::Array(Some(replies.to_vec())));

    let script = "return redis.call('TB.ACQUIRE', KEYS[1], 2, 1, 1)";
    let mut call = || client.tb(&["EVAL", script, "1", "s"]);
    assert_eq!(call(), Ok([1, 1, 0, 1000]));
    assert_eq!(call(), Ok([1, 0, 0, 2000]));
    assert_eq!(call(), Ok([0, 0, 1000, 2000]));
}
