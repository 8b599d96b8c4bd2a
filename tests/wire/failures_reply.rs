//! Replies that misled their callers in the field: rows B of the failure cases.

use std::time::Duration;

use tokenbucket_core::Bucket;
use tokenbucket_testkit::{Random, RawClient, Reply};

use crate::support::{command, Ideal};
use crate::{held, stored, START};

const TOKEN: i128 = 1_000_000_000_000_000_000;

/// Rates per second, per another period, slow and fast.
const RATES: [&str; 10] = [
    "0.4", "3000", "8000", "1/3s", "1/7ms", "0.1111", "999.9", "100/m", "7/d", "1e-12",
];

// B01: whoever waited exactly as long as told was denied again, since the wait was
// cut to whole milliseconds or seconds.
#[test]
fn who_waits_as_told_is_let_through() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 1 0.4 1"), [1, 0, 0, 2_500]);
    assert_eq!(client.ask("TB.ACQUIRE k 1 0.4 1"), [0, 0, 2_500, 2_500]);
    server.advance(Duration::from_micros(2_499_999));
    assert_eq!(client.ask("TB.ACQUIRE k 1 0.4 1"), [0, 0, 1, 1]);
    server.advance(Duration::from_micros(1));
    assert_eq!(client.ask("TB.ACQUIRE k 1 0.4 1"), [1, 0, 0, 2_500]);
}

// B01: the same as a property, from any microsecond and any level on, at any rate:
// a denial says at least 1 ms, that is enough, and 1 ms less is not.
#[test]
fn the_wait_is_true_at_every_rate() {
    let server = held();
    let mut client = server.raw();
    let mut random = Random::new(0xb01);
    for rate in RATES {
        let mut now = START + random.below(1_000_000);
        server.hold(now);
        client.ask(&format!("TB.ACQUIRE k:{rate} 3 {rate} 3"));
        let mut ideal = Ideal::new("3", rate, now);
        ideal.acquire("3", now);
        // At the slowest rate a whole token takes longer than any clock will show.
        let costs: &[&str] = match rate {
            "1e-12" => &["0.0001", "0.000000000001", "0.00007"],
            _ => &["1", "0.7", "3", "0.000000000001", "2.5"],
        };
        let mut denials = 0;
        for cost in costs.iter().cycle() {
            let place = format!("{cost} at {rate}");
            let acquire = format!("TB.ACQUIRE k:{rate} 3 {rate} {cost}");
            let mut reply = client.ask(&acquire);
            assert_eq!(reply, ideal.acquire(cost, now), "{place}");
            if reply[0] == 1 {
                continue;
            }
            // Again, at any microsecond before the last millisecond of the wait.
            for _ in 0..2 {
                assert!(reply[2] >= 1, "{place}: told {reply:?}");
                now += random.below((reply[2] - 1) * 1_000 + 1);
                server.hold(now);
                reply = client.ask(&acquire);
                assert_eq!(reply, ideal.acquire(cost, now), "{place}");
                assert_eq!(reply[0], 0, "{place}");
            }
            let wait = reply[2];
            assert!(wait >= 1, "{place}: told {reply:?}");
            server.hold(now + (wait - 1) * 1_000);
            let peek = format!("TB.PEEK k:{rate} 3 {rate} {cost}");
            let early = client.ask(&peek);
            assert_eq!([early[0], early[2]], [0, 1], "{place}, 1 ms early");
            now += wait * 1_000;
            server.hold(now);
            let reply = client.ask(&acquire);
            assert_eq!([reply[0], reply[2]], [1, 0], "{place}, after {wait} ms");
            assert_eq!(reply, ideal.acquire(cost, now), "{place}");
            denials += 1;
            if denials == 15 {
                break;
            }
        }
    }
}

// B01: two calls in one MULTI happen at one instant; the second was denied and told
// to wait 0 ms, since a token at a high rate is less than a millisecond away.
#[test]
fn a_denial_within_multi_says_when() {
    let server = held();
    let mut client = server.raw();
    // Milliseconds, rounded up, until one token has flowed in.
    for (rate, wait) in [
        ("3000", 1),
        ("0.4", 2_500),
        ("8000", 1),
        ("1/3s", 3_000),
        ("1e12", 1),
        ("999.9", 2),
        ("1000", 1),
        ("1/d", 86_400_000),
    ] {
        let call = command(&format!("TB.ACQUIRE k:{rate} 1 {rate} 1"));
        let transaction = [
            command("MULTI"),
            call.clone(),
            call.clone(),
            command("EXEC"),
        ];
        let integers = |numbers: [i64; 4]| Reply::Array(Some(numbers.map(Reply::Integer).to_vec()));
        let both = [[1, 0, 0, wait], [0, 0, wait, wait]].map(integers);
        for round in 0..3 {
            server.hold(START + round * wait * 1_000);
            let replies = client.pipeline(&transaction);
            let want = Reply::Array(Some(both.to_vec()));
            assert_eq!(replies[3], want, "{rate}, round {round}");
        }
    }
}

