//! A wall clock that is set back, and forward.

use std::time::Duration;

use tokenbucket_testkit::model::SpecBucket;
use tokenbucket_testkit::{module_path, Caller, Random, RawClient, Server, MIXED};

use crate::START;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
const TEN_YEARS: i64 = 3_652 * DAY;

fn held() -> Server {
    Server::builder()
        .module(module_path())
        .held_clock(START)
        .start()
}

/// The next step of a clock, mostly a small one forward; it stays within some years
/// of now and ten years from now.
fn step(random: &mut Random, now_us: i64) -> i64 {
    match random.below(120) {
        0..=3 => -11 * SECOND,
        4..=5 => -DAY,
        6 if now_us < START + TEN_YEARS / 2 => TEN_YEARS,
        6 => -TEN_YEARS,
        7..=60 => random.below(3 * SECOND),
        _ => 0,
    }
}

/// Eleven seconds back, a day back, ten years forth and back, at random between calls
/// of all six commands: each answer, each stored byte and each expiry is the model's.
#[test]
fn any_steps_answer_as_the_model() {
    let server = held();
    let mut client = server.raw();
    let mut caller = Caller::new(30, MIXED);
    let mut random = Random::new(0xc10c);
    let (mut now_us, mut back, mut years) = (START, 0, 0);
    for number in 0..6_000 {
        let by = step(&mut random, now_us);
        back += u32::from(by < 0);
        years += u32::from(by == TEN_YEARS);
        if by != 0 {
            now_us += by;
            caller.hold(&server, now_us);
        }
        caller.call(&mut client, now_us);
        if number % 20 == 0 {
            caller.assert_acknowledged(&server);
        }
    }
    assert!(
        back > 100 && years > 10,
        "{back} back, {years} of ten years"
    );
    println!("6000 calls, {back} steps back, {years} of ten years forth");
}

const TOKEN: i128 = 1_000_000_000_000_000_000;

/// A bucket, and the most that can be in it.
struct Ledger {
    key: &'static str,
    capacity: i128,
    rate: &'static str,
    /// Attotokens that flow in per microsecond.
    flow: i128,
    /// Attotokens: what was in it less what was taken, and what has flowed in while
    /// the clock went forward, but never more than the capacity.
    most: i128,
}

impl Ledger {
    /// A full bucket of `capacity` tokens; `flow` picotokens per second are as many
    /// attotokens per microsecond.
    fn full(key: &'static str, capacity: i128, rate: &'static str, flow: i128) -> Self {
        Self {
            key,
            capacity: capacity * TOKEN,
            rate,
            flow,
            most: capacity * TOKEN,
        }
    }

    fn add(&mut self, atto: i128) {
        self.most = (self.most + atto).min(self.capacity);
    }

    /// No token was minted, and the key lives no longer than it takes to fill.
    #[track_caller]
    fn check(&self, client: &mut RawClient, now_us: i64, asked: bool, place: &str) {
        let Some(bytes) = client.text(&["GET", self.key]).bytes() else {
            assert!(self.capacity <= self.most, "{place}: full too early");
            return;
        };
        let bucket = SpecBucket::from_bytes(&bytes).unwrap();
        let level = i128::try_from(bucket.level_atto).unwrap();
        assert!(level <= self.most, "{place}: {level}, not {}", self.most);
        if asked {
            assert!(bucket.stamp_us <= now_us, "{place}: stamped in the future");
            let full_us = i128::from(bucket.stamp_us) + (self.capacity - level) / self.flow + 1;
            let pttl = client.text(&["PTTL", self.key]).integer();
            let expiry = i128::from(now_us.div_euclid(1_000) + pttl);
            assert!(expiry <= full_us / 1_000 + 1, "{place}: PTTL is {pttl}");
        }
    }
}

