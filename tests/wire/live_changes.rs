//! Capacity and rate that change from call to call: the caller's numbers rule at
//! once, and nothing is minted.

use std::time::Duration;

use crate::held;

/// Raising the capacity keeps the level; what is new flows in at the new rate.
#[test]
fn raising_gives_nothing_by_itself() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "100", "50", "1"]),
        Ok([1, 8, 0, 1840])
    );
    server.advance(Duration::from_secs(1));
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "100", "50", "0"]),
        Ok([1, 58, 0, 840])
    );
    server.advance(Duration::from_millis(840));
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "100", "50", "0"]),
        Ok([1, 100, 0, 0])
    );
}

/// Lowering the capacity cuts the level on the very call.
#[test]
fn lowering_cuts() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "1000", "1", "1"]),
        Ok([1, 999, 0, 1000])
    );
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    // What was cut is gone.
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "1000", "1", "0"]),
        Ok([1, 9, 0, 991_000])
    );
}

/// A call that takes nothing cuts nothing either.
#[test]
fn asking_with_other_numbers_changes_nothing() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "1000", "1", "1"]).unwrap();
    for cost in ["0", "11"] {
        client.tb(&["TB.ACQUIRE", "k", "10", "5", cost]).unwrap();
        client.tb(&["TB.PEEK", "k", "10", "5", cost]).unwrap();
    }
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "1000", "1", "0"]),
        Ok([1, 999, 0, 1000])
    );
}

/// The time since the last write flows in at the rate of the call that asks.
#[test]
fn time_past_counts_at_the_new_rate() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "100", "1", "100"]).unwrap();
    server.advance(Duration::from_secs(2));
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "100", "1", "0"]),
        Ok([1, 2, 0, 98_000])
    );
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "100", "10", "0"]),
        Ok([1, 20, 0, 8000])
    );
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "100", "10", "1"]),
        Ok([1, 19, 0, 8100])
    );
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "100", "1", "0"]),
        Ok([1, 19, 0, 81_000])
    );
}

/// Changing back and forth mints nothing while time stands still.
#[test]
fn back_and_forth_mints_nothing() {
    let server = held();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "1000", "1", "900"]).unwrap();
    let mut left = 100;
    for (capacity, rate) in [
        ("1000", "1"),
        ("200", "1e9"),
        ("1e12", "1e-12"),
        ("150", "0.5"),
    ]
    .into_iter()
    .cycle()
    .take(100)
    {
        let reply = client
            .tb(&["TB.ACQUIRE", "k", capacity, rate, "1"])
            .unwrap();
        left -= 1;
        assert_eq!(reply[..2], [1, left], "capacity {capacity}, rate {rate}");
    }
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "k", "1e12", "1", "1"]).unwrap()[..2],
        [0, 0]
    );
}
