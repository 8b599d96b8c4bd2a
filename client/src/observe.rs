//! Seen from outside: counters, hooks, and two log lines.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::{Outcome, Reason, Source};

/// What happens inside a client, as it happens. Every method does nothing unless it is
/// written; all of them are called on the caller's path, so they must be quick.
pub trait Observer: Send + Sync {
    /// A call of the limit `name` was decided. Not called for errors.
    fn decided(&self, name: &str, outcome: Outcome, source: Source) {
        let _ = (name, outcome, source);
    }

    /// A call did not get its answer from `target`, and why; the failure mode decides it.
    fn failed(&self, target: &str, reason: Reason) {
        let _ = (target, reason);
    }

    /// A connection to `target` was made, or could not be made and why.
    fn dialed(&self, target: &str, result: Result<(), &str>) {
        let _ = (target, result);
    }

    /// `target` is not asked any more, but for probes: its breaker opened.
    fn degraded(&self, target: &str, reason: Reason) {
        let _ = (target, reason);
    }

    /// `target` is asked again, after so long: its breaker closed.
    fn recovered(&self, target: &str, after: Duration) {
        let _ = (target, after);
    }

    /// `target` does not know the module's commands, although the module has answered
    /// before.
    fn module_lost(&self, target: &str) {
        let _ = target;
    }
}

/// How often things happened since the client was built.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Decisions of the server.
    pub redis: u64,
    /// Decisions of the local buckets.
    pub local: u64,
    /// Calls let through by [`FailureMode::Allow`](crate::FailureMode::Allow).
    pub fail_open: u64,
    /// Calls refused by [`FailureMode::Deny`](crate::FailureMode::Deny).
    pub fail_closed: u64,
    /// Calls that got an [`Error`](crate::Error).
    pub errors: u64,
    /// Decisions, of whatever source, that said no.
    pub denied: u64,
    /// Connections tried.
    pub dials: u64,
    /// Probes sent while a breaker was open.
    pub probes: u64,
    /// Times that a breaker opened.
    pub degraded: u64,
    /// Debts of local buckets that were sent to the server.
    pub settled: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Redis,
    Local,
    FailOpen,
    FailClosed,
    Errors,
    Denied,
    Dials,
    Probes,
    Degraded,
    Settled,
}

const COUNTS: usize = 10;
/// So many threads count without waiting for each other's cache lines.
const STRIPES: usize = 16;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Stripe([AtomicU64; COUNTS]);

pub(crate) struct Watch {
    stripes: [Stripe; STRIPES],
    observer: Option<Arc<dyn Observer>>,
    /// How many targets are degraded now. For an instant below zero, where one recovers
    /// before another thread has noted that it was degraded.
    degraded: AtomicI64,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counters().fmt(f)
    }
}

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl Watch {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self {
            stripes: Default::default(),
            observer,
            degraded: AtomicI64::new(0),
        }
    }

    pub(crate) fn count(&self, what: Count) {
        // A thread that is being torn down counts in the first stripe.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or_default();
        let counter = self
            .stripes
            .get(stripe)
            .and_then(|stripe| stripe.0.get(index(what)));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sum(&self, what: Count) -> u64 {
        let of = |stripe: &Stripe| {
            let counter = stripe.0.get(index(what));
            counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
        };
        self.stripes.iter().map(of).fold(0, u64::wrapping_add)
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            redis: self.sum(Count::Redis),
            local: self.sum(Count::Local),
            fail_open: self.sum(Count::FailOpen),
            fail_closed: self.sum(Count::FailClosed),
            errors: self.sum(Count::Errors),
            denied: self.sum(Count::Denied),
            dials: self.sum(Count::Dials),
            probes: self.sum(Count::Probes),
            degraded: self.sum(Count::Degraded),
            settled: self.sum(Count::Settled),
        }
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn decided(&self, name: &str, outcome: Outcome, source: Source) {
        self.count(match source {
            Source::Redis => Count::Redis,
            Source::Local(_) => Count::Local,
            Source::FailOpen => Count::FailOpen,
            Source::FailClosed => Count::FailClosed,
        });
        if !matches!(outcome, Outcome::Allowed { .. }) {
            self.count(Count::Denied);
        }
        #[cfg(feature = "metrics")]
        metrics::counter!(
            "tokenbucket_decisions_total",
            "limit" => name.to_string(),
            "outcome" => match outcome {
                Outcome::Allowed { .. } => "allowed",
                Outcome::Denied { .. } => "denied",
                Outcome::Never => "never",
            },
            "source" => match source {
                Source::Redis => "redis",
                Source::Local(_) => "local",
                Source::FailOpen => "fail_open",
                Source::FailClosed => "fail_closed",
            },
        )
        .increment(1);
        if let Some(observer) = &self.observer {
            observer.decided(name, outcome, source);
        }
    }

    pub(crate) fn error(&self) {
        self.count(Count::Errors);
        #[cfg(feature = "metrics")]
        metrics::counter!("tokenbucket_errors_total").increment(1);
    }
}