/// With the same steps and all six commands at random: no step mints a token, the
/// expiry is never later than the bucket is full, and nobody is locked out: who is
/// told to come again after some time is let through then, though the clock was set
/// back before.
#[test]
fn no_step_mints_a_token_or_locks_out() {
    let server = held();
    let mut client = server.raw();
    let mut random = Random::new(0x1ed6e7);
    let mut ledgers = [
        Ledger::full("a", 10, "1", TOKEN / 1_000_000),
        Ledger::full("b", 5, "0.25", TOKEN / 4_000_000),
        Ledger::full("c", 100, "0.001", TOKEN / 1_000_000_000),
        Ledger::full("d", 1, "3", TOKEN * 3 / 1_000_000),
    ];
    let names = [
        "TB.ACQUIRE",
        "TB.ACQUIRE",
        "TB.RESERVE",
        "TB.MACQUIRE",
        "TB.PEEK",
        "TB.CREDIT",
        "TB.DEBIT",
    ];
    let (mut now_us, mut back, mut waited) = (START, 0, 0);
    let mut again: Option<(Vec<String>, i64)> = None;
    for number in 0..6_000 {
        let (call, by) = match again.take() {
            Some((call, wait_ms)) => (Some(call), wait_ms * 1_000),
            None => (None, step(&mut random, now_us)),
        };
        back += u32::from(by < 0);
        now_us += by;
        server.hold(now_us);
        for ledger in &mut ledgers {
            ledger.add(ledger.flow * i128::from(by.max(0)));
        }

        let told = call.is_some();
        let call = call.unwrap_or_else(|| {
            let name = random.pick(&names);
            let first = random.below(3) as usize;
            let buckets = 1 + usize::from(name == "TB.MACQUIRE");
            let mut call = vec![name.to_string()];
            for ledger in &ledgers[first..first + buckets] {
                let capacity = (ledger.capacity / TOKEN).to_string();
                let cost = random
                    .pick(&["0", "1", "1", "1", "2", "5", "11"])
                    .to_string();
                call.extend([
                    ledger.key.to_string(),
                    capacity,
                    ledger.rate.to_string(),
                    cost,
                ]);
            }
            if name == "TB.RESERVE" {
                call.push(random.pick(&["0", "500", "60000"]).to_string());
            }
            call
        });
        let place = format!("call {number} at {now_us}: {}", call.join(" "));
        let words: Vec<&str> = call.iter().map(String::as_str).collect();
        let reply = client.text(&words).integers();
        let (allowed, retry_ms) = match call[0].as_str() {
            "TB.MACQUIRE" => (reply[0] == 1, reply[1]),
            _ => (reply[0] == 1, reply[2]),
        };
        assert!(allowed || !told, "{place}: locked out, {reply:?}");
        waited += u32::from(told);

        let peek = call[0] == "TB.PEEK";
        for bucket in call[1..].chunks_exact(4) {
            let ledger = ledgers.iter_mut().find(|ledger| ledger.key == bucket[0]);
            let ledger = ledger.unwrap();
            let cost = bucket[3].parse::<i128>().unwrap() * TOKEN;
            match call[0].as_str() {
                "TB.CREDIT" => ledger.add(cost),
                _ if allowed && !peek => ledger.most -= cost,
                _ => {}
            }
            ledger.check(&mut client, now_us, !peek, &place);
        }
        // A peek writes nothing, so the clock it met is met again by the next call.
        if !allowed && !peek && retry_ms > 0 && random.below(2) == 0 {
            again = Some((call, retry_ms));
        }
    }
    assert!(back > 100 && waited > 300, "{back} back, {waited} waited");
    println!("6000 calls, {back} steps back, {waited} came when they were told to");
}

/// G03: after a step back of any length the first call of whatever command that writes
/// brings the bucket to the present, and from that moment a token flows in with each
/// second, for a minute.
#[test]
fn refill_goes_on_at_once() {
    let server = held();
    let mut client = server.raw();
    let commands = [
        "TB.ACQUIRE k 100 1 0",
        "TB.RESERVE k 100 1 0 0",
        "TB.CREDIT k 100 1 0",
        "TB.DEBIT k 100 1 0",
        "TB.MACQUIRE k 100 1 0",
    ];
    for by in [11 * SECOND, 3_600 * SECOND, DAY, TEN_YEARS] {
        for call in commands {
            server.hold(START);
            client.text(&["DEL", "k"]);
            client.ask("TB.ACQUIRE k 100 1 100");
            server.hold(START - by);
            for second in 0..=60 {
                let words: Vec<&str> = call.split(' ').collect();
                let reply = client.text(&words).integers();
                let [remaining, _, reset_ms] = reply[reply.len() - 3..] else {
                    panic!("{call}: {reply:?}")
                };
                assert_eq!(
                    (remaining, reset_ms),
                    (second, (100 - second) * 1_000),
                    "{call}"
                );
                server.advance(Duration::from_secs(1));
            }
            // Forth again, and much further: full, and no more than full.
            server.hold(START + TEN_YEARS);
            assert_eq!(client.ask("TB.ACQUIRE k 100 1 1"), [1, 99, 0, 1_000]);
        }
    }
}

/// TB.PEEK after a step back answers with the level as it was, and writes nothing, on
/// a primary as on a replica, however often it is asked.
#[test]
fn peeks_after_a_step_back_write_nothing() {
    let primary = Server::builder()
        .module(module_path())
        .held_clock(START)
        .start();
    let replica = Server::builder()
        .module(module_path())
        .held_clock(START)
        .replica_of(&primary)
        .start();
    primary.raw().ask("TB.ACQUIRE k 10 1 7");
    replica.wait_for_sync(&primary);
    for server in [&primary, &replica] {
        let mut client = server.raw();
        let changes = || server.info("persistence")["rdb_changes_since_last_save"].clone();
        for by in [11, 86_400] {
            server.step_back(Duration::from_secs(by));
            let before = (server.keys(), changes());
            for (cost, wait) in [("0", 0), ("4", 1_000), ("11", -1)] {
                let want = [i64::from(wait == 0), 3, wait, 7_000];
                assert_eq!(client.ask(&format!("TB.PEEK k 10 1 {cost}")), want);
            }
            assert_eq!((server.keys(), changes()), before);
        }
    }
}
