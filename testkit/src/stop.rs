//! Ending the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the threads of a scope to end.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

/// Requests the end when it is dropped: see [`Stop::at_end`].
#[derive(Debug)]
pub struct StopAtEnd<'stop>(&'stop Stop);

impl Stop {
    /// For threads that are to run.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Requests the end when what this gives is dropped, also by a failed assertion:
    /// a scope waits for its threads before it lets a panic pass.
    pub fn at_end(&self) -> StopAtEnd<'_> {
        StopAtEnd(self)
    }
}

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0 .0.store(true, Ordering::Relaxed);
    }
}
