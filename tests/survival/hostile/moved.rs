//! Buckets that are dumped, restored, copied, renamed and moved.

use tokenbucket_testkit::model::{SpecBucket, SpecStore};
use tokenbucket_testkit::{module_path, RawClient, Reply, Server};

use super::{assert_unharmed, builder, held, six, split, WRONGTYPE};
use crate::START;

/// The checksum of a DUMP payload: CRC-64 with the polynomial of Jones, as Redis
/// documents it, reflected, from zero.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

/// Replaces the checksum by the right one.
fn resealed(mut payload: Vec<u8>) -> Vec<u8> {
    let end = payload.len() - 8;
    let sum = crc64(&payload[..end]);
    payload[end..].copy_from_slice(&sum.to_le_bytes());
    payload
}

/// What RESTORE makes of a damaged payload, all six commands refuse or answer within
/// their bounds, and no expiry is later than the bucket is full. Gives whether RESTORE
/// took it.
#[track_caller]
fn restore(client: &mut RawClient, payload: &[u8]) -> bool {
    client.text(&["DEL", "k"]);
    if let Some(error) = client.call(&[b"RESTORE", b"k", b"0", payload]).error() {
        assert!(error.starts_with("ERR "), "{error}");
        return false;
    }
    for call in six(b"k") {
        match client.call(&call) {
            Reply::Error(error) => assert_eq!(error, WRONGTYPE),
            reply => {
                let integers = reply.integers();
                let [.., allowed, remaining, retry_after_ms, reset_after_ms] = integers[..] else {
                    panic!("{integers:?}");
                };
                assert!((0..=1).contains(&allowed), "{integers:?}");
                assert!((0..=10).contains(&remaining), "{integers:?}");
                assert!(retry_after_ms >= 0 && reset_after_ms >= 0, "{integers:?}");
                let ttl = client.text(&["PTTL", "k"]).integer();
                assert!(ttl <= reset_after_ms, "{ttl} and {integers:?}");
            }
        }
    }
    true
}

/// A payload that is cut anywhere or has a bit flipped is refused by its checksum; with
/// the checksum made right it is refused by the server or is some value, which the
/// commands take as any other.
#[test]
fn damaged_payloads() {
    let server = builder().config("sanitize-dump-payload", "yes").start();
    let pid = server.pid();
    let mut client = server.raw();
    client.ask("TB.ACQUIRE b 10 1 2.718281828459");
    let payload = client.text(&["DUMP", "b"]).bytes().unwrap();
    assert_eq!(resealed(payload.clone()), payload);
    let (mut tried, mut values) = (0, 0);
    for length in 0..payload.len() {
        let cut = payload[..length].to_vec();
        assert!(!restore(&mut client, &cut), "{length} bytes");
        tried += 1;
        // Version and checksum are the last ten bytes.
        if length >= 10 {
            let version = payload.len() - 10;
            let end = [&payload[..length - 10], &payload[version..]].concat();
            values += u32::from(restore(&mut client, &resealed(end)));
            tried += 1;
        }
    }
    for bit in 0..payload.len() * 8 {
        let mut flipped = payload.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!restore(&mut client, &flipped), "bit {bit}");
        values += u32::from(restore(&mut client, &resealed(flipped)));
        tried += 2;
    }
    assert!(values > 100, "{values}");
    assert_unharmed(&server, pid);
    println!("{tried} damaged payloads, {values} of them some value");
}

/// Calls all six commands on a bucket that was moved, which answer and store as the
/// model says of its bytes.
#[track_caller]
fn goes_on(client: &mut RawClient, key: &[u8]) {
    let bytes = client.call(&[b"GET", key]).bytes().unwrap();
    let expiry = match client.call(&[b"PTTL", key]).integer() {
        -1 => i64::MAX,
        ttl => START / 1000 + ttl,
    };
    let mut model = SpecStore::new();
    let bucket = SpecBucket::from_bytes(&bytes).unwrap();
    model.keys.insert(key.to_vec(), (bucket, expiry));
    for call in six(key) {
        let want = model.call(&call, START).unwrap();
        assert_eq!(client.call(&call).integers(), want.integers());
        assert!(want.integers()[0] == 1, "the bucket has tokens");
    }
    let stored = client.call(&[b"GET", key]).bytes();
    assert_eq!(stored, model.stored(key).map(|bytes| bytes.to_vec()));
    let expiry = START / 1000 + client.call(&[b"PTTL", key]).integer();
    assert_eq!(Some(expiry), model.expires_at_ms(key));
}

