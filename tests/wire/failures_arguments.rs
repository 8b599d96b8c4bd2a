//! Arguments that did harm in the field: rows C of the failure cases.
//!
//! The whole table of what is a number is in `arguments.rs`.

use std::time::Duration;

use tokenbucket_testkit::{module_path, RawClient, Reply, Server};

use crate::support::command;
use crate::{held, stored, START};

const NO_RATE: &str = "ERR rate must be above 0: at least 1e-12 per second";
/// The longest that a key lives, in milliseconds: 100 years.
const CENTURY_MS: i64 = 3_153_600_000_000;

/// What is wrong with a text in the place of a number.
#[derive(Clone, Copy)]
enum Wrong {
    NoNumber,
    TooLarge,
    TooSmall,
    TooLong,
}

impl Wrong {
    /// The error when the text is the `argument`.
    fn error(self, argument: &str) -> String {
        let what = match (self, argument) {
            (Self::NoNumber, "rate") => {
                "is not a number, or a number and a period, such as 10, 0.5 or 100/m"
            }
            (Self::NoNumber, _) => {
                "is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3"
            }
            (Self::TooLarge, "rate") => "is too large: at most 1e12 per second",
            (Self::TooLarge, _) => "is too large: at most 1e12",
            (Self::TooSmall, "rate") => "is too small: at least 1e-12 per second",
            (Self::TooSmall, _) => "is too small: 0, or at least 1e-12",
            (Self::TooLong, "rate") => "is too long: at most 64 bytes before and after the slash",
            (Self::TooLong, _) => "is too long: at most 64 bytes",
        };
        format!("ERR {argument} {what}")
    }
}

/// A server on which a bucket of 10 at `bucket` has been left alone for half a
/// second, and nothing is at `fresh`.
struct Bench {
    server: Server,
    client: RawClient,
    dump: Reply,
}

impl Bench {
    #[track_caller]
    fn new() -> Self {
        let server = held();
        let mut client = server.raw();
        let reply = client.ask("TB.ACQUIRE bucket 10 1 7.5");
        assert_eq!(reply, [1, 2, 0, 7_500]);
        // Time has gone by: a bucket that is written now has other bytes.
        server.advance(Duration::from_millis(500));
        let dump = client.text(&["DUMP", "bucket"]);
        Self {
            server,
            client,
            dump,
        }
    }

    /// Calls with `args` behind the key, on both keys, and wants `error`; then
    /// that all is as it was.
    #[track_caller]
    fn refuses(&mut self, args: [&[u8]; 3], error: &str) {
        let show = args.map(|arg| arg[..arg.len().min(70)].escape_ascii().to_string());
        for name in ["TB.ACQUIRE", "TB.PEEK"] {
            for key in ["bucket", "fresh"] {
                let place = format!("{name} {key} {show:?}");
                let [capacity, rate, cost] = args;
                let call = [name.as_bytes(), key.as_bytes(), capacity, rate, cost];
                let reply = self.client.call(&call);
                assert_eq!(reply, Reply::Error(error.into()), "{place}");
                self.is_as_before(&place);
            }
        }
    }

    /// Puts `text` in the place of the capacity, the rate and the cost.
    #[track_caller]
    fn refuses_everywhere(&mut self, text: &[u8], wrong: Wrong) {
        self.refuses([text, b"1", b"1"], &wrong.error("capacity"));
        self.refuses([b"10", text, b"1"], &wrong.error("rate"));
        self.refuses([b"10", &[text, b"/s"].concat(), b"1"], &wrong.error("rate"));
        self.refuses([b"10", b"1", text], &wrong.error("cost"));
    }

    #[track_caller]
    fn is_as_before(&mut self, place: &str) {
        let client = &mut self.client;
        assert_eq!(client.text(&["EXISTS", "fresh"]).integer(), 0, "{place}");
        assert_eq!(client.text(&["DBSIZE"]).integer(), 1, "{place}");
        assert_eq!(client.text(&["DUMP", "bucket"]), self.dump, "{place}");
        assert_eq!(client.text(&["PTTL", "bucket"]).integer(), 7_000, "{place}");
    }

