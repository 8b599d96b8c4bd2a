//! The ideal bucket, in fractions that are never rounded.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

/// A bucket whose level and rate are exact fractions: 1/3 token per second is a
/// third. It keeps no capacity or rate of its own beyond the last ones given,
/// reads no texts and knows no bounds; times before the last one count as it.
///
/// A test drives it along with the module, taking from it what the module let
/// through, and states how far apart the two may be.
#[derive(Clone, Debug)]
pub struct Exact {
    capacity: BigRational,
    rate_per_s: BigRational,
    level: BigRational,
    stamp_us: i64,
}

impl Exact {
    /// A full bucket of `capacity` tokens, with `rate_per_s` tokens flowing in
    /// per second.
    pub fn new(capacity: BigRational, rate_per_s: BigRational, now_us: i64) -> Self {
        Self {
            level: capacity.clone(),
            capacity,
            rate_per_s,
            stamp_us: now_us,
        }
    }

    /// The tokens in it at `now_us`; negative while in debt.
    pub fn level(&self, now_us: i64) -> BigRational {
        let elapsed = (i128::from(now_us) - i128::from(self.stamp_us)).max(0);
        let seconds = BigRational::new(BigInt::from(elapsed), BigInt::from(1_000_000));
        (&self.level + &self.rate_per_s * seconds).min(self.capacity.clone())
    }

    /// Takes `cost` tokens if they are there; gives whether they were.
    pub fn try_take(&mut self, cost: &BigRational, now_us: i64) -> bool {
        let there = *cost <= self.level(now_us);
        if there {
            self.take(cost, now_us);
        }
        there
    }

    /// Takes `cost` tokens, whatever is in it.
    pub fn take(&mut self, cost: &BigRational, now_us: i64) {
        self.level = self.level(now_us) - cost;
        self.stamp_us = now_us;
    }

    /// Gives `amount` tokens, up to the capacity.
    pub fn give(&mut self, amount: &BigRational, now_us: i64) {
        self.level = (self.level(now_us) + amount).min(self.capacity.clone());
        self.stamp_us = now_us;
    }

    /// From now on these numbers rule, also for the time since the last change:
    /// the level is kept, and cut to the new capacity when it is looked at.
    pub fn set_limit(&mut self, capacity: BigRational, rate_per_s: BigRational) {
        self.capacity = capacity;
        self.rate_per_s = rate_per_s;
    }

    /// Seconds after `now_us` until the level is `target`, to the last fraction;
    /// 0 when it is now, `None` when it never will be.
    pub fn seconds_until(&self, target: &BigRational, now_us: i64) -> Option<BigRational> {
        let missing = target - self.level(now_us);
        if missing <= BigRational::zero() {
            return Some(BigRational::zero());
        }
        let reachable = *target <= self.capacity && self.rate_per_s > BigRational::zero();
        reachable.then(|| missing / &self.rate_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(above: i64, below: i64) -> BigRational {
        BigRational::new(above.into(), below.into())
    }

    #[test]
    fn a_third_is_a_third() {
        let mut bucket = Exact::new(ratio(1, 1), ratio(1, 3), 0);
        assert!(bucket.try_take(&ratio(1, 1), 0));
        assert_eq!(bucket.level(1_000_000), ratio(1, 3));
        assert_eq!(bucket.seconds_until(&ratio(1, 1), 0), Some(ratio(3, 1)));
        assert!(!bucket.try_take(&ratio(1, 1), 2_999_999));
        assert!(bucket.try_take(&ratio(1, 1), 3_000_000));
        assert_eq!(bucket.level(3_000_000), ratio(0, 1));
    }

    #[test]
    fn nothing_is_gained_or_lost_at_the_edges() {
        let mut bucket = Exact::new(ratio(10, 1), ratio(1, 1), 5);
        assert_eq!(bucket.level(i64::MAX), ratio(10, 1));
        assert_eq!(bucket.seconds_until(&ratio(11, 1), 5), None);
        bucket.take(&ratio(15, 1), 5);
        assert_eq!(bucket.level(4), ratio(-5, 1));
        bucket.give(&ratio(100, 1), 5);
        assert_eq!(bucket.level(5), ratio(10, 1));
        bucket.set_limit(ratio(3, 1), ratio(2, 1));
        assert_eq!(bucket.level(5), ratio(3, 1));
    }
}
