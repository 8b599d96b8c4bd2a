//! What a client is built with.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::time::Duration;

use crate::client::{Client, Inner};
use crate::clock::Clock;
use crate::key::Keys;
use crate::local::Local;
use crate::observe::Watch;
use crate::table::Table;
use crate::{BreakerSettings, Error, FailureMode, Limit, Observer, Replicas, TestClock};

/// What a client is built with. Nothing but the address of the server has to be said.
#[derive(Clone)]
pub struct Builder<C = Client> {
    pub(crate) replicas: Replicas,
    pub(crate) on_failure: FailureMode,
    pub(crate) keys: Keys,
    pub(crate) buckets: usize,
    pub(crate) strict: bool,
    pub(crate) aggregate: Option<Limit>,
    pub(crate) clock: Option<TestClock>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) breaker: BreakerSettings,
    #[cfg(feature = "tokio")]
    pub(crate) link: Option<crate::link::Settings>,
    kind: PhantomData<fn() -> C>,
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the addresses: passwords stand in them.
        f.debug_struct("Builder")
            .field("replicas", &self.replicas)
            .field("on_failure", &self.on_failure)
            .field("keys", &self.keys)
            .field("local_buckets", &self.buckets)
            .field("strict", &self.strict)
            .field("aggregate", &self.aggregate)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

/// What a [`Builder`] builds: a [`Client`], or a `blocking::Client`.
pub trait Built: Sized + sealed::Sealed {
    #[doc(hidden)]
    fn from_client(client: Client) -> Result<Self, Error>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Client {}
impl Built for Client {
    fn from_client(client: Client) -> Result<Self, Error> {
        Ok(client)
    }
}

const DEFAULT_BUCKETS: usize = 65_536;
const MOST_BUCKETS: usize = 1 << 26;

impl<C: Built> Builder<C> {
    pub(crate) fn without_server() -> Self {
        Self {
            replicas: Replicas::Fixed(1),
            on_failure: FailureMode::LocalShare,
            keys: Keys::default(),
            buckets: DEFAULT_BUCKETS,
            strict: false,
            aggregate: None,
            clock: None,
            observer: None,
            breaker: BreakerSettings::default(),
            #[cfg(feature = "tokio")]
            link: None,
            kind: PhantomData,
        }
    }

    /// How many replicas of the service share the limits: 1 unless said. While the server
    /// is away each limits with that part of every limit. A number, or an
    /// `Arc<AtomicU32>` that is read at each local decision.
    #[must_use]
    pub fn replicas(mut self, replicas: impl Into<Replicas>) -> Self {
        self.replicas = replicas.into();
        self
    }

    /// As [`replicas`](Self::replicas), asked at each local decision.
    #[must_use]
    pub fn replicas_from(mut self, replicas: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.replicas = Replicas::Function(Arc::new(replicas));
        self
    }

    /// What happens to requests while the server is away, where a limiter does not say
    /// otherwise. [`FailureMode::LocalShare`] unless said.
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> Self {
        self.on_failure = mode;
        self
    }

    /// How keys are made.
    #[must_use]
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    /// How many local buckets there is room for: 65,536 unless said, at most 67,108,864; 40
    /// bytes each. Rounded up to eight times a power of two.
    #[must_use]
    pub fn local_buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// In a flood of more keys than there are local buckets, a newcomer's bucket is no
    /// fuller than the one that it pushes out. The bound on what is admitted then holds
    /// for any number of keys, and newcomers suffer for the flood.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// A limit over all that this process admits locally, whatever the keys and limits.
    /// It is this process's own, not shared out among the replicas, and costs one lock
    /// that all local decisions take.
    #[must_use]
    pub fn aggregate(mut self, limit: Limit) -> Self {
        self.aggregate = Some(limit);
        self
    }

    /// When a target is not asked any more, and when again.
    #[must_use]
    pub fn breaker(mut self, settings: BreakerSettings) -> Self {
        self.breaker = settings;
        self
    }

    /// Hooks for what happens inside.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// A clock for tests in the place of the system's.
    #[must_use]
    pub fn test_clock(mut self, clock: &TestClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// The client. No connection is made: a service starts while the server is down.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for settings that can't be.
    pub fn build(self) -> Result<C, Error> {
        self.keys.check()?;
        if self.buckets > MOST_BUCKETS {
            return Err(Error::argument(
                "there can be at most 67,108,864 local buckets",
            ));
        }
        let clock = self.clock.map_or_else(Clock::system, Clock::Test);
        let watch = Arc::new(Watch::new(self.observer));
        #[cfg(feature = "tokio")]
        let link = self
            .link
            .map(|settings| {
                crate::link::Link::new(settings, self.breaker, clock.clone(), Arc::clone(&watch))
            })
            .transpose()?;
        let table = Table::new(self.buckets, self.strict);
        let aggregate = self.aggregate.map(|limit| *limit.exact());
        C::from_client(Client::of(Inner {
            local: Local::new(table, self.replicas, aggregate, clock),
            watch,
            keys: self.keys,
            on_failure: self.on_failure,
            hasher: std::hash::RandomState::new(),
            #[cfg(feature = "tokio")]
            link,
        }))
    }
}

#[cfg(feature = "tokio")]
impl<C: Built> Builder<C> {
    pub(crate) fn on(link: crate::link::Settings) -> Self {
        Self {
            link: Some(link),
            ..Self::without_server()
        }
    }

    fn with_link(mut self, change: impl FnOnce(&mut crate::link::Settings)) -> Self {
        if let Some(link) = &mut self.link {
            change(link);
        }
        self
    }

    /// The time that one call may take over all: making a connection, waiting for a place
    /// in the queue, and the reply. 50 ms unless said; after it the failure mode decides.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with_link(|link| link.deadline = deadline)
    }

    /// The time that making a connection may take: 250 ms unless said, and never less than
    /// the deadline. Calls wait for it only up to their deadline.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.with_link(|link| link.connect_timeout = timeout)
    }

    /// Whether a server that answers and refuses (password, permissions, no module) counts
    /// as away: the failure mode decides then, and the breaker opens. `false` unless said:
    /// the call gets an [`Error`], which somebody has to see.
    #[must_use]
    pub fn broken_setup_is_away(self, away: bool) -> Self {
        self.with_link(|link| link.broken_is_away = away)
    }

    /// The certificates to trust, in PEM, in the place of those of the system.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn root_certificate(self, pem: impl Into<Vec<u8>>) -> Self {
        self.with_link(|link| link.tls.root = Some(pem.into()))
    }

    /// The certificate and key that the client shows, in PEM.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(
        self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.with_link(|link| link.tls.client = Some((certificate.into(), key.into())))
    }

    /// User and password of the servers that sentinels name. (Those of the sentinels
    /// stand in their addresses.) An empty user is the default user.
    #[cfg(feature = "sentinel")]
    #[must_use]
    pub fn credentials(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.with_link(|link| link.credentials = Some((user.into(), password.into())))
    }

    /// The database of the servers that sentinels name: 0 unless said.
    #[cfg(feature = "sentinel")]
    #[must_use]
    pub fn database(self, database: i64) -> Self {
        self.with_link(|link| link.database = database)
    }
}