// B03: callers were let through whenever less than a second of their wait was left,
// because the decision was derived from a rounded wait. It is a field of its own.
#[test]
fn less_than_a_second_to_go_is_denied() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 1 2 1"), [1, 0, 0, 500]);
    assert_eq!(client.last_bytes(), b"*4\r\n:1\r\n:0\r\n:0\r\n:500\r\n");
    assert_eq!(client.ask("TB.ACQUIRE k 1 2 1"), [0, 0, 500, 500]);
    assert_eq!(client.last_bytes(), b"*4\r\n:0\r\n:0\r\n:500\r\n:500\r\n");
    for ms in 1..500 {
        server.hold(START + ms * 1_000);
        let want = [0, 0, 500 - ms, 500 - ms];
        assert_eq!(client.ask("TB.ACQUIRE k 1 2 1"), want, "{ms} ms");
    }
    // 1 us to go.
    server.hold(START + 499_999);
    assert_eq!(client.ask("TB.ACQUIRE k 1 2 1"), [0, 0, 1, 1]);
    server.hold(START + 500_000);
    assert_eq!(client.ask("TB.ACQUIRE k 1 2 1"), [1, 0, 0, 500]);
}

// B04: -1 ns, 0 and a day less a second reached users as durations. Three kinds of
// answers, each plain in its bytes: 0 when allowed, -1 for never, and else a wait.
#[test]
fn three_kinds_of_answers() {
    let server = held();
    let mut client = server.raw();
    for protocol in ["2", "3"] {
        assert_eq!(client.text(&["HELLO", protocol]).error(), None);
        client.text(&["DEL", "k"]);
        for (call, bytes) in [
            (
                "TB.ACQUIRE k 3 1 2",
                &b"*4\r\n:1\r\n:1\r\n:0\r\n:2000\r\n"[..],
            ),
            (
                "TB.ACQUIRE k 3 1 2",
                b"*4\r\n:0\r\n:1\r\n:1000\r\n:2000\r\n",
            ),
            ("TB.ACQUIRE k 3 1 4", b"*4\r\n:0\r\n:1\r\n:-1\r\n:2000\r\n"),
            ("TB.PEEK k 3 1", b"*4\r\n:1\r\n:0\r\n:0\r\n:3000\r\n"),
            ("TB.PEEK k 3 1 3", b"*4\r\n:0\r\n:1\r\n:2000\r\n:2000\r\n"),
            ("TB.PEEK k 3 1 3.1", b"*4\r\n:0\r\n:1\r\n:-1\r\n:2000\r\n"),
            ("TB.ACQUIRE k 0 1 1", b"*4\r\n:0\r\n:0\r\n:-1\r\n:0\r\n"),
        ] {
            client.ask(call);
            let got = client.last_bytes().escape_ascii().to_string();
            assert_eq!(got, bytes.escape_ascii().to_string(), "{call}");
        }
    }
}

// B04: a duration that did not fit came out negative, which is what 'never' and
// 'allowed' were told by. What does not fit is the largest integer, and only a cost
// above the capacity is -1.
#[test]
fn only_never_is_negative() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(
        client.ask("TB.ACQUIRE k 1e12 1e-12 1e12"),
        [1, 0, 0, i64::MAX]
    );
    for cost in ["1e12", "999999999999", "9223.372036854776"] {
        let call = format!("TB.ACQUIRE k 1e12 1e-12 {cost}");
        let want = [0, 0, i64::MAX, i64::MAX];
        assert_eq!(client.ask(&call), want, "{cost}");
    }
    // The longest wait that fits to the millisecond, as the rate goes.
    assert_eq!(
        client.ask("TB.ACQUIRE k 1e12 1e-12 9223.372036854775"),
        [0, 0, 9_223_372_036_854_775_000, i64::MAX]
    );

    let mut random = Random::new(0xb04);
    let mut kinds = [0; 3];
    let mut now = START;
    for _ in 0..3_000 {
        now += random.below(400_000);
        server.hold(now);
        let cost = random.below(14);
        let name = ["TB.ACQUIRE", "TB.PEEK"][usize::from(random.below(4) == 0)];
        let call = format!("{name} many 10 7 {cost}");
        let [allowed, remaining, retry, reset] = client.ask(&call);
        assert!((0..=10).contains(&remaining), "{remaining} are left");
        assert!((0..=1_429).contains(&reset), "full in {reset} ms");
        let kind = match (allowed, retry) {
            (1, 0) => 0,
            (0, 1..=1_429) => 1,
            (0, -1) => 2,
            other => panic!("{call}: allowed and retry_after_ms are {other:?}"),
        };
        assert_eq!(kind == 2, cost > 10, "{call}: {retry}");
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 300), "a mix: {kinds:?}");
}

