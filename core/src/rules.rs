//! The rules: what each command decides.

use crate::amount::Amount;
use crate::bucket::{Bucket, Limit};
use crate::decision::{Decision, Effect, Outcome, Wait, MAX_EXPIRY_MS};
use crate::stored::MIN_LEVEL;
use crate::ATTO_PER_TOKEN;

/// Times are in microseconds since the Unix epoch.
///
/// Whatever takes or gives no tokens leaves nothing behind, except that a stamp
/// in the future is set back to `now` with the level as it is, so that tokens
/// flow in again at once.
impl Bucket {
    /// Takes `cost` out if it is there: a call is allowed when the cost is at
    /// most the level. A cost of zero asks without taking.
    #[must_use]
    pub fn acquire(&self, limit: &Limit, cost: Amount, now: u64) -> Decision {
        self.take(limit, cost, now, true)
    }

    /// Answers whether [`acquire`](Self::acquire) would be allowed, with the
    /// bucket as it is: nothing is taken.
    #[must_use]
    pub fn check(&self, limit: &Limit, cost: Amount, now: u64) -> Decision {
        self.take(limit, cost, now, false)
    }

    fn take(&self, limit: &Limit, cost: Amount, now: u64, debit: bool) -> Decision {
        let at = Instant::of(self, limit, now);
        let cost = cost.attotokens();
        let outcome = if cost > limit.capacity.attotokens() {
            Outcome::Never
        } else if cost <= at.level {
            Outcome::Allowed { wait: Wait::NONE }
        } else {
            Outcome::Denied {
                retry_after: at.bucket.wait_for(cost, limit, at.now),
            }
        };
        if debit && cost > 0 && matches!(outcome, Outcome::Allowed { .. }) {
            at.changed(outcome, at.level.saturating_sub(cost))
        } else {
            at.unchanged(outcome)
        }
    }

    /// Takes `cost` out now, into debt if need be, when the tokens will have
    /// flowed in within `max_wait_ms` milliseconds. The caller then waits as long
    /// as the outcome says before acting.
    ///
    /// A debt that the stored level can't hold (see [`MIN_LEVEL`]) is denied
    /// until it can.
    #[must_use]
    pub fn reserve(&self, limit: &Limit, cost: Amount, max_wait_ms: u128, now: u64) -> Decision {
        let at = Instant::of(self, limit, now);
        let cost = cost.attotokens();
        if cost > limit.capacity.attotokens() {
            return at.unchanged(Outcome::Never);
        }
        // What flows in meanwhile may be missing now.
        let lowest = limit
            .rate
            .flow(max_wait_ms.saturating_mul(1000))
            .map_or(MIN_LEVEL, |flow| cost.saturating_sub(flow))
            .max(MIN_LEVEL.saturating_add(cost));
        if at.level < lowest {
            return at.unchanged(Outcome::Denied {
                retry_after: at.bucket.wait_for(lowest, limit, at.now),
            });
        }
        if cost == 0 {
            return at.unchanged(Outcome::Allowed {
                wait: at.bucket.wait_for(0, limit, at.now),
            });
        }
        // Until the debt is paid, from what is stored now.
        let level = at.level.saturating_sub(cost);
        let wait = Bucket::new(level, at.now).wait_for(0, limit, at.now);
        at.changed(Outcome::Allowed { wait }, level)
    }

    /// Gives `amount` back, never above the capacity.
    #[must_use]
    pub fn credit(&self, limit: &Limit, amount: Amount, now: u64) -> Decision {
        let at = Instant::of(self, limit, now);
        let outcome = Outcome::Allowed { wait: Wait::NONE };
        if amount.is_zero() {
            return at.unchanged(outcome);
        }
        let level = at.level.saturating_add(amount.attotokens());
        at.changed(outcome, level.min(limit.capacity.attotokens()))
    }

    /// Takes `amount` out whatever the level, into debt if need be: usage that is
    /// known only afterwards. A debt below [`MIN_LEVEL`] is cut to it.
    #[must_use]
    pub fn debit(&self, limit: &Limit, amount: Amount, now: u64) -> Decision {
        let at = Instant::of(self, limit, now);
        let outcome = Outcome::Allowed { wait: Wait::NONE };
        if amount.is_zero() {
            return at.unchanged(outcome);
        }
        at.changed(outcome, at.level.saturating_sub(amount.attotokens()))
    }
}

/// A bucket as one call meets it.
struct Instant<'call> {
    limit: &'call Limit,
    /// As stored, but with a stamp that is not in the future.
    bucket: Bucket,
    /// The call's instant, cut to what a stamp holds.
    now: u64,
    /// The level at that instant, in attotokens.
    level: i128,
    clock_stepped: bool,
}

impl<'call> Instant<'call> {
    fn of(bucket: &Bucket, limit: &'call Limit, now: u64) -> Self {
        let (bucket, now, clock_stepped) = bucket.at_or_before(now);
        Self {
            limit,
            bucket,
            now,
            level: bucket.level_at(limit, now),
            clock_stepped,
        }
    }

    /// The decision that leaves the level as it is.
    fn unchanged(&self, outcome: Outcome) -> Decision {
        let reset_after = self.full_after(&self.bucket);
        let effect = if self.clock_stepped {
            self.store(self.bucket, reset_after)
        } else {
            Effect::Nothing
        };
        self.decision(outcome, self.level, reset_after, effect)
    }

    /// The decision that makes `level` the level of this instant.
    fn changed(&self, outcome: Outcome, level: i128) -> Decision {
        let bucket = Bucket::new(level, self.now);
        let reset_after = self.full_after(&bucket);
        let effect = self.store(bucket, reset_after);
        self.decision(outcome, bucket.level(), reset_after, effect)
    }

    fn decision(
        &self,
        outcome: Outcome,
        level: i128,
        reset_after: Wait,
        effect: Effect,
    ) -> Decision {
        Decision {
            outcome,
            remaining: whole_tokens(level),
            reset_after,
            effect,
            clock_stepped: self.clock_stepped,
        }
    }

    fn full_after(&self, bucket: &Bucket) -> Wait {
        bucket.wait_for(self.limit.capacity.attotokens(), self.limit, self.now)
    }

    /// Storing `bucket`, which is full `reset_after` from now on.
    fn store(&self, bucket: Bucket, reset_after: Wait) -> Effect {
        if reset_after == Wait::NONE {
            return Effect::Delete;
        }
        let full_at = u128::from(self.now).saturating_add(reset_after.micros());
        let latest = (self.now / 1000).saturating_add(MAX_EXPIRY_MS);
        let expires_at_ms =
            u64::try_from(full_at).map_or(latest, |micros| micros.div_ceil(1000).min(latest));
        Effect::Put {
            bucket,
            expires_at_ms,
        }
    }
}

/// `floor(level)` in tokens, never below zero.
fn whole_tokens(level: i128) -> u64 {
    u64::try_from(level.max(0) / ATTO_PER_TOKEN).unwrap_or(u64::MAX)
}