/// Makes a bucket at `k`, the only key there is, and gives what is held.
fn made(client: &mut RawClient) -> (Option<Vec<u8>>, i64) {
    client.text(&["FLUSHALL"]);
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 4.5"), [1, 5, 0, 4_500]);
    held(client, b"k")
}

/// The same bytes and the same expiry in another key or another database, and the
/// bucket goes on there; a copy is a bucket of its own.
#[test]
fn moved_within_a_server() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    for way in ["COPY k l", "RENAME k l", "RENAMENX k l", "COPY k l REPLACE"] {
        let before = made(&mut client);
        assert_eq!(client.call(&split(way)).error(), None, "{way}");
        assert_eq!(held(&mut client, b"l"), before, "{way}");
        goes_on(&mut client, b"l");
        if way.starts_with("COPY") {
            assert_eq!(held(&mut client, b"k"), before, "{way}");
        }
    }
    for way in ["MOVE k 1", "SWAPDB 0 1", "COPY k k DB 1"] {
        let before = made(&mut client);
        assert_eq!(client.call(&split(way)).error(), None, "{way}");
        client.text(&["SELECT", "1"]);
        assert_eq!(held(&mut client, b"k"), before, "{way}");
        goes_on(&mut client, b"k");
        client.text(&["SELECT", "0"]);
    }
    assert_unharmed(&server, pid);
}

/// What DUMP gave is the same bucket after RESTORE, with an expiry or without one,
/// which the next write gives back.
#[test]
fn dumped_and_restored() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let before = made(&mut client);
    let payload = before.0.clone().unwrap();
    let ttl = before.1.to_string();
    let reply = client.call(&[b"RESTORE", b"l", ttl.as_bytes(), &payload]);
    assert_eq!(reply.error(), None);
    assert_eq!(held(&mut client, b"l"), before);
    goes_on(&mut client, b"l");
    let reply = client.call(&[b"RESTORE", b"m", b"0", &payload]);
    assert_eq!(reply.error(), None);
    assert_eq!(held(&mut client, b"m"), (Some(payload), -1));
    goes_on(&mut client, b"m");
    assert_unharmed(&server, pid);
}

/// MIGRATE of `k`, which is then there and no longer here.
#[track_caller]
fn migrate(here: &mut RawClient, there: &Server) {
    let port = there.port().to_string();
    let reply = here.text(&["MIGRATE", "127.0.0.1", &port, "k", "0", "10000"]);
    assert_eq!(reply.error(), None);
    assert_eq!(here.text(&["EXISTS", "k"]).integer(), 0);
}

/// The same bytes and the same expiry on another server, also after a stay on one
/// without the module; and the bucket goes on.
#[test]
fn migrated() {
    let server = builder().start();
    let pid = server.pid();
    let with = Server::builder()
        .module(module_path())
        .clock_of(&server)
        .start();
    let without = Server::builder().clock_of(&server).start();
    let mut client = server.raw();

    let before = made(&mut client);
    migrate(&mut client, &with);
    let mut there = with.raw();
    assert_eq!(held(&mut there, b"k"), before);
    goes_on(&mut there, b"k");
    assert_unharmed(&with, with.pid());

    let before = made(&mut client);
    migrate(&mut client, &without);
    let mut there = without.raw();
    assert_eq!(held(&mut there, b"k"), before);
    migrate(&mut there, &server);
    assert_eq!(held(&mut client, b"k"), before);
    goes_on(&mut client, b"k");
    assert_unharmed(&server, pid);
}
