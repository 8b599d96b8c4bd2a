//! Limiting without the server: this replica's share, by the same arithmetic.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokenbucket_core::{Amount, Bucket, Decision, Effect, Limit, Outcome, Rate};

use crate::clock::Clock;
use crate::replicas::Replicas;
#[cfg(feature = "tokio")]
use crate::table::Deficit;
use crate::table::{Spot, Table};
use crate::{Error, IntoCost};

/// What a call does to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Acquire(Amount),
    /// What the first would answer: as the bucket is after it, though it is not.
    Peek(Amount),
    /// Whether the first would be allowed, and the bucket as it is.
    Check(Amount),
    Reserve {
        cost: Amount,
        max_wait_ms: u64,
    },
    Credit(Amount),
    Debit(Amount),
}

impl Act {
    pub(crate) fn reserve(cost: impl IntoCost, max_wait: Duration) -> Result<Self, Error> {
        let cost = cost.into_cost()?.amount();
        let max_wait_ms = u64::try_from(max_wait.as_millis()).unwrap_or(u64::MAX);
        Ok(Self::Reserve { cost, max_wait_ms })
    }

    pub(crate) const fn amount(self) -> Amount {
        match self {
            Self::Debit(amount) => amount,
            _ => self.room(),
        }
    }

    /// The request that the local bucket must have room for. A debit needs none: it may go
    /// into debt.
    const fn room(self) -> Amount {
        match self {
            Self::Acquire(amount)
            | Self::Peek(amount)
            | Self::Check(amount)
            | Self::Credit(amount)
            | Self::Reserve { cost: amount, .. } => amount,
            Self::Debit(_) => Amount::ZERO,
        }
    }

