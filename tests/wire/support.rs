//! What several of these files need: calls as one reads them, the ideal bucket,
//! and the append-only file as lines.

use tokenbucket_testkit::model::{Amount, Exact, Rate};

/// A call of words without blanks, as the pipeline takes it.
pub fn command(call: &str) -> Vec<Vec<u8>> {
    call.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
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
