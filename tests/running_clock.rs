//! Fifty connections on a running clock: what is admitted is within capacity and
//! rate, and nothing of it is lost while more is asked for.
//!
//! A binary of its own, so that no other test takes its processor.
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

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tokenbucket_core::Bucket;
use tokenbucket_testkit::{module_path, RawClient, Reply, Server};

const CONNECTIONS: usize = 50;
const STRETCH_US: i64 = 5_000_000;
/// Calls in one write of a connection.
const PIPELINE: usize = 32;

/// What fifty connections saw.
struct Seen {
    calls: u64,
    admitted: u64,
    /// The server's clock, before the first call and after the last.
    micros: i64,
}

/// Fifty connections call as fast as they can for five seconds of the server's
/// clock.
fn hammer(server: &Server, call: &[&str]) -> Seen {
    let line: Vec<Vec<u8>> = call.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    let calls = vec![line; PIPELINE];
    let mut clients: Vec<RawClient> = (0..CONNECTIONS).map(|_| server.raw()).collect();
    let start = Barrier::new(CONNECTIONS + 1);
    let over = AtomicBool::new(false);
    let from = server.time_us();
    let counts: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let (start, over, calls) = (&start, &over, &calls);
                scope.spawn(move || {
                    let (mut called, mut admitted) = (0, 0);
                    start.wait();
                    while !over.load(Ordering::Relaxed) {
                        for reply in client.pipeline(calls) {
                            called += 1;
                            admitted += reply.four().expect("no error reply, ever")[0] as u64;
                        }
                    }
                    (called, admitted)
                })
            })
            .collect();
        start.wait();
        tokenbucket_testkit::wait_for("the stretch", Duration::from_secs(60), || {
            server.time_us() - from >= STRETCH_US
        });
        over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let micros = server.time_us() - from;
    Seen {
        calls: counts.iter().map(|count| count.0).sum(),
        admitted: counts.iter().map(|count| count.1).sum(),
        micros,
    }
}

const TOKEN: i128 = 1_000_000_000_000_000_000;

/// What is stored; `None` for a full bucket.
fn stored(client: &mut RawClient, key: &str) -> Option<Bucket> {
    let bytes = client.text(&["GET", key]).bytes()?;
    Some(Bucket::decode(&bytes).expect("a bucket"))
}

#[test]
fn admitted_is_capacity_and_rate() {
    let server = Server::builder().module(module_path()).start();
    for rate in [1_u64, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        // All of it is taken at first, so that nothing flows over before the calls begin:
        // only a stall of two seconds would lose anything.
        let capacity = 2 * rate;
        let key = format!("k{rate}");
        let [capacity_text, rate_text] = [capacity, rate].map(|number| number.to_string());
        let mut client = server.raw();
        client
            .tb(&[
                "TB.ACQUIRE",
                &key,
                &capacity_text,
                &rate_text,
                &capacity_text,
            ])
            .unwrap();
        let before = stored(&mut client, &key);
        let call = ["TB.ACQUIRE", &key, &capacity_text, &rate_text, "1"];
        let seen = hammer(&server, &call);
        let after = stored(&mut client, &key);
        let flow = rate as f64 * seen.micros as f64 / 1e6;
        let bound = capacity as f64 + flow;
        println!(
            "rate {rate}: {} calls, {} admitted of at most {bound:.0} in {} us",
            seen.calls, seen.admitted, seen.micros
        );
        assert!(
            seen.admitted as f64 <= bound,
            "more than the bound at {rate}"
        );
        // What was there and what flowed in between the first write and the last, by
        // the stamps in the bytes, less what is left: that is what was admitted. (One
        // that was full in between has lost what flowed over.)
        let offered_exceeds = seen.calls as f64 > 1.5 * flow;
        if offered_exceeds {
            let (before, after) = (before.unwrap(), after.expect("not full"));
            let micros = i128::from(after.stamp() - before.stamp());
            let flowed = micros * i128::from(rate) * TOKEN / 1_000_000;
            let spent = before.level() + flowed - after.level();
            let admitted = i128::from(seen.admitted) * TOKEN;
            assert!(
                (spent / 1_000 * 995..=spent + i128::from(seen.calls)).contains(&admitted),
                "{admitted} attotokens admitted of {spent} at {rate}"
            );
        }
        // Up to here every machine offers more than the rate.
        assert!(
            offered_exceeds || rate > 10_000,
            "only {} calls at {rate}",
            seen.calls
        );
    }
}

/// A01: at 8000 per second and a capacity of 1, the field saw errors of its own
/// number parsing on every second call. Here: no error reply, ever, nor more than
/// the bound.
#[test]
fn a_bucket_of_one_token_at_8000_per_second() {
    let server = Server::builder().module(module_path()).start();
    let from = server.time_us();
    let admitted: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|_| {
                let mut client = server.raw();
                scope.spawn(move || {
                    let mut admitted = 0;
                    for _ in 0..2000 {
                        let reply = client.text(&["TB.ACQUIRE", "k", "1", "8000", "1"]);
                        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
                        admitted += reply.four().unwrap()[0] as u64;
                    }
                    admitted
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let bound = 1.0 + 8000.0 * (server.time_us() - from) as f64 / 1e6;
    assert!(admitted as f64 <= bound, "{admitted} of at most {bound}");
    assert!(admitted > 0);
}