    fn apply(self, bucket: &Bucket, limit: &Limit, now: u64) -> Decision {
        match self {
            Self::Acquire(cost) => bucket.acquire(limit, cost, now),
            Self::Peek(cost) => Decision {
                effect: Effect::Nothing,
                ..bucket.acquire(limit, cost, now)
            },
            Self::Check(cost) => bucket.check(limit, cost, now),
            Self::Reserve { cost, max_wait_ms } => {
                bucket.reserve(limit, cost, max_wait_ms.into(), now)
            }
            Self::Credit(amount) => bucket.credit(limit, amount, now),
            Self::Debit(amount) => bucket.debit(limit, amount, now),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Local {
    table: Table,
    replicas: Replicas,
    /// A bucket over all that is admitted locally, with its limit.
    aggregate: Option<(Limit, Mutex<Bucket>)>,
    pub(crate) clock: Clock,
}

impl Local {
    pub(crate) fn new(
        table: Table,
        replicas: Replicas,
        aggregate: Option<Limit>,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        Self {
            table,
            replicas,
            aggregate: aggregate.map(|limit| (limit, Mutex::new(Bucket::full(&limit, now)))),
            clock,
        }
    }

    /// Whether any key may owe the server something. One load.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_in_use(&self) -> bool {
        self.table.is_in_use(|| self.clock.now())
    }

    /// Decides by this replica's share of `limit`. `lost`: the call was sent to the server,
    /// and whether it was carried out is not known.
    pub(crate) fn decide(&self, hash: u64, limit: &Limit, act: Act, lost: bool) -> Decision {
        let spot = self.spot(hash, limit, act.room());
        let takes = match act {
            Act::Acquire(cost) | Act::Reserve { cost, .. } | Act::Debit(cost) => cost,
            Act::Peek(_) | Act::Check(_) | Act::Credit(_) => Amount::ZERO,
        };
        let sent = if lost { takes } else { Amount::ZERO };
        let decision = self.table.decide(&spot, sent, |bucket| {
            act.apply(bucket, &spot.limit, spot.now)
        });
        if !decision.is_allowed() || takes.is_zero() || matches!(act, Act::Debit(_)) {
            return decision;
        }
        let Some(outcome) = self.refused_by_aggregate(takes, spot.now) else {
            return decision;
        };
        // Nothing was let through, so nothing is taken.
        let back = self.table.decide(&spot, Amount::ZERO, |bucket| {
            bucket.credit(&spot.limit, takes, spot.now)
        });
        Decision { outcome, ..back }
    }

    /// Takes from every bucket or from none. While another thread is at the same keys,
    /// what is to be given back may be missing for an instant: it is never let through
    /// twice.
    pub(crate) fn decide_all(&self, wanted: &[(u64, &Limit, Amount)], lost: bool) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(wanted.len());
        let mut all = true;
        for (hash, limit, cost) in wanted {
            // After the first refusal the others are only asked what they would say.
            let act = if all {
                Act::Acquire(*cost)
            } else {
                Act::Check(*cost)
            };
            let decision = self.decide(*hash, limit, act, lost);
            all = all && decision.is_allowed();
            decisions.push(decision);
        }
        if !all {
            for ((hash, limit, cost), decision) in wanted.iter().zip(&mut decisions) {
                if !decision.is_allowed() {
                    break;
                }
                let outcome = decision.outcome;
                *decision = self.decide(*hash, limit, Act::Credit(*cost), lost);
                decision.outcome = outcome;
                self.give_back_to_aggregate(*cost);
            }
        }
        decisions
    }

    /// What the key owes the server, which is sent now.
    #[cfg(feature = "tokio")]
    pub(crate) fn take_deficit(&self, hash: u64, limit: &Limit) -> Option<Deficit> {
        self.table
            .take_deficit(&self.spot(hash, limit, Amount::ZERO))
    }

    /// The server has it.
    #[cfg(feature = "tokio")]
    pub(crate) fn settled(&self, hash: u64, limit: &Limit, deficit: &Deficit) {
        self.table
            .settled(&self.spot(hash, limit, Amount::ZERO), deficit);
    }

    /// It did not reach the server.
    #[cfg(feature = "tokio")]
    pub(crate) fn not_sent(&self, hash: u64, limit: &Limit, deficit: &Deficit) {
        self.table
            .not_sent(&self.spot(hash, limit, Amount::ZERO), deficit);
    }

    fn spot(&self, hash: u64, limit: &Limit, cost: Amount) -> Spot {
        let replicas = self.replicas.now();
        Spot {
            hash,
            limit: share(limit, replicas, cost),
            replicas,
            now: self.clock.now(),
        }
    }

    /// The aggregate's refusal, if there is one and it refuses; otherwise the tokens are
    /// taken from it.
    fn refused_by_aggregate(&self, cost: Amount, now: u64) -> Option<Outcome> {
        let (limit, bucket) = self.aggregate.as_ref()?;
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = bucket.acquire(limit, cost, now);
        keep(&mut bucket, limit, &decision, now);
        (!decision.is_allowed()).then_some(decision.outcome)
    }

    fn give_back_to_aggregate(&self, amount: Amount) {
        if let Some((limit, bucket)) = &self.aggregate {
            let now = self.clock.now();
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            let decision = bucket.credit(limit, amount, now);
            keep(&mut bucket, limit, &decision, now);
        }
    }
}

fn keep(bucket: &mut Bucket, limit: &Limit, decision: &Decision, now: u64) {
    match decision.effect {
        Effect::Put { bucket: after, .. } => *bucket = after,
        Effect::Delete => *bucket = Bucket::full(limit, now),
        Effect::Nothing => {}
    }
}

/// `1 / replicas` of the limit, with room for at least one request of `cost`: otherwise a
/// capacity of 10 over 20 replicas would let nothing through.
fn share(limit: &Limit, replicas: u16, cost: Amount) -> Limit {
    if replicas == 1 {
        return *limit;
    }
    let part = |whole: u128| whole.checked_div(replicas.into()).unwrap_or(whole);
    let floor = cost.min(limit.capacity);
    let capacity = Amount::from_picotokens(part(limit.capacity.picotokens()))
        .unwrap_or(limit.capacity)
        .max(floor);
    // Below the slowest rate there is, every replica has all of it.
    let rate = Rate::from_fixed(part(limit.rate.fixed())).unwrap_or(limit.rate);
    Limit { capacity, rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;
    use tokenbucket_core::Wait;

    fn limit(capacity: &str, rate: &str) -> Limit {
        Limit {
            capacity: Amount::parse(capacity.as_bytes()).unwrap(),
            rate: Rate::parse(rate.as_bytes()).unwrap(),
        }
    }

    fn local(replicas: impl Into<Replicas>, aggregate: Option<Limit>) -> (Local, TestClock) {
        let clock = TestClock::new();
        let table = Table::new(1_024, false);
        let local = Local::new(
            table,
            replicas.into(),
            aggregate,
            Clock::Test(clock.clone()),
        );
        (local, clock)
    }

    fn admitted(local: &Local, limit: &Limit, calls: u32) -> u32 {
        (0..calls)
            .map(|_| {
                u32::from(
                    local
                        .decide(1, limit, Act::Acquire(Amount::ONE), false)
                        .is_allowed(),
                )
            })
            .sum()
    }

    #[test]
    fn each_replica_has_its_share() {
        let (local, clock) = local(4, None);
        let limit = limit("100", "40");
        assert_eq!(admitted(&local, &limit, 200), 25);
        clock.advance(Duration::from_secs(1));
        assert_eq!(admitted(&local, &limit, 200), 10);
    }

    /// Otherwise 10 tokens over 20 replicas would let nothing through.
    #[test]
    fn a_share_has_room_for_one_request() {
        let (local, clock) = local(20, None);
        let limit = limit("10", "20");
        assert_eq!(admitted(&local, &limit, 5), 1);
        clock.advance(Duration::from_secs(1));
        assert_eq!(admitted(&local, &limit, 5), 1);
        let ten = Amount::from_tokens(10).unwrap();
        assert!(local
            .decide(2, &limit, Act::Acquire(ten), false)
            .is_allowed());
        let eleven = Amount::from_tokens(11).unwrap();
        let decision = local.decide(3, &limit, Act::Acquire(eleven), false);
        assert_eq!(decision.outcome, Outcome::Never);
    }

    #[test]
    fn a_change_of_replicas_takes_hold_and_refills_nothing() {
        let replicas = Arc::new(AtomicU32::new(2));
        let (local, clock) = local(Arc::clone(&replicas), None);
        let limit = limit("100", "100");
        assert_eq!(admitted(&local, &limit, 200), 50);
        for count in [1, 4, 2, 1_000, 1] {
            replicas.store(count, Ordering::Relaxed);
            assert_eq!(admitted(&local, &limit, 200), 0, "{count}");
        }
        replicas.store(10, Ordering::Relaxed);
        clock.advance(Duration::from_millis(500));
        assert_eq!(admitted(&local, &limit, 200), 5);
        // Zero replicas are one.
        replicas.store(0, Ordering::Relaxed);
        clock.advance(Duration::from_secs(10));
        assert_eq!(admitted(&local, &limit, 200), 100);
    }

    /// A06: a limit at which many a limiter loses its footing, under two threads.
    #[test]
    fn threads_lose_no_token() {
        let (local, _) = local(1, None);
        let limit = limit("1000000001", "1000000001");
        let denied: u32 = std::thread::scope(|scope| {
            let calls = || 1_000_000 - admitted(&local, &limit, 1_000_000);
            let threads = [scope.spawn(calls), scope.spawn(calls)];
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(denied, 0);
        let left = local
            .decide(1, &limit, Act::Peek(Amount::ZERO), false)
            .remaining;
        assert_eq!(left, 1_000_000_001 - 2_000_000);
    }

    #[test]
    fn the_aggregate_caps_all_keys_together() {
        let (local, clock) = local(1, Some(limit("10", "5")));
        let limit = limit("4", "1");
        let all = |from: u64| -> u32 {
            (from..from + 100)
                .map(|key| {
                    u32::from(
                        local
                            .decide(key, &limit, Act::Acquire(Amount::ONE), false)
                            .is_allowed(),
                    )
                })
                .sum()
        };
        assert_eq!(all(0), 10);
        // What the aggregate refused was taken from no bucket.
        let left = local
            .decide(50, &limit, Act::Peek(Amount::ZERO), false)
            .remaining;
        assert_eq!(left, 4);
        clock.advance(Duration::from_secs(1));
        assert_eq!(all(1_000), 5);
        let refused = local.decide(2_000, &limit, Act::Acquire(Amount::ONE), false);
        assert!(
            matches!(refused.outcome, Outcome::Denied { retry_after } if retry_after > Wait::NONE)
        );
    }

    #[test]
    fn all_or_none() {
        let (local, _) = local(1, None);
        let (wide, narrow) = (limit("10", "1"), limit("2", "1"));
        let both = [(1, &wide, Amount::ONE), (2, &narrow, Amount::ONE)];
        let allowed = |decisions: &[Decision]| -> Vec<bool> {
            decisions.iter().map(Decision::is_allowed).collect()
        };
        assert_eq!(allowed(&local.decide_all(&both, false)), [true, true]);
        assert_eq!(allowed(&local.decide_all(&both, false)), [true, true]);
        let third = local.decide_all(&both, false);
        assert_eq!(allowed(&third), [true, false]);
        assert_eq!(third[0].remaining, 8, "given back");
        let reversed = [both[1], both[0]];
        assert_eq!(allowed(&local.decide_all(&reversed, false)), [false, true]);
        assert_eq!(admitted(&local, &wide, 100), 8);
    }

    #[test]
    fn all_acts_follow_the_rules_of_the_buckets() {
        let (local, _) = local(1, None);
        let limit = limit("10", "1");
        let tokens = |count| Amount::from_tokens(count).unwrap();
        assert_eq!(
            local
                .decide(1, &limit, Act::Debit(tokens(13)), false)
                .remaining,
            0
        );
        assert!(!local
            .decide(1, &limit, Act::Peek(Amount::ZERO), false)
            .is_allowed());
        assert_eq!(
            local
                .decide(1, &limit, Act::Credit(tokens(5)), false)
                .remaining,
            2
        );
        let reserve = Act::Reserve {
            cost: tokens(4),
            max_wait_ms: 2_000,
        };
        let decision = local.decide(1, &limit, reserve, false);
        let Outcome::Allowed { wait } = decision.outcome else {
            panic!("{decision:?}");
        };
        assert_eq!(wait.micros(), 2_000_000);
        assert!(!local.decide(1, &limit, reserve, false).is_allowed());
        assert_eq!(
            local
                .decide(1, &limit, Act::Credit(tokens(100)), false)
                .remaining,
            10
        );
    }

    /// A request above the share has room of its own; a refund of a part of it makes no
    /// tokens, however often it is done.
    #[test]
    fn refunds_of_dear_requests_mint_nothing() {
        let (local, _) = local(10, None);
        let limit = limit("100000", "1");
        let tokens = |count| Amount::from_tokens(count).unwrap();
        let mut taken = 0;
        for _ in 0..100 {
            let dear = Act::Acquire(tokens(20_000));
            if local.decide(1, &limit, dear, false).is_allowed() {
                taken += 20_000;
                local.decide(1, &limit, Act::Credit(tokens(10_000)), false);
                taken -= 10_000;
            }
        }
        assert!(taken <= 20_000, "{taken}");
    }

    /// Nothing was let through, so the aggregate has all its tokens.
    #[test]
    fn the_aggregate_loses_nothing_to_what_is_denied() {
        let (local, _) = local(1, Some(limit("10", "1")));
        let (wide, none) = (limit("100", "1"), limit("0", "1"));
        for _ in 0..20 {
            let both = [(1, &wide, Amount::ONE), (2, &none, Amount::ONE)];
            assert!(!local.decide_all(&both, false)[1].is_allowed());
        }
        assert_eq!(admitted(&local, &wide, 20), 10);
    }
}
