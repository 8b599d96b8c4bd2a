//! The client.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use crate::builder::Builder;
use crate::decision::Decisions;
use crate::fault::Unanswered;
use crate::key::Keys;
use crate::limiter::{FailureMode, Limiter, Shape};
use crate::local::Local;
use crate::observe::{Counters, Watch};
use crate::{Cost, Error, IntoCost, Limit, Outcome, Reason, Source};

/// A client. Cheap to clone; all clones share one connection per server, the breakers and
/// the local buckets. Make one per process.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) local: Local,
    pub(crate) watch: Arc<Watch>,
    pub(crate) keys: Keys,
    pub(crate) on_failure: FailureMode,
    pub(crate) hasher: RandomState,
    #[cfg(feature = "tokio")]
    pub(crate) link: Option<crate::link::Link>,
}

/// The most buckets of one [`acquire_all`](Client::acquire_all).
const MOST_AT_ONCE: usize = 64;

impl Client {
    pub(crate) fn of(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A client without a server: a limiter in this process alone, by the same arithmetic,
    /// for tests and for services of one process. Every decision's source is
    /// [`Local`](Source::Local) with [`Reason::NoServer`].
    #[must_use]
    pub fn in_process() -> Builder {
        Builder::without_server()
    }

    /// A client of one server: `redis://user:password@host:port/database`, or
    /// `unix:///path`, or `rediss://` with the feature `tls`.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for what is no such address.
    #[cfg(feature = "tokio")]
    pub fn builder(address: &str) -> Result<Builder, Error> {
        crate::link::Settings::one(address).map(Builder::on)
    }

    /// A client of a cluster, of which some nodes are at `addresses`.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for no address, or what is none.
    #[cfg(feature = "cluster")]
    pub fn cluster<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Builder, Error> {
        crate::link::Settings::cluster(addresses).map(Builder::on)
    }

    /// A client of the primary that the sentinels at `addresses` know as `name`.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for no address, or what is none.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
        name: &str,
    ) -> Result<Builder, Error> {
        crate::link::Settings::sentinel(addresses, name).map(Builder::on)
    }

    /// A limiter for `limit`. Give it a [name](Limiter::named): without one its numbers are
    /// its name, so that other numbers begin with full buckets.
    #[must_use]
    pub fn limiter(&self, limit: Limit) -> Limiter {
        Limiter::new(self.clone(), limit)
    }

    /// Takes from the buckets of several limiters for one `subject`, or from none of them,
    /// in one step: 1 to 64 limiters of this client, each at most once.
    ///
    /// While the server is away, the failure mode of the first one decides for all.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire`].
    pub async fn acquire_all<C: IntoCost + Copy>(
        &self,
        subject: impl AsRef<[u8]>,
        wanted: &[(&Limiter, C)],
    ) -> Result<Decisions, Error> {
        let costs: Result<Vec<_>, Error> = wanted
            .iter()
            .map(|(limiter, cost)| Ok((*limiter, cost.into_cost()?)))
            .collect();
        let result = match &costs {
            Ok(wanted) => self.all(subject.as_ref(), wanted).await,
            Err(error) => Err(error.clone()),
        };
        match &result {
            Ok(decisions) => {
                for ((limiter, _), decision) in wanted.iter().zip(&decisions.each) {
                    let watch = &self.inner.watch;
                    watch.decided(limiter.name(), decision.outcome(), decision.source());
                }
            }
            Err(_) => self.inner.watch.error(),
        }
        result
    }