    /// The server lives, the bucket is as before, and a right call changes it.
    #[track_caller]
    fn ends_well(mut self) {
        let client = &mut self.client;
        assert_eq!(client.text(&["PING"]), Reply::Simple("PONG".into()));
        assert_eq!(client.ask("TB.PEEK bucket 10 1 0"), [1, 3, 0, 7_000]);
        assert_eq!(client.ask("TB.ACQUIRE bucket 10 1 1"), [1, 2, 0, 8_000]);
        assert_ne!(client.text(&["DUMP", "bucket"]), self.dump);
        // A key is gone once its last millisecond is over.
        self.server.advance(Duration::from_millis(8_001));
        assert_eq!(client.text(&["EXISTS", "bucket"]).integer(), 0);
    }
}

// C01: a thousand calls with a limit of 0 killed the server: it divided by the limit.
// A rate of 0 is an error, a capacity of 0 is a denial, and neither leaves a key.
#[test]
fn a_thousand_calls_with_zeros() {
    let server = held();
    let mut client = server.raw();
    let no_rate = Reply::Error(NO_RATE.into());
    let blocked = Reply::Array(Some([0, 0, -1, 0].map(Reply::Integer).to_vec()));
    for name in ["TB.ACQUIRE", "TB.PEEK"] {
        for (numbers, want) in [
            ("0 0 1", &no_rate),
            ("0 5 1", &blocked),
            ("5 0 1", &no_rate),
            ("0 0 0", &no_rate),
        ] {
            let call = format!("{name} k {numbers}");
            let replies = client.pipeline(&vec![command(&call); 1_000]);
            assert_eq!(replies.len(), 1_000);
            for reply in replies {
                assert_eq!(&reply, want, "{call}");
            }
            assert_eq!(client.text(&["PING"]), Reply::Simple("PONG".into()));
            assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0, "{call}");
            assert_eq!(client.text(&["DBSIZE"]).integer(), 0, "{call}");
        }
    }
    // Nor is anything done to a bucket that is there.
    assert_eq!(client.ask("TB.ACQUIRE k 5 1 2"), [1, 3, 0, 2_000]);
    let before = stored(&mut client, "k");
    for (numbers, want) in [
        ("0 0 1", &no_rate),
        ("0 5 1", &blocked),
        ("5 0 1", &no_rate),
    ] {
        let call = command(&format!("TB.ACQUIRE k {numbers}"));
        for reply in client.pipeline(&vec![call; 1_000]) {
            assert_eq!(&reply, want, "{numbers}");
        }
        assert_eq!(stored(&mut client, "k"), before, "{numbers}");
        assert_eq!(client.text(&["PTTL", "k"]).integer(), 2_000, "{numbers}");
    }
}

// C02: a rate that was no number switched the limiter off without a word, since
// every comparison with it is false.
#[test]
fn nan_is_no_number() {
    let mut bench = Bench::new();
    for text in [
        "nan",
        "NaN",
        "-nan",
        "nan(1)",
        "NAN",
        "+nan",
        "nan(0x7ff8000000000000)",
        "1nan",
        "nan1",
        "1.#QNAN",
    ] {
        bench.refuses_everywhere(text.as_bytes(), Wrong::NoNumber);
    }
    bench.ends_well();
}

// C04: an infinite rate was no limit at all, and a wait that no duration holds was a
// panic: out of range is an error.
#[test]
fn infinite_and_tiny_numbers_are_out_of_range() {
    let mut bench = Bench::new();
    for text in ["inf", "Inf", "INFINITY", "-inf", "+inf", "1/0", "\u{221e}"] {
        let wrong = Wrong::NoNumber;
        bench.refuses([text.as_bytes(), b"1", b"1"], &wrong.error("capacity"));
        bench.refuses([b"10", b"1", text.as_bytes()], &wrong.error("cost"));
        if text != "1/0" {
            bench.refuses([b"10", text.as_bytes(), b"1"], &wrong.error("rate"));
        }
    }
    let period = "ERR rate has a period that is not a whole number from 1 to 1e28 and one of ms s m h d, such as 100/m or 1/10s";
    for rate in ["1/0", "1/0s", "1/inf", "1/infs"] {
        bench.refuses([b"10", rate.as_bytes(), b"1"], period);
    }
    for text in ["1e308", "1e309", "1.7976931348623157e308", "1e13"] {
        bench.refuses_everywhere(text.as_bytes(), Wrong::TooLarge);
    }
    for text in ["1e-300", "1e-308", "5e-324", "1e-325", "1e-13"] {
        bench.refuses_everywhere(text.as_bytes(), Wrong::TooSmall);
    }
    // As they were seen.
    bench.refuses([b"1", b"inf", b"1"], &Wrong::NoNumber.error("rate"));
    for _ in 0..2 {
        bench.refuses([b"1", b"1e-300", b"1"], &Wrong::TooSmall.error("rate"));
    }
    let large = Wrong::TooLarge.error("capacity");
    bench.refuses([b"1e308", b"1e-308", b"1"], &large);
    bench.ends_well();
}

