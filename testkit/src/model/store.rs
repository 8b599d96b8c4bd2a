//! A keyspace of buckets, and what each command answers and writes.

use std::collections::HashMap;

use num_bigint::{BigInt, Sign};

use super::bucket::remaining;
use super::{capped_ms, level_floor, Amount, Rate, SpecBucket};
use crate::Keys;

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecReply {
    /// allowed, remaining, retry_after_ms, reset_after_ms.
    Four([i64; 4]),
    /// The answer of TB.MACQUIRE.
    All {
        /// 1 when every bucket was debited, else 0.
        allowed: i64,
        /// The longest of all; -1 when one says never.
        retry_after_ms: i64,
        /// What each bucket says, in the order given.
        each: Vec<[i64; 4]>,
    },
}

impl SpecReply {
    /// The four integers.
    ///
    /// # Panics
    ///
    /// When it is the answer of TB.MACQUIRE.
    #[track_caller]
    pub fn four(self) -> [i64; 4] {
        match self {
            SpecReply::Four(four) => four,
            SpecReply::All { .. } => panic!("four integers, not {self:?}"),
        }
    }

    /// All integers in their order, as [`Reply::integers`](crate::Reply::integers)
    /// gives them.
    pub fn integers(&self) -> Vec<i64> {
        match self {
            SpecReply::Four(four) => four.to_vec(),
            SpecReply::All {
                allowed,
                retry_after_ms,
                each,
            } => [&[*allowed, *retry_after_ms], each.as_flattened()].concat(),
        }
    }
}

/// A keyspace that holds only buckets. Every method takes the instant of the
/// call in microseconds since 1970; instants may go backwards.
///
/// A key past its expiry is gone for a call, but is only removed by
/// [`SpecStore::expire`] or by a command that may write: a server removes it at
/// a moment of its own choice, which makes a difference after a step back of the
/// clock. A test that steps back calls `expire` before, and sees to it that the
/// server has removed the same keys.
#[derive(Clone, Debug, Default)]
pub struct SpecStore {
    /// Each bucket with its expiry in milliseconds since 1970. A key without an
    /// expiry (PERSIST) has `i64::MAX`.
    pub keys: HashMap<Vec<u8>, (SpecBucket, i64)>,
}

/// What a call leaves at a key.
enum Change {
    Nothing,
    Write(SpecBucket),
    Delete,
}

/// A call's key and numbers, with the bucket that it met.
struct Met<'a> {
    key: &'a [u8],
    capacity: &'a Amount,
    rate: &'a Rate,
    now_us: i64,
    /// A full bucket when the key is missing.
    bucket: SpecBucket,
    missing: bool,
}

impl Met<'_> {
    fn level(&self) -> BigInt {
        self.bucket.level_at(self.capacity, self.rate, self.now_us)
    }

    /// Microseconds until `cost` is there; `None` for never.
    fn wait_us(&self, cost: &Amount) -> Option<BigInt> {
        let reachable = cost.atto() <= self.capacity.atto();
        reachable.then(|| self.bucket.wait_us(&cost.atto(), self.rate, self.now_us))
    }

    fn less(&self, amount: &Amount) -> SpecBucket {
        self.bucket
            .less(amount, self.capacity, self.rate, self.now_us)
    }

    /// The answer about `bucket`, which is the one met or what came of it.
    fn reply(&self, allowed: bool, retry_after_ms: i64, bucket: &SpecBucket) -> [i64; 4] {
        let level = bucket.level_at(self.capacity, self.rate, self.now_us);
        let full_in_us = bucket.full_in_us(self.capacity, self.rate, self.now_us);
        let reset_after_ms = capped_ms(&full_in_us);
        [
            i64::from(allowed),
            remaining(&level),
            retry_after_ms,
            reset_after_ms,
        ]
    }

    /// What a call leaves that takes and gives nothing: nothing, unless the
    /// stamp lies in the future. Then the refill must resume now.
    fn untouched(&self) -> Change {
        if self.missing || !self.bucket.is_ahead_of(self.now_us) {
            Change::Nothing
        } else if self.bucket.level_atto >= self.capacity.atto() {
            Change::Delete
        } else {
            Change::Write(self.bucket.rebased(self.now_us))
        }
    }

    /// What taking `amount` leaves.
    fn taken(&self, amount: &Amount) -> Change {
        if is_zero(amount) {
            self.untouched()
        } else {
            Change::Write(self.less(amount))
        }
    }

    fn acquire(&self, cost: &Amount) -> ([i64; 4], Change) {
        if cost.atto() <= self.level() {
            (self.reply(true, 0, &self.after(cost)), self.taken(cost))
        } else {
            (
                self.reply(false, self.retry_ms(cost), &self.bucket),
                self.untouched(),
            )
        }
    }

    /// The bucket that an answer is about once `amount` was taken. One that was
    /// not touched is answered from its stored level and stamp, whose refill has
    /// not been rounded yet.
    fn after(&self, amount: &Amount) -> SpecBucket {
        if is_zero(amount) {
            self.bucket.clone()
        } else {
            self.less(amount)
        }
    }

    /// Of a call that is denied.
    fn retry_ms(&self, cost: &Amount) -> i64 {
        self.wait_us(cost).map_or(-1, |wait_us| capped_ms(&wait_us))
    }
}

