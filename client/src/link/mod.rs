//! The way to the servers: who is asked, whether, for how long, and what an answer means.

#[cfg(feature = "cluster")]
mod cluster;
mod debts;
mod dial;
mod settings;
mod target;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::{timeout_at, Instant};

use crate::breaker::{Breaker, BreakerSettings, Change, Permit};
use crate::client::Inner;
use crate::clock::Clock;
use crate::decision::Decisions;
use crate::fault::Fault;
use crate::key::Keys;
use crate::limiter::Shape;
use crate::local::Act;
use crate::observe::{Count, Watch};
use crate::{Cost, Decision, Error, ErrorKind, Limiter, Reason};

use debts::{Debtor, Debts};
pub(crate) use settings::Settings;
use target::Target;

#[derive(Debug)]
pub(crate) struct Link {
    route: Route,
    shared: Arc<Shared>,
    deadline: Duration,
    broken_is_away: bool,
}

/// What all targets of a client have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    breaker: BreakerSettings,
    clock: Clock,
    watch: Arc<Watch>,
    /// Whether any target has ever answered as the module does.
    module_seen: AtomicBool,
}

#[derive(Debug)]
enum Route {
    One(Arc<Target>),
    #[cfg(feature = "cluster")]
    Cluster(Arc<cluster::Cluster>),
}

/// An answer of the server, or the reason why there is none and the failure mode decides.
type Answer<T> = Result<Result<T, Reason>, Error>;

/// Where a call goes, and what of it is known before.
struct Call<'call, T> {
    key: &'call [u8],
    command: &'call Cmd,
    debtors: &'call [Debtor<'call>],
    decode: &'call (dyn Fn(Value) -> Option<T> + Send + Sync),
}

