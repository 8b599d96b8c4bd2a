//! The three promises, as properties: against an ideal bucket in fractions that
//! are never rounded, and reply by reply against the contract in big integers.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test"
)]

use std::collections::HashMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;
use tokenbucket_core::{
    Amount, Bucket, Decision, Effect, Limit, Outcome, Rate, MAX_LEVEL, MAX_STAMP, MIN_LEVEL,
};
use tokenbucket_testkit::model::{self, Exact, SpecStore};

const NOW: u64 = 1_800_000_000_000_000;
const TEN_YEARS_US: u64 = 10 * 365 * 86_400 * 1_000_000;
const TOKEN: i128 = 1_000_000_000_000_000_000;

fn limit(capacity: &str, rate: &str) -> Limit {
    Limit {
        capacity: Amount::parse(capacity.as_bytes()).unwrap(),
        rate: Rate::parse(rate.as_bytes()).unwrap(),
    }
}

/// Amounts over the whole range, as texts: whole, fractional, tiny and huge.
fn amount() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0_u32..50).prop_map(|n| n.to_string()),
        2 => (0_u32..1000, 0_u32..1000).prop_map(|(n, f)| format!("{n}.{f:03}")),
        1 => (1_u64..10, -12_i32..12).prop_map(|(n, e)| format!("{n}e{e}")),
        1 => prop_oneof![Just("0"), Just("1e-12"), Just("1e12")].prop_map(str::to_string),
    ]
}

fn rate() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (1_u32..5000).prop_map(|n| n.to_string()),
        3 => (1_u32..100, 1_u32..100, "(ms|s|m|h|d)").prop_map(|(n, k, unit)| format!("{n}/{k}{unit}")),
        1 => (1_u64..10, -12_i32..12).prop_map(|(n, e)| format!("{n}e{e}")),
        1 => prop_oneof![Just("1e-12"), Just("1e12"), Just("0.1111"), Just("1/d")].prop_map(str::to_string),
    ]
}

/// A step of the clock in microseconds: mostly forward, up to ten years.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..5_000,
        4 => 0_i64..20_000_000,
        1 => 0_i64..TEN_YEARS_US as i64,
        1 => -(TEN_YEARS_US as i64)..0,
        1 => -11_000_000_i64..0,
    ]
}

fn max_wait() -> impl Strategy<Value = u128> {
    prop_oneof![
        2 => Just(0),
        4 => 0_u128..30_000,
        1 => 0_u128..100_000_000_000,
        1 => Just(u128::from(u64::MAX)),
        1 => Just(u128::MAX),
    ]
}

fn forward() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..5_000,
        4 => 0_u64..20_000_000,
        1 => 0_u64..TEN_YEARS_US,
    ]
}

fn fraction(text: &str) -> BigRational {
    model::Amount::parse(text.as_bytes()).map_or_else(
        |_| model::Rate::parse(text.as_bytes()).unwrap().exact,
        |amount| BigRational::new(amount.pico, BigInt::from(1_000_000_000_000_u64)),
    )
}

/// What the fixed point says a rate is, in tokens per second.
fn held_rate(rate: Rate) -> BigRational {
    BigRational::new(
        BigInt::from(rate.fixed()),
        BigInt::from(1_000_000_000_000_u64) << 24,
    )
}

/// A bucket at a key, as the module keeps it: nothing, or a bucket until it
/// expires.
#[derive(Default)]
struct Store {
    keys: HashMap<&'static str, (Bucket, u64)>,
}

impl Store {
    fn bucket(&self, key: &str, limit: &Limit, now: u64) -> Bucket {
        match self.keys.get(key) {
            Some((bucket, expires_at_ms)) if now / 1000 <= *expires_at_ms => *bucket,
            _ => Bucket::full(limit, now),
        }
    }

