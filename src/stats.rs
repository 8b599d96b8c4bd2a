//! What `INFO tokenbucket` counts, since the module was loaded.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::ffi::InfoSection;
use crate::reply::Verdict;

/// A number that only goes up. The server runs one command at a time, so no
/// order between threads matters.
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How the calls of one command went.
pub struct Tally {
    allowed: Counter,
    denied: Counter,
    never: Counter,
}

impl Tally {
    const fn new() -> Self {
        Self {
            allowed: Counter::new(),
            denied: Counter::new(),
            never: Counter::new(),
        }
    }

    /// Counts a call that was answered.
    pub fn count(&self, verdict: Verdict) {
        match verdict {
            Verdict::Allowed => &self.allowed,
            Verdict::Denied => &self.denied,
            Verdict::Never => &self.never,
        }
        .count();
    }
}

/// Calls of `TB.ACQUIRE`.
pub static ACQUIRE: Tally = Tally::new();
/// Calls of `TB.PEEK`.
pub static PEEK: Tally = Tally::new();
/// Calls of `TB.RESERVE`.
pub static RESERVE: Tally = Tally::new();
/// Calls of `TB.MACQUIRE`.
pub static MACQUIRE: Tally = Tally::new();
/// Calls of `TB.CREDIT`, which are always allowed.
pub static CREDIT: Tally = Tally::new();
/// Calls of `TB.DEBIT`, which are always allowed.
pub static DEBIT: Tally = Tally::new();
/// Calls that met a value that is not a bucket.
static WRONG_TYPES: Counter = Counter::new();
/// Calls with an argument that is wrong. The server refuses a wrong number of
/// them before we see it.
static WRONG_ARGUMENTS: Counter = Counter::new();
/// Writes that met a stamp in the future.
pub static CLOCK_STEPS: Counter = Counter::new();
/// Panics that the guard has caught.
pub static PANICS: Counter = Counter::new();

/// Counts a call that was answered with an error.
pub fn count_error(error: Error) {
    match error {
        Error::WrongType => WRONG_TYPES.count(),
        Error::Argument(..) | Error::RepeatedKey | Error::TooManyBuckets => WRONG_ARGUMENTS.count(),
        Error::WrongArity | Error::Internal => {}
    }
}

/// All that is counted, by name.
static COUNTERS: [(&CStr, &[&Counter]); 19] = [
    (c"acquire_allowed", &[&ACQUIRE.allowed]),
    (c"acquire_denied", &[&ACQUIRE.denied]),
    (c"acquire_never", &[&ACQUIRE.never]),
    (c"peek_allowed", &[&PEEK.allowed]),
    (c"peek_denied", &[&PEEK.denied]),
    (c"peek_never", &[&PEEK.never]),
    (c"reserve_allowed", &[&RESERVE.allowed]),
    (c"reserve_denied", &[&RESERVE.denied]),
    (c"reserve_never", &[&RESERVE.never]),
    (c"macquire_allowed", &[&MACQUIRE.allowed]),
    (c"macquire_denied", &[&MACQUIRE.denied]),
    (c"macquire_never", &[&MACQUIRE.never]),
    (c"credits", &[&CREDIT.allowed]),
    (c"debits", &[&DEBIT.allowed]),
    (
        c"refused",
        &[
            &ACQUIRE.denied,
            &ACQUIRE.never,
            &RESERVE.denied,
            &RESERVE.never,
            &MACQUIRE.denied,
            &MACQUIRE.never,
        ],
    ),
    (c"wrong_type_errors", &[&WRONG_TYPES]),
    (c"argument_errors", &[&WRONG_ARGUMENTS]),
    (c"clock_steps", &[&CLOCK_STEPS]),
    (c"panics", &[&PANICS]),
];

/// Writes the section of `INFO`.
pub fn write(section: &InfoSection) {
    section.text(c"version", crate::VERSION_TEXT);
    for (name, parts) in &COUNTERS {
        let sum = parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(part.value()));
        section.number(name, sum);
    }
}

/// Starts all counters at zero: a module that is loaded again may still be in
/// memory from before.
pub fn reset() {
    for (_, parts) in &COUNTERS {
        for part in *parts {
            part.0.store(0, Ordering::Relaxed);
        }
    }
}
