//! A limit with a name, to be asked about subjects.

use std::sync::Arc;
use std::time::Duration;

use tokenbucket_core::Amount;

use crate::client::Client;
#[cfg(feature = "tokio")]
use crate::clock::Clock;
use crate::fault::Unanswered;
use crate::key::check_name;
use crate::local::Act;
use crate::{Decision, Error, ErrorKind, IntoCost, Limit, Outcome, Reason, Source};

/// What happens to a request while the server is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// This replica limits by itself, with its share of the limit:
    /// capacity / replicas and rate / replicas.
    #[default]
    LocalShare,
    /// Let through, uncounted.
    Allow,
    /// Refused, with a wait until the server is asked again.
    Deny,
    /// Answered with an [`Error`] of the kind [`Unavailable`](ErrorKind::Unavailable).
    Error,
}

/// A limit with a name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Limiter {
    client: Client,
    shape: Arc<Shape>,
}

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    name: String,
    wrong_name: Option<Error>,
    pub(crate) limit: Limit,
    pub(crate) on_failure: FailureMode,
    /// As the server reads them.
    pub(crate) capacity: String,
    pub(crate) rate: String,
}

impl Shape {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.wrong_name.clone().map_or(Ok(()), Err)
    }

    /// The answer of a failure mode that counts nothing. `gives` for calls that ask for
    /// nothing, whose answer is always yes.
    pub(crate) fn without_counting(
        &self,
        mode: FailureMode,
        cost: Amount,
        gives: bool,
        unanswered: Unanswered,
    ) -> Result<Decision, Error> {
        let capacity = self.limit.exact().capacity;
        let whole = u64::try_from(capacity.picotokens() / 1_000_000_000_000).unwrap_or(u64::MAX);
        let yes = Outcome::Allowed {
            wait: Duration::ZERO,
        };
        let (outcome, remaining, source) = match mode {
            FailureMode::Error => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("the server is away: {}", unanswered.reason),
                ));
            }
            FailureMode::Deny if gives => (yes, 0, Source::FailClosed),
            FailureMode::Deny if cost > capacity => (Outcome::Never, 0, Source::FailClosed),
            FailureMode::Deny => (
                Outcome::Denied {
                    retry_after: unanswered.pause,
                },
                0,
                Source::FailClosed,
            ),
            _ if cost > capacity && !gives => (Outcome::Never, whole, Source::FailOpen),
            _ => (yes, whole, Source::FailOpen),
        };
        let reset_after = Duration::ZERO;
        Ok(Decision::new(
            outcome,
            remaining,
            reset_after,
            self.limit,
            source,
        ))
    }
}

impl Limiter {
    pub(crate) fn new(client: Client, limit: Limit) -> Self {
        let (capacity, rate) = (limit.capacity_text(), limit.rate_text());
        let shape = Shape {
            name: format!("{capacity}@{rate}"),
            wrong_name: None,
            limit,
            on_failure: client.inner.on_failure,
            capacity,
            rate,
        };
        Self {
            client,
            shape: Arc::new(shape),
        }
    }

