//! The model on cases worked out by hand.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing
)] // a failure is a failed test

use num_bigint::BigInt;
use tokenbucket_testkit::model::{
    level_floor, SpecBucket, SpecReply, SpecStore, TextError, LAST_STAMP_US,
};

/// A store and its clock.
struct Scene {
    store: SpecStore,
    now_us: i64,
}

const T: i64 = 1_700_000_000_000_000;
const MS: i64 = 1_000;
const S: i64 = 1_000_000;
const ATTO: i64 = 1_000_000_000_000_000_000;

impl Scene {
    fn new() -> Self {
        Self {
            store: SpecStore::new(),
            now_us: T,
        }
    }

    fn all(&mut self, line: &str) -> Result<SpecReply, TextError> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.store.call(&args, self.now_us)
    }

    fn tb(&mut self, line: &str) -> [i64; 4] {
        self.all(line).unwrap().four()
    }

    /// The level in attotokens and the stamp after `T`, as stored at `k`.
    fn k(&self) -> Option<(BigInt, i64)> {
        let bucket = SpecBucket::from_bytes(&self.store.stored(b"k")?)?;
        Some((bucket.level_atto, bucket.stamp_us - T))
    }

    fn ttl_ms(&self) -> i64 {
        self.store.expires_at_ms(b"k").unwrap() - self.now_us / MS
    }
}

fn tokens(count: i64) -> BigInt {
    BigInt::from(ATTO) * count
}

#[test]
fn ten_calls_then_a_denial_that_leaves_nothing() {
    let mut s = Scene::new();
    for left in (0..10).rev() {
        assert_eq!(
            s.tb("TB.ACQUIRE k 10 1 1"),
            [1, left, 0, (10 - left) * 1_000]
        );
    }
    let before = s.store.keys.clone();
    s.now_us += 500 * MS;
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 1"), [0, 0, 500, 9_500]);
    assert_eq!(s.tb("TB.PEEK k 10 1"), [0, 0, 500, 9_500]);
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 0"), [1, 0, 0, 9_500]);
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 11"), [0, 0, -1, 9_500]);
    assert_eq!(s.store.keys, before);
    s.now_us += 500 * MS;
    assert_eq!(s.tb("TB.PEEK k 10 1"), [1, 0, 0, 10_000]);
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 1"), [1, 0, 0, 10_000]);
}

#[test]
fn slow_rates_answer_neither_a_millisecond_more_nor_less() {
    for (rate, ms) in [("1/3s", 3_000), ("1/d", 86_400_000), ("1/7d", 604_800_000)] {
        let mut s = Scene::new();
        assert_eq!(
            s.tb(&format!("TB.ACQUIRE k 1 {rate} 1")),
            [1, 0, 0, ms],
            "{rate}"
        );
        assert_eq!(
            s.tb(&format!("TB.ACQUIRE k 1 {rate} 1")),
            [0, 0, ms, ms],
            "{rate}"
        );
        assert_eq!(s.ttl_ms(), ms, "{rate}");
        s.now_us += ms * MS - 1;
        assert_eq!(
            s.tb(&format!("TB.ACQUIRE k 1 {rate} 1"))[..3],
            [0, 0, 1],
            "{rate}"
        );
        s.now_us += 1;
        assert_eq!(s.tb(&format!("TB.ACQUIRE k 1 {rate} 1"))[0], 1, "{rate}");
    }
}

#[test]
fn waits_are_whole_microseconds_rounded_up() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 1 3000 1");
    // 333.33 us; then 33.33 us are left.
    assert_eq!(s.tb("TB.ACQUIRE k 1 3000 1"), [0, 0, 1, 1]);
    s.now_us += 333;
    assert_eq!(s.tb("TB.ACQUIRE k 1 3000 1")[0], 0);
    s.now_us += 1;
    assert_eq!(s.tb("TB.ACQUIRE k 1 3000 1")[0], 1);
    // The refill is cut to the capacity, not carried over.
    assert_eq!(s.k().unwrap(), (tokens(0), 334));
}

#[test]
fn the_fraction_that_has_flowed_in_is_stored_rounded_down() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 10 1/3s 5");
    s.now_us += 1;
    s.tb("TB.ACQUIRE k 10 1/3s 1");
    // floor(ceil(10^12 / 3 * 2^24) / 2^24) = 333,333,333,333
    assert_eq!(s.k().unwrap(), (tokens(4) + 333_333_333_333_i64, 1));
}

