//! Buckets that are dumped, restored, copied, renamed and moved.

use tokenbucket_testkit::{module_path, RawClient, Reply, Server};

use super::{assert_unharmed, builder, held, six, split, WRONGTYPE};

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

/// What RESTORE makes of a damaged payload, all six commands either refuse or answer.
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
                assert!((0..=1).contains(&integers[0]), "{integers:?}");
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

/// The same bytes and the same expiry, whichever way a bucket goes, and it goes on
/// where it is.
#[test]
fn a_bucket_goes_on() {
    let server = builder().start();
    let pid = server.pid();
    let with = Server::builder()
        .module(module_path())
        .clock_of(&server)
        .start();
    let without = Server::builder().clock_of(&server).start();
    let mut client = server.raw();
    let made = |client: &mut RawClient| {
        client.text(&["FLUSHALL"]);
        assert_eq!(client.ask("TB.ACQUIRE k 10 1/h 4"), [1, 6, 0, 14_400_000]);
        held(client, b"k")
    };
    let goes_on = |client: &mut RawClient, key: &str| {
        let reply = client.ask(&format!("TB.ACQUIRE {key} 10 1/h 1"));
        assert_eq!(reply, [1, 5, 0, 18_000_000], "{key}");
    };

    for way in ["COPY k l", "RENAME k l", "COPY k l REPLACE"] {
        let before = made(&mut client);
        assert_eq!(client.call(&split(way)).error(), None, "{way}");
        assert_eq!(held(&mut client, b"l"), before, "{way}");
        goes_on(&mut client, "l");
        if way.starts_with("COPY") {
            // Two buckets from then on.
            assert_eq!(held(&mut client, b"k"), before);
        }
    }

    let before = made(&mut client);
    let payload = before.0.clone().unwrap();
    let ttl = before.1.to_string();
    client.call(&[b"RESTORE", b"l", ttl.as_bytes(), &payload]);
    assert_eq!(held(&mut client, b"l"), before);
    goes_on(&mut client, "l");
    // Without its expiry it is the same bucket, which gets the expiry back.
    client.call(&[b"RESTORE", b"m", b"0", &payload]);
    assert_eq!(held(&mut client, b"m").1, -1);
    goes_on(&mut client, "m");
    assert_eq!(held(&mut client, b"m").1, 18_000_000);

    for other in [&with, &without] {
        let before = made(&mut client);
        let port = other.port().to_string();
        let there = split("MIGRATE 127.0.0.1");
        let call = [&there[..], &[port.as_bytes()], &split("k 0 10000")].concat();
        assert_eq!(client.call(&call).error(), None);
        assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
        let mut there = other.raw();
        let now = held(&mut there, b"k");
        // Payloads of two releases may differ in their last ten bytes.
        assert_eq!(now, before);
        if other.port() == with.port() {
            goes_on(&mut there, "k");
        } else {
            // And back again.
            let port = server.port().to_string();
            let back = split("MIGRATE 127.0.0.1");
            let call = [&back[..], &[port.as_bytes()], &split("k 0 10000")].concat();
            assert_eq!(there.call(&call).error(), None);
            assert_eq!(held(&mut client, b"k"), before);
            goes_on(&mut client, "k");
        }
    }
    assert_unharmed(&server, pid);
}
