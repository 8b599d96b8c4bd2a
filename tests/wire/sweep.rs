//! Random calls, compared reply by reply and byte by byte with the model of the
//! contract in big integers.

use tokenbucket_testkit::model::SpecStore;

use crate::{expires_at_ms, held, stored, START};

const CALLS: u32 = 20_000;
const CAPACITIES: [&str; 5] = ["1", "10", "2.5", "1000000", "0.000001"];
const RATES: [&str; 8] = [
    "1", "100/m", "1/d", "0.1111", "3000", "1/3s", "1e12", "1e-12",
];
const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];
const COSTS: [&str; 8] = ["0", "1", "0.1", "2.5", "10", "0.000001", "1e-12", "999999"];

/// A generator that is the same in every run (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

/// 20,000 calls on a few keys with the clock moving both ways between them.
#[test]
fn random_calls_answer_as_the_model() {
    let server = held();
    let mut client = server.raw();
    let mut model = SpecStore::new();
    let mut random = Random(0x5eed);
    let mut now = START;
    let (mut live, mut allowed) = (0, 0);
    for call in 0..CALLS {
        // Mostly small steps forward, sometimes a long one, seldom one back.
        if random.below(4) == 0 {
            let step = match random.below(20) {
                0 => -(random.below(3_000_000) as i64),
                1 => -(random.below(86_400_000_000) as i64),
                2 => random.below(86_400_000_000 * 3) as i64,
                3..=9 => random.below(10_000_000) as i64,
                _ => random.below(5_000) as i64,
            };
            if step < 0 {
                // The server drops an expired key when it likes; before a step back
                // it has to be gone on both sides.
                client.text(&[&["EXISTS"], &KEYS[..]].concat());
                model.expire(now);
            }
            now += step;
            server.hold(now);
        }
        let key = random.pick(&KEYS);
        // A key keeps its limit for a while; now and then it is another.
        let kept = (call / 400 + u32::from(key.as_bytes()[1])) as usize;
        let (capacity, rate) = if random.below(20) == 0 {
            (random.pick(&CAPACITIES), random.pick(&RATES))
        } else {
            (
                CAPACITIES[kept % CAPACITIES.len()],
                RATES[kept / 3 % RATES.len()],
            )
        };
        let cost = if random.below(2) == 0 {
            "1"
        } else {
            random.pick(&COSTS)
        };
        let peek = random.below(5) == 0;
        let name = if peek { "TB.PEEK" } else { "TB.ACQUIRE" };
        let place = format!("call {call} at {now}: {name} {key} {capacity} {rate} {cost}");

        let line = [name, key, capacity, rate, cost];
        let reply = client.tb(&line).unwrap();
        let want = model.call(&line.map(str::as_bytes), now).unwrap().four();
        assert_eq!(reply, want, "{place}");

        let bytes = stored(&mut client, key);
        let want = model.stored(key.as_bytes()).map(|bytes| bytes.to_vec());
        if let Some(bytes) = &bytes {
            assert_eq!(Some(bytes), want.as_ref(), "{place}: stored");
            let expiry = Some(expires_at_ms(&mut client, key, now));
            assert_eq!(
                expiry,
                model.expires_at_ms(key.as_bytes()),
                "{place}: expiry"
            );
            live += 1;
        } else {
            // Gone, or never written.
            let expiry = model.expires_at_ms(key.as_bytes());
            assert!(
                expiry.is_none_or(|ms| ms < now.div_euclid(1000)),
                "{place}: missing"
            );
        }
        allowed += reply[0];
    }
    // A sweep that only ever met full or empty buckets would show nothing.
    assert!(
        live > i64::from(CALLS) / 2,
        "a bucket was there in {live} calls only"
    );
    assert!(
        (i64::from(CALLS) / 10..i64::from(CALLS) * 9 / 10).contains(&allowed),
        "{allowed}"
    );
}