#[cfg(feature = "tokio")]
impl Watch {
    pub(crate) fn failed(&self, target: &str, reason: Reason) {
        #[cfg(feature = "metrics")]
        metrics::counter!("tokenbucket_failures_total", "reason" => reason.as_str()).increment(1);
        if let Some(observer) = &self.observer {
            observer.failed(target, reason);
        }
    }

    pub(crate) fn dialed(&self, target: &str, result: Result<(), &str>) {
        self.count(Count::Dials);
        #[cfg(feature = "metrics")]
        metrics::counter!(
            "tokenbucket_dials_total",
            "made" => if result.is_ok() { "yes" } else { "no" },
        )
        .increment(1);
        if let Some(observer) = &self.observer {
            observer.dialed(target, result);
        }
    }

    pub(crate) fn degraded(&self, target: &str, reason: Reason) {
        self.count(Count::Degraded);
        self.change_degraded(1);
        #[cfg(feature = "tracing")]
        tracing::warn!(target, %reason, "rate limits are local: the server is away");
        if let Some(observer) = &self.observer {
            observer.degraded(target, reason);
        }
    }

    pub(crate) fn recovered(&self, target: &str, after: Duration) {
        self.forget_degraded();
        #[cfg(feature = "tracing")]
        tracing::info!(
            target,
            ?after,
            "rate limits are shared again: the server is back"
        );
        if let Some(observer) = &self.observer {
            observer.recovered(target, after);
        }
    }

    /// A degraded target is no more: the cluster has lost it, or the client is dropped.
    pub(crate) fn forget_degraded(&self) {
        self.change_degraded(-1);
    }

    fn change_degraded(&self, by: i64) {
        let targets = self
            .degraded
            .fetch_add(by, Ordering::Relaxed)
            .saturating_add(by);
        #[cfg(feature = "metrics")]
        metrics::gauge!("tokenbucket_degraded_targets")
            .set(i32::try_from(targets).map_or(f64::MAX, f64::from));
        #[cfg(not(feature = "metrics"))]
        let _ = targets;
    }

    pub(crate) fn module_lost(&self, target: &str) {
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target,
            "the module is gone: this node does not know its commands; load it on every node"
        );
        if let Some(observer) = &self.observer {
            observer.module_lost(target);
        }
    }
}

const fn index(what: Count) -> usize {
    match what {
        Count::Redis => 0,
        Count::Local => 1,
        Count::FailOpen => 2,
        Count::FailClosed => 3,
        Count::Errors => 4,
        Count::Denied => 5,
        Count::Dials => 6,
        Count::Probes => 7,
        Count::Degraded => 8,
        Count::Settled => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together() {
        let watch = Watch::new(None);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        watch.decided("api", Outcome::Never, Source::Redis);
                    }
                });
            }
        });
        let counters = watch.counters();
        assert_eq!(
            (counters.redis, counters.denied, counters.local),
            (2_000, 2_000, 0)
        );
    }
}
