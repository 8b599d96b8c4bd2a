//! Several callers at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::Caller;
use crate::server::PATIENCE;
use crate::{wait_for, Server};

/// Callers that call without a pause, each over a connection of its own, while the
/// clock of the server stands still. They end when they are told to, or when their
/// connection breaks.
#[derive(Debug)]
pub struct Traffic {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Caller>>,
}

impl Traffic {
    /// Starts them.
    ///
    /// # Panics
    ///
    /// When the server takes no connection.
    #[track_caller]
    pub fn start(server: &Server, callers: Vec<Caller>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let now_us = server.clock().now_us();
        let threads = callers
            .into_iter()
            .map(|mut caller| {
                let mut client = server.raw();
                let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
                thread::spawn(move || {
                    while !over.load(Ordering::Relaxed)
                        && caller.try_call(&mut client, now_us).is_ok()
                    {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    caller
                })
            })
            .collect();
        Self {
            over,
            answered,
            threads,
        }
    }

    /// Waits until `count` more calls have been answered.
    ///
    /// # Panics
    ///
    /// When that takes more than 30 seconds.
    #[track_caller]
    pub fn wait_for_calls(&self, count: u64) {
        let goal = self.answered.load(Ordering::Relaxed) + count;
        wait_for("more calls", PATIENCE, || {
            self.answered.load(Ordering::Relaxed) >= goal
        });
    }

    /// Ends the calls, after the one that is under way.
    ///
    /// # Panics
    ///
    /// When an answer was not the model's.
    #[track_caller]
    pub fn stop(self) -> Vec<Caller> {
        self.over.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .map(|thread| thread.join().expect("every answer is the model's"))
            .collect()
    }
}