impl Link {
    pub(crate) fn new(
        settings: Settings,
        breaker: BreakerSettings,
        clock: Clock,
        watch: Arc<Watch>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            breaker,
            clock,
            watch,
            module_seen: AtomicBool::new(false),
        });
        let (deadline, broken_is_away) = (settings.deadline, settings.broken_is_away);
        Ok(Self {
            route: settings.route(&shared)?,
            shared,
            deadline,
            broken_is_away,
        })
    }

    /// One command on one key.
    pub(crate) async fn act(
        &self,
        inner: &Inner,
        shape: &Shape,
        subject: &[u8],
        act: Act,
    ) -> Answer<Decision> {
        if self.is_shut() {
            return Ok(Err(Reason::BreakerOpen));
        }
        let key = inner.keys.key(shape.name(), subject);
        let command = wire::command(&key, shape, act);
        let limit = shape.limit;
        let debtors = [Debtor::new(inner, shape, subject, &key, act.amount())];
        // A look writes nothing, not even a debt.
        let debtors = match act {
            Act::Peek(_) | Act::Check(_) => &[],
            _ => debtors.as_slice(),
        };
        let call = Call {
            key: &key,
            command: &command,
            debtors,
            decode: &move |value| wire::decision(value, limit),
        };
        self.call(inner, &call).await
    }

    /// TB.MACQUIRE.
    pub(crate) async fn acquire_all(
        &self,
        inner: &Inner,
        subject: &[u8],
        wanted: &[(&Limiter, Cost)],
    ) -> Answer<Decisions> {
        if self.is_shut() {
            return Ok(Err(Reason::BreakerOpen));
        }
        let keys: Vec<Vec<u8>> = wanted
            .iter()
            .map(|(limiter, _)| inner.keys.key(limiter.name(), subject))
            .collect();
        let command = wire::acquire_all(&keys, wanted);
        let limits: Vec<_> = wanted.iter().map(|(limiter, _)| limiter.limit()).collect();
        let debtors: Vec<_> = wanted
            .iter()
            .zip(&keys)
            .map(|((limiter, cost), key)| {
                Debtor::new(inner, limiter.shape(), subject, key, cost.amount())
            })
            .collect();
        let call = Call {
            key: keys.first().map_or(&[], Vec::as_slice),
            command: &command,
            debtors: &debtors,
            decode: &move |value| wire::decisions(value, &limits),
        };
        self.call(inner, &call).await
    }

    /// Asks every primary for the module.
    pub(crate) async fn check(&self, keys: &Keys) -> Result<(), Error> {
        let targets = match &self.route {
            Route::One(target) => vec![Arc::clone(target)],
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => {
                let deadline = self.deadline_from_now()?;
                cluster.primaries(deadline).await.map_err(in_words)?
            }
        };
        for target in targets {
            let deadline = self.deadline_from_now()?;
            let ask = target.check(keys);
            let result = timeout_at(deadline, ask).await;
            let result = result.unwrap_or(Err(Fault::Away(Reason::Deadline)));
            if result.is_ok() {
                self.shared.module_seen.store(true, Ordering::Relaxed);
            }
            result.map_err(|fault| {
                let trouble = match &fault {
                    Fault::Away(Reason::Connection | Reason::NoNode) => target.trouble(),
                    _ => None,
                };
                let error = in_words(fault).at(target.name());
                trouble.into_iter().fold(error, Error::because)
            })?;
        }
        Ok(())
    }

    /// Whether no call would be sent: one load.
    pub(crate) fn is_shut(&self) -> bool {
        match &self.route {
            Route::One(target) => target.breaker.is_shut(self.shared.clock.now()),
            // Each key has a target of its own.
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => false,
        }
    }

    /// The time until the server is asked again, at least 1 ms.
    pub(crate) fn pause_left(&self) -> Duration {
        let now = self.shared.clock.now();
        match &self.route {
            Route::One(target) => target.breaker.pause_left(now),
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.pause_left(now),
        }
    }

    fn deadline_from_now(&self) -> Result<Instant, Error> {
        // Its timers and its connections need one.
        if Handle::try_current().is_err() {
            return Err(Error::new(
                ErrorKind::Setup,
                "this client must be called within a tokio runtime",
            ));
        }
        let now = Instant::now();
        // So far away that nothing ends it.
        let far = Duration::from_secs(86_400 * 365);
        Ok(now.checked_add(self.deadline.min(far)).unwrap_or(now))
    }

    async fn call<T>(&self, inner: &Inner, call: &Call<'_, T>) -> Answer<T> {
        let deadline = self.deadline_from_now()?;
        let fault = match self.ask(inner, call, deadline).await {
            Ok(answer) => return Ok(Ok(answer)),
            Err(fault) => fault,
        };
        match fault {
            Fault::Away(reason) => Ok(Err(reason)),
            // After the one retry.
            Fault::TryAgain => Ok(Err(Reason::TryAgain)),
            Fault::Moved(_) | Fault::Ask(_) if self.is_cluster() => Ok(Err(Reason::Redirected)),
            Fault::UnknownCommand(_) if self.shared.module_seen.load(Ordering::Relaxed) => {
                Ok(Err(Reason::ModuleLost))
            }
            fault if self.broken_is_away => {
                let _ = fault;
                Ok(Err(Reason::Setup))
            }
            fault => Err(in_words(fault)),
        }
    }

    fn is_cluster(&self) -> bool {
        match &self.route {
            Route::One(_) => false,
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => true,
        }
    }

    /// Sends the call where its key is served, and once more where that was the wrong place
    /// and so it was not executed.
    async fn ask<T>(
        &self,
        inner: &Inner,
        call: &Call<'_, T>,
        deadline: Instant,
    ) -> Result<T, Fault> {
        let target = self.target(call.key, deadline).await?;
        let first = self.ask_target(inner, &target, call, false, deadline).await;
        match first {
            Err(Fault::TryAgain) => self.ask_target(inner, &target, call, false, deadline).await,
            #[cfg(feature = "cluster")]
            Err(Fault::Moved(address)) => {
                let Route::Cluster(cluster) = &self.route else {
                    return Err(Fault::Moved(address));
                };
                let target = cluster.moved(call.key, &address, &target)?;
                self.ask_target(inner, &target, call, false, deadline).await
            }
            #[cfg(feature = "cluster")]
            Err(Fault::Ask(address)) => {
                let Route::Cluster(cluster) = &self.route else {
                    return Err(Fault::Ask(address));
                };
                let target = cluster.node(&address, &target)?;
                self.ask_target(inner, &target, call, true, deadline).await
            }
            first => first,
        }
    }

    async fn target(&self, key: &[u8], deadline: Instant) -> Result<Arc<Target>, Fault> {
        match &self.route {
            Route::One(target) => {
                let _ = (key, deadline);
                Ok(Arc::clone(target))
            }
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.target(key, deadline).await,
        }
    }

    async fn ask_target<T>(
        &self,
        inner: &Inner,
        target: &Arc<Target>,
        call: &Call<'_, T>,
        asking: bool,
        deadline: Instant,
    ) -> Result<T, Fault> {
        let shared = &self.shared;
        let Some(permit) = target.breaker.admit(shared.clock.now()) else {
            return Err(Fault::Away(Reason::BreakerOpen));
        };
        // A probe may well be lost, and a debt is sent only once.
        let mut debts = Debts::none(inner);
        if permit.is_probe() {
            shared.watch.count(Count::Probes);
        } else if inner.local.is_in_use() {
            debts.take(call.debtors);
        }
        let mut used = None;
        let exchange = target.exchange(&mut debts, call.command, asking, call.decode, &mut used);
        let result = match timeout_at(deadline, exchange).await {
            Ok(result) => result,
            Err(_) => {
                // Whatever is still to come over it, nobody is to take it for his.
                target.drop_connection(used);
                Err(Fault::Away(Reason::Deadline))
            }
        };
        if result.is_ok() && !shared.module_seen.load(Ordering::Relaxed) {
            shared.module_seen.store(true, Ordering::Relaxed);
        }
        self.judge(target, permit, result.as_ref().err());
        result
    }

    /// Tells the breaker how it went.
    fn judge(&self, target: &Arc<Target>, permit: Permit<'_>, fault: Option<&Fault>) {
        let shared = &self.shared;
        let away = match fault {
            Some(Fault::Away(reason)) => Some(*reason),
            Some(Fault::UnknownCommand(_)) if shared.module_seen.load(Ordering::Relaxed) => {
                target.module_lost();
                Some(Reason::ModuleLost)
            }
            Some(Fault::UnknownCommand(_) | Fault::Broken(_)) if self.broken_is_away => {
                Some(Reason::Setup)
            }
            // It answers.
            _ => None,
        };
        match away {
            None => target.answered(permit),
            Some(reason) => {
                target.was_away(permit, reason);
                #[cfg(feature = "cluster")]
                if let Route::Cluster(cluster) = &self.route {
                    cluster.refresh_soon();
                }
            }
        }
    }
}

impl Shared {
    fn breaker(&self) -> Breaker {
        Breaker::new(self.breaker)
    }

    /// Tells `breaker` that what it guards failed, and others what that changed.
    fn failed(&self, name: &str, permit: Permit<'_>, reason: Reason) -> Change {
        self.watch.failed(name, reason);
        let change = permit.failed(self.clock.now());
        if change == Change::Opened {
            self.watch.degraded(name, reason);
        }
        change
    }
}

/// A fault as the one who calls is told of it.
fn in_words(fault: Fault) -> Error {
    match fault {
        Fault::Broken(error) | Fault::UnknownCommand(error) => error,
        Fault::Away(reason) => Error::new(
            ErrorKind::Unavailable,
            format!("the server is away: {reason}"),
        ),
        Fault::TryAgain => Error::new(
            ErrorKind::Unavailable,
            "the server is away: its keys are being moved",
        ),
        Fault::Moved(_) | Fault::Ask(_) => Error::new(
            ErrorKind::Setup,
            "the server is a node of a cluster: build the client with Client::cluster",
        ),
    }
}
