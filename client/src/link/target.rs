//! One server: its breaker, and a slot for the one connection to it.
//!
//! Everybody who wants a connection while there is none waits for the same dial, which goes
//! on when they give up, so that a slow handshake is not begun anew by every call. A
//! connection is dropped by whom it failed, or whose deadline has passed, by its number: a
//! late failure of an old one can't drop its successor.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::breaker::{Breaker, Change, Permit};
use crate::fault::Fault;
use crate::key::Keys;
use crate::{Error, ErrorKind, Reason};

use super::debts::Debts;
use super::dial::{DialError, Dialer};
use super::{wire, Shared};

pub(super) struct Target {
    name: String,
    dialer: Dialer,
    connect_timeout: Duration,
    pub(super) breaker: Breaker,
    shared: Arc<Shared>,
    live: ArcSwapOption<Live>,
    dialing: Mutex<Dialing>,
    number: AtomicU64,
    /// The instant, in microseconds, at which the breaker opened.
    degraded_at: AtomicU64,
    module_lost: AtomicBool,
}

struct Live {
    number: u64,
    connection: MultiplexedConnection,
}

type Dialed = Option<Result<Arc<Live>, Fault>>;

#[derive(Default)]
struct Dialing {
    /// The dial that is under way, and the instant from which on nobody waits for it any
    /// more: its runtime may never be driven again.
    now: Option<(Instant, watch::Receiver<Dialed>)>,
    /// What the server's refusal was, and until when (microseconds) it is not asked again.
    refusal: Option<(u64, Fault)>,
    /// Why the last dial gave no connection, in the driver's words.
    trouble: Option<String>,
}

/// What a dial may take beyond its time before it counts as forgotten.
const SLACK: Duration = Duration::from_millis(100);

/// How long a refusal (a wrong password) stands for all calls, so that not every one of
/// them dials.
const REFUSAL_STANDS: u64 = 100_000;

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