    /// The same limiter under the name `name`, which is part of its keys: 1 to 64 bytes,
    /// no braces. Each call of one with another name is answered with an error.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        let shape = Arc::make_mut(&mut self.shape);
        shape.name = name.into();
        shape.wrong_name = check_name(&shape.name).err();
        self
    }

    /// The same limiter with another failure mode than its client's.
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> Self {
        Arc::make_mut(&mut self.shape).on_failure = mode;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shape.name
    }

    /// Its limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.shape.limit
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Takes `cost` tokens of the subject's bucket if they are there: a request is allowed
    /// when its cost is at most the level. A cost of 0 asks without taking.
    ///
    /// Sent at most once: when a reply is lost, the failure mode decides, and the server has
    /// debited once or not at all; what the local bucket lets through then is not told to
    /// the server later.
    ///
    /// # Errors
    ///
    /// What is broken, never a denial: [`Argument`](ErrorKind::Argument) for the cost or the
    /// name, [`Setup`](ErrorKind::Setup), [`WrongType`](ErrorKind::WrongType), and
    /// [`Unavailable`](ErrorKind::Unavailable) when the failure mode says so.
    pub async fn acquire(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = cost.into_cost().map(|cost| Act::Acquire(cost.amount()));
        self.act(subject.as_ref(), act).await
    }

    /// What [`acquire`](Self::acquire) would answer now, taking nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn peek(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = cost.into_cost().map(|cost| Act::Peek(cost.amount()));
        self.act(subject.as_ref(), act).await
    }

    /// Takes `cost` tokens now, going into debt when they will have flowed in within
    /// `max_wait` (whole milliseconds, rounded down). When it is allowed, wait for
    /// [`wait`](Decision::wait) before acting.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn reserve(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let act = Act::reserve(cost, max_wait);
        self.act(subject.as_ref(), act).await
    }

    /// Gives `amount` tokens back, never above the capacity. Always allowed.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn credit(
        &self,
        subject: impl AsRef<[u8]>,
        amount: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = amount
            .into_cost()
            .map(|amount| Act::Credit(amount.amount()));
        self.act(subject.as_ref(), act).await
    }

    /// Takes `amount` tokens whatever the level, into debt if need be: usage that is known
    /// only afterwards. Always allowed.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn debit(
        &self,
        subject: impl AsRef<[u8]>,
        amount: impl IntoCost,
    ) -> Result<Decision, Error> {
        let act = amount.into_cost().map(|amount| Act::Debit(amount.amount()));
        self.act(subject.as_ref(), act).await
    }

    /// As [`acquire`](Self::acquire), again and again until it is allowed or can't be before
    /// `deadline`; the last decision is the answer. Each wait is what the decision said and a
    /// random part more, of up to a half of it at first and up to eight times it after many
    /// tries, so that many who wait for one bucket don't come back together. None is shorter
    /// than what the decision said.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    #[cfg(feature = "tokio")]
    pub async fn acquire_until(
        &self,
        subject: impl AsRef<[u8]>,
        cost: impl IntoCost,
        deadline: std::time::Instant,
    ) -> Result<Decision, Error> {
        let subject = subject.as_ref();
        let cost = cost.into_cost()?;
        let mut patience = Patience::until(deadline, &self.client.inner.local.clock);
        loop {
            let decision = self.acquire(subject, cost).await?;
            match patience.pause(&decision) {
                Some(pause) => patience.clock.sleep(pause).await,
                None => return Ok(decision),
            }
        }
    }

    pub(crate) async fn act(
        &self,
        subject: &[u8],
        act: Result<Act, Error>,
    ) -> Result<Decision, Error> {
        let result = match act {
            Ok(act) => self.decide(subject, act).await,
            Err(error) => Err(error),
        };
        self.note(&result);
        result
    }

    async fn decide(&self, subject: &[u8], act: Act) -> Result<Decision, Error> {
        self.shape.check()?;
        let unanswered = Unanswered::for_want_of_a_server();
        #[cfg(feature = "tokio")]
        let unanswered = match &self.client.inner.link {
            None => unanswered,
            Some(link) => {
                let inner = &self.client.inner;
                match link.act(inner, &self.shape, subject, act).await? {
                    Ok(decision) => return Ok(decision),
                    Err(unanswered) => unanswered,
                }
            }
        };
        self.without_server(subject, act, unanswered)
    }

    /// A decision that takes no server and no time: where there is none, or it would not be
    /// asked.
    #[cfg(feature = "blocking")]
    pub(crate) fn at_once(
        &self,
        subject: &[u8],
        act: &Result<Act, Error>,
    ) -> Option<Result<Decision, Error>> {
        let result = match act {
            Err(error) => Err(error.clone()),
            Ok(act) => {
                let unanswered = match &self.client.inner.link {
                    None => Unanswered::for_want_of_a_server(),
                    Some(link) => link.shut()?,
                };
                self.shape
                    .check()
                    .and_then(|()| self.without_server(subject, *act, unanswered))
            }
        };
        self.note(&result);
        Some(result)
    }

    fn note(&self, result: &Result<Decision, Error>) {
        let watch = &self.client.inner.watch;
        match result {
            Ok(decision) => watch.decided(&self.shape.name, decision.outcome(), decision.source()),
            Err(_) => watch.error(),
        }
    }

    fn without_server(
        &self,
        subject: &[u8],
        act: Act,
        unanswered: Unanswered,
    ) -> Result<Decision, Error> {
        let inner = &self.client.inner;
        let shape = &self.shape;
        match (unanswered.reason, shape.on_failure) {
            (Reason::NoServer, _) | (_, FailureMode::LocalShare) => {
                let hash = inner.hash(&shape.name, subject);
                let limit = shape.limit.exact();
                let decision = inner.local.decide(hash, limit, act, unanswered.lost);
                let source = Source::Local(unanswered.reason);
                Ok(Decision::local(&decision, shape.limit, source))
            }
            (_, mode) => {
                let gives = matches!(act, Act::Credit(_) | Act::Debit(_));
                shape.without_counting(mode, act.amount(), gives, unanswered)
            }
        }
    }
}

/// The random part of a wait doubles with each try that was in vain, so many times.
#[cfg(feature = "tokio")]
const WIDEST: u32 = 4;

/// How long one waits for a bucket.
#[cfg(feature = "tokio")]
pub(crate) struct Patience<'clock> {
    pub(crate) clock: &'clock Clock,
    /// Microseconds.
    end: u64,
    tries: u32,
}

#[cfg(feature = "tokio")]
impl<'clock> Patience<'clock> {
    pub(crate) fn until(deadline: std::time::Instant, clock: &'clock Clock) -> Self {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let end = clock.now().saturating_add(micros(left));
        Self {
            clock,
            end,
            tries: 0,
        }
    }

    /// The wait before the next try: what the decision said, and a random part more. `None`
    /// where the decision is the last one.
    pub(crate) fn pause(&mut self, decision: &Decision) -> Option<Duration> {
        let left = self.end.saturating_sub(self.clock.now());
        let wait = decision.retry_after().map(micros)?;
        let slack = left.checked_sub(wait)?;
        // Each try that was in vain says that more are waiting: they spread further.
        let most = (wait / 2).saturating_mul(1 << self.tries.min(WIDEST));
        self.tries = self.tries.saturating_add(1);
        let jitter = fastrand::u64(0..=slack.min(most));
        Some(Duration::from_micros(wait.saturating_add(jitter)))
    }
}

#[cfg(feature = "tokio")]
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