#[test]
fn a_key_lives_until_the_bucket_is_full() {
    let mut s = Scene::new();
    s.now_us += 1;
    s.tb("TB.ACQUIRE k 10 1 10");
    assert_eq!(s.ttl_ms(), 10_001);
    s.now_us += 10_001 * MS - 1;
    // The millisecond of the expiry itself still belongs to the key.
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 0"), [1, 10, 0, 0]);
    assert!(s.k().is_some());
    s.now_us += MS;
    s.store.expire(s.now_us);
    assert!(s.k().is_none());
}

#[test]
fn no_key_outlives_a_hundred_years() {
    let mut s = Scene::new();
    let reply = s.tb("TB.ACQUIRE k 1e12 1e-12 1e12");
    // 10^24 s are 10^27 ms.
    assert_eq!(reply, [1, 0, 0, i64::MAX]);
    assert_eq!(s.ttl_ms(), 100 * 365 * 86_400_000);
}

#[test]
fn years_of_idleness_are_a_full_bucket() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 1e12 1e12 1e12");
    s.store.keys.get_mut(b"k".as_slice()).unwrap().1 = i64::MAX;
    s.now_us += 10 * 365 * 86_400 * S;
    assert_eq!(s.tb("TB.ACQUIRE k 1e12 1e12 1e12"), [1, 0, 0, 1_000]);
}

#[test]
fn capacity_0_blocks() {
    let mut s = Scene::new();
    assert_eq!(s.tb("TB.ACQUIRE k 0 1 1"), [0, 0, -1, 0]);
    assert_eq!(s.tb("TB.ACQUIRE k 0 1 0"), [1, 0, 0, 0]);
    assert!(s.k().is_none());
    s.tb("TB.DEBIT k 0 1 2");
    assert_eq!(s.tb("TB.ACQUIRE k 0 1 0"), [0, 0, 2_000, 2_000]);
}

#[test]
fn the_callers_numbers_rule() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 1000 1 1");
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 1"), [1, 9, 0, 1_000]);
    assert_eq!(s.tb("TB.ACQUIRE k 100 50 1"), [1, 8, 0, 1_840]);
    s.now_us += S;
    assert_eq!(s.tb("TB.PEEK k 100 50 0"), [1, 58, 0, 840]);
}

#[test]
fn a_stamp_in_the_future_is_rebased() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 10 1 7");
    s.now_us = T - 11 * S;
    let expected = [0, 3, 1_000, 7_000];
    assert_eq!(s.tb("TB.PEEK k 10 1 4"), expected);
    assert_eq!(s.k().unwrap(), (tokens(3), 0));
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 4"), expected);
    assert_eq!(s.k().unwrap(), (tokens(3), -11 * S));
    assert_eq!(s.ttl_ms(), 7_000);
    s.now_us += S;
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 4"), [1, 0, 0, 10_000]);

    // By these numbers it is full, so there is nothing to say.
    s.now_us -= S;
    s.tb("TB.CREDIT k 10 1 5");
    s.now_us -= S;
    assert_eq!(s.tb("TB.ACQUIRE k 5 1 0"), [1, 5, 0, 0]);
    assert!(s.k().is_none());
}

#[test]
fn now_is_kept_within_what_a_stamp_holds() {
    for (now_us, stamp_us) in [(-5, 0), (i64::MAX, LAST_STAMP_US)] {
        let mut s = Scene::new();
        s.now_us = now_us;
        s.tb("TB.ACQUIRE k 10 1 1");
        assert_eq!(s.k().unwrap().1 + T, stamp_us);
    }
}

#[test]
fn reserve_goes_into_debt_within_the_wait() {
    let mut s = Scene::new();
    assert_eq!(s.tb("TB.RESERVE k 10 1 10 0"), [1, 0, 0, 10_000]);
    assert_eq!(s.tb("TB.RESERVE k 10 1 2 1999"), [0, 0, 1, 10_000]);
    assert_eq!(s.tb("TB.RESERVE k 10 1 2 2000"), [1, 0, 2_000, 12_000]);
    assert_eq!(s.k().unwrap(), (tokens(-2), 0));
    assert_eq!(
        s.tb("TB.RESERVE k 10 1 11 99999999999999999999"),
        [0, 0, -1, 12_000]
    );
    assert_eq!(s.tb("TB.RESERVE k 10 1 0 1999"), [0, 0, 1, 12_000]);
    assert_eq!(s.tb("TB.RESERVE k 10 1 0 2000"), [1, 0, 2_000, 12_000]);
    assert_eq!(s.tb("TB.ACQUIRE k 10 1 0"), [0, 0, 2_000, 12_000]);
    assert_eq!(s.ttl_ms(), 12_000);
}

