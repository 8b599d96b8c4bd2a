//! Calls of all six commands, read from bytes.

use std::collections::HashMap;

use tokenbucket_core::{
    parse_whole_number, Amount, Bucket, Decision, Effect, Limit, NumberError, Outcome, Rate,
};

use crate::model::{SpecBucket, SpecStore};

/// Whatever calls the bytes stand for, between them clock steps both ways, buckets put
/// in by hand and stored bits flipped: every answer, all bytes and all expiries are the
/// model's.
///
/// # Panics
///
/// When they are not.
pub fn decisions(data: &[u8]) {
    let mut data = Data(data);
    let mut ours = Store::default();
    let mut model = SpecStore::new();
    let mut now = START;
    while let Some(kind) = data.byte() {
        match kind % 9 {
            6 => {
                // A server drops what has expired when it likes, which would make a
                // difference after a step back: here it is gone before.
                ours.expire(now);
                model.expire(now);
                now = data.step(now);
            }
            7 => {
                let (key, bytes) = (data.key(), data.bytes());
                if let Some(bucket) = SpecBucket::from_bytes(&bytes) {
                    let expiry = (now / 1000).saturating_add(i64::from(data.next()));
                    model.keys.insert(key.to_vec(), (bucket, expiry));
                    ours.keys.insert(key.to_vec(), (bytes, expiry));
                }
            }
            8 => {
                let (key, bit) = (data.key(), usize::from(data.next()) % 160);
                if let Some((bytes, expiry)) = ours.keys.get_mut(key) {
                    let mut flipped = *bytes;
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    // What is no bucket any more would be refused from then on.
                    if let Some(bucket) = SpecBucket::from_bytes(&flipped) {
                        *bytes = flipped;
                        model.keys.insert(key.to_vec(), (bucket, *expiry));
                    }
                }
            }
            _ => {
                let call = data.call(kind);
                let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
                let show = || {
                    let words = words.iter().map(|word| word.escape_ascii().to_string());
                    format!("{} at {now}", words.collect::<Vec<_>>().join(" "))
                };
                let got = ours.call(&words, now);
                match (&got, model.call(&words, now)) {
                    (Ok(got), Ok(want)) => assert_eq!(*got, want.integers(), "{}", show()),
                    (Err(_), Err(_)) => {}
                    (got, want) => panic!("{}: {got:?}, but the model says {want:?}", show()),
                }
                ours.expire(now);
                let kept: HashMap<Vec<u8>, ([u8; 20], i64)> = model
                    .alive(now)
                    .into_iter()
                    .map(|(key, (bytes, expiry))| {
                        (key, (bytes.try_into().expect("twenty bytes"), expiry))
                    })
                    .collect();
                assert_eq!(ours.keys, kept, "after {}", show());
            }
        }
    }
}

/// January 2027, in microseconds since 1970.
const START: i64 = 1_800_000_000_000_000;
/// A little above the last instant that a stamp holds.
const LATEST: i64 = 1 << 53;

/// What the bytes stand for; zeros when they are at their end.
struct Data<'data>(&'data [u8]);

impl Data<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn bytes<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        std::array::from_fn(|_| self.next())
    }

    fn key(&mut self) -> &'static [u8] {
        [&b"a"[..], b"b", b"c", b""][usize::from(self.next() % 4)]
    }

    /// Another time: up to so many microseconds away as a power of two says.
    fn step(&mut self, now: i64) -> i64 {
        let by = i64::from_be_bytes(self.bytes()) >> (self.next() % 64);
        now.saturating_add(by).clamp(0, LATEST)
    }

    /// A number from a list, or any bytes.
    fn number(&mut self, list: &[&str]) -> Vec<u8> {
        let choice = usize::from(self.next());
        match list.get(choice % (list.len() + 1)) {
            Some(text) => text.as_bytes().to_vec(),
            None => (0..self.next() % 24).map(|_| self.next()).collect(),
        }
    }

    fn bucket(&mut self) -> [Vec<u8>; 4] {
        const AMOUNTS: [&str; 15] = [
            "1", "0", "2", "2.5", "10", "0.1", "1e-12", "3", "1e12", "999999", "1000000", "0.5",
            "11", "7.25", "1e3",
        ];
        const RATES: [&str; 14] = [
            "1", "10", "0.1", "1/3s", "1/d", "100/m", "1e-12", "1e12", "5000/h", "0.1111", "1/7ms",
            "3000", "1/36500d", "2.5",
        ];
        [
            self.key().to_vec(),
            self.number(&AMOUNTS),
            self.number(&RATES),
            self.number(&AMOUNTS),
        ]
    }

    fn call(&mut self, kind: u8) -> Vec<Vec<u8>> {
        const NAMES: [&str; 6] = [
            "TB.ACQUIRE",
            "TB.PEEK",
            "TB.RESERVE",
            "TB.CREDIT",
            "TB.DEBIT",
            "TB.MACQUIRE",
        ];
        const WAITS: [&str; 6] = [
            "0",
            "1000",
            "60000",
            "86400000",
            "18446744073709551615",
            "1",
        ];
        let name = NAMES[usize::from(kind % 9)];
        let mut call = vec![name.as_bytes().to_vec()];
        let buckets = match name {
            "TB.MACQUIRE" => self.next() % 5,
            _ => 1,
        };
        for _ in 0..buckets {
            call.extend(self.bucket());
        }
        if name == "TB.RESERVE" {
            call.push(self.number(&WAITS));
        }
        call
    }
}

