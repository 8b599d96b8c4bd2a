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
use crate::fault::{Fault, Unanswered};
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
    /// How long a probe may be out.
    lease: Duration,
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

/// An answer of the server, or why there is none and the failure mode decides.
type Answer<T> = Result<Result<T, Unanswered>, Error>;

/// What came of asking a target.
struct Missed {
    fault: Fault,
    /// It may have been carried out.
    lost: bool,
    /// Until the target is asked again.
    pause: Duration,
}

/// Where a call goes, and what of it is known before.
struct Call<'call, T> {
    #[cfg(feature = "cluster")]
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
            lease: settings.deadline.saturating_add(Duration::from_secs(1)),
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
        if let Some(shut) = self.shut() {
            return Ok(Err(shut));
        }
        let key = inner.keys.key(shape.name(), subject);
        let command = wire::command(&key, shape, act);
        let limit = shape.limit;
        let debtors = [Debtor::new(inner, shape, subject, &key)];
        // A look writes nothing, not even a debt.
        let debtors = match act {
            Act::Peek(_) | Act::Check(_) => &[],
            _ => debtors.as_slice(),
        };
        let call = Call {
            #[cfg(feature = "cluster")]
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
        if let Some(shut) = self.shut() {
            return Ok(Err(shut));
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
            .map(|((limiter, _), key)| Debtor::new(inner, limiter.shape(), subject, key))
            .collect();
        let call = Call {
            #[cfg(feature = "cluster")]
            key: keys.first().map_or(&[], Vec::as_slice),
            command: &command,
            debtors: &debtors,
            decode: &move |value| wire::decisions(value, &limits),
        };
        self.call(inner, &call).await
    }

    /// Asks every primary for the module. A service that starts has time: as much for each
    /// as making a connection may take.
    pub(crate) async fn check(&self, keys: &Keys) -> Result<(), Error> {
        // For the runtime only.
        self.deadline_from_now()?;
        let targets = match &self.route {
            Route::One(target) => vec![Arc::clone(target)],
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.primaries().await.map_err(in_words)?,
        };
        for target in targets {
            let result = target.check(keys, self.is_cluster()).await;
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

    /// Why no call would be sent, where that is so. One load, where it is not.
    pub(crate) fn shut(&self) -> Option<Unanswered> {
        match &self.route {
            Route::One(target) => {
                let clock = &self.shared.clock;
                let shut = target.breaker.is_shut(|| clock.now());
                shut.then(|| Unanswered {
                    reason: Reason::BreakerOpen,
                    lost: false,
                    pause: target.breaker.pause_left(clock.now()),
                })
            }
            // Each key has a target of its own.
            #[cfg(feature = "cluster")]
            Route::Cluster(_) => None,
        }
    }

    fn deadline_from_now(&self) -> Result<Instant, Error> {
        // Its timers and its connections need one.
        // (Within a task there is one, which costs less to find out.)
        if tokio::task::try_id().is_none() && Handle::try_current().is_err() {
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
        let missed = match self.ask(inner, call, deadline).await {
            Ok(answer) => return Ok(Ok(answer)),
            Err(missed) => missed,
        };
        let reason = match missed.fault {
            Fault::Away(reason) => reason,
            Fault::UnknownCommand(_) if self.shared.module_seen.load(Ordering::Relaxed) => {
                Reason::ModuleLost
            }
            _ if self.broken_is_away => Reason::Setup,
            fault => return Err(in_words(fault)),
        };
        Ok(Err(Unanswered {
            reason,
            lost: missed.lost,
            pause: missed.pause,
        }))
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
    ) -> Result<T, Missed> {
        match &self.route {
            Route::One(target) => {
                let ask = Ask {
                    target,
                    asking: false,
                    last: false,
                };
                match self.ask_target(inner, call, ask, deadline).await {
                    Err(Missed {
                        fault: Fault::TryAgain,
                        ..
                    }) => {
                        let ask = Ask { last: true, ..ask };
                        self.ask_target(inner, call, ask, deadline).await
                    }
                    first => first,
                }
            }
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => self.ask_cluster(inner, cluster, call, deadline).await,
        }
    }

    #[cfg(feature = "cluster")]
    async fn ask_cluster<T>(
        &self,
        inner: &Inner,
        cluster: &Arc<cluster::Cluster>,
        call: &Call<'_, T>,
        deadline: Instant,
    ) -> Result<T, Missed> {
        let here = |fault| Missed {
            fault,
            lost: false,
            pause: cluster.pause_left(self.shared.clock.now()),
        };
        let found = cluster.target(call.key, deadline).await;
        let target = found.map_err(here)?;
        let ask = Ask {
            target: &target,
            asking: false,
            last: false,
        };
        let missed = match self.ask_target(inner, call, ask, deadline).await {
            Ok(answer) => return Ok(answer),
            Err(missed) => missed,
        };
        let (target, asking) = match missed.fault {
            Fault::TryAgain => (target, false),
            Fault::Moved(address) => {
                let moved = cluster.moved(call.key, &address, &target);
                (moved.map_err(here)?, false)
            }
            Fault::Ask(address) => (cluster.node(&address, &target).map_err(here)?, true),
            _ => return Err(missed),
        };
        let ask = Ask {
            target: &target,
            asking,
            last: true,
        };
        self.ask_target(inner, call, ask, deadline).await
    }

    async fn ask_target<T>(
        &self,
        inner: &Inner,
        call: &Call<'_, T>,
        ask: Ask<'_>,
        deadline: Instant,
    ) -> Result<T, Missed> {
        let shared = &self.shared;
        let target = ask.target;
        let Some(permit) = target.breaker.admit(|| shared.clock.now()) else {
            // Somebody else may serve its keys by now.
            self.look_around();
            return Err(Missed {
                fault: Fault::Away(Reason::BreakerOpen),
                lost: false,
                pause: target.breaker.pause_left(shared.clock.now()),
            });
        };
        // A probe may well be lost, and a debt is sent only once.
        let mut debts = Debts::none(inner);
        if permit.is_probe() {
            shared.watch.count(Count::Probes);
        } else if inner.local.is_in_use() {
            debts.take(call.debtors);
        }
        let mut pending = Pending {
            link: self,
            target,
            permit: Some(permit),
            used: None,
            deadline,
        };
        let exchange = target.exchange(
            &mut debts,
            call.command,
            ask.asking,
            call.decode,
            &mut pending.used,
        );
        let result = timeout_at(deadline, exchange).await;
        let result = match result {
            Ok(Err(Fault::TryAgain)) if ask.last => Err(Fault::Away(Reason::TryAgain)),
            Ok(Err(Fault::Moved(_) | Fault::Ask(_))) if ask.last => {
                Err(Fault::Away(Reason::Redirected))
            }
            Ok(result) => result,
            Err(_) => Err(Fault::Away(Reason::Deadline)),
        };
        if result.is_ok() && !shared.module_seen.load(Ordering::Relaxed) {
            shared.module_seen.store(true, Ordering::Relaxed);
        }
        pending.ends(result.as_ref().err());
        result.map_err(|fault| Missed {
            lost: pending.used.is_some()
                && matches!(
                    fault,
                    Fault::Away(Reason::Deadline | Reason::Connection | Reason::Corrupt)
                ),
            pause: target.breaker.pause_left(shared.clock.now()),
            fault,
        })
    }

    /// Tells the breaker how it went.
    fn judge(
        &self,
        target: &Arc<Target>,
        permit: Permit<'_>,
        used: Option<u64>,
        fault: Option<&Fault>,
    ) {
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
        let Some(reason) = away else {
            target.answered(permit);
            return;
        };
        if reason == Reason::Deadline {
            // Whatever is still to come over it, nobody is to take it for his.
            target.drop_connection(used);
        }
        target.was_away(permit, reason, used);
        self.look_around();
    }

    /// In a cluster: asks for its map in the background.
    fn look_around(&self) {
        match &self.route {
            Route::One(_) => {}
            #[cfg(feature = "cluster")]
            Route::Cluster(cluster) => cluster.refresh_soon(),
        }
    }
}

/// How a target is asked.
#[derive(Clone, Copy)]
struct Ask<'call> {
    target: &'call Arc<Target>,
    /// With ASKING before it.
    asking: bool,
    /// There is no other try.
    last: bool,
}

/// A call that is out. Whoever drops it before its deadline, when most of that has passed,
/// has waited in vain like one whose deadline is over: callers with less patience than the
/// deadline find out that a server is away, too.
struct Pending<'call> {
    link: &'call Link,
    target: &'call Arc<Target>,
    permit: Option<Permit<'call>>,
    used: Option<u64>,
    deadline: Instant,
}

impl Pending<'_> {
    fn ends(&mut self, fault: Option<&Fault>) {
        if let Some(permit) = self.permit.take() {
            self.link.judge(self.target, permit, self.used, fault);
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.permit.is_some() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.saturating_mul(2) < self.link.deadline {
                self.ends(Some(&Fault::Away(Reason::Deadline)));
            }
        }
    }
}

impl Shared {
    fn breaker(&self) -> Breaker {
        Breaker::new(self.breaker, self.lease)
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
