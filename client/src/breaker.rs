//! The breaker: whether a target is asked at all.
//!
//! One 64-bit word, so that a decision while it is open takes one load and no lock:
//!
//! ```text
//!  63 .. 24        23 .. 10   9 .. 8   7 .. 0
//! +---------------+----------+--------+---------+
//! | until, in ms  | epoch    | mode   | count   |
//! +---------------+----------+--------+---------+
//! ```
//!
//! `count` is failures in a row while it is closed, and pauses in a row while it is open.
//! The epoch goes up when it opens and when it closes: what was sent before does not count
//! after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When a target is not asked any more, and when again.
///
/// After `failures` in a row (3) the target is left alone for a pause (100 ms), which
/// doubles with every probe that fails, up to the longest (800 ms). Each pause is cut by a
/// random part of up to a half, so that many processes don't come back at once. After it
/// one call at a time is sent as a probe; the others are decided without the server until
/// it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    failures: u8,
    first_pause: Duration,
    longest_pause: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_millis(800),
        }
    }
}

impl BreakerSettings {
    /// Failures in a row after which the target is left alone; at least 1.
    #[must_use]
    pub fn failures(mut self, failures: u8) -> Self {
        self.failures = failures.max(1);
        self
    }

    /// The first pause; at least 1 ms.
    #[must_use]
    pub fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    /// The longest pause. A server that has come back is used again after this time at
    /// the latest, when calls come in.
    #[must_use]
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// The pause after so many failed probes, in milliseconds, before its random cut.
    fn pause_ms(&self, failed_probes: u8) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let doubled = 1_u64.checked_shl(failed_probes.into()).unwrap_or(u64::MAX);
        millis(self.first_pause)
            .saturating_mul(doubled)
            .min(millis(self.longest_pause))
            .min(LONGEST_MS)
    }
}

/// A day: so that `until` never leaves its bits.
const LONGEST_MS: u64 = 86_400_000;

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    /// How long a probe may be out, in milliseconds, before its place is given to another:
    /// its caller may never look at it again.
    lease_ms: u64,
    word: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Closed,
    Open,
    Probing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    mode: Mode,
    count: u8,
    epoch: u16,
    until_ms: u64,
}

const EPOCH_MASK: u16 = (1 << 14) - 1;

impl State {
    fn unpack(word: u64) -> Self {
        let [count, mode, ..] = word.to_le_bytes();
        let mode = match mode & 3 {
            0 => Mode::Closed,
            1 => Mode::Open,
            _ => Mode::Probing,
        };
        Self {
            mode,
            count,
            epoch: u16::try_from((word >> 10) & u64::from(EPOCH_MASK)).unwrap_or_default(),
            until_ms: word >> 24,
        }
    }

    fn pack(self) -> u64 {
        let mode = match self.mode {
            Mode::Closed => 0,
            Mode::Open => 1,
            Mode::Probing => 2,
        };
        u64::from(self.count)
            | mode << 8
            | u64::from(self.epoch & EPOCH_MASK) << 10
            | self.until_ms << 24
    }
}

