//! The bucket: a level, and the instant at which it was true.

use crate::amount::Amount;
use crate::decision::Wait;
use crate::rate::Rate;
use crate::stored::{MAX_LEVEL, MAX_STAMP, MIN_LEVEL};

/// What the caller says on every call: how many tokens the bucket holds, and how
/// fast they flow in. The numbers of the call rule at once; nothing of them is
/// stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// The most tokens that the bucket holds, exactly.
    pub capacity: Amount,
    /// Tokens that flow in per second.
    pub rate: Rate,
}

/// A level in attotokens (1e-18 token; negative in debt), and the instant in
/// microseconds since the Unix epoch at which it was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    level: i128,
    stamp: u64,
}

impl Bucket {
    /// A bucket of `level` attotokens at `stamp` microseconds since the Unix
    /// epoch. Cuts both to what is stored: [`MIN_LEVEL`] to [`MAX_LEVEL`], and 0
    /// to [`MAX_STAMP`].
    #[must_use]
    pub fn new(level: i128, stamp: u64) -> Self {
        Self {
            level: level.clamp(MIN_LEVEL, MAX_LEVEL),
            stamp: stamp.min(MAX_STAMP),
        }
    }

    /// A full bucket, which is what a missing key means.
    #[must_use]
    pub fn full(limit: &Limit, now: u64) -> Self {
        Self::new(limit.capacity.attotokens(), now)
    }

    /// Attotokens at the stamp; negative in debt.
    #[must_use]
    pub const fn level(&self) -> i128 {
        self.level
    }

    /// Microseconds since the Unix epoch at which the level was true.
    #[must_use]
    pub const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The level at `now` (microseconds since the Unix epoch), in attotokens:
    /// what has flowed in since the stamp is added, never above the capacity.
    /// A stamp in the future is taken for `now`.
    #[must_use]
    pub fn level_at(&self, limit: &Limit, now: u64) -> i128 {
        let capacity = limit.capacity.attotokens();
        let elapsed = now.min(MAX_STAMP).saturating_sub(self.stamp);
        match limit.rate.flow(elapsed.into()) {
            Some(flow) => self.level.saturating_add(flow).min(capacity),
            // More than lies between the deepest debt and the largest capacity.
            None => capacity,
        }
    }

    /// This bucket with a stamp that is not in the future, `now` cut to what a
    /// stamp holds, and whether the stamp had to be moved.
    pub(crate) fn at_or_before(&self, now: u64) -> (Self, u64, bool) {
        let now = now.min(MAX_STAMP);
        let clock_stepped = self.stamp > now;
        let stamp = self.stamp.min(now);
        (
            Self {
                level: self.level,
                stamp,
            },
            now,
            clock_stepped,
        )
    }

    /// The time from `now` until the level reaches `target` attotokens, to the
    /// microsecond. It is counted from the stamp, so that what has flowed in
    /// below one attotoken is not lost to rounding.
    pub(crate) fn wait_for(&self, target: i128, limit: &Limit, now: u64) -> Wait {
        let Ok(missing) = u128::try_from(target.saturating_sub(self.level)) else {
            return Wait::NONE;
        };
        let elapsed = now.saturating_sub(self.stamp);
        let micros = limit.rate.micros_for(missing);
        Wait::from_micros(micros.saturating_sub(u128::from(elapsed)))
    }
}
