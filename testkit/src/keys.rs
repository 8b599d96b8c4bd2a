//! Everything a server holds, to be compared.

use std::collections::BTreeMap;

use crate::{RawClient, Reply, Server};

/// The bytes at each key, and its absolute expiry in milliseconds since 1970 (-1
/// for none).
pub type Keys = BTreeMap<Vec<u8>, (Vec<u8>, i64)>;

impl Server {
    /// All keys of database 0 that have not expired by the server's own clock.
    /// Before Redis 7.0, which has no PEXPIRETIME, the expiries are only right
    /// while the clock stands still.
    ///
    /// # Panics
    ///
    /// When a key holds anything but a string.
    #[track_caller]
    pub fn keys(&self) -> Keys {
        let mut client = self.raw();
        let names = names(&mut client);
        let (asked, since_ms) = match self.version() {
            (..7, ..) => (&b"PTTL"[..], self.time_us().div_euclid(1_000)),
            _ => (&b"PEXPIRETIME"[..], 0),
        };
        let questions: Vec<_> = names
            .iter()
            .flat_map(|name| [b"GET", asked].map(|word| vec![word.to_vec(), name.clone()]))
            .collect();
        let mut replies = client.pipeline(&questions).into_iter();
        let mut keys = Keys::new();
        for name in names {
            let mut next = || replies.next().expect("a reply to each question");
            let (bytes, expiry) = (next().bytes(), next().integer());
            // One that expired in between has no bytes, or no expiry any more.
            if let (Some(bytes), -1..) = (bytes, expiry) {
                let expiry = if expiry < 0 {
                    expiry
                } else {
                    since_ms + expiry
                };
                keys.insert(name, (bytes, expiry));
            }
        }
        keys
    }
}

/// What SCAN finds, each name once.
#[track_caller]
fn names(client: &mut RawClient) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply = client.call(&[b"SCAN", &cursor, b"COUNT", b"1000"]);
        let Reply::Array(Some(parts)) = reply else {
            panic!("no answer to SCAN: {reply:?}");
        };
        let [next, Reply::Array(Some(found))] = &parts[..] else {
            panic!("not an answer to SCAN: {parts:?}");
        };
        let bytes = |reply: &Reply| reply.clone().bytes().expect("SCAN answers strings");
        names.extend(found.iter().map(bytes));
        cursor = bytes(next);
        if cursor == b"0" {
            names.sort();
            names.dedup();
            return names;
        }
    }
}
