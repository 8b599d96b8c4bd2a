//! What is taken for a number, a rate and a period, and the error for what is
//! not.

use crate::held;

const NAN_CAPACITY: &str =
    "ERR capacity is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3";
const NAN_COST: &str =
    "ERR cost is not a number: digits with an optional fraction and exponent, such as 10, 0.5 or 1e3";
const NAN_RATE: &str =
    "ERR rate is not a number, or a number and a period, such as 10, 0.5 or 100/m";
const PERIOD: &str =
    "ERR rate has a period that is not a whole number from 1 to 1e28 and one of ms s m h d, such as 100/m or 1/10s";

/// Texts that are one and the same number, in every place where a number stands.
#[test]
fn one_number_in_many_spellings() {
    let server = held();
    let mut client = server.raw();
    let spellings = [
        ("10", "10.0 10. 010 1e1 1E1 1e+1 1E+01 100e-1 0.1e2 10e0 10e-0 .1e2 1000000000000000000000e-20"),
        ("0.5", ".5 0.50 5e-1 5E-01 00.5 500000000000e-12 0.5e0"),
        ("0.00001", "1e-05 1e-5 .00001 10e-6"),
        ("1000", "1E+3 1e3 1000.000 1e0003 0.000001e9"),
        // What a floating-point sum prints: more digits than 12 decimals hold.
        ("0.3", "0.30000000000000004 0.300000000000000000000000000000000000000000000000000000000001"),
    ];
    for (plain, others) in spellings {
        let key = format!("k:{plain}");
        let want = client.tb(&["TB.PEEK", &key, plain, "7", plain]);
        assert!(want.is_ok(), "{plain}: {want:?}");
        for other in others.split(' ') {
            let got = client.tb(&["TB.PEEK", &key, other, "7", other]);
            assert_eq!(got, want, "capacity and cost {other}");
        }
    }
    for (plain, others) in [
        (
            "10",
            "10.0 10/s 10/1s 600/m 36e3/h 864000/d 1/100ms 10000/1000s 10.00/01s 1e1/0001s",
        ),
        ("0.5", ".5 1/2s 30/m 1/2000ms 5e-1/s"),
        ("100/m", "100/60s 5/3s 6000/h 100/60000ms"),
        (
            "1/d",
            "1/24h 1/1440m 1/86400s 1/86400000ms 0.5/12h 365/365d",
        ),
    ] {
        let want = client.tb(&["TB.PEEK", "rate", "1000000", plain, "3"]);
        assert!(want.is_ok(), "{plain}: {want:?}");
        for other in others.split(' ') {
            let got = client.tb(&["TB.PEEK", "rate", "1000000", other, "3"]);
            assert_eq!(got, want, "rate {other} for {plain}");
        }
    }
}

/// Texts that are no number, and their one error.
#[test]
fn no_numbers() {
    let server = held();
    let mut client = server.raw();
    let texts: [&[u8]; 43] = [
        b"",
        b" ",
        b" 5",
        b"5 ",
        b"5 5",
        b"\t5",
        b"5\n",
        b"+5",
        b"-5",
        b"-0",
        b"+",
        b"-",
        b".",
        b"..",
        b"1..2",
        b"1.2.3",
        b"1,5",
        b"1_000",
        b"0x10",
        b"0b1",
        b"0o7",
        b"10f",
        b"5abc",
        b"abc",
        b"inf",
        b"Infinity",
        b"-inf",
        b"nan",
        b"NaN",
        b"-nan",
        b"nan(1)",
        b"e5",
        b".e5",
        b"1e",
        b"1e+",
        b"1e-",
        b"1e5.0",
        b"1e5e5",
        b"1ee5",
        b"5\0",
        b"\x005",
        b"\xff\xfe",
        "\u{ff15}".as_bytes(),
    ];
    for text in texts {
        let show = text.escape_ascii();
        let capacity = client.call(&[b"TB.ACQUIRE", b"k", text, b"1", b"1"]);
        assert_eq!(capacity.error(), Some(NAN_CAPACITY), "capacity {show}");
        let rate = client.call(&[b"TB.ACQUIRE", b"k", b"10", text, b"1"]);
        assert_eq!(rate.error(), Some(NAN_RATE), "rate {show}");
        let cost = client.call(&[b"TB.ACQUIRE", b"k", b"10", b"1", text]);
        assert_eq!(cost.error(), Some(NAN_COST), "cost {show}");
        let peek = client.call(&[b"TB.PEEK", b"k", b"10", b"1", text]);
        assert_eq!(peek.error(), Some(NAN_COST), "cost of a peek {show}");
    }
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
}

