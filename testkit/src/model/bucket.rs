//! One bucket in whole attotokens.

use num_bigint::{BigInt, Sign};
use num_traits::{One, ToPrimitive, Zero};

use super::{Amount, Rate};

/// The latest stamp that 52 bits hold, in microseconds since 1970; any instant
/// outside 0 to this is moved to the nearer end.
pub const LAST_STAMP_US: i64 = (1 << 52) - 1;

const ATTOS_PER_TOKEN: i64 = 1_000_000_000_000_000_000;
const MS_PER_100_YEARS: i64 = 100 * 365 * 86_400_000;
/// The bytes of a stored level.
const LEVEL_BYTES: usize = 13;
/// The first four bits of a stored bucket: the tag 0b10 and the version 1.
const TAG_AND_VERSION: u64 = 0b10_01;

/// The lowest level there is, -(2^103) attotokens: what 13 bytes hold. A bucket
/// that would go lower stays there.
pub fn level_floor() -> BigInt {
    -(BigInt::one() << 103_u32)
}

/// `us` microseconds in milliseconds, rounded up, as a reply gives them: at
/// least 0, and at most the largest signed 64-bit number.
pub fn capped_ms(us: &BigInt) -> i64 {
    let ms = ceil_div(us, &BigInt::from(1_000));
    if ms.sign() == Sign::Minus {
        return 0;
    }
    ms.to_i64().unwrap_or(i64::MAX)
}

/// The smallest whole number that is not below `value / by`; `by` is above 0.
fn ceil_div(value: &BigInt, by: &BigInt) -> BigInt {
    -floor_div(&-value, by)
}

/// The largest whole number that is not above `value / by`; `by` is above 0.
fn floor_div(value: &BigInt, by: &BigInt) -> BigInt {
    let towards_zero = value / by;
    let rest = value % by;
    if rest.sign() == Sign::Minus {
        towards_zero - 1
    } else {
        towards_zero
    }
}

/// A stored bucket: how much was in it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecBucket {
    /// Attotokens at the stamp; negative while in debt.
    pub level_atto: BigInt,
    /// Microseconds since 1970, from 0 to [`LAST_STAMP_US`].
    pub stamp_us: i64,
}

impl SpecBucket {
    /// The bucket that a missing key is.
    pub fn full(capacity: &Amount, now_us: i64) -> Self {
        Self {
            level_atto: capacity.atto(),
            stamp_us: clamp(now_us),
        }
    }

    /// Whether the stamp lies after `now_us`: the clock was set back.
    pub fn is_ahead_of(&self, now_us: i64) -> bool {
        self.stamp_us > clamp(now_us)
    }

    /// The attotokens in it at `now_us`: what was in it and what has flowed in
    /// since, rounded down, and at most the capacity.
    pub fn level_at(&self, capacity: &Amount, rate: &Rate, now_us: i64) -> BigInt {
        let refill = (self.elapsed(now_us) * &rate.fixed) >> 24_u32;
        (&self.level_atto + refill).min(capacity.atto())
    }

    /// The smallest number of whole microseconds after `now_us` at which the
    /// level is at least `target_atto`, if nobody takes anything; 0 when it is
    /// now. The target must not be above the capacity.
    pub fn wait_us(&self, target_atto: &BigInt, rate: &Rate, now_us: i64) -> BigInt {
        let missing = target_atto - &self.level_atto;
        if missing.sign() != Sign::Plus {
            return BigInt::zero();
        }
        // floor(t * rate / 2^24) >= missing holds from this t on.
        let from_stamp = ceil_div(&(missing << 24_u32), &rate.fixed);
        (from_stamp - self.elapsed(now_us)).max(BigInt::zero())
    }

    /// Microseconds after `now_us` until it is full.
    pub fn full_in_us(&self, capacity: &Amount, rate: &Rate, now_us: i64) -> BigInt {
        self.wait_us(&capacity.atto(), rate, now_us)
    }

    /// The millisecond since 1970, rounded up, in which it is full; at most 100
    /// years of 365 days after `now_us`.
    pub fn expires_at_ms(&self, capacity: &Amount, rate: &Rate, now_us: i64) -> i64 {
        let now_us = clamp(now_us);
        let full_us = self.full_in_us(capacity, rate, now_us) + now_us;
        let latest = now_us / 1_000 + MS_PER_100_YEARS;
        capped_ms(&full_us).min(latest)
    }

    /// The same bucket after `amount` was taken at `now_us`, whatever is in it.
    pub fn less(&self, amount: &Amount, capacity: &Amount, rate: &Rate, now_us: i64) -> Self {
        let level = self.level_at(capacity, rate, now_us) - amount.atto();
        Self {
            level_atto: level.max(level_floor()),
            stamp_us: clamp(now_us),
        }
    }

    /// The same bucket after `amount` was given at `now_us`.
    pub fn more(&self, amount: &Amount, capacity: &Amount, rate: &Rate, now_us: i64) -> Self {
        let level = self.level_at(capacity, rate, now_us) + amount.atto();
        Self {
            level_atto: level.min(capacity.atto()),
            stamp_us: clamp(now_us),
        }
    }

