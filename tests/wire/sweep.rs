//! Random calls, compared reply by reply and byte by byte with the model of the
//! contract in big integers.

use std::collections::HashMap;

use tokenbucket_testkit::model::SpecStore;
use tokenbucket_testkit::Random;

use crate::{expires_at_ms, held, stored, START};

const CALLS: u32 = 20_000;
const CAPACITIES: [&str; 5] = ["1", "10", "2.5", "1000000", "0.000001"];
const RATES: [&str; 8] = [
    "1", "100/m", "1/d", "0.1111", "3000", "1/3s", "1e12", "1e-12",
];
const KEYS: [&str; 6] = ["k0", "k1", "k2", "k3", "k4", "k5"];
const WAITS: [&str; 6] = [
    "0",
    "1",
    "500",
    "3000",
    "86400000",
    "99999999999999999999999",
];
/// As often as they stand here.
const NAMES: [&str; 16] = [
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.ACQUIRE",
    "TB.PEEK",
    "TB.PEEK",
    "TB.RESERVE",
    "TB.RESERVE",
    "TB.RESERVE",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.CREDIT",
    "TB.DEBIT",
    "TB.MACQUIRE",
    "TB.MACQUIRE",
];
const COSTS: [&str; 8] = ["0", "1", "0.1", "2.5", "10", "0.000001", "1e-12", "999999"];

/// 20,000 calls of all six commands on a few keys, with the clock moving both
/// ways between them.
#[test]
fn random_calls_answer_as_the_model() {
    let server = held();
    let mut client = server.raw();
    let mut model = SpecStore::new();
    let mut random = Random::new(0x5eed);
    let mut now = START;
    let mut live = 0;
    let mut allowed: HashMap<&str, [u32; 2]> = HashMap::new();
    for call in 0..CALLS {
        // Mostly small steps forward, sometimes a long one, seldom one back.
        if random.below(4) == 0 {
            let step = match random.below(20) {
                0 => -random.below(3_000_000),
                1 => -random.below(86_400_000_000),
                2 => random.below(86_400_000_000 * 3),
                3..=9 => random.below(10_000_000),
                _ => random.below(5_000),
            };
            if step < 0 {
                // The server drops an expired key when it likes; before a step back
                // it has to be gone on both sides.
                client.text(&[&["EXISTS"], &KEYS[..]].concat());
                model.expire(now);
            }
            now += step;
            // In the millisecond of its expiry, by which it is full, some servers have
            // a key still and some have none.
            while KEYS
                .iter()
                .any(|key| model.expires_at_ms(key.as_bytes()) == Some(now.div_euclid(1000)))
            {
                now += 1000;
            }
            server.hold(now);
        }
        let name = random.pick(&NAMES);
        let mut keys = vec![random.pick(&KEYS)];
        if name == "TB.MACQUIRE" {
            let first = keys[0];
            let others = KEYS.iter().filter(|key| **key != first);
            keys.extend(others.filter(|_| random.below(3) == 0));
        }
        let mut line = vec![name.to_string()];
        for key in &keys {
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
            line.extend([key, capacity, rate, cost].map(str::to_string));
        }
        if name == "TB.RESERVE" {
            line.push(random.pick(&WAITS).to_string());
        }
        let place = format!("call {call} at {now}: {}", line.join(" "));

        let bytes: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
        let reply = client.call(&bytes).integers();
        let want = model.call(&bytes, now).unwrap().integers();
        assert_eq!(reply, want, "{place}");
        allowed.entry(name).or_default()[reply[0] as usize] += 1;

        for key in keys {
            let bytes = stored(&mut client, key);
            let want = model.stored(key.as_bytes()).map(|bytes| bytes.to_vec());
            if bytes.is_some() {
                assert_eq!(bytes, want, "{place}: stored");
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
                    "{place}: {key} is missing, which lives until {expiry:?} ms"
                );
            }
        }
    }
    // A sweep that only ever met full or empty buckets would show nothing.
    assert!(live > CALLS / 2, "a bucket was there in {live} calls only");
    for (name, [no, yes]) in allowed {
        assert!(yes > 300, "{name} was allowed {yes} times");
        assert!(
            no > 300 || ["TB.CREDIT", "TB.DEBIT"].contains(&name),
            "{name} was denied {no} times"
        );
    }
}