    async fn all(&self, subject: &[u8], wanted: &[(&Limiter, Cost)]) -> Result<Decisions, Error> {
        let Some((first, _)) = wanted.first() else {
            return Err(Error::argument("at least one limiter must be asked"));
        };
        if wanted.len() > MOST_AT_ONCE {
            return Err(Error::argument("at most 64 limiters can be asked at once"));
        }
        for (at, (limiter, _)) in wanted.iter().enumerate() {
            limiter.shape().check()?;
            let before = wanted.get(..at).unwrap_or_default();
            if before
                .iter()
                .any(|(other, _)| other.name() == limiter.name())
            {
                return Err(Error::argument("each limiter can be asked at most once"));
            }
        }
        let unanswered = Unanswered::for_want_of_a_server();
        #[cfg(feature = "tokio")]
        let unanswered = match &self.inner.link {
            None => unanswered,
            Some(link) => match link.acquire_all(&self.inner, subject, wanted).await? {
                Ok(decisions) => return Ok(decisions),
                Err(unanswered) => unanswered,
            },
        };
        self.all_locally(subject, wanted, first.shape(), unanswered)
    }

    fn all_locally(
        &self,
        subject: &[u8],
        wanted: &[(&Limiter, Cost)],
        first: &Shape,
        unanswered: Unanswered,
    ) -> Result<Decisions, Error> {
        let mode = match unanswered.reason {
            Reason::NoServer => FailureMode::LocalShare,
            _ => first.on_failure,
        };
        let each: Vec<_> = if mode == FailureMode::LocalShare {
            let buckets: Vec<_> = wanted
                .iter()
                .map(|(limiter, cost)| {
                    let hash = self.inner.hash(limiter.name(), subject);
                    (hash, limiter.shape().limit.exact(), cost.amount())
                })
                .collect();
            let decisions = self.inner.local.decide_all(&buckets, unanswered.lost);
            let limits = wanted.iter().map(|(limiter, _)| limiter.shape().limit);
            let source = Source::Local(unanswered.reason);
            decisions
                .iter()
                .zip(limits)
                .map(|(decision, limit)| crate::Decision::local(decision, limit, source))
                .collect()
        } else {
            let one = |(limiter, cost): &(&Limiter, Cost)| {
                let shape = limiter.shape();
                shape.without_counting(mode, cost.amount(), false, unanswered)
            };
            wanted.iter().map(one).collect::<Result<_, _>>()?
        };
        let outcome = each.iter().map(crate::Decision::outcome).fold(
            Outcome::Allowed {
                wait: std::time::Duration::ZERO,
            },
            worse,
        );
        Ok(Decisions { outcome, each })
    }

    /// Asks the server for its module by a call of the kind that limits, which takes
    /// nothing. In a cluster every primary is asked. Each may take as long as making a
    /// connection may: a service that starts has more time than a request.
    ///
    /// # Errors
    ///
    /// What is wrong: [`Setup`](crate::ErrorKind::Setup) when the server refuses, for want
    /// of the module or of a right, [`Unavailable`](crate::ErrorKind::Unavailable) when it
    /// is away.
    #[cfg(feature = "tokio")]
    pub async fn check(&self) -> Result<(), Error> {
        match &self.inner.link {
            None => Ok(()),
            Some(link) => link.check(&self.inner.keys).await,
        }
    }

    /// Whether any server is left alone at the moment because it failed: decisions about
    /// its keys are the failure mode's.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.inner.watch.is_degraded()
    }

    /// How often things happened since the client was built.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.watch.counters()
    }
}

/// Of two outcomes the one that decides for both.
pub(crate) fn worse(a: Outcome, b: Outcome) -> Outcome {
    match (a, b) {
        (Outcome::Never, _) | (_, Outcome::Never) => Outcome::Never,
        (Outcome::Denied { retry_after: a }, Outcome::Denied { retry_after: b }) => {
            Outcome::Denied {
                retry_after: a.max(b),
            }
        }
        (denied @ Outcome::Denied { .. }, _) | (_, denied @ Outcome::Denied { .. }) => denied,
        (allowed, _) => allowed,
    }
}

impl Inner {
    /// Where the subject's bucket of the limit `name` is in the local table.
    pub(crate) fn hash(&self, name: &str, subject: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name.as_bytes());
        // No byte of a UTF-8 text, so no name runs into a subject.
        hasher.write_u8(0xff);
        hasher.write(subject);
        hasher.finish()
    }
}
