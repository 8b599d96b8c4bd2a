//! The append-only file: kill -9 and replay.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokenbucket_testkit::{
    module_path, Caller, Limits, Server, ServerBuilder, Traffic, MIXED, SLOW,
};

use crate::START;

const HOUR: Duration = Duration::from_secs(3_600);

/// A server that has synced each write to its file before it answers.
fn always() -> ServerBuilder {
    Server::builder()
        .held_clock(START)
        .appendonly()
        .config("appendfsync", "always")
}

fn with_preamble(preamble: &str) -> Server {
    always()
        .module(module_path())
        .config("aof-use-rdb-preamble", preamble)
        .start()
}

fn callers(count: u64, limits: Limits) -> Vec<Caller> {
    (0..count)
        .map(|number| Caller::new(number, limits))
        .collect()
}

fn total(callers: &[Caller]) -> u64 {
    callers.iter().map(Caller::acknowledged).sum()
}

/// Killed with SIGKILL after acknowledged calls of all six commands, the server
/// starts with the very bytes and the very absolute expiry in each bucket, whether
/// its file was rewritten, as commands or as a snapshot, or not.
#[test]
fn killed_after_acknowledged_calls() {
    for preamble in ["yes", "no"] {
        let mut server = with_preamble(preamble);
        let mut caller = Caller::new(3, MIXED);
        for round in 0..6 {
            caller.run(&server, 300);
            if round % 2 == 1 {
                server.rewrite_aof();
                caller.run(&server, 20);
            }
            let before = server.keys();
            assert!(before.len() > 10, "only {} keys", before.len());
            server.restart();
            assert_eq!(server.keys(), before, "{preamble}, round {round}");
            caller.assert_acknowledged(&server);
            server.advance(Duration::from_micros(1_234_567));
        }
    }
}

/// Killed with SIGKILL in the middle of traffic, while its file is rewritten too,
/// the server starts with every acknowledged call: each bucket is, bit by bit, what
/// the calls left whose answers had come, and at most the one call more whose answer
/// was under way.
#[test]
fn killed_in_the_middle_of_traffic() {
    let mut acknowledged = 0;
    for preamble in ["yes", "no"] {
        let mut server = with_preamble(preamble);
        let mut callers = callers(4, MIXED);
        for round in 0..6 {
            let before = total(&callers);
            let mut traffic = Traffic::start(&server, callers);
            traffic.wait_for_calls(300);
            if round % 2 == 1 {
                let mut paused = Vec::new();
                server.rewrite_aof_while(|| {
                    traffic.wait_for_calls(100);
                    paused = traffic.stop();
                });
                traffic = Traffic::start(&server, paused);
                traffic.wait_for_calls(50);
            }
            if round == 4 && server.version() >= (7, 0, 0) {
                // Killed while it rewrites.
                server.raw().text(&["BGREWRITEAOF"]);
            } else if round == 4 {
                eprintln!(
                    "skipped by name: before 7.0 what rewrites waits for the killed server \
                     as long as its clock stands still"
                );
            }
            server.kill();
            callers = traffic.stop();
            assert!(total(&callers) - before >= 300);
            server.clock().advance(Duration::from_micros(1_234_567));
            server.restart();
            for caller in &mut callers {
                caller.assert_acknowledged(&server);
            }
        }
        acknowledged += total(&callers);
    }
    println!("{acknowledged} acknowledged calls, 12 times killed, none lost");
}

/// What the tests above would say to a call that was lost: a bucket is the one of
/// the call before.
#[test]
#[should_panic(expected = ", not Some")]
fn a_lost_call_would_be_seen() {
    let server = with_preamble("yes");
    let mut caller = Caller::new(4, SLOW);
    caller.run(&server, 100);
    let before = server.keys();
    caller.run(&server, 20);
    let after = server.keys();
    let is_other = |key: &&Vec<u8>| before.contains_key(*key) && before[*key] != after[*key];
    let key = after.keys().find(is_other).unwrap();
    let (bytes, expiry) = &before[key];
    let expiry = expiry.to_string();
    let mut client = server.raw();
    client.call(&[b"SET", key, bytes, b"PXAT", expiry.as_bytes()]);
    caller.assert_acknowledged(&server);
}

