//! MODULE UNLOAD and LOAD under traffic.

use std::thread;
use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, RawClient, Reply, Server, Stop};

/// So much that no traffic of a test empties it, and so slow that nothing of it
/// flows back meanwhile: what is left tells what was taken.
const BUCKET: &str = "k 1000000000 1/36500d";
const FULL: i64 = 1_000_000_000;

fn server() -> Server {
    Server::builder()
        .module(module_path())
        .module_commands()
        .start()
}

fn unload(client: &mut RawClient) -> Result<(), String> {
    let reply = client.text(&["MODULE", "UNLOAD", "tokenbucket"]);
    reply.error().map_or(Ok(()), |error| Err(error.to_string()))
}

#[track_caller]
fn load(client: &mut RawClient) {
    let path = module_path();
    let reply = client.text(&["MODULE", "LOAD", path.to_str().unwrap()]);
    assert_eq!(reply, Reply::Simple("OK".into()));
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Tokens that a reply says were taken, one a call; `None` when the command is not
/// known at the moment. Anything else is wrong.
#[track_caller]
fn taken(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Integer(allowed) => Some(*allowed),
        Reply::Array(Some(items)) => taken(&items[0]),
        Reply::Error(error) => {
            let known = [
                "unknown command",
                "Unknown Redis command",
                "Unknown command",
            ];
            assert!(known.iter().any(|text| error.contains(text)), "{error}");
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Calls one after the other: plain, in a script, and in a transaction. Gives the
/// tokens taken and how many calls found no command.
fn traffic(server: &Server, stop: &Stop) -> (i64, u64) {
    let mut client = server.raw();
    let call = format!("TB.ACQUIRE {BUCKET} 1");
    let script = "return redis.call('TB.ACQUIRE', KEYS[1], ARGV[1], ARGV[2], 1)";
    let [key, capacity, rate] = words(BUCKET).try_into().unwrap();
    let (mut sum, mut unknown) = (0, 0);
    while !stop.is_requested() {
        let plain = client.text(&words(&call));
        let scripted = client.text(&["EVAL", script, "1", key, capacity, rate]);
        let transaction = match (client.text(&["MULTI"]), client.text(&words(&call))) {
            (_, Reply::Simple(queued)) if queued == "QUEUED" => {
                let Reply::Array(Some(mut replies)) = client.text(&["EXEC"]) else {
                    panic!("no reply of a transaction")
                };
                replies.remove(0)
            }
            (_, unknown) => {
                client.text(&["DISCARD"]);
                unknown
            }
        };
        for reply in [plain, scripted, transaction] {
            match taken(&reply) {
                Some(allowed) => sum += allowed,
                None => unknown += 1,
            }
        }
    }
    (sum, unknown)
}

/// A live upgrade: ten times out and in again while four clients call. They are told
/// that the command is unknown for as long as it is, the server goes on, and not one
/// token is lost or given twice.
#[test]
fn ten_times_under_traffic() {
    let server = server();
    let mut client = server.raw();
    let stop = Stop::new();
    let mut refused = 0;
    let results: Vec<(i64, u64)> = thread::scope(|scope| {
        let end = stop.at_end();
        let callers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| traffic(&server, &stop)))
            .collect();
        let mut calls = 0;
        for _ in 0..10 {
            let served =
                |client: &mut RawClient| FULL - client.ask(&format!("TB.PEEK {BUCKET} 0"))[1];
            wait_for("some traffic", Duration::from_secs(30), || {
                served(&mut client) >= calls + 100
            });
            calls = served(&mut client);
            // Refused while one of them is between MULTI and EXEC.
            wait_for(
                "a moment without transactions",
                Duration::from_secs(30),
                || match unload(&mut client) {
                    Ok(()) => true,
                    Err(error) => {
                        assert!(error.contains("operation not possible"), "{error}");
                        refused += 1;
                        false
                    }
                },
            );
            load(&mut client);
        }
        drop(end);
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    let allowed: i64 = results.iter().map(|(sum, _)| sum).sum();
    let unknown: u64 = results.iter().map(|(_, unknown)| unknown).sum();
    let left = client.ask(&format!("TB.PEEK {BUCKET} 0"))[1];
    assert_eq!(allowed + left, FULL, "tokens lost or given twice");
    assert!(allowed >= 1_000, "{allowed}");
    println!(
        "10 times unloaded and loaded under {allowed} calls: {unknown} found no command, \
         {refused} times refused during a transaction, 0 tokens lost"
    );
}

/// The server keeps what is queued in a transaction with a pointer to the command,
/// and frees that with the module: EXEC would stop every server there is. So the
/// module refuses to be unloaded then, with a word in the log.
#[test]
fn not_during_a_transaction() {
    let server = server();
    let (mut client, mut other) = (server.raw(), server.raw());
    let call = "TB.ACQUIRE k 10 1/d 1";
    for end in ["EXEC", "DISCARD", "close"] {
        let id = client.text(&["CLIENT", "ID"]).integer();
        client.text(&["MULTI"]);
        client.text(&words(call));
        let error = unload(&mut other).expect_err("it was unloaded");
        assert!(error.contains("operation not possible"), "{error}");
        let said = format!("not unloaded: client {id} has a transaction open (MULTI)");
        assert!(server.log().contains(&said), "{}", server.log());
        // What is queued still runs.
        if end == "close" {
            client = server.raw();
            // The server may take a moment to see that the connection is gone.
            wait_for("the transaction to end", Duration::from_secs(30), || {
                unload(&mut other).is_ok()
            });
        } else {
            let reply = client.text(&[end]);
            assert_eq!(reply.error(), None, "{end}");
            assert_eq!(unload(&mut other), Ok(()), "{end}");
        }
        assert_eq!(taken(&client.text(&words(call))), None, "{end}");
        load(&mut other);
    }
    // One EXEC took a token; all others came to nothing.
    assert_eq!(client.ask("TB.PEEK k 10 1/d 0")[1], 9);
    // The one who asks is in a transaction itself.
    client.text(&["MULTI"]);
    client.text(&words(call));
    client.text(&["MODULE", "UNLOAD", "tokenbucket"]);
    client.text(&words(call));
    let Reply::Array(Some(replies)) = client.text(&["EXEC"]) else {
        panic!("no reply of the transaction")
    };
    assert_eq!(taken(&replies[0]), Some(1));
    assert!(replies[1].error().is_some(), "{replies:?}");
    assert_eq!(taken(&replies[2]), Some(1));
}