/// Leave to ask the target. Whoever has one says how it went, or drops it.
#[derive(Debug)]
pub(crate) struct Permit<'breaker> {
    breaker: &'breaker Breaker,
    epoch: u16,
    probe: bool,
    settled: bool,
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// It opened.
    Opened,
    /// It closed.
    Closed,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings, lease: Duration) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(LONGEST_MS);
        Self {
            settings,
            lease_ms: lease_ms.min(LONGEST_MS),
            word: AtomicU64::new(0),
        }
    }

    // Orderings: relaxed, since the word alone is what is agreed on; nothing else is
    // published by it.
    fn load(&self) -> (u64, State) {
        let word = self.word.load(Ordering::Relaxed);
        (word, State::unpack(word))
    }

    fn swap(&self, from: u64, to: State) -> bool {
        self.word
            .compare_exchange(from, to.pack(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the target may be asked at `now` (microseconds, looked at only while it is
    /// open): always while closed; while open, by one caller after the pause.
    pub(crate) fn admit(&self, now: impl FnOnce() -> u64) -> Option<Permit<'_>> {
        let (word, state) = self.load();
        let permit = |epoch, probe| Permit {
            breaker: self,
            epoch,
            probe,
            settled: false,
        };
        if state.mode == Mode::Closed {
            return Some(permit(state.epoch, false));
        }
        let now_ms = now() / 1000;
        if now_ms < state.until_ms {
            return None;
        }
        let probing = State {
            mode: Mode::Probing,
            // So that a probe whose lease is over has no say any more.
            epoch: state.epoch.wrapping_add(1) & EPOCH_MASK,
            until_ms: now_ms.saturating_add(self.lease_ms),
            ..state
        };
        self.swap(word, probing)
            .then(|| permit(probing.epoch, true))
    }

    /// Closes it, as what it guards is known to be well, or gone.
    #[cfg(feature = "cluster")]
    pub(crate) fn reset(&self) -> Change {
        loop {
            let (word, state) = self.load();
            if state.mode == Mode::Closed {
                return Change::Nothing;
            }
            let closed = State {
                mode: Mode::Closed,
                count: 0,
                epoch: state.epoch.wrapping_add(1),
                until_ms: 0,
            };
            if self.swap(word, closed) {
                return Change::Closed;
            }
        }
    }

    /// Whether nobody may ask the target at `now` (microseconds, looked at only while it is
    /// open).
    #[cfg(feature = "tokio")]
    pub(crate) fn is_shut(&self, now: impl FnOnce() -> u64) -> bool {
        let (_, state) = self.load();
        state.mode != Mode::Closed && now() / 1000 < state.until_ms
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.load().1.mode == Mode::Closed
    }

    /// The time from `now` (microseconds) until the next probe, at least 1 ms.
    pub(crate) fn pause_left(&self, now: u64) -> Duration {
        let (_, state) = self.load();
        let left = match state.mode {
            Mode::Open => state.until_ms.saturating_sub(now / 1000),
            // A probe is out: about as long as it was left alone first.
            Mode::Closed | Mode::Probing => self.settings.pause_ms(0),
        };
        Duration::from_millis(left.max(1))
    }
}

impl Permit<'_> {
    pub(crate) const fn is_probe(&self) -> bool {
        self.probe
    }

    /// The target answered.
    pub(crate) fn succeeded(mut self) -> Change {
        self.settled = true;
        loop {
            let (word, state) = self.breaker.load();
            if state.epoch != self.epoch {
                return Change::Nothing;
            }
            let next = if self.probe {
                State {
                    mode: Mode::Closed,
                    count: 0,
                    epoch: state.epoch.wrapping_add(1),
                    until_ms: 0,
                }
            } else if state.mode == Mode::Closed && state.count > 0 {
                State { count: 0, ..state }
            } else {
                return Change::Nothing;
            };
            if self.breaker.swap(word, next) {
                return if self.probe {
                    Change::Closed
                } else {
                    Change::Nothing
                };
            }
        }
    }

    /// The target was away at `now` (microseconds).
    pub(crate) fn failed(mut self, now: u64) -> Change {
        self.settled = true;
        loop {
            let (word, state) = self.breaker.load();
            if state.epoch != self.epoch {
                return Change::Nothing;
            }
            let (next, change) = match state.mode {
                Mode::Probing if self.probe => {
                    let count = state.count.saturating_add(1);
                    (self.open(count, state.epoch, now), Change::Nothing)
                }
                Mode::Closed => {
                    let count = state.count.saturating_add(1);
                    if count < self.breaker.settings.failures {
                        (State { count, ..state }, Change::Nothing)
                    } else {
                        let epoch = state.epoch.wrapping_add(1);
                        (self.open(0, epoch, now), Change::Opened)
                    }
                }
                _ => return Change::Nothing,
            };
            if self.breaker.swap(word, next) {
                return change;
            }
        }
    }

    fn open(&self, failed_probes: u8, epoch: u16, now: u64) -> State {
        let pause = self.breaker.settings.pause_ms(failed_probes);
        let pause = fastrand::u64(pause.div_ceil(2)..=pause);
        State {
            mode: Mode::Open,
            count: failed_probes,
            epoch,
            until_ms: (now / 1000).saturating_add(pause),
        }
    }
}

impl Drop for Permit<'_> {
    /// A probe whose caller went away says nothing about the target: the next caller is
    /// the probe.
    fn drop(&mut self) {
        if self.settled || !self.probe {
            return;
        }
        let (word, state) = self.breaker.load();
        if state.mode == Mode::Probing && state.epoch == self.epoch {
            // Of this epoch nobody else changes it.
            let free = State {
                mode: Mode::Open,
                until_ms: 0,
                ..state
            };
            self.breaker.swap(word, free);
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test")]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings::default(), Duration::from_secs(1))
    }

    fn fail(breaker: &Breaker, now: u64) -> Change {
        breaker.admit(|| now).expect("leave to ask").failed(now)
    }

    /// The first instant, to the millisecond, at which a probe is let through.
    fn pause(breaker: &Breaker, now: u64) -> u64 {
        (0..10_000_u64)
            .find(|&ms| {
                // Dropped again: frees its place.
                breaker.admit(|| now + ms * MS).is_some()
            })
            .expect("a probe")
    }

    #[test]
    fn words_round_trip() {
        for mode in [Mode::Closed, Mode::Open, Mode::Probing] {
            for (count, epoch, until_ms) in [(0, 0, 0), (255, EPOCH_MASK, (1 << 40) - 1), (3, 7, 9)]
            {
                let state = State {
                    mode,
                    count,
                    epoch,
                    until_ms,
                };
                assert_eq!(State::unpack(state.pack()), state);
            }
        }
    }

    #[test]
    fn opens_after_three_failures_in_a_row() {
        let breaker = breaker();
        assert_eq!(fail(&breaker, 0), Change::Nothing);
        assert_eq!(fail(&breaker, 0), Change::Nothing);
        assert_eq!(breaker.admit(|| 0).unwrap().succeeded(), Change::Nothing);
        assert_eq!(fail(&breaker, 0), Change::Nothing);
        assert_eq!(fail(&breaker, 0), Change::Nothing);
        assert!(breaker.is_closed());
        assert_eq!(fail(&breaker, 0), Change::Opened);
        assert!(!breaker.is_closed());
        assert!(breaker.admit(|| 0).is_none());
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_are_cut_by_up_to_a_half() {
        let mut first = Vec::new();
        for _ in 0..20 {
            let breaker = breaker();
            for _ in 0..3 {
                fail(&breaker, 0);
            }
            let mut now = 0;
            for (probes, nominal) in [100, 200, 400, 800, 800, 800].into_iter().enumerate() {
                let waited = pause(&breaker, now);
                assert!(
                    (nominal / 2..=nominal).contains(&waited),
                    "{waited} ms of {nominal}"
                );
                if probes == 0 {
                    first.push(waited);
                }
                now += waited * MS;
                assert_eq!(fail(&breaker, now), Change::Nothing);
            }
        }
        first.dedup();
        assert!(first.len() > 1, "no jitter: {first:?}");
    }

    #[test]
    fn one_probe_at_a_time() {
        let breaker = breaker();
        for _ in 0..3 {
            fail(&breaker, 0);
        }
        let later = 1_000 * MS;
        let probe = breaker.admit(|| later).unwrap();
        assert!(probe.is_probe());
        assert!(breaker.admit(|| later).is_none());
        assert_eq!(probe.succeeded(), Change::Closed);
        assert!(breaker.is_closed());
        assert!(!breaker.admit(|| later).unwrap().is_probe());
    }

    #[test]
    fn a_cancelled_probe_frees_its_place() {
        let breaker = breaker();
        for _ in 0..3 {
            fail(&breaker, 0);
        }
        let later = 1_000 * MS;
        drop(breaker.admit(|| later).unwrap());
        assert!(breaker.admit(|| later).unwrap().is_probe());
    }

    /// A probe whose caller never looks at it again does not hold its place for ever.
    #[test]
    fn a_probe_that_is_forgotten_loses_its_place() {
        let breaker = breaker();
        for _ in 0..3 {
            fail(&breaker, 0);
        }
        let forgotten = breaker.admit(|| 1_000 * MS).unwrap();
        assert!(breaker.admit(|| 1_999 * MS).is_none());
        let next = breaker.admit(|| 2_000 * MS).unwrap();
        assert!(next.is_probe());
        // Whatever becomes of the first one, the second is the probe.
        assert_eq!(forgotten.succeeded(), Change::Nothing);
        assert!(!breaker.is_closed());
        assert_eq!(next.succeeded(), Change::Closed);
    }

    #[test]
    fn what_was_sent_before_does_not_count_after() {
        let breaker = breaker();
        let old: Vec<Permit<'_>> = (0..10).map(|_| breaker.admit(|| 0).unwrap()).collect();
        for _ in 0..3 {
            fail(&breaker, 0);
        }
        let probe = breaker.admit(|| 1_000 * MS).unwrap();
        assert_eq!(probe.succeeded(), Change::Closed);
        for permit in old {
            assert_eq!(permit.failed(1_000 * MS), Change::Nothing);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn many_threads_elect_one_probe() {
        let breaker = breaker();
        for round in 1..=100_u64 {
            while breaker.is_closed() {
                fail(&breaker, round * 1_000_000);
            }
            let now = round * 1_000_000 + 900_000;
            let barrier = std::sync::Barrier::new(4);
            let elected: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let permit = breaker.admit(|| now);
                            barrier.wait();
                            usize::from(permit.is_some_and(|permit| {
                                permit.succeeded();
                                true
                            }))
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum()
            });
            assert_eq!(elected, 1);
        }
    }
}