// C04: what is within the range may be a wait of ages: it is told as it is, up to the
// largest integer, and no key lives longer than a hundred years.
#[test]
fn waits_of_ages_are_told_as_they_are() {
    let server = held();
    let mut client = server.raw();
    for (numbers, reset, pttl) in [
        ("1 1e-9 1", 1_000_000_000_000, 1_000_000_000_000),
        ("1 1e-12 1", 1_000_000_000_000_000, CENTURY_MS),
        ("1e12 1e-12 1e12", i64::MAX, CENTURY_MS),
        ("1e12 1e12 1e12", 1_000, 1_000),
    ] {
        let key = format!("k:{}", numbers.replace(' ', ":"));
        let call = format!("TB.ACQUIRE {key} {numbers}");
        assert_eq!(client.ask(&call), [1, 0, 0, reset], "{call}");
        assert_eq!(client.ask(&call), [0, 0, reset, reset], "{call}");
        assert_eq!(client.text(&["PTTL", &key]).integer(), pttl, "{call}");
    }
}

// C07: parsers took more than was meant: hexadecimal, blanks, signs, trailing text.
// Each such text is one error, in every place, and changes nothing.
#[test]
fn what_looks_like_a_number_to_others() {
    let mut bench = Bench::new();
    let endless = "1".repeat(400);
    let zeros = "0".repeat(399) + "5";
    let texts: [(&[u8], Wrong); 29] = [
        (b"0x10", Wrong::NoNumber),
        (b"+5", Wrong::NoNumber),
        (b"-0", Wrong::NoNumber),
        (b" 5", Wrong::NoNumber),
        (b"5 ", Wrong::NoNumber),
        (b"5abc", Wrong::NoNumber),
        (b"", Wrong::NoNumber),
        (b"1_000", Wrong::NoNumber),
        (b"1e400", Wrong::TooLarge),
        ("\u{ff15}".as_bytes(), Wrong::NoNumber),
        ("1\u{ff10}".as_bytes(), Wrong::NoNumber),
        ("\u{0665}".as_bytes(), Wrong::NoNumber),
        (endless.as_bytes(), Wrong::TooLong),
        (zeros.as_bytes(), Wrong::TooLong),
        (b"5\0", Wrong::NoNumber),
        (b"\x005", Wrong::NoNumber),
        (b"5\x005", Wrong::NoNumber),
        (b"\xff\xfe", Wrong::NoNumber),
        (b"5\xff", Wrong::NoNumber),
        (b"\xc3\x28", Wrong::NoNumber),
        (b"0X1P3", Wrong::NoNumber),
        (b"-0.0", Wrong::NoNumber),
        (b"\t5", Wrong::NoNumber),
        (b"5\n", Wrong::NoNumber),
        (b"5\r\n", Wrong::NoNumber),
        (b"1,000", Wrong::NoNumber),
        (b"1'000", Wrong::NoNumber),
        (b"\"5\"", Wrong::NoNumber),
        (b"5L", Wrong::NoNumber),
    ];
    for (text, wrong) in texts {
        bench.refuses_everywhere(text, wrong);
    }
    // These are numbers, and mean the same as 5.
    for text in ["5.", "05", "5.0", "0.5e1", ".5E+1", "5e0"] {
        let want = [1, 0, 0, 5_000];
        let client = &mut bench.client;
        let reply = client.tb(&["TB.PEEK", "fresh", text, "1", text]);
        assert_eq!(reply, Ok(want), "{text}");
        let reply = client.tb(&["TB.PEEK", "fresh", "25", text, "25"]);
        assert_eq!(reply, Ok(want), "rate {text}");
    }
    bench.ends_well();
}