// B06: a request that can never succeed was told a finite wait, or 'all is left and
// the reset is now', so that its caller tried for ever.
#[test]
fn never_is_said_and_leaves_no_trace() {
    let server = held();
    let mut client = server.raw();
    for name in ["TB.ACQUIRE", "TB.PEEK"] {
        for cost in ["10", "5.000000000001", "6", "1e12"] {
            let call = format!("{name} fresh 5 1 {cost}");
            assert_eq!(client.ask(&call), [0, 5, -1, 0], "{call}");
            assert_eq!(client.text(&["EXISTS", "fresh"]).integer(), 0, "{call}");
        }
    }
    assert_eq!(client.ask("TB.ACQUIRE k 5 1 5"), [1, 0, 0, 5_000]);
    let drained = stored(&mut client, "k");
    // At once, and when part of it has flowed in again.
    for (waited, left) in [(0, 0), (2_500, 2), (4_999, 4)] {
        server.hold(START + waited * 1_000);
        for name in ["TB.ACQUIRE", "TB.PEEK"] {
            for cost in ["10", "5.000000000001", "6", "1e12"] {
                let call = format!("{name} k 5 1 {cost}");
                let want = [0, left, -1, 5_000 - waited];
                assert_eq!(client.ask(&call), want, "{call}");
                assert_eq!(stored(&mut client, "k"), drained, "{call}");
                let pttl = client.text(&["PTTL", "k"]).integer();
                assert_eq!(pttl, 5_000 - waited, "{call}");
            }
            // One that can succeed is told when.
            let call = format!("{name} k 5 1 5");
            let wait = 5_000 - waited;
            assert_eq!(client.ask(&call), [0, left, wait, wait], "{call}");
        }
    }
}

// B10: -1 stood in the headers of those who went on calling a drained bucket.
#[test]
fn a_drained_bucket_has_zero_left() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 3 1 3"), [1, 0, 0, 3_000]);
    let drained = stored(&mut client, "k");
    for us in (0..1_000_000).step_by(2_500) {
        server.hold(START + us);
        let retry = 1_000 - us / 1_000;
        let reset = retry + 2_000;
        for (call, want) in [
            ("TB.ACQUIRE k 3 1 1", [0, 0, retry, reset]),
            ("TB.PEEK k 3 1", [0, 0, retry, reset]),
            ("TB.ACQUIRE k 3 1 3", [0, 0, reset, reset]),
            ("TB.ACQUIRE k 3 1 4", [0, 0, -1, reset]),
            ("TB.ACQUIRE k 3 1 0", [1, 0, 0, reset]),
        ] {
            assert_eq!(client.ask(call), want, "{call} after {us} us");
        }
    }
    assert_eq!(stored(&mut client, "k"), drained);
    // A picotoken below a whole one is none, and so is any part of a first one.
    server.hold(START);
    for (cost, left) in [
        ("0.000000000001", 2),
        ("1.999999999998", 1),
        ("0.000000000001", 1),
        ("0.000000000001", 0),
        ("0.999999999998", 0),
        ("0.000000000001", 0),
    ] {
        let reply = client.ask(&format!("TB.ACQUIRE parts 3 1 {cost}"));
        assert_eq!(reply[..2], [1, left], "{cost}");
    }
    assert_eq!(client.ask("TB.PEEK parts 3 1"), [0, 0, 1_000, 3_000]);
}

// B10: a bucket below zero is nothing left, not a negative number of tokens.
#[test]
fn a_bucket_in_debt_has_zero_left() {
    let server = held();
    let mut client = server.raw();
    let debt = Bucket::new(-5 * TOKEN / 2, START.unsigned_abs()).encode();
    client.call(&[b"SET", b"k", &debt, b"PX", b"12500"]);
    for (call, want) in [
        ("TB.ACQUIRE k 10 1 1", [0, 0, 3_500, 12_500]),
        ("TB.PEEK k 10 1", [0, 0, 3_500, 12_500]),
        ("TB.ACQUIRE k 10 1 0", [0, 0, 2_500, 12_500]),
        ("TB.ACQUIRE k 10 1 11", [0, 0, -1, 12_500]),
        ("TB.ACQUIRE k 0 1 1", [0, 0, -1, 2_500]),
    ] {
        assert_eq!(client.ask(call), want, "{call}");
    }
    assert_eq!(stored(&mut client, "k").as_deref(), Some(&debt[..]));
    server.advance(Duration::from_millis(3_500));
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [1, 0, 0, 10_000]);
}

