//! Decisions into the integers that the caller gets.

use arrayvec::ArrayVec;
use tokenbucket_core::{Decision, Outcome};

use crate::ffi::Replier;

/// The most buckets in one call.
pub const MAX_BUCKETS: usize = 64;

/// `retry_after_ms` of a call that would never be allowed.
const NEVER: i64 = -1;

/// What a command answers.
pub trait Reply {
    /// Whether the call went through, for the counters.
    fn verdict(&self) -> Verdict;

    /// Gives the answer to the caller.
    fn send(&self, to: &Replier);
}

/// Whether a call went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Allowed,
    /// Not now.
    Denied,
    /// Not ever.
    Never,
}

impl Verdict {
    fn of(allowed: bool, retry_after_ms: i64) -> Self {
        match (allowed, retry_after_ms) {
            (true, _) => Self::Allowed,
            (false, NEVER) => Self::Never,
            (false, _) => Self::Denied,
        }
    }
}

/// `allowed`, `remaining`, `retry_after_ms` and `reset_after_ms`, in this order.
#[derive(Clone, Copy)]
pub struct Four([i64; 4]);

impl Four {
    /// The four integers that tell `decision`.
    pub fn new(decision: &Decision) -> Self {
        let (allowed, retry_after_ms) = match decision.outcome {
            Outcome::Allowed { wait } => (1, wait.millis_ceil()),
            Outcome::Denied { retry_after } => (0, retry_after.millis_ceil()),
            Outcome::Never => (0, NEVER),
        };
        Self([
            allowed,
            i64::try_from(decision.remaining).unwrap_or(i64::MAX),
            retry_after_ms,
            decision.reset_after.millis_ceil(),
        ])
    }

    fn allowed(self) -> bool {
        let Self([allowed, ..]) = self;
        allowed == 1
    }

    fn retry_after_ms(self) -> i64 {
        let Self([_, _, retry_after_ms, _]) = self;
        retry_after_ms
    }
}

impl Reply for Four {
    fn verdict(&self) -> Verdict {
        Verdict::of(self.allowed(), self.retry_after_ms())
    }

    fn send(&self, to: &Replier) {
        to.array(self.0.len());
        for integer in self.0 {
            to.integer(integer);
        }
    }
}

/// `allowed`, `retry_after_ms`, and each bucket's own four integers.
pub struct All(ArrayVec<Four, MAX_BUCKETS>);

impl All {
    /// The answer about these buckets, in the order of the call.
    pub fn new(decisions: &[Decision]) -> Self {
        Self(decisions.iter().map(Four::new).collect())
    }

    fn allowed(&self) -> bool {
        self.0.iter().all(|four| four.allowed())
    }

    /// The longest of all; never is longer than any.
    fn retry_after_ms(&self) -> i64 {
        let waits = self.0.iter().map(|four| four.retry_after_ms());
        if waits.clone().any(|wait| wait == NEVER) {
            NEVER
        } else {
            waits.max().unwrap_or(0)
        }
    }
}

impl Reply for All {
    fn verdict(&self) -> Verdict {
        Verdict::of(self.allowed(), self.retry_after_ms())
    }

    fn send(&self, to: &Replier) {
        to.array(3);
        to.integer(self.allowed().into());
        to.integer(self.retry_after_ms());
        to.array(self.0.len());
        for four in &self.0 {
            four.send(to);
        }
    }
}