#[test]
fn credit_fills_and_deletes() {
    let mut s = Scene::new();
    assert_eq!(s.tb("TB.CREDIT k 10 1 1"), [1, 10, 0, 0]);
    assert!(s.k().is_none());
    s.tb("TB.ACQUIRE k 10 1 5");
    assert_eq!(s.tb("TB.CREDIT k 10 1 0"), [1, 5, 0, 5_000]);
    assert_eq!(s.tb("TB.CREDIT k 10 1 2"), [1, 7, 0, 3_000]);
    assert_eq!(s.tb("TB.CREDIT k 10 1 3"), [1, 10, 0, 0]);
    assert!(s.k().is_none());
}

#[test]
fn debit_takes_whatever_is_there() {
    let mut s = Scene::new();
    assert_eq!(s.tb("TB.DEBIT k 10 1 25"), [1, 0, 0, 25_000]);
    assert_eq!(s.k().unwrap(), (tokens(-15), 0));
    for _ in 0..11 {
        s.tb("TB.DEBIT k 10 1e-12 1e12");
    }
    assert_eq!(s.k().unwrap().0, level_floor());
}

#[test]
fn macquire_takes_all_or_none() {
    let mut s = Scene::new();
    let all = |allowed, retry_after_ms, each: &[[i64; 4]]| {
        Ok(SpecReply::All {
            allowed,
            retry_after_ms,
            each: each.to_vec(),
        })
    };
    assert_eq!(
        s.all("TB.MACQUIRE k 10 1 4 j 5 1 3"),
        all(1, 0, &[[1, 6, 0, 4_000], [1, 2, 0, 3_000]])
    );
    let before = s.store.keys.clone();
    assert_eq!(
        s.all("TB.MACQUIRE k 10 1 4 j 5 1 3"),
        all(0, 1_000, &[[1, 6, 0, 4_000], [0, 2, 1_000, 3_000]])
    );
    assert_eq!(
        s.all("TB.MACQUIRE k 10 1 7 j 5 1 6"),
        all(0, -1, &[[0, 6, 1_000, 4_000], [0, 2, -1, 3_000]])
    );
    assert_eq!(s.store.keys, before);
    assert_eq!(s.all("TB.MACQUIRE k 10 1 1 k 10 1 1"), Err(TextError::Call));
    assert_eq!(s.all("TB.MACQUIRE k 10 1"), Err(TextError::Call));
    assert_eq!(s.all("TB.MACQUIRE"), Err(TextError::Call));
}

#[test]
fn a_denied_macquire_rebases_every_bucket() {
    let mut s = Scene::new();
    s.tb("TB.ACQUIRE k 10 1 1");
    s.tb("TB.ACQUIRE j 10 1 10");
    s.now_us -= S;
    s.all("TB.MACQUIRE k 10 1 1 j 10 1 1").unwrap();
    assert_eq!(s.k().unwrap(), (tokens(9), -S));
    assert_eq!(s.ttl_ms(), 1_000);
}

#[test]
fn errors_change_nothing() {
    let mut s = Scene::new();
    for (line, error) in [
        ("TB.ACQUIRE k 10 0 1", TextError::ZeroRate),
        ("TB.ACQUIRE k nan 1 1", TextError::Form),
        ("TB.ACQUIRE k 1e13 1 1", TextError::TooLarge),
        ("TB.ACQUIRE k 10 1 1e-13", TextError::TooSmall),
        ("TB.RESERVE k 10 1 1 -1", TextError::Form),
        ("TB.RESERVE k 10 1 1", TextError::Call),
        ("TB.ACQUIRE k 10 1", TextError::Call),
        ("TB.NONE k 10 1 1", TextError::Call),
        ("GET", TextError::Call),
    ] {
        assert_eq!(s.all(line), Err(error), "{line}");
    }
    assert!(s.store.keys.is_empty());
}
