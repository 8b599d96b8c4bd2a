//! Time that only goes forward, and a clock for tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A clock that stands still until it is told to go, for tests of one's own limits.
///
/// It rules what the client decides without a server: the buckets of
/// [`Client::in_process`](crate::Client::in_process), the local buckets of an outage, and
/// the pauses of the breaker. It has no say over the server, which counts by its own
/// clock. A wait of [`acquire_until`](crate::Limiter::acquire_until) takes no time with
/// it: it moves the clock.
///
/// ```
/// use std::time::Duration;
/// use tokenbucket_client::{Client, Limit, TestClock};
/// # async fn run() -> Result<(), tokenbucket_client::Error> {
/// let clock = TestClock::new();
/// let client = Client::in_process().test_clock(&clock).build()?;
/// let api = client.limiter(Limit::per_second(1.0)?).named("api");
/// assert!(api.acquire("user:42", 1).await?.is_allowed());
/// assert!(!api.acquire("user:42", 1).await?.is_allowed());
/// clock.advance(Duration::from_secs(1));
/// assert!(api.acquire("user:42", 1).await?.is_allowed());
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct TestClock {
    micros: Arc<AtomicU64>,
}

impl TestClock {
    /// A clock at its beginning.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward, to the microsecond.
    pub fn advance(&self, step: Duration) {
        let step = u64::try_from(step.as_micros()).unwrap_or(u64::MAX);
        // Ordering: the clock orders nothing but itself.
        let _ = self
            .micros
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                Some(now.saturating_add(step))
            });
    }
}

/// So that there are instants before the first one.
const BEGINNING: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(Instant),
    Test(TestClock),
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::System(Instant::now())
    }

    /// Microseconds since some instant before the client was built. Never goes back.
    pub(crate) fn now(&self) -> u64 {
        let passed = match self {
            Self::System(start) => u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            Self::Test(clock) => clock.micros.load(Ordering::Relaxed),
        };
        passed.saturating_add(BEGINNING)
    }

    /// Waits, blocking the thread. With a test clock that takes no time.
    #[cfg(feature = "blocking")]
    pub(crate) fn block(&self, time: Duration) {
        match self {
            Self::System(_) => std::thread::sleep(time),
            Self::Test(clock) => clock.advance(time),
        }
    }

    /// Waits. With a test clock that takes no time: it moves the clock.
    #[cfg(feature = "tokio")]
    pub(crate) async fn sleep(&self, time: Duration) {
        match self {
            Self::System(_) => tokio::time::sleep(time).await,
            Self::Test(clock) => clock.advance(time),
        }
    }
}
