//! Strings that may pass as a bucket.

use tokenbucket_testkit::model::{SpecBucket, SpecStore};
use tokenbucket_testkit::{Random, RawClient, Reply};

use super::{assert_unharmed, builder, held, six, WRONGTYPE};
use crate::START;

/// Longer than any bucket of these limits lives by itself.
const TTL_MS: i64 = 1_000_000_000;

/// Puts `bytes` at a key and calls each of the six commands on them, put there anew.
/// What does not pass as a bucket is refused and untouched. What does is answered, and
/// then stored with its expiry, as the model says. Gives how many calls were answered.
#[track_caller]
fn attack(client: &mut RawClient, bytes: &[u8], now_us: i64) -> u32 {
    let mut answered = 0;
    let expires_at_ms = now_us / 1000 + TTL_MS;
    for call in six(b"k") {
        client.call(&[b"SET", b"k", bytes, b"PX", TTL_MS.to_string().as_bytes()]);
        let before = held(client, b"k");
        let reply = client.call(&call);
        let place = || format!("{} on {}", call[0].escape_ascii(), bytes.escape_ascii());
        let Some(bucket) = SpecBucket::from_bytes(bytes) else {
            assert_eq!(reply, Reply::Error(WRONGTYPE.into()), "{}", place());
            assert_eq!(held(client, b"k"), before, "{}", place());
            continue;
        };
        let mut model = SpecStore::new();
        model.keys.insert(b"k".to_vec(), (bucket, expires_at_ms));
        let want = model.call(&call, now_us).unwrap();
        assert_eq!(reply.integers(), want.integers(), "{}", place());
        let stored = client.text(&["GET", "k"]).bytes();
        let want = model.stored(b"k").map(|bytes| bytes.to_vec());
        assert_eq!(stored, want, "{}", place());
        if stored.is_some() {
            let expiry = now_us / 1000 + client.text(&["PTTL", "k"]).integer();
            assert_eq!(Some(expiry), model.expires_at_ms(b"k"), "{}", place());
        }
        answered += 1;
    }
    answered
}

/// Random bytes of every length from 0 to 64.
#[test]
fn every_length() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let mut random = Random::new(0xb17e5);
    let mut tried = 0;
    for length in 0..=64 {
        for _ in 0..20 {
            let mut bytes = random.bytes(length);
            assert_eq!(attack(&mut client, &bytes, START) > 0, is_bucket(&bytes));
            // With what the first byte of a bucket says.
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x0f | 0x90;
            }
            assert_eq!(attack(&mut client, &bytes, START) > 0, length == 20);
            tried += 12;
        }
    }
    assert_unharmed(&server, pid);
    println!("{tried} calls on random bytes of 65 lengths");
}

fn is_bucket(bytes: &[u8]) -> bool {
    SpecBucket::from_bytes(bytes).is_some()
}

/// Twenty random bytes that pass as a bucket: any level, any stamp.
#[test]
fn any_level_and_any_stamp() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let mut random = Random::new(0x57a3b);
    let mut answered = 0;
    for _ in 0..1_000 {
        let mut bytes = random.bytes(20);
        bytes[0] = bytes[0] & 0x0f | 0x90;
        // Half of them with a level near those of real buckets.
        if random.below(2) == 0 {
            bytes[7..12].fill([0, 0xff][random.below(2) as usize]);
        }
        answered += attack(&mut client, &bytes, START);
    }
    assert_eq!(answered, 6_000);
    assert_unharmed(&server, pid);
    println!("{answered} calls on made-up buckets, each answered as the model says");
}

/// Each bit of real buckets flipped: with tokens, with a fraction, empty, in debt.
#[test]
fn every_bit() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let (mut tried, mut answered) = (0, 0);
    for taken in ["1", "2.718281828459", "10", "25"] {
        client.ask(&format!("TB.DEBIT k 10 1 {taken}"));
        let bytes = client.text(&["GET", "k"]).bytes().unwrap();
        client.text(&["DEL", "k"]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            tried += 6;
            answered += attack(&mut client, &flipped, START);
        }
    }
    // Two bits of tag and two of the version.
    assert_eq!(tried - answered, 4 * 4 * 6);
    assert_unharmed(&server, pid);
    println!("{tried} calls on buckets with a bit flipped, {answered} answered as the model says");
}
