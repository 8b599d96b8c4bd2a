//! What a call is answered.

use std::fmt;
use std::time::Duration;

use tokenbucket_core::Wait;

use crate::Limit;

/// Yes, not now, or never. All three are answers, not errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    outcome: Outcome,
    remaining: u64,
    reset_after: Duration,
    limit: Limit,
    source: Source,
}

/// Whether the call goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Yes. The tokens are taken.
    Allowed {
        /// How long to wait before acting: zero but for a reservation.
        wait: Duration,
    },
    /// Not now.
    Denied {
        /// After this time the same call is allowed, if nobody else calls. Above zero.
        retry_after: Duration,
    },
    /// Not ever: the cost is above the capacity.
    Never,
}

/// Where a decision came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The server's bucket.
    Redis,
    /// This process's own bucket, and why.
    Local(Reason),
    /// [`FailureMode::Allow`](crate::FailureMode::Allow): nothing was counted.
    FailOpen,
    /// [`FailureMode::Deny`](crate::FailureMode::Deny): nothing was counted.
    FailClosed,
}

/// Why the server did not decide.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The client was built without a server: [`Client::in_process`](crate::Client::in_process).
    NoServer,
    /// The breaker is open: the server failed a moment ago and is not asked.
    BreakerOpen,
    /// No reply before the call's deadline.
    Deadline,
    /// The connection broke or could not be made.
    Connection,
    /// A reply that is none of this protocol.
    Corrupt,
    /// No node of the cluster serves the key, or no sentinel knows a primary.
    NoNode,
    /// LOADING: the server reads its data.
    Loading,
    /// MASTERDOWN: a replica without its primary.
    MasterDown,
    /// CLUSTERDOWN.
    ClusterDown,
    /// TRYAGAIN, also after a retry.
    TryAgain,
    /// MOVED or ASK, also after following it.
    Redirected,
    /// READONLY: a replica; the primary is elsewhere now.
    ReadOnly,
    /// BUSY: a script runs and does not end.
    Busy,
    /// MISCONF: the server can't save and so takes no writes.
    MisConf,
    /// NOREPLICAS: not enough replicas.
    NoReplicas,
    /// OOM: above maxmemory.
    OutOfMemory,
    /// The server has no connection left for us.
    MaxClients,
    /// The module answered before and is gone: a failover to a node without it.
    ModuleLost,
    /// A broken set-up that counts as away:
    /// [`Builder::broken_setup_is_away`](crate::Builder::broken_setup_is_away).
    Setup,
}

impl Reason {
    /// One word, as in the labels of metrics: `deadline`, `out_of_memory`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoServer => "no_server",
            Self::BreakerOpen => "breaker_open",
            Self::Deadline => "deadline",
            Self::Connection => "connection",
            Self::Corrupt => "corrupt",
            Self::NoNode => "no_node",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::ClusterDown => "cluster_down",
            Self::TryAgain => "try_again",
            Self::Redirected => "redirected",
            Self::ReadOnly => "read_only",
            Self::Busy => "busy",
            Self::MisConf => "mis_conf",
            Self::NoReplicas => "no_replicas",
            Self::OutOfMemory => "out_of_memory",
            Self::MaxClients => "max_clients",
            Self::ModuleLost => "module_lost",
            Self::Setup => "setup",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Decision {
    pub(crate) const fn new(
        outcome: Outcome,
        remaining: u64,
        reset_after: Duration,
        limit: Limit,
        source: Source,
    ) -> Self {
        Self {
            outcome,
            remaining,
            reset_after,
            limit,
            source,
        }
    }

    pub(crate) fn local(
        decision: &tokenbucket_core::Decision,
        limit: Limit,
        source: Source,
    ) -> Self {
        let outcome = match decision.outcome {
            tokenbucket_core::Outcome::Allowed { wait } => Outcome::Allowed {
                wait: duration(wait),
            },
            tokenbucket_core::Outcome::Denied { retry_after } => Outcome::Denied {
                retry_after: duration(retry_after),
            },
            tokenbucket_core::Outcome::Never => Outcome::Never,
        };
        let reset_after = duration(decision.reset_after);
        Self::new(outcome, decision.remaining, reset_after, limit, source)
    }

    /// Whether to go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
    }

    /// Yes, not now, or never.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whole tokens left, from 0 to the capacity. Of a local bucket: of this replica's
    /// share.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Where it is [denied](Outcome::Denied), the time after which the same call is
    /// allowed if nobody else calls; above zero.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Denied { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// How long to wait before acting: above zero only where a
    /// [reservation](crate::Limiter::reserve) went into debt.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        match self.outcome {
            Outcome::Allowed { wait } => wait,
            _ => Duration::ZERO,
        }
    }

    /// The time until the bucket is full; zero when it is.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// The limit that was asked for.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Where the decision came from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }
}

/// The longest time there is where it does not fit.
pub(crate) fn duration(wait: Wait) -> Duration {
    u64::try_from(wait.micros()).map_or(Duration::MAX, Duration::from_micros)
}

/// What [`Client::acquire_all`](crate::Client::acquire_all) is answered: all or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    pub(crate) outcome: Outcome,
    pub(crate) each: Vec<Decision>,
}

impl Decisions {
    /// Whether all are allowed, and so the tokens of all are taken.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed { .. })
    }

    /// Of all together: the longest wait of those that are denied, never if any says
    /// never.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Where it is denied, the time after which the same call is allowed if nobody else
    /// calls; above zero.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Denied { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// Each bucket's own decision, in the order given. One that had enough says so even
    /// where the whole was denied and nothing was taken.
    #[must_use]
    pub fn each(&self) -> &[Decision] {
        &self.each
    }
}
