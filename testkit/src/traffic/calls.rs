//! Which calls are made.

use crate::aof::Command;
use crate::Random;

/// Capacity and rate of each bucket, in turn.
pub type Limits = &'static [(&'static str, &'static str)];

/// Buckets that are full after less than a second, and after years.
pub const MIXED: Limits = &[
    ("10", "1"),
    ("100", "30/m"),
    ("1", "3"),
    ("5", "0.1111"),
    ("1000000", "1/3s"),
    ("2.5", "1e-9"),
    ("10", "1/d"),
];

/// Buckets that no call leaves nearer to full than 80 minutes, as long as their
/// clock does not go on by more than some minutes: they are there on a server
/// whose clock is an hour ahead.
pub const SLOW: Limits = &[
    ("10", "1/d"),
    ("100", "7/d"),
    ("2.5", "0.0001"),
    ("1000000", "1e-9"),
];

/// As often as they stand here.
const NAMES: [&str; 16] = [
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.PEEK",
    "TB.RESERVE",
    "TB.RESERVE",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.DEBIT",
    "TB.MACQUIRE",
    "TB.MACQUIRE",
    "TB.MACQUIRE",
];
/// The last one is no number.
const COSTS: [&str; 9] = ["0", "0.5", "1", "1", "1.5", "2.5", "4", "11", "x"];
const WAITS: [&str; 4] = ["0", "1000", "7200000", "864000000"];
const KEYS: u8 = 24;

/// Random calls on keys of its own: allowed, denied, asking only, and wrong.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    random: Random,
    prefix: String,
    limits: Limits,
}

impl Calls {
    pub(super) fn new(number: u64, limits: Limits) -> Self {
        Self {
            // Numbers that are near must not give calls that are alike.
            random: Random::new((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            prefix: format!("{number}:"),
            limits,
        }
    }

    /// Whether `key` may be in one of these calls.
    pub(super) fn own(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix.as_bytes())
    }

    /// Bytes that would be mangled by anything that takes keys for text.
    fn key(&self, number: u8) -> Vec<u8> {
        let bytes = [number, 0, b'\r', b'\n', b'}', 0xff - number];
        [self.prefix.as_bytes(), &bytes].concat()
    }

    pub(super) fn next(&mut self) -> Command {
        let name = self.random.pick(&NAMES);
        let mut call = vec![name.as_bytes().to_vec()];
        let buckets = match name {
            "TB.MACQUIRE" => 1 + self.random.below(4),
            _ => 1,
        };
        let first = self.random.below(i64::from(KEYS));
        for bucket in 0..buckets {
            let number = ((first + bucket) % i64::from(KEYS)) as u8;
            let (capacity, rate) = self.limits[usize::from(number) % self.limits.len()];
            call.push(self.key(number));
            let numbers = [capacity, rate, self.random.pick(&COSTS)];
            call.extend(numbers.map(|text| text.as_bytes().to_vec()));
        }
        if name == "TB.RESERVE" {
            call.push(self.random.pick(&WAITS).as_bytes().to_vec());
        }
        call
    }
}