/// Slashes that are followed by no period.
#[test]
fn no_periods() {
    let server = held();
    let mut client = server.raw();
    let too_long = format!("1/{}s", "1".repeat(40));
    for rate in [
        "1/", "1/5", "1/0s", "1/00d", "1/x", "1/S", "1/M", "1/ms ", "1/ s", "1/1.5s", "1/.5s",
        "1/1e3s", "1/-1s", "1/+1s", "1/s/s", "1//s", "1/sec", "1/us", "1/w", "1/mss", "1/sm",
        "1/1 s", "1/1_0s", "1/s0", "0/x", &too_long,
    ] {
        let reply = client.tb(&["TB.ACQUIRE", "k", "10", rate, "1"]);
        assert_eq!(reply, Err(PERIOD.into()), "{rate}");
    }
    for rate in [
        "/s",
        "/",
        "x/s",
        "-1/s",
        " 1/s",
        "1 /s",
        "1e/s",
        "100 per minute",
    ] {
        let reply = client.tb(&["TB.ACQUIRE", "k", "10", rate, "1"]);
        assert_eq!(reply, Err(NAN_RATE.into()), "{rate}");
    }
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
}

/// Both sides of every bound.
#[test]
fn bounds() {
    let server = held();
    let mut client = server.raw();
    let large = |name: &str| Err(format!("ERR {name} is too large: at most 1e12"));
    let small = |name: &str| Err(format!("ERR {name} is too small: 0, or at least 1e-12"));
    let cases = [
        ("1e12", None),
        ("1000000000000.000", None),
        ("1e-12", None),
        ("0.0000000000015", None),
        ("0", None),
        ("0e999", None),
        ("0.000", None),
        ("1000000000000.000000000001", Some(true)),
        (
            "1000000000000.00000000000000000000000000000000001",
            Some(true),
        ),
        ("1000000000001", Some(true)),
        ("1e13", Some(true)),
        ("1e308", Some(true)),
        ("1e400", Some(true)),
        ("1e99999999999999999999999999999999999999", Some(true)),
        (
            "9999999999999999999999999999999999999999999999999999999999999999",
            Some(true),
        ),
        ("0.999e-12", Some(false)),
        (
            "0.0000000000009999999999999999999999999999999999",
            Some(false),
        ),
        ("1e-13", Some(false)),
        ("1e-300", Some(false)),
        ("1e-99999999999999999999999999999999999999", Some(false)),
    ];
    for (text, wrong) in cases {
        let capacity = client.tb(&["TB.PEEK", "k", text, "1", "0"]);
        let cost = client.tb(&["TB.PEEK", "k", "1e12", "1", text]);
        match wrong {
            None => {
                assert!(capacity.is_ok(), "capacity {text}: {capacity:?}");
                assert!(cost.is_ok(), "cost {text}: {cost:?}");
            }
            Some(true) => {
                assert_eq!(capacity, large("capacity"), "{text}");
                assert_eq!(cost, large("cost"), "{text}");
            }
            Some(false) => {
                assert_eq!(capacity, small("capacity"), "{text}");
                assert_eq!(cost, small("cost"), "{text}");
            }
        }
    }
}

/// Both sides of every bound of a rate, whatever its period.
#[test]
fn bounds_of_a_rate() {
    let server = held();
    let mut client = server.raw();
    let zero = "ERR rate must be above 0: at least 1e-12 per second";
    let small = "ERR rate is too small: at least 1e-12 per second";
    let large = "ERR rate is too large: at most 1e12 per second";
    for (rate, error) in [
        ("1e12", None),
        ("1e12/s", None),
        ("1e9/ms", None),
        ("6e13/m", None),
        ("3.6e15/h", None),
        ("86400000000000000/d", None),
        ("1e40/10000000000000000000000000000s", None),
        ("1e-12", None),
        ("1e-15/ms", None),
        ("6e-11/m", None),
        ("0.0000000864/d", None),
        ("1/1000000000000s", None),
        ("1e-12/1s", None),
        ("0", Some(zero)),
        ("0.0", Some(zero)),
        ("0/s", Some(zero)),
        ("0e5/10d", Some(zero)),
        ("1000000000000.000000000000000000001", Some(large)),
        ("1.000000000000001e9/ms", Some(large)),
        ("6.0000000000001e13/m", Some(large)),
        ("1e13", Some(large)),
        ("1e308", Some(large)),
        ("1e400/d", Some(large)),
        ("1e99999999999999999999/d", Some(large)),
        ("9.99999e-13", Some(small)),
        ("1e-13", Some(small)),
        ("1/1000000000001s", Some(small)),
        ("8.63999e-8/d", Some(small)),
        ("1e-400", Some(small)),
        ("1e-99999999999999999999", Some(small)),
    ] {
        let reply = client.tb(&["TB.PEEK", "k", "1", rate, "1"]);
        match error {
            None => assert_eq!(reply.map(|r| r[0]), Ok(1), "{rate}"),
            Some(text) => assert_eq!(reply, Err(text.into()), "{rate}"),
        }
    }
}

