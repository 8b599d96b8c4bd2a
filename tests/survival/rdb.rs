//! Snapshots: saved, loaded, with the module and without it.

use std::path::Path;
use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, Caller, Reply, Server, ServerBuilder, MIXED};

use crate::START;

/// Each command that writes, on a bucket that has missed tokens before, with the
/// number of buckets it changes.
const WRITES: [(&str, i64); 5] = [
    ("TB.ACQUIRE a 10 1/h 1", 1),
    ("TB.RESERVE a 10 1/h 10 999999999", 1),
    ("TB.CREDIT a 10 1/h 2", 1),
    ("TB.DEBIT a 10 1/h 3", 1),
    ("TB.MACQUIRE b 10 1/h 1 c 10 1/h 0 d 10 1/h 1", 2),
];

fn words(call: &str) -> Vec<&str> {
    call.split(' ').collect()
}

fn unsaved(server: &Server) -> i64 {
    let info = server.info("persistence");
    info["rdb_changes_since_last_save"].parse().unwrap()
}

/// A server in a folder that is kept, its clock held at `now_us`.
fn in_folder(folder: &Path, now_us: i64) -> ServerBuilder {
    Server::builder().held_clock(now_us).dir(folder)
}

/// E01: each command that writes is counted as a change to be saved, one for each
/// bucket that it changed.
#[test]
fn every_write_is_counted() {
    let server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .start();
    let mut client = server.raw();
    for (call, changed) in WRITES {
        let before = unsaved(&server);
        assert_eq!(client.text(&words(call)).error(), None, "{call}");
        assert_eq!(unsaved(&server) - before, changed, "{call}");
    }
}

/// E01: a `save` rule is set off by our writes alone, and what it saved is there,
/// with the same expiry, after the server was killed.
#[test]
fn a_save_rule_is_set_off() {
    let mut server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .config("save", "1 1")
        .start();
    for (number, (call, _)) in WRITES.into_iter().enumerate() {
        assert_eq!(server.raw().text(&words(call)).error(), None, "{call}");
        // The rule goes by the wall clock.
        server.advance(Duration::from_secs(2));
        wait_for("the rule to save", Duration::from_secs(30), || {
            server.background_saves() > number && unsaved(&server) == 0
        });
        let before = server.keys();
        server.restart();
        assert_eq!(server.keys(), before, "{call}");
    }
    assert_eq!(server.keys().len(), 3);
}

/// E11: SAVE, BGSAVE and DEBUG RELOAD give back the very bytes and expiries, of keys
/// of any bytes and buckets of all commands, and the buckets go on from there.
#[test]
fn saved_and_loaded() {
    let mut server = Server::builder()
        .module(module_path())
        .held_clock(START)
        .debug_commands()
        .start();
    let mut caller = Caller::new(1, MIXED);
    for round in 0..12 {
        caller.run(&server, 300);
        let before = server.keys();
        assert!(before.len() > 10, "only {} keys", before.len());
        let ok = Reply::Simple("OK".into());
        match round % 3 {
            0 => assert_eq!(server.raw().text(&["SAVE"]), ok),
            1 => server.bgsave(),
            _ => assert_eq!(server.raw().text(&["DEBUG", "RELOAD"]), ok),
        }
        if round % 3 < 2 {
            server.restart();
        }
        assert_eq!(server.keys(), before, "round {round}");
        caller.assert_acknowledged(&server);
        server.advance(Duration::from_micros(1_234_567));
    }
}

/// A snapshot loads where the module is not: the same bytes, the same expiries. Saved
/// there and brought back, the buckets go on as if they had never been away.
#[test]
fn loaded_without_the_module_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let with_module = |now_us| in_folder(folder.path(), now_us).module(module_path());
    let server = with_module(START).start();
    let mut caller = Caller::new(2, MIXED);
    caller.run(&server, 1_000);
    let before = server.keys();
    server.raw().text(&["SAVE"]);
    drop(server);

    let without = in_folder(folder.path(), START).start();
    let unknown = without.raw().text(&["TB.PEEK", "k", "10", "1"]);
    assert!(unknown
        .error()
        .is_some_and(|text| text.contains("unknown command")));
    assert_eq!(without.keys(), before);
    without.raw().text(&["SAVE"]);
    drop(without);

    // A minute has passed meanwhile.
    let server = with_module(START + 60_000_000).start();
    caller.assert_acknowledged(&server);
    let alive = server.keys();
    assert!(
        (1..before.len()).contains(&alive.len()),
        "some have expired"
    );
    caller.run(&server, 1_000);
    caller.assert_acknowledged(&server);
}