fn is_zero(amount: &Amount) -> bool {
    amount.pico.sign() == Sign::NoSign
}

impl SpecStore {
    /// A keyspace with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// TB.ACQUIRE: takes `cost` if it is there.
    pub fn acquire(
        &mut self,
        key: &[u8],
        capacity: &Amount,
        rate: &Rate,
        cost: &Amount,
        now_us: i64,
    ) -> [i64; 4] {
        let met = self.meet(key, capacity, rate, now_us);
        let (reply, change) = met.acquire(cost);
        self.apply(&met, change);
        reply
    }

    /// TB.PEEK: what [`SpecStore::acquire`] would answer; never writes.
    pub fn peek(
        &self,
        key: &[u8],
        capacity: &Amount,
        rate: &Rate,
        cost: &Amount,
        now_us: i64,
    ) -> [i64; 4] {
        self.meet(key, capacity, rate, now_us).acquire(cost).0
    }

    /// TB.RESERVE: takes `cost` now when it will be there within `max_wait_ms`.
    pub fn reserve(
        &mut self,
        key: &[u8],
        capacity: &Amount,
        rate: &Rate,
        cost: &Amount,
        max_wait_ms: &BigInt,
        now_us: i64,
    ) -> [i64; 4] {
        let met = self.meet(key, capacity, rate, now_us);
        let max_wait_us = max_wait_ms * 1_000;
        let reachable = cost.atto() <= met.capacity.atto();
        // What flows in within the wait may be missing now; a debt below the
        // floor can't be stored.
        let flow: BigInt = (max_wait_us * &rate.fixed) >> 24_u32;
        let lowest = (cost.atto() - flow).max(level_floor() + cost.atto());
        let (reply, change) = if !reachable {
            (met.reply(false, -1, &met.bucket), met.untouched())
        } else if met.level() >= lowest {
            // Counted from what is stored then, so that the debt is paid to the
            // last attotoken when the wait is over.
            let after = met.after(cost);
            let wait_us = after.wait_us(&BigInt::from(0), rate, now_us);
            (
                met.reply(true, capped_ms(&wait_us), &after),
                met.taken(cost),
            )
        } else {
            let wait_us = met.bucket.wait_us(&lowest, rate, now_us);
            (
                met.reply(false, capped_ms(&wait_us), &met.bucket),
                met.untouched(),
            )
        };
        self.apply(&met, change);
        reply
    }

    /// TB.CREDIT: gives `amount` back, up to the capacity.
    pub fn credit(
        &mut self,
        key: &[u8],
        capacity: &Amount,
        rate: &Rate,
        amount: &Amount,
        now_us: i64,
    ) -> [i64; 4] {
        let met = self.meet(key, capacity, rate, now_us);
        let (bucket, change) = if is_zero(amount) || met.missing {
            (met.bucket.clone(), met.untouched())
        } else {
            let bucket = met.bucket.more(amount, capacity, rate, now_us);
            if bucket.level_atto == capacity.atto() {
                (bucket, Change::Delete)
            } else {
                (bucket.clone(), Change::Write(bucket))
            }
        };
        let reply = met.reply(true, 0, &bucket);
        self.apply(&met, change);
        reply
    }

