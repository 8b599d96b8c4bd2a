//! What the tests have in common.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokenbucket_client::{
    Builder, Client, Decision, Limit, Limiter, Observer, Outcome, Reason, Source,
};
use tokenbucket_testkit::{module_path, Server, ServerBuilder};
use tokio::time::sleep;

/// How long anything may take on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What the slowest call may take: its deadline, and a busy machine. Every failure of the
/// kind that these tests are about took seconds or hung.
pub const SLOWEST: Duration = Duration::from_secs(3);

pub fn with_module() -> ServerBuilder {
    Server::builder().module(module_path())
}

pub fn address(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

pub fn builder(port: u16) -> Builder {
    Client::builder(&address(port)).unwrap()
}

/// A client whose calls may wait: for tests of what an answer means, in which a busy
/// machine must not be taken for a server that is away.
pub fn patient(port: u16) -> Builder {
    builder(port).deadline(Duration::from_secs(5))
}

pub fn limit(capacity: f64, rate: f64) -> Limit {
    Limit::per_second(rate).unwrap().burst(capacity).unwrap()
}

/// More than any test takes.
pub fn plenty() -> Limit {
    limit(1e9, 1e9)
}

/// What a client did, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Failed(Reason),
    Dialed(bool),
    Degraded(Reason),
    Recovered,
    ModuleLost,
}

#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<(Instant, Event)>>>);

impl Record {
    pub fn events(&self) -> Vec<Event> {
        let events = self.0.lock().unwrap();
        events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// Those that say that a breaker moved.
    pub fn moves(&self) -> Vec<Event> {
        let moves = |event: &Event| matches!(event, Event::Degraded(_) | Event::Recovered);
        self.events().into_iter().filter(moves).collect()
    }

    pub fn count(&self, event: &Event) -> usize {
        self.events().iter().filter(|other| *other == event).count()
    }

    fn note(&self, event: Event) {
        self.0.lock().unwrap().push((Instant::now(), event));
    }
}

impl Observer for Record {
    fn failed(&self, _: &str, reason: Reason) {
        self.note(Event::Failed(reason));
    }
    fn dialed(&self, _: &str, result: Result<(), &str>) {
        self.note(Event::Dialed(result.is_ok()));
    }
    fn degraded(&self, _: &str, reason: Reason) {
        self.note(Event::Degraded(reason));
    }
    fn recovered(&self, _: &str, _: Duration) {
        self.note(Event::Recovered);
    }
    fn module_lost(&self, _: &str) {
        self.note(Event::ModuleLost);
    }
}

/// What many calls were answered.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub calls: usize,
    pub allowed: usize,
    /// Of these, by local buckets.
    pub allowed_locally: usize,
    pub errors: usize,
    pub slowest: Duration,
    pub sources: BTreeMap<String, usize>,
    /// The instant of the first decision of the server.
    pub first_redis: Option<Instant>,
}

impl Tally {
    pub fn from(&self, source: Source) -> usize {
        let count = self.sources.get(&format!("{source:?}"));
        count.copied().unwrap_or_default()
    }

    pub fn redis(&self) -> usize {
        self.from(Source::Redis)
    }

    /// Decisions of local buckets.
    pub fn local(&self) -> usize {
        let local = |(source, _): &(&String, &usize)| source.starts_with("Local");
        self.sources
            .iter()
            .filter(local)
            .map(|(_, count)| *count)
            .sum()
    }

    /// Local decisions that the server was asked for in vain, and so were waited for. The
    /// others were made without asking it.
    pub fn waited(&self) -> usize {
        self.local() - self.from(Source::Local(Reason::BreakerOpen))
    }

    fn note(&mut self, took: Duration, decision: Result<Decision, tokenbucket_client::Error>) {
        self.calls += 1;
        self.slowest = self.slowest.max(took);
        match decision {
            Ok(decision) => {
                if let Outcome::Denied { retry_after } = decision.outcome() {
                    assert!(retry_after > Duration::ZERO);
                }
                self.allowed += usize::from(decision.is_allowed());
                let source = decision.source();
                let local = matches!(source, Source::Local(_));
                self.allowed_locally += usize::from(local && decision.is_allowed());
                *self.sources.entry(format!("{source:?}")).or_default() += 1;
                if source == Source::Redis && self.first_redis.is_none() {
                    self.first_redis = Some(Instant::now());
                }
            }
            Err(_) => self.errors += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.allowed += other.allowed;
        self.allowed_locally += other.allowed_locally;
        self.errors += other.errors;
        self.slowest = self.slowest.max(other.slowest);
        for (source, count) in other.sources {
            *self.sources.entry(source).or_default() += count;
        }
        self.first_redis = match (self.first_redis, other.first_redis) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// `callers` that call, each one after the other with `pause` between, until
/// [`Load::stop`].
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<Tally>>,
}

impl Load {
    /// Each caller has a subject of its own.
    pub fn start(limiter: &Limiter, callers: usize, pause: Duration) -> Self {
        Self::of(limiter, callers, pause, |caller| format!("caller:{caller}"))
    }

    /// All callers have the same subject.
    pub fn on_one(limiter: &Limiter, callers: usize, pause: Duration) -> Self {
        Self::of(limiter, callers, pause, |_| "all".to_string())
    }

    fn of(
        limiter: &Limiter,
        callers: usize,
        pause: Duration,
        subject: impl Fn(usize) -> String,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..callers)
            .map(|caller| {
                let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
                let subject = subject(caller);
                tokio::spawn(async move {
                    let mut tally = Tally::default();
                    while !stop.load(Ordering::Relaxed) {
                        call(&limiter, &subject, &mut tally).await;
                        pass(pause).await;
                    }
                    tally
                })
            })
            .collect();
        Self { stop, tasks }
    }

    pub async fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut tally = Tally::default();
        for task in self.tasks {
            tally.add(task.await.expect("no caller panics"));
        }
        tally
    }
}

/// One call, noted.
pub async fn call(limiter: &Limiter, subject: &str, tally: &mut Tally) {
    let start = Instant::now();
    let decision = limiter.acquire(subject, 1).await;
    tally.note(start.elapsed(), decision);
}

/// Calls until a decision comes from the server, and says how long that took.
pub async fn until_redis(limiter: &Limiter, tally: &mut Tally) -> Duration {
    let start = Instant::now();
    while tally.redis() == 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "the server is not used: {tally:?}"
        );
        call(limiter, "back", tally).await;
        pass(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

/// Calls until the breaker is open.
pub async fn until_degraded(client: &Client, limiter: &Limiter) -> Tally {
    let start = Instant::now();
    let mut tally = Tally::default();
    while !client.is_degraded() {
        assert!(start.elapsed() < PATIENCE, "no breaker opens: {tally:?}");
        call(limiter, "away", &mut tally).await;
    }
    tally
}

/// Waits for something while others go on.
pub async fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        pass(Duration::from_millis(2)).await;
    }
}

/// The calls of `command` that the server has carried out.
pub fn executed(server: &Server, command: &str) -> u64 {
    let name = format!("cmdstat_{}", command.to_lowercase());
    let stats = server.info("commandstats");
    let found = stats.iter().find(|(key, _)| key.to_lowercase() == name);
    found.map_or(0, |(_, value)| {
        let calls = value.strip_prefix("calls=").unwrap();
        calls.split(',').next().unwrap().parse().unwrap()
    })
}

/// Runs `future` on two threads.
pub fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future);
}

/// Lets time pass that is part of the story: an outage of so long, a caller who comes every
/// so often. Never to wait for something to happen.
pub async fn pass(time: Duration) {
    sleep(time).await;
}
