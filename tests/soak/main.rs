//! Mixed traffic on a primary and its replica while they are killed, restarted,
//! failed over, saved and reloaded, and an accountant who knows at every moment how
//! much each bucket may hold, to the attotoken.
//!
//! `SOAK_SECONDS` says how long (20 unless given; `make soak` takes 600) and
//! `SOAK_SEED` what happens.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test"
)]

mod accountant;
mod pair;
mod traffic;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use accountant::Accountant;
use pair::Pair;
use tokenbucket_testkit::{wait_for, Random, Stop};
use traffic::{Report, Watch};

const CALLERS: u64 = 4;
/// Calls before a fault, and after it.
const LEG: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What happens in the middle of the traffic of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    /// kill -9 of the primary, which comes back from its append-only file.
    KillAndRestart,
    /// The replica loses its primary, which goes on for a while before kill -9; then
    /// the replica takes over.
    KillAndFailOver,
    /// The replica takes over while the traffic rests.
    FailOver,
    /// kill -9 of the replica, which comes back.
    KillReplica,
    RewriteAof,
    SaveRdb,
    /// Everything is written to disk and read again.
    Reload,
    /// MODULE UNLOAD and LOAD.
    Upgrade,
}

const FAULTS: [Fault; 9] = [
    Fault::Nothing,
    Fault::KillAndRestart,
    Fault::KillAndFailOver,
    Fault::FailOver,
    Fault::KillReplica,
    Fault::RewriteAof,
    Fault::SaveRdb,
    Fault::Reload,
    Fault::Upgrade,
];

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    }
}

/// One leg of traffic with the fault in its middle. Gives what the callers saw.
fn round(pair: &mut Pair, fault: Fault, random: &mut Random, began: Instant) -> Vec<Report> {
    let (stop, calls) = (Stop::new(), AtomicU64::new(0));
    let watch = Watch {
        port: pair.primary.port(),
        began,
        stop: &stop,
        calls: &calls,
    };
    thread::scope(|scope| {
        let end = stop.at_end();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let seed = random.next_u64();
                scope.spawn(move || traffic::run(&watch, seed))
            })
            .collect();
        let wait_until = |count| {
            wait_for("traffic", PATIENCE, || {
                calls.load(Ordering::Relaxed) >= count
                    || callers.iter().all(thread::ScopedJoinHandle::is_finished)
            });
        };
        wait_until(LEG);
        match fault {
            Fault::Nothing => {}
            Fault::KillAndRestart => pair.primary.kill(),
            Fault::KillAndFailOver => {
                pair.part();
                wait_until(calls.load(Ordering::Relaxed) + LEG / 10);
                pair.primary.kill();
            }
            Fault::FailOver => {}
            Fault::KillReplica => pair.replica.restart(),
            Fault::RewriteAof => pair.rewrite_aof(),
            Fault::SaveRdb => pair.save(),
            Fault::Reload => pair.reload(),
            Fault::Upgrade => pair.upgrade(),
        }
        wait_until(calls.load(Ordering::Relaxed) + LEG);
        drop(end);
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    })
}

#[test]
fn no_token_is_minted_and_none_is_lost() {
    let length = Duration::from_secs(number("SOAK_SECONDS", 20));
    let seed = number("SOAK_SEED", 0x50a4);
    println!("SOAK_SEED={seed} SOAK_SECONDS={}", length.as_secs());
    let mut random = Random::new(seed);
    let began = Instant::now();
    let mut pair = Pair::start();
    let mut accountant = Accountant::open(&mut pair.primary.raw());
    let mut faults = BTreeMap::<Fault, u32>::new();

    let mut rounds = 0;
    // Each fault once at least, however slow the machine is.
    while began.elapsed() < length || rounds < FAULTS.len() {
        let fault = match FAULTS.get(rounds) {
            Some(fault) => *fault,
            None => FAULTS[random.below(FAULTS.len() as i64) as usize],
        };
        accountant.begin_round(&mut pair.primary.raw());
        let reports = round(&mut pair, fault, &mut random, began);
        match fault {
            Fault::KillAndRestart => pair.primary.restart(),
            Fault::KillAndFailOver | Fault::FailOver => {
                if fault == Fault::FailOver {
                    pair.replica.wait_for_sync(&pair.primary);
                }
                pair.fail_over();
            }
            _ => {}
        }
        pair.wait_for_sync();
        // What was not yet at the replica is gone when that one takes over.
        let forgotten = fault == Fault::KillAndFailOver;
        accountant.end_round(&mut pair.primary.raw(), &reports, forgotten);
        pair.assert_same_bytes(&accountant.keys());
        *faults.entry(fault).or_default() += 1;
        rounds += 1;
    }
    println!(
        "{rounds} rounds in {:.0} s: {faults:?}",
        began.elapsed().as_secs_f64()
    );
    println!("{accountant}");
}
