//! Bytes on the wire that are no calls.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tokenbucket_testkit::{Random, Server};

use super::{assert_unharmed, builder, held};

/// A whole call, which changes nothing.
const CALL: &[u8] = b"*5\r\n$7\r\nTB.PEEK\r\n$1\r\nk\r\n$2\r\n10\r\n$3\r\n1/d\r\n$1\r\n1\r\n";

/// Sends bytes on a connection of their own, and gives what the server answers until
/// it has done with them. It may close the connection before it has read them all.
fn send(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    answer
}

/// Every byte string is sent before a whole call, behind one, and between two. The
/// connection may end, the server and its bucket do not.
fn assert_nothing_happens(garbage: &[Vec<u8>]) {
    let server = builder().start();
    let pid = server.pid();
    let mut client = server.raw();
    client.ask("TB.DEBIT k 10 1/d 4");
    let before = held(&mut client, b"k");
    let mut answered = 0;
    for bytes in garbage {
        let place = || bytes[..bytes.len().min(100)].escape_ascii().to_string();
        send(&server, &[bytes, CALL].concat());
        for last in [&b""[..], CALL] {
            let answer = send(&server, &[CALL, bytes, last].concat());
            // A reset connection may lose it.
            if !answer.is_empty() {
                assert!(answer.starts_with(b"*4\r\n:1\r\n:5\r\n"), "{}", place());
                answered += 1;
            }
        }
        assert_eq!(held(&mut client, b"k"), before, "{}", place());
    }
    assert!(answered > garbage.len(), "{answered} calls answered");
    assert_eq!(client.ask("TB.PEEK k 10 1/d 0")[..2], [1, 6]);
    assert_unharmed(&server, pid);
    println!(
        "{} times bytes that are no call, {answered} calls before them answered",
        3 * garbage.len()
    );
}

/// A call with another byte, with anything in it, or cut off; and anything at all.
#[test]
fn damaged_calls() {
    let mut random = Random::new(0x9a5ba9e);
    let garbage: Vec<Vec<u8>> = (0..400)
        .map(|number| {
            let mut bytes = CALL.to_vec();
            let at = random.below(bytes.len() as i64) as usize;
            let length = random.below(64) as usize;
            match number % 4 {
                0 => bytes[at] = random.bytes(1)[0],
                1 => drop(bytes.splice(at..at, random.bytes(length))),
                2 => bytes.truncate(at),
                _ => bytes = random.bytes(length),
            }
            bytes
        })
        .collect();
    assert_nothing_happens(&garbage);
}

/// Counts and lengths that nothing has, lines without an end, and words that are
/// calls of other protocols.
#[test]
fn counts_and_lengths_that_nothing_has() {
    let mut garbage = Vec::new();
    for number in [
        "-1",
        "0",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "2147483647",
        "4294967296",
        "1e3",
        "",
        "\0",
    ] {
        garbage.push(format!("*{number}\r\n"));
        garbage.push(format!("*1\r\n${number}\r\nTB.PEEK\r\n"));
        garbage.push(format!("*5\r\n$10\r\nTB.ACQUIRE\r\n${number}\r\nk\r\n"));
        garbage.push(format!("*{number}\r\n$11\r\nTB.MACQUIRE\r\n"));
    }
    garbage.push("*1\r\n".repeat(10_000));
    garbage.push("TB.ACQUIRE ".repeat(10_000));
    garbage.push(format!("TB.ACQUIRE {}", "k".repeat(1 << 20)));
    garbage.push("TB.ACQUIRE \"k 10 1/d 1\r\n".to_owned());
    garbage.push("TB.ACQUIRE k 10 1/d\r\n".to_owned());
    garbage.push("GET /TB.ACQUIRE HTTP/1.1\r\nHost: k\r\n\r\n".to_owned());
    garbage.push("~1\r\n%1\r\n#t\r\n,1.5\r\n_\r\n".to_owned());
    let garbage: Vec<Vec<u8>> = garbage.into_iter().map(String::into_bytes).collect();
    assert_nothing_happens(&garbage);
}