// B10: 'take as many as possible' on a drained bucket took a negative number, which
// added tokens. As many as remain can be taken, one more can't, and 0 takes none.
#[test]
fn what_remains_can_be_taken_and_no_more() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(take_all(&mut client, "k 10 3"), 10);
    let drained = stored(&mut client, "k");
    assert_eq!(take_all(&mut client, "k 10 3"), 0);
    for cost in ["-1", "-10", "-0"] {
        let error = client.tb(&["TB.ACQUIRE", "k", "10", "3", cost]);
        assert!(error.is_err(), "{cost}: {error:?}");
    }
    assert_eq!(stored(&mut client, "k"), drained);
    assert_eq!(client.ask("TB.PEEK k 10 3 0"), [1, 0, 0, 3_334]);

    let mut random = Random::new(0xb10);
    let mut taken = 0;
    let mut since = 0;
    while since < 300_000_000 {
        since += random.below(900_000);
        server.hold(START + since);
        taken += take_all(&mut client, "k 10 3");
        // 3 tokens a second, of which the whole ones are gone.
        assert_eq!(taken, 3 * since / 1_000_000, "after {since} us");
    }
}

/// Takes as many as a peek says there are, which is then that many.
#[track_caller]
fn take_all(client: &mut RawClient, bucket: &str) -> i64 {
    let [_, remaining, ..] = client.ask(&format!("TB.PEEK {bucket} 0"));
    let more = remaining + 1;
    let denied = client.ask(&format!("TB.ACQUIRE {bucket} {more}"));
    assert_eq!(denied[..2], [0, remaining], "one more than remains");
    let allowed = client.ask(&format!("TB.ACQUIRE {bucket} {remaining}"));
    assert_eq!(allowed[..3], [1, 0, 0], "what remains");
    remaining
}

// B11: nobody could tell a capacity from capacity + 1. It is exactly as many calls
// from full.
#[test]
fn a_capacity_is_so_many_calls() {
    let server = held();
    let mut client = server.raw();
    for taken in 1..=10 {
        let want = [1, 10 - taken, 0, taken * 1_000];
        assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), want);
    }
    let denied = [0, 0, 1_000, 10_000];
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), denied);

    for (capacity, calls) in [
        ("0", 0),
        ("0.999999999999", 0),
        ("1", 1),
        ("2", 2),
        ("2.5", 2),
        ("1000", 1_000),
    ] {
        let key = format!("k:{capacity}");
        let mut allowed = 0;
        while client.ask(&format!("TB.ACQUIRE {key} {capacity} 1 1"))[0] == 1 {
            allowed += 1;
            assert!(allowed <= calls, "more than {calls} from {capacity}");
        }
        assert_eq!(allowed, calls, "from {capacity}");
    }
}

// B11: nor could they tell when the next call is let through from when the bucket is
// full again: two fields, which differ as soon as more than one token is missing.
#[test]
fn the_next_call_and_full_again_are_two_things() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 10"), [1, 0, 0, 10_000]);
    for (ms, cost, want) in [
        (0, 1, [0, 0, 1_000, 10_000]),
        (0, 2, [0, 0, 2_000, 10_000]),
        (0, 10, [0, 0, 10_000, 10_000]),
        (999, 1, [0, 0, 1, 9_001]),
        (2_500, 3, [0, 2, 500, 7_500]),
        (2_500, 2, [1, 0, 0, 9_500]),
        (2_500, 1, [0, 0, 500, 9_500]),
        (12_000, 0, [1, 10, 0, 0]),
    ] {
        server.hold(START + ms * 1_000);
        let call = format!("TB.ACQUIRE k 10 1 {cost}");
        assert_eq!(client.ask(&call), want, "{call} after {ms} ms");
    }
}

// B11: and no page told them what each field is. README has them in order, with
// their units and with what this very call answers.
#[test]
fn readme_has_the_fields_of_the_reply() {
    let server = held();
    let mut client = server.raw();
    let reply = client.ask("TB.ACQUIRE k 10 1 1");
    assert_eq!(reply, [1, 9, 0, 1_000]);
    let readme = include_str!("../../README.md");
    let fields = [
        ("`allowed`", "1"),
        ("`remaining`", "tokens"),
        ("`retry_after_ms`", "milliseconds"),
        ("`reset_after_ms`", "milliseconds"),
    ];
    for (place, ((name, unit), value)) in fields.into_iter().zip(reply).enumerate() {
        let start = format!("| {} | {name} | {value} |", place + 1);
        let line = readme.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no line of README starts with {start}"));
        let meaning = &line[start.len()..];
        assert!(meaning.contains(unit), "{name} without {unit}: {meaning}");
    }
}