// C07: and an argument of any length was read to its end. 64 bytes are the most.
#[test]
fn the_length_of_an_argument_is_bounded() {
    let mut bench = Bench::new();
    // 64 bytes are read.
    let longest = "0".repeat(62) + "10";
    let reply = bench
        .client
        .tb(&["TB.PEEK", "fresh", &longest, &longest, &longest]);
    assert_eq!(reply, Ok([1, 0, 0, 1_000]));
    // More are not, whatever they are.
    for filler in [b'0', b'9', b'.', b'e', b'x', b' ', b'\0', b'\xff'] {
        for length in [65, 400, 1 << 20] {
            bench.refuses_everywhere(&vec![filler; length], Wrong::TooLong);
        }
    }
    bench.ends_well();
}

// C08: a negative cost was taken, and it gave tokens.
#[test]
fn negative_numbers_are_refused() {
    let mut bench = Bench::new();
    let smallest = i64::MIN.to_string();
    for text in [
        "-5",
        "-10",
        &smallest,
        "-1",
        "-0.5",
        "-1e-12",
        "-1e12",
        "-9223372036854775809",
        "-170141183460469231731687303715884105728",
        "\u{2212}5",
        "(5)",
        "5-",
    ] {
        bench.refuses_everywhere(text.as_bytes(), Wrong::NoNumber);
    }
    // As they wrap around to: above 2^63 and 2^64.
    for text in [
        "9223372036854775808",
        "18446744073709551611",
        "18446744073709551616",
    ] {
        bench.refuses_everywhere(text.as_bytes(), Wrong::TooLarge);
    }
    bench.ends_well();
}

// C09: a rate of 0 came out of a script as 'value is not an integer', from a key
// whose expiry it had been divided into. It is an error that names the rate.
#[test]
fn a_rate_of_zero_is_a_clear_error() {
    let server = held();
    let mut client = server.raw();
    let error = Reply::Error(NO_RATE.into());
    // As often as it would take to drain it.
    for number in 0..12 {
        let reply = client.text(&["TB.ACQUIRE", "k", "10", "0", "1"]);
        assert_eq!(reply, error, "call {number}");
        // No such key: one without a time to live is -1.
        assert_eq!(client.text(&["PTTL", "k"]).integer(), -2, "call {number}");
    }
    for rate in ["0.0", ".0", "0e9", "0/s", "0/d", "0.000/5m"] {
        for cost in ["1", "0", "11"] {
            let reply = client.text(&["TB.ACQUIRE", "k", "10", rate, cost]);
            assert_eq!(reply, error, "{cost} at {rate}");
            let reply = client.text(&["TB.PEEK", "k", "10", rate, cost]);
            assert_eq!(reply, error, "{cost} at {rate}");
        }
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
}

// C09: the same from inside a script and a transaction, where it was seen.
#[test]
fn a_rate_of_zero_is_a_clear_error_in_a_script() {
    let server = held();
    let mut client = server.raw();
    // The script is not stopped by it, and can read it.
    let script = "return redis.pcall('TB.ACQUIRE', KEYS[1], 10, 0, 1).err";
    let text = client.text(&["EVAL", script, "1", "k"]).bytes().unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(NO_RATE), "{text}");
    // A script that does not look ends with it.
    let script = "return redis.call('TB.ACQUIRE', KEYS[1], 10, 0, 1)";
    let reply = client.text(&["EVAL", script, "1", "k"]);
    let text = reply.error().unwrap_or("no error");
    assert!(text.contains(NO_RATE), "{text}");
    let replies = client.pipeline(&[
        command("MULTI"),
        command("TB.ACQUIRE k 10 0 1"),
        command("PING"),
        command("EXEC"),
    ]);
    let both = vec![Reply::Error(NO_RATE.into()), Reply::Simple("PONG".into())];
    assert_eq!(replies[3], Reply::Array(Some(both)));
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
}

