//! What a call answers, and what it leaves behind.

use crate::bucket::Bucket;

/// An expiry is never further away than this, in milliseconds: 100 years of 365
/// days. A bucket that takes longer to fill is full after it.
pub const MAX_EXPIRY_MS: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// A length of time, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    micros: u128,
}

impl Wait {
    /// No time at all.
    pub const NONE: Self = Self { micros: 0 };

    pub(crate) const fn from_micros(micros: u128) -> Self {
        Self { micros }
    }

    /// Whole microseconds.
    #[must_use]
    pub const fn micros(self) -> u128 {
        self.micros
    }

    /// Milliseconds, rounded up; the largest `i64` where they do not fit.
    #[must_use]
    pub fn millis_ceil(self) -> i64 {
        // 64-bit division where it will do, which is up to 584,000 years.
        match u64::try_from(self.micros) {
            Ok(micros) => i64::try_from(micros.div_ceil(1000)).unwrap_or(i64::MAX),
            Err(_) => i64::try_from(self.micros.div_ceil(1000)).unwrap_or(i64::MAX),
        }
    }
}

/// Whether the call goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Yes. The tokens are taken.
    Allowed {
        /// How long to wait before acting; none but for a reservation that went
        /// into debt.
        wait: Wait,
    },
    /// Not now: the same call is allowed after a wait, when nobody else
    /// calls. Always above zero.
    Denied {
        /// The shortest wait, to the microsecond.
        retry_after: Wait,
    },
    /// Not ever: the cost is above the capacity.
    Never,
}

/// What is to be done to the stored bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: no write, no change of expiry.
    Nothing,
    /// Store this bucket.
    Put {
        /// The level and stamp to store.
        bucket: Bucket,
        /// When it is full again and so has nothing more to say: milliseconds
        /// since the Unix epoch, rounded up, at most [`MAX_EXPIRY_MS`] away.
        expires_at_ms: u64,
    },
    /// Remove the key: the bucket is full, and a missing key is a full bucket.
    Delete,
}

/// What a call answers, and what it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Now, in a while, or never.
    pub outcome: Outcome,
    /// Whole tokens left: `floor(level)`, never below 0 nor above the capacity.
    pub remaining: u64,
    /// The time until the bucket is full; none when it is full now.
    pub reset_after: Wait,
    /// What is to be done to the stored bucket.
    pub effect: Effect,
    /// Whether the stored stamp lay in the future: the clock was set back.
    pub clock_stepped: bool,
}

impl Decision {
    /// Whether the call goes through, at once or after the wait it was told.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up_and_saturate() {
        let millis = |micros| Wait::from_micros(micros).millis_ceil();
        assert_eq!(millis(0), 0);
        assert_eq!(millis(1), 1);
        assert_eq!(millis(1000), 1);
        assert_eq!(millis(1001), 2);
        assert_eq!(millis(u128::from(u64::MAX)), 18_446_744_073_709_552);
        assert_eq!(millis(1 << 64), 18_446_744_073_709_552);
        assert_eq!(millis(u128::from(u64::MAX >> 1) * 1000), i64::MAX);
        assert_eq!(millis(u128::MAX), i64::MAX);
    }
}