/// The same file loads where the module is not, before and after a rewrite there,
/// and comes back to buckets that go on.
#[test]
fn replayed_without_the_module_and_back() {
    for preamble in ["yes", "no"] {
        let folder = tempfile::tempdir().unwrap();
        let builder = || {
            always()
                .config("aof-use-rdb-preamble", preamble)
                .dir(folder.path())
        };
        let server = builder().module(module_path()).start();
        let mut caller = Caller::new(5, MIXED);
        caller.run(&server, 500);
        server.rewrite_aof();
        caller.run(&server, 500);
        let before = server.keys();
        drop(server);
        for rewritten in [false, true] {
            let without = builder().start();
            assert_eq!(without.keys(), before, "{preamble}, {rewritten}");
            without.rewrite_aof();
        }
        let server = builder().module(module_path()).start();
        caller.run(&server, 500);
        caller.assert_acknowledged(&server);
    }
}

/// E02: a replay at another time changes nothing. Played an hour later it gives the
/// same bytes and expiries, less what has expired in that hour; an hour earlier (the
/// clock was wrong before) it gives all of them.
#[test]
fn replayed_at_another_time() {
    for preamble in ["yes", "no"] {
        let mut server = with_preamble(preamble);
        let mut caller = Caller::new(6, MIXED);
        caller.run(&server, 500);
        server.rewrite_aof();
        caller.run(&server, 500);
        let before = server.keys();

        server.kill();
        server.clock().step_back(HOUR);
        server.restart();
        assert_eq!(server.keys(), before, "{preamble}, an hour earlier");

        server.kill();
        server.clock().advance(2 * HOUR);
        server.restart();
        let now_ms = server.clock().now_us() / 1_000;
        let mut alive = before.clone();
        alive.retain(|_, (_, expiry)| *expiry >= now_ms);
        assert!(alive.len() < before.len(), "nothing has expired");
        assert!(!alive.is_empty(), "all has expired");
        assert_eq!(server.keys(), alive, "{preamble}, an hour later");
        caller.run(&server, 500);
        caller.assert_acknowledged(&server);
    }
}

/// Cuts the file to `length` bytes, after what it was before.
fn cut(file: &Path, whole: &[u8], length: u64) {
    fs::write(file, &whole[..length as usize]).unwrap();
}

/// A file whose end was lost within the last effect loads, and the bucket is the one
/// of the effect before; the effects of a transaction are there all or none.
#[test]
fn a_truncated_tail() {
    let mut server = always()
        .module(module_path())
        .config("aof-load-truncated", "yes")
        .start();
    let mut client = server.raw();
    let written = |server: &Server| fs::metadata(server.aof_file()).unwrap().len();
    // The states after each of these, and how long the file was.
    let mut states = Vec::new();
    for call in [
        "TB.ACQUIRE k 10 1/h 2.5",
        "TB.DEBIT k 10 1/h 20",
        "TB.MACQUIRE k 100 1/h 1 l 10 1/h 1 m 10 1/h 1",
        "TB.ACQUIRE l 10 1/h 1",
        "TB.CREDIT k 10 1/h 1",
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        assert_eq!(client.text(&words).error(), None, "{call}");
        states.push((written(&server), server.keys()));
    }
    server.kill();
    let file = server.aof_file();
    let whole = fs::read(&file).unwrap();
    assert_eq!(whole.len() as u64, states[4].0, "all is written");
    let mut cuts = 0;
    for pair in states.windows(2).rev() {
        let [(from, before), (to, after)] = pair else {
            unreachable!("two at a time")
        };
        if from == to {
            assert_eq!(before, after);
            continue;
        }
        cut(&file, &whole, *to);
        server.restart();
        assert_eq!(server.keys(), *after);
        for length in (from + 1..*to).step_by(11).chain([to - 1]) {
            cut(&file, &whole, length);
            server.restart();
            assert_eq!(server.keys(), *before, "{length} bytes of {to}");
            cuts += 1;
        }
    }
    println!("cut at {cuts} places");
}

/// With `aof-load-truncated no` a lost end is refused in words, not guessed at.
#[test]
fn a_truncated_tail_is_refused_where_it_is_configured_so() {
    let mut server = always()
        .module(module_path())
        .config("aof-load-truncated", "no")
        .start();
    Caller::new(7, SLOW).run(&server, 50);
    server.kill();
    let file = server.aof_file();
    let whole = fs::read(&file).unwrap();
    cut(&file, &whole, whole.len() as u64 - 1);
    let error = server.try_restart().unwrap_err();
    assert!(
        error.log().contains("Unexpected end of file"),
        "{}",
        error.log()
    );
    cut(&file, &whole, whole.len() as u64);
    server.restart();
}