// C09: drained buckets stayed for ever. None is without a time to live, be its rate
// the smallest, and a call with rate 0 does not take it away.
#[test]
fn every_bucket_has_a_time_to_live() {
    let server = held();
    let mut client = server.raw();
    for (rate, pttl) in [
        ("1e-12", CENTURY_MS),
        ("1e-9", 1_000_000_000_000),
        ("1/365d", 31_536_000_000),
        ("1", 1_000),
        ("1e12", 1),
    ] {
        let key = format!("k:{rate}");
        for taken in 1..=10 {
            let reply = client.tb(&["TB.ACQUIRE", &key, "10", rate, "1"]).unwrap();
            assert_eq!(reply[..3], [1, 10 - taken, 0], "{rate}");
            let want = (pttl * taken).min(CENTURY_MS);
            // Ten tokens at 1e12 per second are less than a millisecond too.
            let want = if rate == "1e12" { 1 } else { want };
            for zero in ["0", "0/s"] {
                let refused = client.text(&["TB.ACQUIRE", &key, "10", zero, "1"]);
                assert_eq!(refused, Reply::Error(NO_RATE.into()), "{rate}");
                let got = client.text(&["PTTL", &key]).integer();
                assert_eq!(got, want, "{rate}, {taken} taken");
            }
        }
        let reply = client.tb(&["TB.ACQUIRE", &key, "10", rate, "1"]).unwrap();
        assert_eq!(reply[0], 0, "{rate}");
    }
}

// C11: looking was impossible, or took a token. Cost 0 and TB.PEEK tell what is there
// and leave no trace: no key, no other expiry, nothing for the replica.
#[test]
fn looking_takes_nothing() {
    // A ping of the server's own to its replica would move the offset.
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .config("repl-ping-replica-period", "3600")
        .start();
    let replica = server.start_replica();
    let mut client = server.raw();
    let offset = || -> i64 {
        let info = server.info("replication");
        assert_eq!(info["connected_slaves"], "1");
        info["master_repl_offset"].parse().unwrap()
    };
    let start = offset();
    client.ask("TB.ACQUIRE half 10 1 5");
    client.ask("TB.ACQUIRE drained 10 1 10");
    // The offset does tell: the two writes are in it.
    let before = offset();
    assert!(before > start, "from {start} to {before}");
    let keys = ["fresh", "half", "drained"];
    let bytes = keys.map(|key| stored(&mut client, key));
    assert_eq!(bytes.each_ref().map(Option::is_some), [false, true, true]);

    // Milliseconds later; tokens in `half` and `drained`.
    for (ms, half, drained) in [(0, 5, 0), (2_700, 7, 2), (4_999, 9, 4)] {
        server.hold(START + ms * 1_000);
        let resets = [0, 5_000 - ms, 10_000 - ms];
        for ((key, left), reset) in keys.into_iter().zip([10, half, drained]).zip(resets) {
            for zero in ["0", "0.0", "0e9"] {
                for name in ["TB.ACQUIRE", "TB.PEEK"] {
                    let call = format!("{name} {key} 10 1 {zero}");
                    for _ in 0..3 {
                        assert_eq!(client.ask(&call), [1, left, 0, reset], "{call}");
                    }
                }
            }
            // What TB.ACQUIRE would answer, without taking it.
            let want = match left {
                0 => [0, 0, 1_000 - ms, reset],
                _ => [1, left - 1, 0, reset + 1_000],
            };
            for call in [
                format!("TB.PEEK {key} 10 1"),
                format!("TB.PEEK {key} 10 1 1"),
            ] {
                for _ in 0..3 {
                    assert_eq!(client.ask(&call), want, "{call}");
                }
            }
        }
        assert_eq!(keys.map(|key| stored(&mut client, key)), bytes, "{ms} ms");
        let pttls = keys.map(|key| client.text(&["PTTL", key]).integer());
        assert_eq!(pttls, [-2, 5_000 - ms, 10_000 - ms]);
        assert_eq!(client.text(&["EXISTS", "fresh"]).integer(), 0);
        assert_eq!(offset(), before, "{ms} ms");
    }
    // On the replica it is the same: looking is all that can be done there.
    replica.wait_for_sync(&server);
    let mut on_replica = replica.raw();
    assert_eq!(keys.map(|key| stored(&mut on_replica, key)), bytes);
    client.ask("TB.ACQUIRE fresh 10 1 1");
    assert!(offset() > before, "what takes is replicated");
}
