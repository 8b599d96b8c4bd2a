//! Memory: none is lost in ten million calls, and a million buckets take what they
//! take and give it all back.
//!
//! A binary of its own, because it takes its time. The clocks are held.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, RawClient, Server};

/// January 2027, in microseconds since the Unix epoch.
const START: i64 = 1_800_000_000_000_000;
const MEGABYTE: i64 = 1_000_000;

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

/// A connection that sends calls and compares the replies to them as bytes: ten
/// million replies would take long to read one by one.
struct Bulk {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Bulk {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends `calls`. The server keeps what is not yet read of its replies.
    fn send(&mut self, calls: &[u8]) {
        self.stream.write_all(calls).unwrap();
    }

    /// Reads as many bytes as `replies` has: they are the same.
    #[track_caller]
    fn expect(&mut self, replies: &[u8]) {
        self.read.resize(replies.len(), 0);
        self.stream.read_exact(&mut self.read).unwrap();
        if self.read != replies {
            let at = (0..replies.len()).find(|at| self.read[*at] != replies[*at]);
            let from = at.unwrap_or(0).saturating_sub(100);
            panic!(
                "at byte {at:?}: {}",
                self.read[from..].chunks(200).next().unwrap().escape_ascii()
            );
        }
    }
}

/// A call as bulk strings.
fn encode(call: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", call.len()).into_bytes();
    for word in call {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// What is answered when tokens are taken or given: 64 bits of milliseconds do not
/// say how long the bucket takes to be full.
const TAKEN: &str = "*4 :1 :499999999999 :0 :9223372036854775807";
const DENIED: &str = "*4 :0 :499999999999 :9223372036854775807 :9223372036854775807";
const NEVER: &str = "*4 :0 :5 :-1 :0";

/// Calls at the bucket `k`, which holds a bit less than half of its 1e12 tokens, each
/// with the lines of its reply. So small are the costs and the rate that they are
/// answered the same every time.
const GOOD: [(&[&[u8]], &str); 10] = [
    (&[b"TB.ACQUIRE", b"k", b"1e12", b"1e-12", b"1e-12"], TAKEN),
    (&[b"TB.ACQUIRE", b"k", b"1e12", b"1e-12", b"1e12"], DENIED),
    (&[b"TB.CREDIT", b"k", b"1e12", b"1e-12", b"2e-12"], TAKEN),
    (&[b"TB.ACQUIRE", b"k", b"5", b"1", b"10"], NEVER),
    (
        &[b"TB.RESERVE", b"k", b"1e12", b"1e-12", b"1e-12", b"1000"],
        TAKEN,
    ),
    (&[b"TB.ACQUIRE", b"k", b"1e12", b"1e-12", b"0"], TAKEN),
    (&[b"TB.PEEK", b"k", b"1e12", b"1e-12", b"0"], TAKEN),
    (
        &[b"TB.DEBIT", b"k", b"1e12", b"1e-12", b"0.000000000003"],
        TAKEN,
    ),
    (
        &[
            b"TB.MACQUIRE", b"k", b"1e12", b"1e-12", b"1e-12", b"l", b"1e12", b"1e-12", b"1e-12",
        ],
        "*3 :1 :0 *2 *4 :1 :499999999999 :0 :9223372036854775807 *4 :1 :499999999999 :0 :9223372036854775807",
    ),
    (&[b"TB.ACQUIRE", b"fresh", b"5", b"1", b"6"], NEVER),
];

/// Ten calls that are errors, and how those begin.
const BAD: [(&[&[u8]], &str); 10] = [
    (
        &[b"TB.ACQUIRE", b"k", b"nan", b"1", b"1"],
        "ERR capacity is not",
    ),
    (&[b"TB.ACQUIRE", b"list", b"10", b"1", b"1"], "WRONGTYPE"),
    (
        &[b"TB.RESERVE", b"k", b"10", b"1/0s", b"1", b"0"],
        "ERR rate has a period",
    ),
    (
        &[b"TB.ACQUIRE", b"k", b"10", b"1", b"\xff\x00\xfe"],
        "ERR cost is not",
    ),
    (&[b"TB.PEEK", b"hash", b"10", b"1", b"1"], "WRONGTYPE"),
    (
        &[b"TB.DEBIT", b"k", b"10", b"1", &[b'1'; 200]],
        "ERR amount is too long",
    ),
    (
        &[
            b"TB.MACQUIRE",
            b"k",
            b"10",
            b"1",
            b"1",
            b"text",
            b"10",
            b"1",
            b"0",
        ],
        "WRONGTYPE",
    ),
    (
        &[b"TB.PEEK", b"k", b"10", b"1", b"1", b"1"],
        "ERR wrong number of arguments",
    ),
    (
        &[b"TB.ACQUIRE", b"k", b"10", b"1"],
        "ERR wrong number of arguments",
    ),
    (
        &[b"TB.CREDIT", b"k", b"1e13", b"0", b"-1"],
        "ERR capacity is too large",
    ),
];

const CALLS: usize = 10_000_000;
const BATCH: usize = 10_000;
const WARM_UP: usize = 20;

// D12: the server's memory grew with each command, on the early returns of errors as
// well: strings, keys and replies that nobody gave back.
#[test]
fn ten_million_calls_keep_nothing() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .start();
    let mut client = server.raw();
    client.text(&["RPUSH", "list", "x"]);
    client.text(&["HSET", "hash", "f", "v"]);
    client.text(&["SET", "text", "twenty bytes of text"]);
    for key in ["k", "l"] {
        for cost in ["500000000000", "0.5"] {
            client
                .tb(&["TB.ACQUIRE", key, "1e12", "1e-12", cost])
                .unwrap();
        }
    }

    // Once through, to see that each is answered as it should.
    let (mut calls, mut replies) = (Vec::new(), Vec::new());
    for ((good, want), (bad, error)) in GOOD.into_iter().zip(BAD) {
        client.call(good);
        replies.extend(client.last_bytes());
        let want = want.replace(' ', "\r\n") + "\r\n";
        assert_eq!(client.last_bytes(), want.as_bytes(), "{good:?}");
        let reply = client.call(bad).four().unwrap_err();
        replies.extend(client.last_bytes());
        assert!(reply.starts_with(error), "{bad:?}: {reply}");
        calls.extend([encode(good), encode(bad)].concat());
    }
    let cycles = BATCH / (GOOD.len() + BAD.len());
    let (calls, replies) = (calls.repeat(cycles), replies.repeat(cycles));

    let mut bulk = Bulk::connect(&server);
    let mut before = (0, 0);
    for batch in 0..WARM_UP + CALLS / BATCH {
        if batch == WARM_UP {
            before = (used_memory(&server), usage(&mut client));
        }
        bulk.send(&calls);
        bulk.expect(&replies);
    }
    let after = (used_memory(&server), usage(&mut client));
    println!(
        "{CALLS} calls: used_memory {} before, {} after",
        before.0, after.0
    );
    assert!(
        (after.0 - before.0).abs() < MEGABYTE,
        "{before:?}, then {after:?}"
    );
    assert_eq!(after.1, before.1, "MEMORY USAGE of the bucket");
    assert_eq!(client.text(&["DBSIZE"]).integer(), 5);
}

fn usage(client: &mut RawClient) -> i64 {
    client.text(&["MEMORY", "USAGE", "k"]).integer()
}

/// Where memory comes in steps of 16 bytes (Debian's servers), two table entries, key,
/// header and value are 144 and the tables 17. One step more is too much.
const MOST_PER_KEY: f64 = 170.0;
const KEYS: usize = 1_000_000;

// I03: a made-up identifier on each request made a bucket each, and they filled the
// memory for good. Here a bucket is small, and gone when it is full again.
#[test]
fn a_million_buckets_are_small_and_go() {
    // Expired keys nobody asks for are looked for often.
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .config("hz", "100")
        .config("active-expire-effort", "10")
        .start();
    let mut client = server.raw();
    let keys = distinct_keys();
    let before = used_memory(&server);
    let mut bulk = Bulk::connect(&server);
    let replies = b"*4\r\n:1\r\n:9\r\n:0\r\n:1000\r\n".repeat(BATCH);
    for batch in keys.chunks(BATCH) {
        let mut calls = Vec::new();
        for key in batch {
            calls.extend(encode(&[b"TB.ACQUIRE", key.as_bytes(), b"10", b"1", b"1"]));
        }
        bulk.send(&calls);
        bulk.expect(&replies);
    }
    let held = used_memory(&server) - before;
    assert_eq!(client.text(&["DBSIZE"]).integer(), KEYS as i64);
    let per_key = held as f64 / KEYS as f64;
    println!("{per_key:.1} bytes per bucket with a key of 16 bytes");
    assert!(per_key < MOST_PER_KEY, "{per_key:.1} bytes per bucket");

    // Each has an expiry: the second that it takes to be full again.
    let keyspace = server.info("keyspace")["db0"].clone();
    assert!(
        keyspace.starts_with("keys=1000000,expires=1000000,"),
        "{keyspace}"
    );
    for key in keys.iter().step_by(997) {
        assert_eq!(client.text(&["PTTL", key]).integer(), 1_000, "{key}");
    }
    // Denied for more than there is, they keep it.
    server.advance(Duration::from_millis(999));
    for key in keys.iter().step_by(997) {
        let reply = client.tb(&["TB.ACQUIRE", key, "10", "1", "10"]);
        assert_eq!(reply, Ok([0, 9, 1, 1]), "{key}");
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), KEYS as i64);

    // The server keeps a key through the millisecond of its expiry.
    server.advance(Duration::from_millis(2));
    wait_for("all buckets to go", Duration::from_secs(120), || {
        client.text(&["DBSIZE"]).integer() == 0
    });
    assert!(!server.info("keyspace").contains_key("db0"));
    // The tables of the keys shrink a bit later.
    wait_for("the memory back", Duration::from_secs(120), || {
        used_memory(&server) - before < held / 20
    });
}

/// Sixteen hex digits each, the same at every run (xorshift).
fn distinct_keys() -> Vec<String> {
    let mut state = 0x1_03_u64;
    let keys: Vec<String> = (0..KEYS)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{state:016x}")
        })
        .collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), KEYS);
    keys
}