    /// The same level, stamped `now_us`.
    pub fn rebased(&self, now_us: i64) -> Self {
        Self {
            level_atto: self.level_atto.clone(),
            stamp_us: clamp(now_us),
        }
    }

    /// The 20 bytes as stored: 7 with the tag, the version and the stamp, then
    /// 13 with the level in two's complement, all big-endian.
    ///
    /// # Panics
    ///
    /// When the level does not fit 13 bytes or the stamp 52 bits.
    pub fn bytes(&self) -> [u8; 20] {
        assert!((0..=LAST_STAMP_US).contains(&self.stamp_us));
        let head = TAG_AND_VERSION << 52 | self.stamp_us.unsigned_abs();
        let level = self.level_atto.to_signed_bytes_be();
        assert!(level.len() <= LEVEL_BYTES, "a level of 104 bits");
        let sign = match self.level_atto.sign() {
            Sign::Minus => 0xff,
            _ => 0,
        };
        let mut bytes = [sign; 20];
        bytes[..7].copy_from_slice(&head.to_be_bytes()[1..]);
        bytes[20 - level.len()..].copy_from_slice(&level);
        bytes
    }

    /// The bucket that is stored as `bytes`; `None` for any other size, tag or
    /// version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, level) = bytes.split_at_checked(7)?;
        if level.len() != LEVEL_BYTES {
            return None;
        }
        let head = head
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        if head >> 52 != TAG_AND_VERSION {
            return None;
        }
        Some(Self {
            level_atto: BigInt::from_signed_bytes_be(level),
            stamp_us: i64::try_from(head & ((1 << 52) - 1)).ok()?,
        })
    }

    fn elapsed(&self, now_us: i64) -> BigInt {
        BigInt::from((clamp(now_us) - self.stamp_us).max(0))
    }
}

/// Whole tokens in `level_atto`, never below 0.
pub(super) fn remaining(level_atto: &BigInt) -> i64 {
    let tokens = floor_div(level_atto, &BigInt::from(ATTOS_PER_TOKEN));
    let tokens = tokens.max(BigInt::zero());
    tokens.to_i64().expect("a capacity is at most 1e12")
}

/// An instant as a stamp can hold it.
pub(super) fn clamp(now_us: i64) -> i64 {
    now_us.clamp(0, LAST_STAMP_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_towards_the_right_end() {
        let div = |f: fn(&BigInt, &BigInt) -> BigInt, a: i64, b: i64| {
            f(&BigInt::from(a), &BigInt::from(b)).to_i64().unwrap()
        };
        for (value, floor, ceil) in [(7, 2, 3), (6, 2, 2), (0, 0, 0), (-6, -2, -2), (-7, -3, -2)] {
            assert_eq!(div(floor_div, value, 3), floor, "{value}");
            assert_eq!(div(ceil_div, value, 3), ceil, "{value}");
        }
    }

    #[test]
    fn milliseconds_are_rounded_up_and_capped() {
        assert_eq!(capped_ms(&BigInt::from(0)), 0);
        assert_eq!(capped_ms(&BigInt::from(1)), 1);
        assert_eq!(capped_ms(&BigInt::from(1_000)), 1);
        assert_eq!(capped_ms(&BigInt::from(1_001)), 2);
        assert_eq!(capped_ms(&(BigInt::one() << 100_u32)), i64::MAX);
    }

    #[test]
    fn bytes_go_both_ways() {
        let bucket = |level: BigInt, stamp_us| SpecBucket {
            level_atto: level,
            stamp_us,
        };
        assert_eq!(
            bucket(BigInt::from(258), 1).bytes(),
            *b"\x90\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\x02"
        );
        assert_eq!(
            bucket(BigInt::from(-2), LAST_STAMP_US).bytes(),
            *b"\x9f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"
        );
        for level in [
            level_floor(),
            BigInt::from(-129),
            BigInt::from(-128),
            BigInt::zero(),
            BigInt::from(128),
            BigInt::from(10).pow(30),
            -level_floor() - 1,
        ] {
            let bucket = bucket(level, 1_700_000_000_123_456);
            assert_eq!(SpecBucket::from_bytes(&bucket.bytes()), Some(bucket));
        }
    }

    #[test]
    fn other_bytes_are_no_bucket() {
        let good = SpecBucket {
            level_atto: BigInt::zero(),
            stamp_us: 0,
        }
        .bytes();
        for length in 0..20 {
            assert_eq!(SpecBucket::from_bytes(&good[..length]), None);
        }
        for head in 0..=255 {
            let mut bytes = good;
            bytes[0] = head;
            let is_bucket = SpecBucket::from_bytes(&bytes).is_some();
            assert_eq!(is_bucket, head >> 4 == 0b1001, "{head:#x}");
        }
        assert_eq!(
            SpecBucket::from_bytes(&[good.as_slice(), b"\0"].concat()),
            None
        );
    }
}
