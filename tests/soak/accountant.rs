//! Who knows what each bucket may hold.
//!
//! Of a bucket that is never full all is known: what it held at first, what flowed in
//! (its rate and the stamps in its bytes), what was taken and given by calls that were
//! acknowledged. What it holds at the end follows, to the attotoken that a write may
//! round away, and to the tokens of calls whose reply was cut off by a kill -9.

use std::fmt;

use tokenbucket_core::{Bucket, Rate};
use tokenbucket_testkit::RawClient;

use crate::traffic::{Report, Sums, Taken, BUSY, STRICT};

const ATTO: i128 = 1_000_000_000_000_000_000;

pub struct Accountant {
    /// The busy buckets as the round began.
    buckets: Vec<Bucket>,
    stretch: Stretch,
    calls: u64,
    denied: u64,
    refused: u64,
    sums: Sums,
    unknown: Sums,
    at_risk: Sums,
    /// Tokens that a failover has given back, of those at risk.
    undone: i128,
    /// The largest difference, in attotokens, that only rounding accounts for.
    rounding: i128,
}

impl Accountant {
    /// Empties the busy buckets.
    pub fn open(client: &mut RawClient) -> Self {
        for (key, capacity, rate) in BUSY {
            client.ask(&format!("TB.DEBIT {key} {capacity} {rate} {capacity}"));
        }
        Self {
            buckets: Vec::new(),
            stretch: Stretch::new(),
            calls: 0,
            denied: 0,
            refused: 0,
            sums: Sums::default(),
            unknown: Sums::default(),
            at_risk: Sums::default(),
            undone: 0,
            rounding: 0,
        }
    }

    /// The busy buckets, which are never full and so are there.
    pub fn keys(&self) -> Vec<&'static str> {
        BUSY.iter().map(|(key, ..)| *key).collect()
    }

    /// Takes what has flowed in meanwhile out of the busy buckets, and notes what
    /// they hold.
    pub fn begin_round(&mut self, client: &mut RawClient) {
        self.buckets = BUSY
            .iter()
            .map(|(key, capacity, rate)| {
                let [_, left, ..] = client.ask(&format!("TB.PEEK {key} {capacity} {rate} 0"));
                client.ask(&format!("TB.DEBIT {key} {capacity} {rate} {left}"));
                read(client, key)
            })
            .collect();
    }

    /// Compares what the buckets hold with what they should. `forgotten` says that
    /// what no replica is known to have may be undone.
    #[track_caller]
    pub fn end_round(&mut self, client: &mut RawClient, reports: &[Report], forgotten: bool) {
        let [mut acknowledged, mut unknown, mut at_risk] = [Sums::default(); 3];
        let (mut strict, mut calls) = (Vec::new(), 0);
        for report in reports {
            acknowledged.add(&report.acknowledged);
            unknown.add(&report.unknown);
            if forgotten {
                at_risk.add(&report.at_risk);
            }
            strict.extend(&report.strict);
            calls += report.calls;
            self.denied += report.denied;
            self.refused += report.refused;
        }

        for (at, (key, _, rate)) in BUSY.iter().enumerate() {
            let (before, after) = (self.buckets[at], read(client, key));
            let rate = Rate::parse(rate.as_bytes()).unwrap();
            // Fixed point with 24 fractional bits.
            let flowed = (rate.fixed() * u128::from(after.stamp() - before.stamp())) >> 24;
            let net = acknowledged.given[at] - acknowledged.taken[at];
            let expected = before.level() + flowed as i128 + i128::from(net) * ATTO;
            let difference = after.level() - expected;
            // More than expected: what was undone, or given without a word. Less:
            // taken without a word, or given and undone.
            let more = i128::from(at_risk.taken[at] + unknown.given[at]) * ATTO;
            let less = i128::from(unknown.taken[at] + at_risk.given[at]) * ATTO;
            let rounded = i128::from(calls) + 1;
            assert!(
                (-less - rounded..=more + rounded).contains(&difference),
                "{key}: {difference} attotokens more than there should be; \
                 {unknown:?} unknown, {at_risk:?} at risk"
            );
            if more == 0 && less == 0 {
                self.rounding = self.rounding.max(difference.abs());
            }
            if forgotten {
                self.undone += difference.max(0) / ATTO;
            }
        }
        // The strict bucket may give again what was undone.
        self.stretch.add(strict, at_risk.taken[BUSY.len()]);

        self.calls += calls;
        self.sums.add(&acknowledged);
        self.unknown.add(&unknown);
        self.at_risk.add(&at_risk);
    }
}

#[track_caller]
fn read(client: &mut RawClient, key: &str) -> Bucket {
    let bytes = client.text(&["GET", key]).bytes();
    let bytes = bytes.unwrap_or_else(|| panic!("{key} was full or lost"));
    Bucket::decode(&bytes).unwrap_or_else(|error| panic!("{key}: {error}"))
}

/// Promise 1: over any stretch of t seconds at most `capacity + rate * t` tokens.
///
/// Tokens are looked at in the order in which they were asked for. Those from the
/// i-th to the j-th were all taken between the moment that the i-th was asked for and
/// the latest moment at which one of them was answered, so they are as many at most.
/// The largest excess over all i is kept instead of all i.
struct Stretch {
    count: i64,
    /// The largest `rate * from - tokens before`, in microtokens.
    best: i64,
    latest: i64,
    /// How many more than the capacity would have been too many, at the worst.
    room: i64,
    allowance: i64,
}

const MICRO: i64 = 1_000_000;

impl Stretch {
    fn new() -> Self {
        Self {
            count: 0,
            best: i64::MIN,
            latest: 0,
            room: i64::MAX,
            allowance: 0,
        }
    }

    #[track_caller]
    fn add(&mut self, mut tokens: Vec<Taken>, undone: i64) {
        let (_, capacity, rate) = STRICT;
        let (capacity, rate): (i64, i64) = (capacity.parse().unwrap(), rate.parse().unwrap());
        tokens.sort_by_key(|token| token.from);
        for token in tokens {
            self.best = self.best.max(rate * token.from - self.count * MICRO);
            self.latest = self.latest.max(token.to);
            self.count += 1;
            let most = (capacity + self.allowance) * MICRO + rate * self.latest - self.best;
            let room = most - self.count * MICRO;
            assert!(room >= 0, "{} tokens too many in a stretch", -room / MICRO);
            self.room = self.room.min(room);
        }
        self.allowance += undone;
    }
}

impl fmt::Display for Accountant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |numbers: &[i64]| numbers.iter().sum::<i64>();
        writeln!(
            f,
            "{} calls answered: {} tokens taken, {} given, {} calls denied, {} refused",
            self.calls,
            sum(&self.sums.taken),
            sum(&self.sums.given),
            self.denied,
            self.refused
        )?;
        writeln!(
            f,
            "replies cut off: {} tokens; known to be at no replica before a failover: {} tokens, \
             of which about {} were taken again",
            sum(&self.unknown.taken) + sum(&self.unknown.given),
            sum(&self.at_risk.taken) + sum(&self.at_risk.given),
            self.undone
        )?;
        write!(
            f,
            "minted 0, lost 0, rounded away at most {} attotokens a round; {} of {} tokens away \
             from too many in any stretch",
            self.rounding,
            self.stretch.room / MICRO,
            STRICT.1
        )
    }
}
