//! Keys and arguments of any bytes, and any number of them.

use tokenbucket_testkit::model::SpecStore;
use tokenbucket_testkit::Random;

use super::{assert_unharmed, builder, six};
use crate::START;

/// Keys of any bytes, the empty one and one of a mebibyte, for all six commands: kept
/// as they are.
#[test]
fn any_key() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let mut random = Random::new(0x4e75);
    let mut keys: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        b"\r\n".to_vec(),
        b"\xff\x00\xfe".to_vec(),
        b"{}".to_vec(),
        b"%s%n%x".to_vec(),
        vec![b'k'; 1 << 20],
        random.bytes(1 << 20),
    ];
    keys.extend((0..200).map(|length| random.bytes(length)));
    keys.sort();
    keys.dedup();
    for key in &keys {
        let mut model = SpecStore::new();
        for call in six(key) {
            let want = model.call(&call, START).unwrap();
            assert_eq!(client.call(&call).integers(), want.integers());
        }
        let stored = client.call(&[b"GET", key]).bytes().unwrap();
        assert_eq!(stored, model.stored(key).unwrap());
        assert_eq!(client.call(&[b"DEL", key]).integer(), 1);
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
    assert_unharmed(&server, pid);
    println!("{} keys of any bytes, up to a mebibyte", keys.len());
}

/// A word that may stand for a number: one, nearly one, or none at all.
fn word(random: &mut Random) -> Vec<u8> {
    const GOOD: [&str; 10] = [
        "0", "1", "2.5", "1e3", "1E-5", "100/m", "1/10s", "1e12", ".5", "1e-12",
    ];
    let mut word = random.pick(&GOOD).as_bytes().to_vec();
    match random.below(8) {
        0..=3 => {}
        4 => {
            let at = random.below(word.len() as i64) as usize;
            word[at] = random.bytes(1)[0];
        }
        5 => {
            let at = random.below(word.len() as i64 + 1) as usize;
            let length = 1 + random.below(70) as usize;
            let digits = vec![b"0123456789./e-"[random.below(14) as usize]; length];
            word.splice(at..at, digits);
        }
        6 => {
            let length = random.below(100) as usize;
            word = random.bytes(length);
        }
        _ => {
            let length = 1 << random.below(14);
            word = vec![b"09\0 \xff"[random.below(5) as usize]; length];
        }
    }
    word
}

/// Calls of any number of any words: the server answers what the model does, an error
/// where the model has one, and then nothing has changed.
#[test]
fn any_arguments() {
    const NAMES: [&str; 6] = [
        "TB.ACQUIRE",
        "TB.PEEK",
        "TB.RESERVE",
        "TB.CREDIT",
        "TB.DEBIT",
        "TB.MACQUIRE",
    ];
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let mut random = Random::new(0xa265);
    let mut model = SpecStore::new();
    let (mut errors, mut answers) = (0, 0);
    for _ in 0..20_000 {
        let mut call = vec![random.pick(&NAMES).as_bytes().to_vec()];
        let count = match random.below(4) {
            0 => random.below(14),
            1 => 5,
            _ => 4,
        };
        for at in 0..count {
            call.push(match at % 4 {
                0 if call[0] != b"TB.RESERVE" || at == 0 => vec![b'a' + random.below(4) as u8],
                _ => word(&mut random),
            });
        }
        let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let reply = client.call(&words);
        let place = words
            .iter()
            .map(|word| word.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join(" ");
        match model.call(&words, START) {
            Ok(want) => {
                assert_eq!(reply.integers(), want.integers(), "{place}");
                answers += 1;
            }
            Err(_) => {
                let error = reply.error().unwrap_or_else(|| panic!("no error: {place}"));
                assert!(error.starts_with("ERR "), "{place}: {error}");
                errors += 1;
            }
        }
        for key in ["a", "b", "c", "d"] {
            let stored = client.text(&["GET", key]).bytes();
            let want = model.stored(key.as_bytes()).map(|bytes| bytes.to_vec());
            assert_eq!(stored, want, "{key} after {place}");
        }
    }
    assert!(errors > 5_000 && answers > 500, "{errors} and {answers}");
    assert_unharmed(&server, pid);
    println!("{errors} calls of bad arguments, {answers} of good ones among them");
}

/// So many arguments that no call has them: refused, whatever they are.
#[test]
fn too_many_arguments() {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    let keys: Vec<String> = (0..10_000).map(|number| format!("k{number}")).collect();
    for buckets in [65, 66, 1_000, 10_000] {
        let mut call = vec!["TB.MACQUIRE"];
        for key in &keys[..buckets] {
            call.extend([key, "10", "1", "1"]);
        }
        let error = client.text(&call);
        assert_eq!(
            error.error(),
            Some("ERR too many buckets: at most 64 in a call")
        );
    }
    let mut tried = 4;
    for call in six(b"k") {
        // Never whole buckets.
        for more in [1, 2, 3, 5, 10_001] {
            let call = [&call[..], &vec![&b"1"[..]; more]].concat();
            let reply = client.call(&call);
            assert!(reply.error().is_some(), "{more} more: {reply:?}");
            tried += 1;
        }
    }
    assert_eq!(client.text(&["DBSIZE"]).integer(), 0);
    assert_unharmed(&server, pid);
    println!("{tried} calls of too many arguments, up to 40,000");
}
