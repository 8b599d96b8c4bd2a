//! One caller, and what the server must hold after its calls.

use std::collections::BTreeSet;
use std::io;

use super::calls::{Calls, Limits};
use crate::aof::Command;
use crate::model::SpecStore;
use crate::{Keys, RawClient, Reply, Server};

/// Makes random calls on keys of its own, compares each reply with the model, and
/// knows bit by bit what the server must hold then.
///
/// The clock must stand still.
#[derive(Clone, Debug)]
pub struct Caller {
    calls: Calls,
    store: SpecStore,
    in_flight: Option<(Command, i64)>,
    acknowledged: u64,
}

impl Caller {
    /// The caller with this number; another number makes other calls on other keys.
    pub fn new(number: u64, limits: Limits) -> Self {
        Self {
            calls: Calls::new(number, limits),
            store: SpecStore::new(),
            in_flight: None,
            acknowledged: 0,
        }
    }

    /// How many calls have been answered.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Makes `count` calls, at the time that the clock of `server` shows.
    ///
    /// # Panics
    ///
    /// When an answer is not the model's.
    #[track_caller]
    pub fn run(&mut self, server: &Server, count: u32) {
        let (mut client, now_us) = (server.raw(), server.clock().now_us());
        for _ in 0..count {
            self.call(&mut client, now_us);
        }
    }

    /// Holds the clock of `server` at `us`, which may be before what it shows. Keys
    /// that have expired are gone before: a server drops them when it likes, which
    /// would make a difference after a step back.
    ///
    /// # Panics
    ///
    /// As [`Server::hold`].
    #[track_caller]
    pub fn hold(&mut self, server: &Server, us: i64) {
        let mut client = server.raw();
        for key in self.store.keys.keys() {
            client.call(&[b"EXISTS", key]);
        }
        self.store.expire(server.clock().now_us());
        server.hold(us);
    }

    /// Makes one call, and gives it.
    ///
    /// # Panics
    ///
    /// As [`Caller::run`].
    #[track_caller]
    pub fn call(&mut self, client: &mut RawClient, now_us: i64) -> Command {
        self.try_call(client, now_us).expect("the server answers")
    }

    /// Makes one call. One that is not answered may have been carried out or not:
    /// see [`Caller::assert_acknowledged`].
    ///
    /// # Errors
    ///
    /// When the connection breaks.
    ///
    /// # Panics
    ///
    /// As [`Caller::run`].
    pub(super) fn try_call(&mut self, client: &mut RawClient, now_us: i64) -> io::Result<Command> {
        let call = self.calls.next();
        self.in_flight = Some((call.clone(), now_us));
        let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let reply = client.try_call(&words)?;
        let want = self.store.call(&words, now_us);
        match &want {
            Ok(want) => assert_eq!(reply.integers(), want.integers(), "{}", line(&call)),
            Err(_) => assert!(
                matches!(reply, Reply::Error(_)),
                "{}: {reply:?}",
                line(&call)
            ),
        }
        self.in_flight = None;
        self.acknowledged += 1;
        Ok(call)
    }

    /// What the server must hold for this caller at `now_us`.
    pub fn keys(&self, now_us: i64) -> Keys {
        self.store.alive(now_us)
    }

    /// Asserts that of this caller's keys the server holds, bit by bit, what the
    /// acknowledged calls have left, with or without the one call that was not
    /// answered when the connection broke. From then on that call counts as what
    /// it was found to be.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn assert_acknowledged(&mut self, server: &Server) {
        let now_us = server.clock().now_us();
        let mut found = server.keys();
        found.retain(|key, _| self.calls.own(key));
        if let Some((call, at_us)) = self.in_flight.take() {
            let mut after = self.store.clone();
            let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
            // Wrong arguments change nothing.
            let _ = after.call(&words, at_us);
            if found == after.alive(now_us) {
                self.store = after;
                return;
            }
        }
        assert_same(&found, &self.store.alive(now_us));
    }
}

/// Names the keys that differ.
#[track_caller]
fn assert_same(found: &Keys, want: &Keys) {
    let all: BTreeSet<_> = found.keys().chain(want.keys()).collect();
    let different: Vec<_> = all
        .into_iter()
        .filter(|key| found.get(*key) != want.get(*key))
        .map(|key| {
            let place = key.escape_ascii();
            format!("{place}: {:?}, not {:?}", found.get(key), want.get(key))
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn line(call: &Command) -> String {
    let words: Vec<_> = call
        .iter()
        .map(|word| word.escape_ascii().to_string())
        .collect();
    words.join(" ")
}
