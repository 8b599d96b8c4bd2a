//! One caller: random calls in batches, and a note of what each was answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokenbucket_testkit::{Random, RawClient, Reply, Stop};

/// Buckets that everybody calls for more than flows in, so that they are never full:
/// what flowed in follows from the time alone.
pub const BUSY: [(&str, &str, &str); 3] = [
    ("busy:0", "1000000", "1000"),
    ("busy:1", "1000000", "5000/7s"),
    ("{busy:2}", "1000000", "200/s"),
];

/// A bucket that only TB.ACQUIRE takes from, one token a call, which may be full at
/// times.
pub const STRICT: (&str, &str, &str) = ("strict", "100", "300");

const BATCH: usize = 16;

/// What the callers share.
#[derive(Clone, Copy)]
pub struct Watch<'round> {
    pub port: u16,
    pub began: Instant,
    pub stop: &'round Stop,
    pub calls: &'round AtomicU64,
}

/// Tokens taken and given, whole ones, by bucket of [`BUSY`] and then [`STRICT`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub taken: [i64; BUSY.len() + 1],
    pub given: [i64; BUSY.len() + 1],
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.taken.iter_mut().zip(other.taken) {
            *sum += more;
        }
        for (sum, more) in self.given.iter_mut().zip(other.given) {
            *sum += more;
        }
    }
}

/// A token of [`STRICT`], and between which microseconds it was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub from: i64,
    pub to: i64,
}

#[derive(Debug, Default)]
pub struct Report {
    /// What was acknowledged.
    pub acknowledged: Sums,
    /// The part of it that no replica is known to have.
    pub at_risk: Sums,
    /// What was asked for, and nobody knows whether it was done.
    pub unknown: Sums,
    pub strict: Vec<Taken>,
    pub calls: u64,
    pub denied: u64,
    pub refused: u64,
}

enum Call {
    Take { bucket: usize, cost: i64, how: How },
    Both { cost: i64 },
    Give { bucket: usize, amount: i64 },
    Peek,
    Wrong,
}

enum How {
    Acquire,
    Reserve,
    Debit,
}

impl Call {
    fn any(random: &mut Random) -> Self {
        let busy = random.below(BUSY.len() as i64) as usize;
        let cost = 1 + random.below(5);
        let take = |how| Self::Take {
            bucket: busy,
            cost,
            how,
        };
        match random.below(20) {
            0..=5 => take(How::Acquire),
            6..=7 => take(How::Reserve),
            8 => take(How::Debit),
            9..=10 => Self::Both { cost },
            11..=12 => Self::Give {
                bucket: busy,
                amount: 1 + random.below(3),
            },
            13..=17 => Self::Take {
                bucket: BUSY.len(),
                cost: 1,
                how: How::Acquire,
            },
            18 => Self::Peek,
            _ => Self::Wrong,
        }
    }

    fn words(&self) -> String {
        let limit = |bucket: usize| {
            let (key, capacity, rate) = BUSY.get(bucket).copied().unwrap_or(STRICT);
            format!("{key} {capacity} {rate}")
        };
        match self {
            Self::Take { bucket, cost, how } => {
                let limit = limit(*bucket);
                match how {
                    How::Acquire => format!("TB.ACQUIRE {limit} {cost}"),
                    How::Reserve => format!("TB.RESERVE {limit} {cost} 5"),
                    How::Debit => format!("TB.DEBIT {limit} {cost}"),
                }
            }
            Self::Both { cost } => {
                format!("TB.MACQUIRE {} {cost} {} {cost}", limit(0), limit(1))
            }
            Self::Give { bucket, amount } => format!("TB.CREDIT {} {amount}", limit(*bucket)),
            Self::Peek => format!("TB.PEEK {} 1", limit(0)),
            Self::Wrong => format!("TB.ACQUIRE {} -1", limit(0)),
        }
    }

    /// What it does when it is allowed.
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        match self {
            Self::Take { bucket, cost, .. } => sums.taken[*bucket] = *cost,
            Self::Both { cost } => sums.taken[..2].fill(*cost),
            Self::Give { bucket, amount } => sums.given[*bucket] = *amount,
            Self::Peek | Self::Wrong => {}
        }
        sums
    }

    fn is_strict(&self) -> bool {
        matches!(self, Self::Take { bucket, .. } if *bucket == BUSY.len())
    }
}

/// Whether the call was allowed; `None` when it was refused with an error.
#[track_caller]
fn allowed(call: &Call, reply: &Reply) -> Option<bool> {
    match (call, reply) {
        (Call::Wrong, Reply::Error(error)) if error.starts_with("ERR cost is not") => None,
        // While the module is out, or the server is loading or not the primary yet.
        (_, Reply::Error(error)) => {
            let known = ["ERR unknown command", "LOADING ", "READONLY "];
            assert!(known.iter().any(|text| error.starts_with(text)), "{error}");
            None
        }
        (_, Reply::Array(Some(items))) => match items[0] {
            Reply::Integer(allowed @ 0..=1) => Some(allowed == 1),
            _ => panic!("{reply:?}"),
        },
        _ => panic!("{reply:?}"),
    }
}

/// Calls until it is told to stop or the server is gone.
pub fn run(watch: &Watch<'_>, seed: u64) -> Report {
    let mut report = Report::default();
    let mut random = Random::new(seed);
    let mut client = RawClient::connect(watch.port);
    let now = || watch.began.elapsed().as_micros() as i64;
    while !watch.stop.is_requested() {
        let calls: Vec<Call> = (0..BATCH).map(|_| Call::any(&mut random)).collect();
        // A replica that has this has all that went before.
        let lines = calls
            .iter()
            .map(Call::words)
            .chain(["WAIT 1 100".to_string()]);
        let bytes: Vec<u8> = lines
            .flat_map(|line| (line + "\r\n").into_bytes())
            .collect();
        let from = now();
        let sent = client.try_send_bytes(&bytes);
        let mut gone = sent.is_err();
        for call in &calls {
            let reply = if gone {
                None
            } else {
                client.try_read_reply().ok()
            };
            let Some(reply) = reply else {
                gone = true;
                report.unknown.add(&call.sums());
                continue;
            };
            report.calls += 1;
            watch.calls.fetch_add(1, Ordering::Relaxed);
            match allowed(call, &reply) {
                Some(true) => {
                    report.acknowledged.add(&call.sums());
                    report.at_risk.add(&call.sums());
                    if call.is_strict() {
                        report.strict.push(Taken { from, to: now() });
                    }
                }
                Some(false) => report.denied += 1,
                None => report.refused += 1,
            }
        }
        if gone {
            break;
        }
        match client.try_read_reply() {
            Ok(Reply::Integer(1)) => report.at_risk = Sums::default(),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    report
}