    /// TB.DEBIT: takes `amount`, whatever is in it.
    pub fn debit(
        &mut self,
        key: &[u8],
        capacity: &Amount,
        rate: &Rate,
        amount: &Amount,
        now_us: i64,
    ) -> [i64; 4] {
        let met = self.meet(key, capacity, rate, now_us);
        let reply = met.reply(true, 0, &met.after(amount));
        let change = met.taken(amount);
        self.apply(&met, change);
        reply
    }

    /// TB.MACQUIRE: takes from every bucket or from none. The keys must differ.
    pub fn macquire(&mut self, calls: &[(&[u8], Amount, Rate, Amount)], now_us: i64) -> SpecReply {
        let all: Vec<_> = calls
            .iter()
            .map(|(key, capacity, rate, cost)| (self.meet(key, capacity, rate, now_us), cost))
            .collect();
        let allowed = all.iter().all(|(met, cost)| cost.atto() <= met.level());
        let mut each = Vec::new();
        let mut changes = Vec::new();
        for (met, cost) in &all {
            let had_enough = cost.atto() <= met.level();
            let (reply, change) = if had_enough && !allowed {
                (met.reply(true, 0, &met.bucket), met.untouched())
            } else {
                met.acquire(cost)
            };
            each.push(reply);
            changes.push(change);
        }
        let waits = each.iter().map(|reply| reply[2]);
        let retry_after_ms = if waits.clone().any(|wait| wait == -1) {
            -1
        } else {
            waits.max().unwrap_or(0)
        };
        for ((met, _), change) in all.iter().zip(changes) {
            self.apply(met, change);
        }
        let allowed = i64::from(allowed);
        SpecReply::All {
            allowed,
            retry_after_ms,
            each,
        }
    }

    /// Removes every key past its expiry, as a server does in its own time.
    pub fn expire(&mut self, now_us: i64) {
        self.keys.retain(|_, (_, at_ms)| !is_past(*at_ms, now_us));
    }

    /// The bytes stored at `key`, whether past its expiry or not.
    pub fn stored(&self, key: &[u8]) -> Option<[u8; 20]> {
        self.keys.get(key).map(|(bucket, _)| bucket.bytes())
    }

    /// The expiry of `key` in milliseconds since 1970.
    pub fn expires_at_ms(&self, key: &[u8]) -> Option<i64> {
        self.keys.get(key).map(|(_, at_ms)| *at_ms)
    }

    /// The buckets that have not expired at `now_us`, as a server holds them.
    pub fn alive(&self, now_us: i64) -> Keys {
        self.keys
            .iter()
            .filter(|(_, (_, at_ms))| !is_past(*at_ms, now_us))
            .map(|(key, (bucket, at_ms))| (key.clone(), (bucket.bytes().to_vec(), *at_ms)))
            .collect()
    }

    fn meet<'a>(
        &self,
        key: &'a [u8],
        capacity: &'a Amount,
        rate: &'a Rate,
        now_us: i64,
    ) -> Met<'a> {
        let found = self
            .keys
            .get(key)
            .filter(|(_, at_ms)| !is_past(*at_ms, now_us));
        let bucket = match found {
            Some((bucket, _)) => bucket.clone(),
            None => SpecBucket::full(capacity, now_us),
        };
        let missing = found.is_none();
        Met {
            key,
            capacity,
            rate,
            now_us,
            bucket,
            missing,
        }
    }

    fn apply(&mut self, met: &Met<'_>, change: Change) {
        match change {
            Change::Nothing if met.missing => {
                self.keys.remove(met.key);
            }
            Change::Nothing => {}
            Change::Delete => {
                self.keys.remove(met.key);
            }
            Change::Write(bucket) => {
                let at_ms = bucket.expires_at_ms(met.capacity, met.rate, met.now_us);
                self.keys.insert(met.key.to_vec(), (bucket, at_ms));
            }
        }
    }
}

/// Whether an expiry has passed: from the millisecond after it on.
fn is_past(at_ms: i64, now_us: i64) -> bool {
    now_us.div_euclid(1_000) > at_ms
}