/// Keys as the module keeps them, and its commands on them.
#[derive(Default)]
struct Store {
    keys: HashMap<Vec<u8>, ([u8; 20], i64)>,
}

/// Why a call is refused.
#[derive(Debug)]
enum Refused {
    Number(#[allow(dead_code, reason = "shown when it is not the model's")] NumberError),
    Arity,
    RepeatedKey,
}

impl From<NumberError> for Refused {
    fn from(error: NumberError) -> Self {
        Self::Number(error)
    }
}

impl Store {
    fn expire(&mut self, now: i64) {
        self.keys.retain(|_, (_, expiry)| now / 1000 <= *expiry);
    }

    fn bucket(&self, key: &[u8], limit: &Limit, now: i64) -> Bucket {
        match self.keys.get(key) {
            Some((bytes, expiry)) if now / 1000 <= *expiry => {
                Bucket::decode(bytes).expect("only buckets are put in")
            }
            _ => Bucket::full(limit, now as u64),
        }
    }

    fn apply(&mut self, key: &[u8], effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Put {
                bucket,
                expires_at_ms,
            } => {
                let entry = (bucket.encode(), expires_at_ms as i64);
                self.keys.insert(key.to_vec(), entry);
            }
            Effect::Delete => {
                self.keys.remove(key);
            }
        }
    }

    fn call(&mut self, words: &[&[u8]], now: i64) -> Result<Vec<i64>, Refused> {
        let (name, args) = words.split_first().ok_or(Refused::Arity)?;
        if *name == b"TB.MACQUIRE" {
            return self.acquire_all(args, now);
        }
        let [key, capacity, rate, amount, rest @ ..] = args else {
            return Err(Refused::Arity);
        };
        let (limit, amount) = (parse_limit(capacity, rate)?, Amount::parse(amount)?);
        let bucket = self.bucket(key, &limit, now);
        let time = now as u64;
        let decision = match (*name, rest) {
            (b"TB.ACQUIRE", []) => bucket.acquire(&limit, amount, time),
            (b"TB.PEEK", []) => {
                // Answers as if, and leaves nothing.
                return Ok(four(&bucket.acquire(&limit, amount, time)).to_vec());
            }
            (b"TB.RESERVE", [wait]) => {
                bucket.reserve(&limit, amount, parse_whole_number(wait)?, time)
            }
            (b"TB.CREDIT", []) => bucket.credit(&limit, amount, time),
            (b"TB.DEBIT", []) => bucket.debit(&limit, amount, time),
            _ => return Err(Refused::Arity),
        };
        self.apply(key, decision.effect);
        Ok(four(&decision).to_vec())
    }

    fn acquire_all(&mut self, args: &[&[u8]], now: i64) -> Result<Vec<i64>, Refused> {
        let groups = args.chunks_exact(4);
        if groups.len() == 0 || !groups.remainder().is_empty() {
            return Err(Refused::Arity);
        }
        let mut wants: Vec<(&[u8], Limit, Amount)> = Vec::new();
        for group in groups {
            let limit = parse_limit(group[1], group[2])?;
            wants.push((group[0], limit, Amount::parse(group[3])?));
        }
        for (at, (key, ..)) in wants.iter().enumerate() {
            if wants[..at].iter().any(|(before, ..)| before == key) {
                return Err(Refused::RepeatedKey);
            }
        }
        let decide = |rule: fn(&Bucket, &Limit, Amount, u64) -> Decision| -> Vec<Decision> {
            let each = wants.iter().map(|(key, limit, cost)| {
                rule(&self.bucket(key, limit, now), limit, *cost, now as u64)
            });
            each.collect()
        };
        let mut decisions = decide(Bucket::acquire);
        if !decisions.iter().all(Decision::is_allowed) {
            decisions = decide(Bucket::check);
        }
        for ((key, ..), decision) in wants.iter().zip(&decisions) {
            self.apply(key, decision.effect);
        }
        let fours: Vec<[i64; 4]> = decisions.iter().map(four).collect();
        let allowed = i64::from(fours.iter().all(|four| four[0] == 1));
        let retry_after_ms = match fours.iter().map(|four| four[2]) {
            mut waits if waits.clone().any(|wait| wait == -1) => waits.find(|wait| *wait == -1),
            waits => waits.max(),
        };
        Ok([
            &[allowed, retry_after_ms.unwrap_or(0)],
            fours.as_flattened(),
        ]
        .concat())
    }
}

fn parse_limit(capacity: &[u8], rate: &[u8]) -> Result<Limit, NumberError> {
    Ok(Limit {
        capacity: Amount::parse(capacity)?,
        rate: Rate::parse(rate)?,
    })
}

/// The four integers of a decision, as the contract names them.
fn four(decision: &Decision) -> [i64; 4] {
    let (allowed, retry_after_ms) = match decision.outcome {
        Outcome::Allowed { wait } => (1, wait.millis_ceil()),
        Outcome::Denied { retry_after } => (0, retry_after.millis_ceil()),
        Outcome::Never => (0, -1),
    };
    [
        allowed,
        i64::try_from(decision.remaining).unwrap_or(i64::MAX),
        retry_after_ms,
        decision.reset_after.millis_ceil(),
    ]
}
