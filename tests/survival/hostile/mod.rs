//! Every value, every byte and every argument that is no bucket.

mod arguments;
mod bytes;
mod moved;
mod protocol;
mod types;

use tokenbucket_testkit::{module_path, other_module_path, RawClient, Server, ServerBuilder};

use crate::START;

const WRONGTYPE: &str = "WRONGTYPE the key holds a value that is not a token bucket";

fn builder() -> ServerBuilder {
    Server::builder()
        .module(module_path())
        .config("loadmodule", other_module_path().to_str().unwrap())
        .held_clock(START)
}

fn split(call: &str) -> Vec<&[u8]> {
    call.split(' ').map(str::as_bytes).collect()
}

/// A call of each of the six commands on `key`, which would be allowed on a full
/// bucket.
fn six(key: &[u8]) -> [Vec<&[u8]>; 6] {
    [
        ("TB.ACQUIRE", "10 1 1"),
        ("TB.PEEK", "10 1 1"),
        ("TB.RESERVE", "10 1 1 20000"),
        ("TB.CREDIT", "10 1 1"),
        ("TB.DEBIT", "10 1 1"),
        ("TB.MACQUIRE", "10 1 1"),
    ]
    .map(|(name, numbers)| [&[name.as_bytes(), key][..], &split(numbers)].concat())
}

/// The server is the very process that was started, has answered and logged no crash,
/// and the module has caught no panic.
#[track_caller]
fn assert_unharmed(server: &Server, pid: u32) {
    assert_eq!(server.pid(), pid);
    let info = server.info("server");
    assert_eq!(info["process_id"], pid.to_string());
    assert_eq!(server.info("tokenbucket")["tokenbucket_panics"], "0");
    let log = server.log();
    for trace in [
        "crashed by",
        "BUG REPORT",
        "internal error",
        "=== ASSERTION",
    ] {
        assert!(!log.contains(trace), "{log}");
    }
}

/// What DUMP gives, and the expiry in milliseconds from now.
fn held(client: &mut RawClient, key: &[u8]) -> (Option<Vec<u8>>, i64) {
    let dump = client.call(&[b"DUMP", key]).bytes();
    (dump, client.call(&[b"PTTL", key]).integer())
}