/// At most 64 bytes for a number.
#[test]
fn lengths() {
    let server = held();
    let mut client = server.raw();
    let longest = format!("{}1", "0".repeat(63));
    let longer = format!("0{longest}");
    let endless = "1".repeat(400);
    let ok = Ok([1, 0, 0, 1000]);
    assert_eq!(
        client.tb(&["TB.PEEK", "k", &longest, &longest, &longest]),
        ok
    );
    let with_period = format!("{longest}/1s");
    assert_eq!(client.tb(&["TB.PEEK", "k", "1", &with_period, "1"]), ok);
    let long_period = format!("{longest}/{}1s", "0".repeat(62));
    assert_eq!(client.tb(&["TB.PEEK", "k", "1", &long_period, "1"]), ok);

    for text in [&longer, &endless] {
        let at_most = "is too long: at most 64 bytes";
        assert_eq!(
            client.tb(&["TB.ACQUIRE", "k", text, "1", "1"]),
            Err(format!("ERR capacity {at_most}"))
        );
        assert_eq!(
            client.tb(&["TB.ACQUIRE", "k", "1", "1", text]),
            Err(format!("ERR cost {at_most}"))
        );
        for rate in [text.clone(), format!("{text}/s"), format!("1/{text}s")] {
            assert_eq!(
                client.tb(&["TB.ACQUIRE", "k", "1", &rate, "1"]),
                Err(format!("ERR rate {at_most} before and after the slash"))
            );
        }
    }
}

/// More digits than the units hold: capacity and cost to the nearest picotoken,
/// a half upwards; rates upwards.
#[test]
fn rounding() {
    let server = held();
    let mut client = server.raw();
    // A level of exactly 1 picotoken, in a bucket that does not fill meanwhile.
    for (capacity, cost, allowed) in [
        ("1e-12", "1.4e-12", 1),
        ("1e-12", "1.49999999999999999999999e-12", 1),
        ("1e-12", "1.5e-12", 0),
        ("1.5e-12", "2e-12", 1),
        ("1.4e-12", "2e-12", 0),
        ("0.30000000000000004", "0.3", 1),
        ("0.3", "0.30000000000000004", 1),
        ("0.3", "0.300000000001", 0),
        ("999999999999.9999999999995", "1e12", 1),
        ("999999999999.9999999999994", "1e12", 0),
    ] {
        let reply = client.tb(&["TB.PEEK", "k", capacity, "1e-12", cost]);
        assert_eq!(
            reply.map(|r| r[0]),
            Ok(allowed),
            "cost {cost} of {capacity}"
        );
    }
    // One token in 3 s, 7 s, a day: not a millisecond more or less.
    for (rate, reset) in [
        ("1/3s", 3000),
        ("1/7s", 7000),
        ("1/d", 86_400_000),
        ("1/365d", 31_536_000_000),
        ("7/d", 12_342_858),
        ("0.3333333333333333", 3001),
        ("0.333333333333333333333333333333333333333333333", 3000),
    ] {
        let reply = client.tb(&["TB.PEEK", "k", "1", rate]);
        assert_eq!(reply, Ok([1, 0, 0, reset]), "rate {rate}");
    }
}

/// The first argument that is wrong is named, and arguments come before the key.
#[test]
fn the_first_wrong_argument_is_named() {
    let server = held();
    let mut client = server.raw();
    client.text(&["SET", "text", "hello"]);
    for key in ["k", "text"] {
        assert_eq!(
            client.tb(&["TB.ACQUIRE", key, "x", "x", "x"]),
            Err(NAN_CAPACITY.into())
        );
        assert_eq!(
            client.tb(&["TB.ACQUIRE", key, "1", "x", "x"]),
            Err(NAN_RATE.into())
        );
        assert_eq!(
            client.tb(&["TB.ACQUIRE", key, "1", "1", "x"]),
            Err(NAN_COST.into())
        );
    }
}

/// The server's own error for a wrong number of arguments.
#[test]
fn arity() {
    let server = held();
    let mut client = server.raw();
    for (name, right) in [("TB.ACQUIRE", vec![5]), ("TB.PEEK", vec![4, 5])] {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        for count in (1..=8).chain([200]) {
            let mut args = vec![name];
            args.resize(count, "1");
            let reply = client.text(&args);
            if right.contains(&count) {
                assert_eq!(reply.error(), None, "{name} with {count}");
            } else {
                assert_eq!(reply.error(), Some(&*text), "{name} with {count}");
            }
        }
    }
}

/// No text of an error repeats what was sent.
#[test]
fn errors_echo_nothing() {
    let server = held();
    let mut client = server.raw();
    let secret = "s3cr3t\r\n+OK\r\n";
    client.text(&["SET", secret, secret]);
    for args in [
        ["TB.ACQUIRE", secret, "1", "1", "1"],
        ["TB.ACQUIRE", secret, secret, "1", "1"],
        ["TB.ACQUIRE", secret, "1", secret, "1"],
        ["TB.ACQUIRE", secret, "1", "1", secret],
    ] {
        let error = client.tb(&args).unwrap_err();
        assert!(error.is_ascii() && !error.contains("s3cr3t"), "{error}");
        assert!(
            error.starts_with("ERR ") || error.starts_with("WRONGTYPE "),
            "{error}"
        );
    }
    assert_eq!(client.text(&["PING"]).bytes().unwrap(), b"PONG");
}
