//! The same client for code that blocks: the same names, the same failure modes, the same
//! deadlines.
//!
//! A thread of its own does the talking with the server; the calling thread waits for it.
//! Decisions about one key that need no server (there is none, or the breaker of the only
//! one is open) are made on the calling thread. It may be called from within an asynchronous runtime too, whose thread
//! then waits.
//!
//! ```
//! use tokenbucket_client::{blocking, Limit};
//!
//! let client = blocking::Client::in_process().build()?;
//! let api = client.limiter(Limit::per_second(50.0)?.burst(100.0)?).named("api");
//! assert!(api.acquire("user:42", 1)?.is_allowed());
//! # Ok::<(), tokenbucket_client::Error>(())
//! ```

use std::future::Future;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::builder::{sealed, Builder, Built};
use crate::limiter::Patience;
use crate::local::Act;
use crate::{Cost, Counters, Decision, Decisions, Error, ErrorKind, FailureMode, IntoCost, Limit};

/// As [`crate::Client`], for code that blocks.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Option<Arc<Runtime>>,
}

/// As [`crate::Limiter`], for code that blocks.
#[derive(Clone, Debug)]
pub struct Limiter {
    limiter: crate::Limiter,
    runtime: Option<Arc<Runtime>>,
}

#[derive(Debug)]
struct Runtime(Option<tokio::runtime::Runtime>);

impl Drop for Runtime {
    fn drop(&mut self) {
        // Waiting for it would not be allowed in an asynchronous runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Runtime {
    /// What `future` gives, computed by the runtime's own thread.
    fn wait_for<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let ended = || Error::new(ErrorKind::Unavailable, "the client's runtime has ended");
        let runtime = self.0.as_ref().ok_or_else(ended)?;
        let (sender, receiver) = sync_channel(1);
        runtime.spawn(async move {
            // Nobody waits any more when the caller's thread has panicked.
            let _ = sender.send(future.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }
}

impl sealed::Sealed for Client {}
impl Built for Client {
    fn from_client(client: crate::Client) -> Result<Self, Error> {
        let runtime = client
            .inner
            .link
            .as_ref()
            .map(|_| {
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("tokenbucket")
                    .enable_all()
                    .build()
                    .map(|runtime| Arc::new(Runtime(Some(runtime))))
                    .map_err(|error| {
                        Error::new(
                            ErrorKind::Setup,
                            format!("no thread for the client: {error}"),
                        )
                    })
            })
            .transpose()?;
        Ok(Self { client, runtime })
    }
}

impl Client {
    /// As [`crate::Client::in_process`].
    #[must_use]
    pub fn in_process() -> Builder<Self> {
        Builder::without_server()
    }

    /// As [`crate::Client::builder`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn builder(address: &str) -> Result<Builder<Self>, Error> {
        crate::link::Settings::one(address).map(Builder::on)
    }

    /// As [`crate::Client::cluster`].
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "cluster")]
    pub fn cluster<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Builder<Self>, Error> {
        crate::link::Settings::cluster(addresses).map(Builder::on)
    }

