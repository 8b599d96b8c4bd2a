//! The two halves of the model against each other: what the contract promises
//! must hold for the model before it can be asked of the module.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects)] // a failure is a failed test

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use tokenbucket_testkit::model::{Amount, Exact, Rate, SpecStore};

const START: i64 = 1_700_000_000_000_000;

/// A small generator (xorshift), so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let at = self.below(u64::try_from(from.len()).unwrap());
        from.get(usize::try_from(at).unwrap()).unwrap()
    }

    fn amount(&mut self, from: &[&str]) -> Amount {
        Amount::parse(self.pick(from).as_bytes()).unwrap()
    }

    /// Mostly short waits, sometimes long ones.
    fn wait_us(&mut self) -> i64 {
        let scale = self.pick(&["1", "1000", "1000000", "1000000000"]);
        let scale: u64 = scale.parse().unwrap();
        i64::try_from(self.below(4 * scale)).unwrap()
    }
}

const CAPACITIES: [&str; 6] = ["1", "10", "0.5", "1000", "1e12", "2.000000000001"];
const RATES: [&str; 8] = [
    "1", "1/3s", "1/d", "0.1111", "8000", "1e12", "1/7ms", "1e-12",
];
const COSTS: [&str; 6] = ["1", "0", "0.1", "3", "0.000000000001", "999"];

/// Drives both with one limit; gives every level of the first beside the second.
fn drive(seed: u64, mut look: impl FnMut(&SpecStore, &Exact, &Amount, &Rate, i64, u32)) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let capacity = dice.amount(&CAPACITIES);
    let rate = Rate::parse(dice.pick(&RATES).as_bytes()).unwrap();
    let mut store = SpecStore::new();
    let mut exact = Exact::new(capacity.exact.clone(), rate.exact.clone(), START);
    let mut now_us = START;
    let mut writes = 0;
    for _ in 0..200 {
        now_us += dice.wait_us();
        let amount = dice.amount(&COSTS);
        match dice.below(8) {
            0 => {
                store.credit(b"k", &capacity, &rate, &amount, now_us);
                exact.give(&amount.exact, now_us);
            }
            1 => {
                store.debit(b"k", &capacity, &rate, &amount, now_us);
                exact.take(&amount.exact, now_us);
            }
            _ => {
                let reply = store.acquire(b"k", &capacity, &rate, &amount, now_us);
                if reply.first() == Some(&1) {
                    exact.take(&amount.exact, now_us);
                }
            }
        }
        writes += 1;
        look(&store, &exact, &capacity, &rate, now_us, writes);
    }
}

#[test]
fn nothing_drifts() {
    let atto = BigRational::new(BigInt::one(), BigInt::from(10).pow(18));
    for seed in 1..=30 {
        drive(seed, |store, exact, capacity, rate, now_us, writes| {
            let level = match store.keys.get(b"k".as_slice()) {
                // Its expiry may lie behind us: it is full then by its level too.
                Some((bucket, _)) => bucket.level_at(capacity, rate, now_us),
                None => capacity.atto(),
            };
            let off = BigRational::from(level) - exact.level(now_us) / &atto;
            // Each write rounds down by less than one attotoken; the rate is
            // rounded up by less than 2^-24 attotoken per microsecond.
            let lost = BigRational::from(BigInt::from(-i64::from(writes) - 1));
            let won = BigRational::new(BigInt::from(now_us - START), BigInt::from(1 << 24));
            assert!(
                lost < off && off <= won,
                "seed {seed}, write {writes}: {off}"
            );
        });
    }
}

#[test]
fn a_denied_caller_is_let_through_just_when_told() {
    let mut denied = 0;
    for seed in 1..=30 {
        drive(seed, |store, _, capacity, rate, now_us, _| {
            for cost in COSTS {
                let cost = Amount::parse(cost.as_bytes()).unwrap();
                let allowed_at = |at_us| {
                    let [allowed, _, retry_ms, reset_ms] =
                        store.peek(b"k", capacity, rate, &cost, at_us);
                    (allowed == 1, retry_ms, reset_ms)
                };
                match allowed_at(now_us) {
                    (true, retry_ms, _) => assert_eq!(retry_ms, 0),
                    (false, -1, _) => assert!(cost.atto() > capacity.atto()),
                    (false, retry_ms, reset_ms) => {
                        denied += 1;
                        assert!(retry_ms >= 1 && reset_ms >= retry_ms);
                        // Beyond 100 years the key is gone, and the bucket full.
                        let Some(wait_us) = retry_ms.checked_mul(1_000) else {
                            continue;
                        };
                        if retry_ms > 90 * 365 * 86_400_000 {
                            continue;
                        }
                        assert!(allowed_at(now_us + wait_us).0);
                        assert!(!allowed_at(now_us + wait_us - 1_000).0);
                    }
                }
            }
        });
    }
    assert!(denied > 1_000, "only {denied}");
}

#[test]
fn a_bucket_is_full_at_its_expiry_and_not_a_millisecond_before() {
    for seed in 1..=30 {
        drive(seed, |store, _, capacity, rate, now_us, _| {
            let Some((bucket, at_ms)) = store.keys.get(b"k".as_slice()) else {
                return;
            };
            if *at_ms - now_us / 1_000 >= 90 * 365 * 86_400_000 {
                return;
            }
            let missing = |at_us| capacity.atto() - bucket.level_at(capacity, rate, at_us);
            assert!(missing(at_ms * 1_000).is_zero());
            assert!(!missing((at_ms - 1) * 1_000).is_zero());
        });
    }
}
