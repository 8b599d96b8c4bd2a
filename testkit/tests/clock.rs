//! The held clock, seen through a real server.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects)] // a failure is a failed test

use std::time::Duration;

use tokenbucket_testkit::Server;

/// 2023-11-14, an instant with a microsecond part.
const START: i64 = 1_700_000_000_123_456;

#[test]
fn time_stands_moves_and_steps_back() {
    let server = Server::builder().held_clock(START).start();
    let shows = |us: i64| assert_eq!(server.time_us(), us);

    shows(START);
    for _ in 0..100 {
        shows(START);
    }
    server.advance(Duration::from_micros(1));
    shows(START + 1);
    server.advance(Duration::from_secs(3_600));
    shows(START + 3_600_000_001);
    server.step_back(Duration::from_secs(86_400));
    shows(START + 3_600_000_001 - 86_400_000_000);
    server.hold(START);
    shows(START);
}

#[test]
fn expiry_follows_the_clock() {
    let server = Server::builder().held_clock(START).start();
    let mut client = server.raw();
    client.text(&["SET", "k", "v", "PX", "10000"]);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 10_000);
    server.advance(Duration::from_millis(9_990));
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 10);
    server.advance(Duration::from_millis(20));
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
}

#[test]
fn the_clock_runs_with_an_offset() {
    let server = Server::builder().held_clock(START).start();
    server.clock().run_with_offset(-86_400_000_000);
    server.settle();
    let first = server.time_us();
    tokenbucket_testkit::wait_for("the clock to run", Duration::from_secs(10), || {
        server.time_us() > first
    });
}

#[test]
fn monotonic_time_goes_on_while_the_clock_stands() {
    let server = Server::builder().held_clock(START).start();
    let mut client = server.raw();
    client.text(&["SET", "k", "v", "PX", "5"]);
    server.advance(Duration::from_millis(10));
    // Nobody touches the key: only the cron, a monotonic timer, can remove it.
    tokenbucket_testkit::wait_for("the cron to expire a key", Duration::from_secs(10), || {
        server.info("stats").get("expired_keys").unwrap() == "1"
    });
}

#[test]
fn a_restarted_server_and_a_second_one_share_the_clock() {
    let mut server = Server::builder().held_clock(START).start();
    let second = Server::builder().clock_of(&server).start();
    server.hold(START + 5_000_000);
    second.settle();
    server.restart();
    assert_eq!(server.time_us(), START + 5_000_000);
    assert_eq!(second.time_us(), START + 5_000_000);
}
