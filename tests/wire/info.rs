//! `INFO tokenbucket`: what is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use tokenbucket_testkit::{panic_module_path, Server};

use crate::held;

/// The counters that are not zero.
fn counters(server: &Server) -> BTreeMap<String, u64> {
    let mut info = server.info("tokenbucket");
    let version = info.remove("tokenbucket_version");
    assert_eq!(version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(info.len(), 19, "{info:?}");
    info.into_iter()
        .map(|(name, value)| {
            let name = name.strip_prefix("tokenbucket_").unwrap().to_string();
            (name, value.parse().unwrap())
        })
        .filter(|(_, value)| *value > 0)
        .collect()
}

#[test]
fn every_kind_of_call_is_counted_once() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(counters(&server), BTreeMap::new());
    client.text(&["SET", "text", "hello"]);
    for (times, call) in [
        (2, "TB.ACQUIRE k 10 1 5"),
        (3, "TB.ACQUIRE k 10 1 5"),
        (4, "TB.ACQUIRE k 10 1 11"),
        (5, "TB.PEEK k 10 1 0"),
        (6, "TB.PEEK k 10 1 1"),
        (7, "TB.PEEK k 10 1 11"),
        (1, "TB.RESERVE k 10 1 1 1000"),
        (8, "TB.RESERVE k 10 1 1 1000"),
        (9, "TB.RESERVE k 10 1 11 1000"),
        (10, "TB.CREDIT k 10 1 0"),
        (11, "TB.DEBIT k 10 1 1"),
        (12, "TB.MACQUIRE l 100 1 1 m 100 1 1"),
        (13, "TB.MACQUIRE k 100 1 1 m 100 1 1"),
        (14, "TB.MACQUIRE k 100 1 1 m 1 1 2"),
        (15, "TB.ACQUIRE text 10 1 1"),
        (1, "TB.PEEK text 10 1"),
        (16, "TB.ACQUIRE k x 1 1"),
        (1, "TB.RESERVE k 10 1 1 x"),
        (1, "TB.MACQUIRE k 10 1 1 k 10 1 1"),
        // The server's own: a wrong number of arguments.
        (17, "TB.ACQUIRE k"),
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        for _ in 0..times {
            client.text(&words);
        }
    }
    let want = [
        ("acquire_allowed", 2),
        ("acquire_denied", 3),
        ("acquire_never", 4),
        ("peek_allowed", 5),
        ("peek_denied", 6),
        ("peek_never", 7),
        ("reserve_allowed", 1),
        ("reserve_denied", 8),
        ("reserve_never", 9),
        ("credits", 10),
        ("debits", 11),
        ("macquire_allowed", 12),
        ("macquire_denied", 13),
        ("macquire_never", 14),
        ("refused", 3 + 4 + 8 + 9 + 13 + 14),
        ("wrong_type_errors", 16),
        ("argument_errors", 18),
    ];
    let want: BTreeMap<String, u64> = want
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect();
    assert_eq!(counters(&server), want);
}

/// A clock set back is met once for each bucket that is written.
#[test]
fn clock_steps() {
    let server = held();
    let mut client = server.raw();
    for key in ["a", "b"] {
        client.tb(&["TB.ACQUIRE", key, "10", "1", "10"]).unwrap();
    }
    server.step_back(Duration::from_secs(10));
    for key in ["a", "b", "a", "b"] {
        client.tb(&["TB.PEEK", key, "10", "1"]).unwrap();
        client.tb(&["TB.ACQUIRE", key, "10", "1", "1"]).unwrap();
    }
    assert_eq!(counters(&server)["clock_steps"], 2);
}

#[test]
fn panics() {
    let server = Server::builder().module(panic_module_path()).start();
    let mut client = server.raw();
    for _ in 0..3 {
        client.text(&["TB.PANIC", "k", "message"]);
    }
    assert_eq!(
        counters(&server),
        BTreeMap::from([("panics".to_string(), 3)])
    );
}

/// The section is there in INFO for modules and for everything, and a module that
/// is loaded again counts from zero.
#[test]
fn sections_and_reload() {
    let server = Server::builder()
        .module(tokenbucket_testkit::module_path())
        .module_commands()
        .start();
    let mut client = server.raw();
    client.tb(&["TB.PEEK", "k", "10", "1"]).unwrap();
    for section in ["modules", "everything", "tokenbucket"] {
        let info = server.info(section);
        assert_eq!(info["tokenbucket_peek_allowed"], "1", "INFO {section}");
    }
    // What the server resets is its own.
    client.text(&["CONFIG", "RESETSTAT"]);
    assert_eq!(server.info("tokenbucket")["tokenbucket_peek_allowed"], "1");
    // Not in INFO alone: it costs those who scrape nothing.
    assert!(!server
        .info("default")
        .contains_key("tokenbucket_peek_allowed"));
    let path = tokenbucket_testkit::module_path();
    client.text(&["MODULE", "UNLOAD", "tokenbucket"]);
    assert!(!server.info("modules").contains_key("tokenbucket_version"));
    client.text(&["MODULE", "LOAD", path.to_str().unwrap()]);
    assert_eq!(counters(&server), BTreeMap::new());
}