    /// As [`crate::Client::sentinel`].
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "sentinel")]
    pub fn sentinel<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
        name: &str,
    ) -> Result<Builder<Self>, Error> {
        crate::link::Settings::sentinel(addresses, name).map(Builder::on)
    }

    /// As [`crate::Client::limiter`].
    #[must_use]
    pub fn limiter(&self, limit: Limit) -> Limiter {
        Limiter {
            limiter: self.client.limiter(limit),
            runtime: self.runtime.clone(),
        }
    }

    /// As [`crate::Client::acquire_all`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_all<C: IntoCost + Copy>(
        &self,
        subject: impl AsRef<[u8]>,
        wanted: &[(&Limiter, C)],
    ) -> Result<Decisions, Error> {
        let client = self.client.clone();
        let subject = subject.as_ref().to_vec();
        let wanted: Vec<(crate::Limiter, Cost)> = wanted
            .iter()
            .map(|(limiter, cost)| Ok((limiter.limiter.clone(), cost.into_cost()?)))
            .collect::<Result<_, Error>>()?;
        let ask = async move {
            let wanted: Vec<_> = wanted
                .iter()
                .map(|(limiter, cost)| (limiter, *cost))
                .collect();
            client.acquire_all(&subject, &wanted).await
        };
        match &self.runtime {
            Some(runtime) => runtime.wait_for(ask),
            None => ready(ask),
        }
    }

    /// As [`crate::Client::check`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check(&self) -> Result<(), Error> {
        let client = self.client.clone();
        match &self.runtime {
            Some(runtime) => runtime.wait_for(async move { client.check().await }),
            None => Ok(()),
        }
    }

    /// As [`crate::Client::is_degraded`].
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.client.is_degraded()
    }

    /// As [`crate::Client::counters`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.client.counters()
    }
}

/// What a future that waits for nothing gives.
fn ready<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => Err(Error::new(
            ErrorKind::Unavailable,
            "a client without a server waits for nothing",
        )),
    }
}

impl Limiter {
    /// As [`crate::Limiter::named`].
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            limiter: self.limiter.named(name),
            ..self
        }
    }

    /// As [`crate::Limiter::on_failure`].
    #[must_use]
    pub fn on_failure(self, mode: FailureMode) -> Self {
        Self {
            limiter: self.limiter.on_failure(mode),
            ..self
        }
    }

    /// As [`crate::Limiter::name`].
    #[must_use]
    pub fn name(&self) -> &str {
        self.limiter.name()
    }

    /// As [`crate::Limiter::limit`].
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limiter.limit()
    }

    /// As [`crate::Limiter::acquire`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = cost.into_cost().map(|cost| Act::Acquire(cost.amount()));
        self.act(subject.as_ref(), act)
    }

    /// As [`crate::Limiter::peek`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn peek(&self, subject: impl AsRef<[u8]>, cost: impl IntoCost) -> Result<Decision, Error> {
        let act = cost.into_cost().map(|cost| Act::Peek(cost.amount()));
        self.act(subject.as_ref(), act)
    }

    /// As [`crate::Limiter::reserve`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reserve(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let act = Act::reserve(cost, max_wait);
        self.act(subject.as_ref(), act)
    }

    /// As [`crate::Limiter::credit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn credit(
        &self,
        subject: impl AsRef<[u8]>,
        amount: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = amount
            .into_cost()
            .map(|amount| Act::Credit(amount.amount()));
        self.act(subject.as_ref(), act)
    }

    /// As [`crate::Limiter::debit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn debit(
        &self,
        subject: impl AsRef<[u8]>,
        amount: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = amount.into_cost().map(|amount| Act::Debit(amount.amount()));
        self.act(subject.as_ref(), act)
    }

    /// As [`crate::Limiter::acquire_until`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn acquire_until(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
        deadline: Instant,
    ) -> Result<Decision, Error> {
        let subject = subject.as_ref();
        let cost = cost.into_cost()?;
        let mut patience = Patience::until(deadline, &self.limiter.client().inner.local.clock);
        loop {
            let decision = self.acquire(subject, cost)?;
            match patience.pause(&decision) {
                Some(pause) => patience.clock.block(pause),
                None => return Ok(decision),
            }
        }
    }

    fn act(&self, subject: &[u8], act: Result<Act, Error>) -> Result<Decision, Error> {
        let decided = self.limiter.at_once(subject, &act);
        let (None, Some(runtime)) = (&decided, &self.runtime) else {
            return decided
                .unwrap_or_else(|| Err(Error::new(ErrorKind::Setup, "the client has no thread")));
        };
        let limiter = self.limiter.clone();
        let subject = subject.to_vec();
        runtime.wait_for(async move { limiter.act(&subject, act).await })
    }
}
