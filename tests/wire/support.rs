//! What several of these files need: calls as one reads them, numbers that look
//! random, the ideal bucket, and the append-only file as lines.

use tokenbucket_testkit::model::{Amount, Exact, Rate};
use tokenbucket_testkit::RawClient;

/// A call of words without blanks, as the pipeline takes it.
pub fn command(call: &str) -> Vec<Vec<u8>> {
    call.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// What a call of words without blanks is answered, which is no error.
#[track_caller]
pub fn ask(client: &mut RawClient, call: &str) -> [i64; 4] {
    let words: Vec<&str> = call.split(' ').collect();
    client
        .tb(&words)
        .unwrap_or_else(|error| panic!("{call}: {error}"))
}

/// The ideal bucket at one key, and what TB.ACQUIRE answers for it.
pub struct Ideal {
    bucket: Exact,
    capacity: Amount,
}

impl Ideal {
    pub fn new(capacity: &str, rate: &str, now_us: i64) -> Self {
        let capacity = amount(capacity);
        let rate = Rate::parse(rate.as_bytes()).unwrap().exact;
        Self {
            bucket: Exact::new(capacity.exact.clone(), rate, now_us),
            capacity,
        }
    }

    pub fn set_limit(&mut self, capacity: &str, rate: &str) {
        self.capacity = amount(capacity);
        let rate = Rate::parse(rate.as_bytes()).unwrap().exact;
        self.bucket.set_limit(self.capacity.exact.clone(), rate);
    }

    pub fn acquire(&mut self, cost: &str, now_us: i64) -> [i64; 4] {
        let cost = amount(cost).exact;
        let allowed = self.bucket.try_take(&cost, now_us);
        let millis = |target| {
            let seconds = self.bucket.seconds_until(target, now_us)?;
            let millis = (seconds * amount("1000").exact).ceil().to_integer();
            Some(i64::try_from(millis).unwrap_or(i64::MAX))
        };
        let retry_after_ms = if allowed {
            0
        } else {
            millis(&cost).unwrap_or(-1)
        };
        let reset_after_ms = millis(&self.capacity.exact).unwrap();
        let level = self.bucket.level(now_us).floor().to_integer();
        let remaining = i64::try_from(level).unwrap().max(0);
        [
            i64::from(allowed),
            remaining,
            retry_after_ms,
            reset_after_ms,
        ]
    }
}

fn amount(text: &str) -> Amount {
    Amount::parse(text.as_bytes()).unwrap()
}

/// Numbers that look random and are the same at every run (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to `end - 1`.
    pub fn below(&mut self, end: i64) -> i64 {
        // Fewer than 63 bits are a number that is not negative.
        (self.next() >> 2) as i64 % end.max(1)
    }

    /// One of the list.
    pub fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as i64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

/// The commands of an append-only file as `NAME key`, without SELECT.
pub fn effects(commands: &[Vec<Vec<u8>>]) -> Vec<String> {
    commands
        .iter()
        .map(|command| {
            let name = String::from_utf8(command[0].to_ascii_uppercase()).unwrap();
            match command.get(1) {
                Some(key) => format!("{name} {}", key.escape_ascii()),
                None => name,
            }
        })
        .filter(|line| !line.starts_with("SELECT"))
        .collect()
}