impl Target {
    pub(super) fn new(
        name: String,
        dialer: Dialer,
        connect_timeout: Duration,
        shared: &Arc<Shared>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            dialer,
            connect_timeout,
            breaker: shared.breaker(),
            shared: Arc::clone(shared),
            live: ArcSwapOption::empty(),
            dialing: Mutex::default(),
            number: AtomicU64::new(0),
            degraded_at: AtomicU64::new(0),
            module_lost: AtomicBool::new(false),
        })
    }

    /// Host and port, or what else names it in logs.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sends the debts and the command in one write, and reads the replies. `used` is the
    /// number of the connection as soon as there is one.
    pub(super) async fn exchange<T>(
        self: &Arc<Self>,
        debts: &mut Debts<'_>,
        command: &Cmd,
        asking: bool,
        decode: &(dyn Fn(Value) -> Option<T> + Send + Sync),
        used: &mut Option<u64>,
    ) -> Result<T, Fault> {
        let (number, mut connection) = self.connection().await?;
        *used = Some(number);
        let replied = if debts.is_empty() && !asking {
            connection.send_packed_command(command).await
        } else {
            let mut pipeline = redis::pipe();
            let mut replies_before = 0_usize;
            for debit in debts.commands() {
                if asking {
                    pipeline.add_command(redis::cmd("ASKING"));
                }
                pipeline.add_command(debit);
                replies_before = replies_before.saturating_add(if asking { 2 } else { 1 });
            }
            if asking {
                pipeline.add_command(redis::cmd("ASKING"));
                replies_before = replies_before.saturating_add(1);
            }
            pipeline.add_command(command.clone());
            debts.are_sent();
            let count = replies_before.saturating_add(1);
            let replied = connection.send_packed_commands(&pipeline, 0, count).await;
            replied.map(|mut replies| {
                let last = replies.pop().unwrap_or(Value::Nil);
                let debits =
                    replies
                        .iter()
                        .skip(usize::from(asking))
                        .step_by(if asking { 2 } else { 1 });
                debts.are_answered(debits.map(|reply| matches!(reply, Value::Array(_))));
                last
            })
        };
        let result =
            answer(replied).and_then(|value| decode(value).ok_or(Fault::Away(Reason::Corrupt)));
        if result.as_ref().is_err_and(Fault::spoils_connection) {
            self.drop_connection(Some(number));
        }
        result
    }

    /// Asks for the module by a call that takes nothing.
    pub(super) async fn check(self: &Arc<Self>, keys: &Keys, cluster: bool) -> Result<(), Fault> {
        let command = wire::check(&keys.key("check", b"tokenbucket"));
        match self.query(&command).await {
            Ok(Value::Array(_)) => Ok(()),
            Ok(_) => Err(Fault::Away(Reason::Corrupt)),
            // Another node serves this key: this one knows the command.
            Err(Fault::Moved(_)) if cluster => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Why the last dial gave no connection, in the driver's words.
    pub(super) fn trouble(&self) -> Option<String> {
        let dialing = self.dialing.lock().unwrap_or_else(PoisonError::into_inner);
        dialing.trouble.clone()
    }

    /// Any command that limits nothing, within the time that making a connection may take.
    pub(super) async fn query(self: &Arc<Self>, command: &Cmd) -> Result<Value, Fault> {
        let mut used = None;
        let query = async {
            let (number, mut connection) = self.connection().await?;
            used = Some(number);
            answer(connection.send_packed_command(command).await)
        };
        let result = timeout(self.connect_timeout, query).await;
        let result = result.unwrap_or(Err(Fault::Away(Reason::Deadline)));
        match &result {
            Err(Fault::Away(Reason::Deadline)) => self.drop_connection(used),
            Err(fault) if fault.spoils_connection() => self.drop_connection(used),
            _ => {}
        }
        result
    }

    pub(super) fn answered(&self, permit: Permit<'_>) {
        if permit.succeeded() == Change::Closed {
            self.recovered();
        }
    }

    pub(super) fn was_away(&self, permit: Permit<'_>, reason: Reason, used: Option<u64>) {
        let probe = permit.is_probe();
        let change = self.shared.failed(&self.name, permit, reason);
        if change == Change::Opened {
            let now = self.shared.clock.now();
            self.degraded_at.store(now, Ordering::Relaxed);
        }
        // What is in flight on it may be answered hours later, and the server may be
        // somewhere else by then.
        if change == Change::Opened || probe {
            self.drop_connection(used);
        }
    }

    /// It is asked no more: somebody else serves its keys.
    #[cfg(feature = "cluster")]
    pub(super) fn retire(&self) {
        if self.breaker.reset() == Change::Closed {
            self.recovered();
        }
    }

    fn recovered(&self) {
        let opened_at = self.degraded_at.load(Ordering::Relaxed);
        let passed = self.shared.clock.now().saturating_sub(opened_at);
        let watch = &self.shared.watch;
        watch.recovered(&self.name, Duration::from_micros(passed));
        self.module_lost.store(false, Ordering::Relaxed);
    }

    /// Says once in every outage that the module is gone.
    pub(super) fn module_lost(&self) {
        if !self.module_lost.swap(true, Ordering::Relaxed) {
            self.shared.watch.module_lost(&self.name);
        }
    }

    async fn connection(self: &Arc<Self>) -> Result<(u64, MultiplexedConnection), Fault> {
        if let Some(live) = self.live.load().as_ref() {
            return Ok((live.number, live.connection.clone()));
        }
        let mut dialed = self.dial()?;
        let result = match dialed.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            // The runtime in which it was dialed has ended.
            Err(_) => None,
        };
        let live = result.unwrap_or(Err(Fault::Away(Reason::Connection)))?;
        Ok((live.number, live.connection.clone()))
    }

    /// Joins the dial that is under way, or begins one.
    fn dial(self: &Arc<Self>) -> Result<watch::Receiver<Dialed>, Fault> {
        let mut dialing = self.dialing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = self.live.load_full() {
            return Ok(watch::channel(Some(Ok(live))).1);
        }
        let now = Instant::now();
        if let Some((until, dialed)) = &dialing.now {
            // Nobody sends any more when its runtime has ended.
            if now < *until && dialed.has_changed().is_ok() {
                return Ok(dialed.clone());
            }
        }
        if let Some((until, fault)) = &dialing.refusal {
            if self.shared.clock.now() < *until {
                return Err(fault.clone());
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            return Err(Fault::Broken(Error::new(
                ErrorKind::Setup,
                "this client must be called within a tokio runtime",
            )));
        };
        let (result, dialed) = watch::channel(None);
        let patience = self.connect_timeout.saturating_add(SLACK);
        let until = now.checked_add(patience).unwrap_or(now);
        dialing.now = Some((until, dialed.clone()));
        let target = Arc::clone(self);
        runtime.spawn(async move {
            let made = timeout(target.connect_timeout, target.dialer.dial()).await;
            let too_long = || Err(DialError::away(Reason::Connection, "no answer in time"));
            let made = made.unwrap_or_else(|_| too_long());
            let noted = made.as_ref().map(|_| ()).map_err(|error| &*error.words);
            target.shared.watch.dialed(&target.name, noted);
            result.send_replace(Some(target.dialed(made)));
        });
        Ok(dialed)
    }

    /// Puts what a dial gave into the slot.
    fn dialed(&self, made: Result<MultiplexedConnection, DialError>) -> Result<Arc<Live>, Fault> {
        let made = made.map(|connection| {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            Arc::new(Live { number, connection })
        });
        let mut dialing = self.dialing.lock().unwrap_or_else(PoisonError::into_inner);
        dialing.now = None;
        dialing.trouble = made.as_ref().err().map(|error| error.words.clone());
        let made = made.map_err(|error| error.fault);
        dialing.refusal = match &made {
            Ok(live) => {
                self.live.store(Some(Arc::clone(live)));
                None
            }
            Err(Fault::Away(_)) => None,
            Err(fault) => {
                let until = self.shared.clock.now().saturating_add(REFUSAL_STANDS);
                Some((until, fault.clone()))
            }
        };
        made
    }

    /// Drops the connection of that number, if it is in use still.
    pub(super) fn drop_connection(&self, number: Option<u64>) {
        let live = self.live.load();
        let current = live.as_ref().map(|live| live.number);
        if number.is_some() && current == number {
            // Only if it is the same still.
            self.live.compare_and_swap(&live, None);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.breaker.is_closed() {
            self.shared.watch.forget_degraded();
        }
    }
}

/// The reply, or what the error means that came in its place.
fn answer(reply: Result<Value, RedisError>) -> Result<Value, Fault> {
    match reply {
        Ok(Value::ServerError(error)) => {
            let rest = error.details().unwrap_or_default();
            Err(Fault::of_reply(error.code(), rest))
        }
        Ok(value) => Ok(value),
        Err(error) => Err(fault(&error)),
    }
}

/// What the driver's error means.
pub(super) fn fault(error: &RedisError) -> Fault {
    match error.kind() {
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            Fault::Away(Reason::Corrupt)
        }
        redis::ErrorKind::MasterNameNotFoundBySentinel => Fault::Away(Reason::NoNode),
        redis::ErrorKind::AuthenticationFailed
        | redis::ErrorKind::InvalidClientConfig
        | redis::ErrorKind::RESP3NotSupported => {
            Fault::Broken(Error::new(ErrorKind::Setup, error.to_string()))
        }
        redis::ErrorKind::Io => Fault::Away(Reason::Connection),
        _ => match error.code() {
            Some(code) => Fault::of_reply(code, error.detail().unwrap_or_default()),
            None => Fault::Away(Reason::Connection),
        },
    }
}