    fn apply(&mut self, key: &'static str, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Put {
                bucket,
                expires_at_ms,
            } => {
                // Through the bytes, as it is stored.
                let bucket = Bucket::decode(&bucket.encode()).unwrap();
                self.keys.insert(key, (bucket, expires_at_ms));
            }
            Effect::Delete => {
                self.keys.remove(key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Reply by reply and byte by byte as the contract: all commands mixed, with
    /// capacity and rate that change from call to call and a clock that goes both
    /// ways.
    #[test]
    fn every_decision_is_the_contracts(
        calls in proptest::collection::vec(
            (step(), amount(), rate(), amount(), 0_u8..4, 0_u8..10, max_wait()), 1..40)
    ) {
        let mut ours = Store::default();
        let mut model = SpecStore::new();
        let mut now = NOW as i64;
        let mut kept = (calls[0].1.clone(), calls[0].2.clone());
        for (step, capacity, rate, cost, choice, command, max_wait_ms) in calls {
            if step < 0 {
                // A key that is over is gone for good before the clock goes back.
                ours.keys.retain(|_, (_, expiry)| now as u64 / 1000 <= *expiry);
                model.expire(now);
            }
            now = (now + step).max(0);
            if choice == 0 {
                kept = (capacity, rate);
            }
            let (capacity, rate) = (&kept.0, &kept.1);
            let limit = limit(capacity, rate);
            let bucket = ours.bucket("k", &limit, now as u64);
            let amount = Amount::parse(cost.as_bytes()).unwrap();
            let (name, decision) = match command {
                0..=4 => ("TB.ACQUIRE", bucket.acquire(&limit, amount, now as u64)),
                5 | 6 => ("TB.RESERVE", bucket.reserve(&limit, amount, max_wait_ms, now as u64)),
                7 => ("TB.DEBIT", bucket.debit(&limit, amount, now as u64)),
                _ => ("TB.CREDIT", bucket.credit(&limit, amount, now as u64)),
            };
            ours.apply("k", decision.effect);

            let max_wait_ms = max_wait_ms.to_string();
            let mut line = vec![name, "k", capacity, rate, &cost];
            if name == "TB.RESERVE" {
                line.push(&max_wait_ms);
            }
            let bytes: Vec<_> = line.iter().map(|word| word.as_bytes()).collect();
            let want = model.call(&bytes, now).unwrap().four();
            let (allowed, retry) = match decision.outcome {
                Outcome::Allowed { wait } => (1, wait.millis_ceil()),
                Outcome::Denied { retry_after } => (0, retry_after.millis_ceil()),
                Outcome::Never => (0, -1),
            };
            let got = [allowed, decision.remaining as i64, retry, decision.reset_after.millis_ceil()];
            prop_assert_eq!(got, want, "{:?} at {}", line, now);
            let alive = ours.keys.get("k").filter(|(_, expiry)| now as u64 / 1000 <= *expiry);
            if let Some((bucket, expiry)) = alive {
                prop_assert_eq!(model.stored(b"k"), Some(bucket.encode()));
                prop_assert_eq!(model.expires_at_ms(b"k"), Some(*expiry as i64));
            }
        }
    }

    /// Whoever waits as long as a reservation says finds the level at or above
    /// zero, and a microsecond earlier below it. Denied, the same call is allowed
    /// at the instant named, and a microsecond earlier it is not.
    #[test]
    fn reservations_keep_their_word(
        capacity in amount(), rate in rate(), level in -40 * TOKEN..50 * TOKEN,
        elapsed in forward(), cost in amount(), max_wait_ms in max_wait()
    ) {
        let limit = limit(&capacity, &rate);
        let cost = Amount::parse(cost.as_bytes()).unwrap();
        let bucket = Bucket::new(level, NOW);
        let now = NOW + elapsed;
        let decision = bucket.reserve(&limit, cost, max_wait_ms, now);
        match decision.outcome {
            Outcome::Never => prop_assert!(cost > limit.capacity),
            Outcome::Allowed { wait } => {
                prop_assert!(wait.micros() <= max_wait_ms.saturating_mul(1000));
                let after = match decision.effect {
                    Effect::Put { bucket, .. } => bucket,
                    _ => bucket,
                };
                let Ok(wait) = u64::try_from(wait.micros()) else { return Ok(()) };
                if now.saturating_add(wait) > MAX_STAMP { return Ok(()); }
                prop_assert!(after.level_at(&limit, now + wait) >= 0);
                prop_assert!(wait == 0 || after.level_at(&limit, now + wait - 1) < 0);
            }
            Outcome::Denied { retry_after } => {
                prop_assert_eq!(decision.effect, Effect::Nothing);
                let Ok(wait) = u64::try_from(retry_after.micros()) else { return Ok(()) };
                if now.saturating_add(wait) > MAX_STAMP { return Ok(()); }
                prop_assert!(wait > 0);
                let allowed = |at| bucket.reserve(&limit, cost, max_wait_ms, at).is_allowed();
                prop_assert!(allowed(now + wait));
                prop_assert!(!allowed(now + wait - 1));
            }
        }
    }

    /// What is taken and given back is as if nothing had been, and giving lifts
    /// no bucket above its capacity.
    #[test]
    fn credit_undoes_a_debit(
        capacity in amount(), rate in rate(), level in -40 * TOKEN..50 * TOKEN, amount in amount()
    ) {
        let limit = limit(&capacity, &rate);
        let amount = Amount::parse(amount.as_bytes()).unwrap();
        let bucket = Bucket::new(level, NOW);
        let before = bucket.level_at(&limit, NOW);
        let after = |decision: Decision, unchanged: Bucket| match decision.effect {
            Effect::Put { bucket, .. } => bucket,
            Effect::Delete => Bucket::full(&limit, NOW),
            Effect::Nothing => unchanged,
        };
        let debited = after(bucket.debit(&limit, amount, NOW), bucket);
        prop_assert_eq!(debited.level_at(&limit, NOW), before - amount.attotokens());
        let credited = after(debited.credit(&limit, amount, NOW), debited);
        prop_assert_eq!(credited.level_at(&limit, NOW), before);
        let more = after(bucket.credit(&limit, amount, NOW), bucket);
        let most = limit.capacity.attotokens();
        prop_assert_eq!(more.level_at(&limit, NOW), (before + amount.attotokens()).min(most));
    }

    /// Promise 1: over any stretch at most `capacity + rate * t` goes through.
    #[test]
    fn no_stretch_lets_more_through(
        capacity in amount(), rate in rate(),
        calls in proptest::collection::vec((forward(), amount()), 1..30)
    ) {
        let limit = limit(&capacity, &rate);
        let mut store = Store::default();
        let mut now = NOW;
        let mut admitted = Vec::new();
        for (step, cost) in &calls {
            now += step;
            let cost = Amount::parse(cost.as_bytes()).unwrap();
            let decision = store.bucket("k", &limit, now).acquire(&limit, cost, now);
            store.apply("k", decision.effect);
            if decision.is_allowed() {
                admitted.push((now, cost.attotokens()));
            }
        }
        for first in 0..admitted.len() {
            let mut sum = 0_i128;
            for (at, cost) in &admitted[first..] {
                sum += cost;
                let seconds = BigRational::new(
                    BigInt::from(at - admitted[first].0),
                    BigInt::from(1_000_000),
                );
                let most = fraction(&capacity) + held_rate(limit.rate) * seconds;
                let sum = BigRational::new(BigInt::from(sum), BigInt::from(TOKEN));
                prop_assert!(sum <= most, "{sum} of at most {most}");
            }
        }
    }

    /// Promise 2: refused until exactly the instant that we named, and the
    /// milliseconds are less than one more than that.
    #[test]
    fn refused_until_the_instant_named(
        capacity in amount(), rate in rate(), level in MIN_LEVEL..=MAX_LEVEL,
        small in 0_i128..3 * TOKEN, take_small in any::<bool>(), elapsed in forward(), cost in amount()
    ) {
        let limit = limit(&capacity, &rate);
        let level = if take_small { small } else { level };
        let bucket = Bucket::new(level, NOW);
        let cost = Amount::parse(cost.as_bytes()).unwrap();
        let now = NOW + elapsed;
        let decision = bucket.acquire(&limit, cost, now);
        match decision.outcome {
            Outcome::Never => prop_assert!(cost > limit.capacity),
            Outcome::Allowed { .. } => prop_assert!(bucket.level_at(&limit, now) >= cost.attotokens()),
            Outcome::Denied { retry_after } => {
                prop_assert!(cost <= limit.capacity);
                prop_assert!(retry_after.millis_ceil() >= 1);
                let Ok(wait) = u64::try_from(retry_after.micros()) else { return Ok(()) };
                if now.saturating_add(wait) > MAX_STAMP { return Ok(()); }
                let allowed_at = |at| bucket.acquire(&limit, cost, at).is_allowed();
                prop_assert!(allowed_at(now + wait));
                prop_assert!(!allowed_at(now + wait - 1), "a microsecond early");
                let millis = retry_after.millis_ceil() as u64;
                prop_assert!(millis * 1000 >= wait && millis * 1000 < wait + 1000);
            }
        }
    }

    /// The bucket is full at the instant that the reset names, and not before.
    #[test]
    fn full_at_the_instant_named(
        capacity in amount(), rate in rate(), level in -3 * TOKEN..50 * TOKEN, cost in amount()
    ) {
        let limit = limit(&capacity, &rate);
        let bucket = Bucket::new(level, NOW);
        let decision = bucket.acquire(&limit, Amount::parse(cost.as_bytes()).unwrap(), NOW);
        let bucket = match decision.effect {
            Effect::Put { bucket, .. } => bucket,
            _ => bucket,
        };
        let Ok(wait) = u64::try_from(decision.reset_after.micros()) else { return Ok(()) };
        if NOW.saturating_add(wait) > MAX_STAMP { return Ok(()); }
        let full = limit.capacity.attotokens();
        prop_assert_eq!(bucket.level_at(&limit, NOW + wait), full);
        if wait > 0 {
            prop_assert!(bucket.level_at(&limit, NOW + wait - 1) < full);
        }
    }

    /// Promise 3: against fractions that are never rounded, each write loses
    /// less than one attotoken, and the rate gives less than 2^-24 attotoken per
    /// microsecond too much. Capacity and rate change meanwhile.
    #[test]
    fn nothing_drifts(
        first in (amount(), rate()),
        calls in proptest::collection::vec((forward(), amount(), rate(), amount(), 0_u8..5), 1..40)
    ) {
        let (mut capacity, mut rate) = first;
        let mut bucket = Bucket::full(&limit(&capacity, &rate), NOW);
        let mut exact = Exact::new(fraction(&capacity), model::Rate::parse(rate.as_bytes()).unwrap().exact, NOW as i64);
        let mut now = NOW;
        let mut lost = BigRational::from_integer(0.into());
        let mut gained = lost.clone();
        let atto = BigRational::new(1.into(), BigInt::from(TOKEN));
        for (step, other_capacity, other_rate, cost, choice) in calls {
            now += step;
            if choice == 0 {
                (capacity, rate) = (other_capacity, other_rate);
                exact.set_limit(fraction(&capacity), model::Rate::parse(rate.as_bytes()).unwrap().exact);
            }
            let limit = limit(&capacity, &rate);
            let cost = Amount::parse(cost.as_bytes()).unwrap();
            let decision = bucket.acquire(&limit, cost, now);
            let elapsed = now - bucket.stamp();
            let level = bucket.level_at(&limit, now);
            gained += BigRational::new(BigInt::from(elapsed), BigInt::from(1_u64 << 24)) * &atto;
            let ideal = exact.level(now as i64);
            let ours = BigRational::new(BigInt::from(level), BigInt::from(TOKEN));
            prop_assert!(ours > &ideal - &lost - &atto, "{ours} is too little for {ideal}");
            prop_assert!(ours <= &ideal + &gained, "{ours} is too much for {ideal}");
            if let Effect::Put { bucket: put, .. } = decision.effect {
                bucket = put;
                exact.take(&BigRational::new(BigInt::from(cost.attotokens()), BigInt::from(TOKEN)), now as i64);
                lost += &atto;
            }
        }
    }

    /// The level stays in its bounds whatever the bytes say, and what is stored is
    /// below the capacity, with an expiry that is ahead and at most a hundred
    /// years away.
    #[test]
    fn bounds_hold_for_any_bytes(
        mut bytes in proptest::array::uniform20(any::<u8>()),
        capacity in amount(), rate in rate(), cost in amount(), now in 0_u64..=u64::MAX
    ) {
        bytes[0] = 0x90 | bytes[0] & 0x0f;
        let bucket = Bucket::decode(&bytes).unwrap();
        prop_assert_eq!(bucket.encode(), bytes);
        let limit = limit(&capacity, &rate);
        let cost = Amount::parse(cost.as_bytes()).unwrap();
        let decision = bucket.acquire(&limit, cost, now);
        let held = now.min(MAX_STAMP);
        prop_assert!(u128::from(decision.remaining) <= limit.capacity.picotokens() / 1_000_000_000_000);
        prop_assert_eq!(decision.clock_stepped, bucket.stamp() > held);
        let level = bucket.level_at(&limit, now);
        prop_assert!((MIN_LEVEL..=limit.capacity.attotokens()).contains(&level));
        match decision.effect {
            Effect::Put { bucket: put, expires_at_ms } => {
                let taken = decision.is_allowed() && !cost.is_zero();
                prop_assert!(taken || decision.clock_stepped);
                prop_assert_eq!(put.stamp(), if taken { held } else { held.min(bucket.stamp()) });
                let want = if taken { level - cost.attotokens() } else { bucket.level() };
                prop_assert_eq!(put.level(), want);
                prop_assert!(put.level() < limit.capacity.attotokens());
                prop_assert!(expires_at_ms > held / 1000);
                prop_assert!(expires_at_ms - held / 1000 <= 100 * 365 * 86_400_000);
            }
            Effect::Delete => prop_assert!(decision.clock_stepped && bucket.level() >= limit.capacity.attotokens()),
            Effect::Nothing => prop_assert!(!decision.clock_stepped && (!decision.is_allowed() || cost.is_zero())),
        }
    }
}

/// Takes the smallest amount `writes` times over `micros`, so that each write
/// brings the level up to date, and gives the level after it, with what was taken
/// put back.
fn in_small_writes(limit: &Limit, start: Bucket, writes: u64, micros: u64) -> i128 {
    let smallest = Amount::from_picotokens(1).unwrap();
    let mut bucket = start;
    for write in 1..=writes {
        let now = start.stamp() + micros / writes * write;
        let decision = bucket.acquire(limit, smallest, now);
        let Effect::Put { bucket: put, .. } = decision.effect else {
            panic!("not written: {decision:?}")
        };
        bucket = put;
    }
    bucket.level() + i128::from(writes) * smallest.attotokens()
}

/// One wait split into a million writes gives the level of the one wait: less
/// than a million attotokens are lost, which is a millionth of a millionth of a
/// token.
#[test]
fn a_wait_split_into_a_million() {
    for rate in [
        "1/3s",
        "0.1111",
        "1/7h",
        "3000",
        "100/m",
        "999.999999999999",
    ] {
        let limit = limit("1000000000", rate);
        let start = Bucket::new(TOKEN, NOW);
        let micros = 60_000_000;
        let whole = start.level_at(&limit, NOW + micros);
        let split = in_small_writes(&limit, start, 1_000_000, micros);
        assert!(split <= whole, "{rate}: more by splitting");
        assert!(
            whole - split < 1_000_000,
            "{rate}: {} attotokens lost",
            whole - split
        );
    }
}

/// Asking a million times on the way changes nothing at all.
#[test]
fn a_million_questions_change_nothing() {
    let limit = limit("1000000000", "1/3s");
    let bucket = Bucket::new(TOKEN / 2, NOW);
    for call in 0..1_000_000 {
        let decision = bucket.acquire(&limit, Amount::MAX, NOW + call * 60);
        assert_eq!(
            (decision.outcome, decision.effect),
            (Outcome::Never, Effect::Nothing)
        );
    }
}

/// The clock goes back, a second or ten years: no token is lost, none is minted,
/// and refill goes on at once.
#[test]
fn a_clock_set_back() {
    let limit = limit("10", "1");
    let cost = |text: &str| Amount::parse(text.as_bytes()).unwrap();
    for back in [1, 11_000_000, 86_400_000_000, TEN_YEARS_US] {
        let bucket = Bucket::new(3 * TOKEN, NOW);
        let now = NOW - back;
        let decision = bucket.acquire(&limit, cost("5"), now);
        assert!(decision.clock_stepped);
        assert_eq!(decision.remaining, 3);
        let Effect::Put {
            bucket,
            expires_at_ms,
        } = decision.effect
        else {
            panic!("not written: {decision:?}")
        };
        assert_eq!(bucket, Bucket::new(3 * TOKEN, now));
        assert_eq!(expires_at_ms, (now + 7_000_000).div_ceil(1000));
        let later = bucket.acquire(&limit, cost("5"), now + 2_000_000);
        assert!(later.is_allowed() && !later.clock_stepped);
    }
}
