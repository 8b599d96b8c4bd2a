//! Replicas: what they are sent, hold and answer.

use std::time::Duration;

use tokenbucket_testkit::{
    installed_server, module_path, wait_for, Caller, RawClient, Reply, Server, ServerBuilder,
    Traffic, SLOW,
};

use crate::START;

const DEADLINE: Duration = Duration::from_secs(30);
const HOUR_US: i64 = 3_600_000_000;

fn builder() -> ServerBuilder {
    Server::builder()
        .module(module_path())
        .held_clock(START)
        .debug_commands()
}

/// A replica whose clock is `ahead_us` ahead of the primary's.
fn replica_of(primary: &Server, ahead_us: i64, module: bool) -> Server {
    let builder = Server::builder()
        .held_clock(START + ahead_us)
        .debug_commands()
        .replica_of(primary);
    let replica = match module {
        true => builder.module(module_path()).start(),
        false => builder.start(),
    };
    replica.wait_for_sync(primary);
    replica
}

fn words(call: &str) -> Vec<&str> {
    call.split(' ').collect()
}

/// Every key of both, by the server's own account and key by key with its expiry.
#[track_caller]
fn assert_alike(replica: &Server, primary: &Server) {
    replica.wait_for_sync(primary);
    let digest = |server: &Server| server.raw().text(&["DEBUG", "DIGEST"]);
    assert_eq!(digest(replica), digest(primary));
    assert_eq!(replica.keys(), primary.keys());
}

/// E02: a replica holds the very bytes and the very absolute expiry in each bucket,
/// though its clock is an hour off, and with the module or without.
#[test]
fn the_same_on_replicas_an_hour_off() {
    let primary = builder().start();
    let replicas: Vec<_> = [
        (HOUR_US, true),
        (-HOUR_US, true),
        (HOUR_US, false),
        (0, false),
    ]
    .map(|(ahead_us, module)| replica_of(&primary, ahead_us, module))
    .into();
    let mut caller = Caller::new(11, SLOW);
    for _ in 0..4 {
        caller.run(&primary, 500);
        caller.assert_acknowledged(&primary);
        for replica in &replicas {
            assert_alike(replica, &primary);
        }
        primary.advance(Duration::from_micros(1_234_567));
    }
}

/// What is sent is one SET or DEL for each bucket that a call has changed, and for
/// nothing else: not a byte for what is denied, only asks, takes nothing or is wrong,
/// by any of the six commands. Calls that meet a clock set back are no exception: they
/// change the bucket.
#[test]
fn the_stream_is_the_changes() {
    let primary = builder().start();
    let mut stream = primary.replication_stream();
    let mut client = primary.raw();
    let mut caller = Caller::new(12, SLOW);
    let (mut want, mut silent) = (Vec::new(), 0);
    for number in 0..2_000 {
        if number % 200 == 100 {
            primary.step_back(Duration::from_secs(11));
        }
        let now_us = primary.clock().now_us();
        let before = caller.keys(now_us);
        let call = caller.call(&mut client, now_us);
        let after = caller.keys(now_us);
        let sent = want.len();
        for key in call.iter().skip(1).step_by(4) {
            match (before.get(key), after.get(key)) {
                (before, after) if before == after => {}
                (_, Some((bytes, expiry))) => want.push(vec![
                    b"SET".to_vec(),
                    key.clone(),
                    bytes.clone(),
                    b"PXAT".to_vec(),
                    expiry.to_string().into_bytes(),
                ]),
                (_, None) => want.push(vec![b"DEL".to_vec(), key.clone()]),
            }
        }
        silent += u32::from(want.len() == sent);
    }
    client.text(&["SET", "end", "x"]);
    let mut sent = stream.until_set(b"end");
    sent.retain(|command| ![&b"MULTI"[..], b"EXEC"].contains(&command[0].as_slice()));
    assert_eq!(sent, want);
    assert!(silent > 500, "only {silent} calls had nothing to send");
    println!(
        "2000 calls: {} effects sent, {silent} calls sent nothing",
        want.len()
    );
}

/// The offset of the stream stands still for everything that leaves no trace, with a
/// replica attached, and moves with each write.
#[test]
fn denials_do_not_move_the_offset() {
    let primary = Server::builder()
        .module(module_path())
        .config("repl-ping-replica-period", "3600")
        .start();
    let replica = primary.start_replica();
    let mut client = primary.raw();
    client.ask("TB.ACQUIRE k 10 1/h 8");
    client.text(&["SET", "text", "x"]);
    let offset = || primary.info("replication")["master_repl_offset"].clone();
    let before = offset();
    for call in [
        "TB.ACQUIRE k 10 1/h 3",
        "TB.RESERVE k 10 1/h 3 1000",
        "TB.RESERVE k 10 1/h 11 1000",
        "TB.RESERVE k 10 1/h 0 1000",
        "TB.CREDIT k 10 1/h 0",
        "TB.CREDIT fresh 10 1/h 5",
        "TB.DEBIT k 10 1/h 0",
        "TB.MACQUIRE k 10 1/h 1 fresh 10 1/h 11",
        "TB.MACQUIRE k 10 1/h 0 fresh 10 1/h 0",
        "TB.MACQUIRE k 10 1/h 1 text 10 1/h 1",
        "TB.PEEK k 10 1/h 3",
        "TB.RESERVE k 10 1/h 1 -1",
        "TB.CREDIT text 10 1/h 1",
        "TB.DEBIT k 10 1/h x",
        "TB.MACQUIRE k 10 1/h",
    ] {
        client.text(&words(call));
        assert_eq!(offset(), before, "{call}");
    }
    let mut last = before;
    for call in [
        "TB.ACQUIRE k 10 1/h 1",
        "TB.RESERVE k 10 1/h 5 999999999",
        "TB.CREDIT k 10 1/h 1",
        "TB.DEBIT k 10 1/h 1",
        "TB.MACQUIRE l 10 1/h 1",
    ] {
        client.text(&words(call));
        assert_ne!(offset(), last, "{call}");
        last = offset();
    }
    replica.wait_for_sync(&primary);
}

/// A replica refuses what may write, in the server's own word, and stays as it was;
/// TB.PEEK answers there by the replica's own clock, and writes nothing even where
/// that clock is behind the stamp.
#[test]
fn a_replica_refuses_writes_and_peeks_by_its_own_clock() {
    let primary = builder().start();
    let ahead = replica_of(&primary, HOUR_US * 3 / 2, true);
    let behind = replica_of(&primary, -HOUR_US, true);
    primary.raw().ask("TB.ACQUIRE k 10 1/h 8");
    for (replica, peek) in [
        (&ahead, [1, 3, 0, 23_400_000]),
        (&behind, [1, 2, 0, 28_800_000]),
    ] {
        assert_alike(replica, &primary);
        let mut client = replica.raw();
        for call in [
            "TB.ACQUIRE k 10 1/h 1",
            "TB.ACQUIRE k 10 1/h 0",
            "TB.RESERVE k 10 1/h 1 1000",
            "TB.CREDIT k 10 1/h 1",
            "TB.DEBIT k 10 1/h 1",
            "TB.MACQUIRE k 10 1/h 1 l 10 1/h 1",
        ] {
            let reply = client.text(&words(call));
            let error = reply.error().unwrap_or_default();
            assert!(error.starts_with("READONLY "), "{call}: {reply:?}");
        }
        assert_eq!(client.ask("TB.PEEK k 10 1/h 0"), peek);
        assert_alike(replica, &primary);
    }
}

/// A replica that is promoted goes on with each bucket to the attotoken, at its own
/// time: an hour ahead the tokens of that hour have flowed in, an hour behind they
/// flow in from now on.
#[test]
fn promoted() {
    for ahead_us in [HOUR_US, 0, -HOUR_US] {
        let mut primary = builder().start();
        let replica = replica_of(&primary, ahead_us, true);
        let mut caller = Caller::new(13, SLOW);
        caller.run(&primary, 1_000);
        replica.wait_for_sync(&primary);
        primary.kill();
        let promoted = replica.raw().text(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(promoted, Reply::Simple("OK".into()));
        caller.assert_acknowledged(&replica);
        for _ in 0..4 {
            caller.run(&replica, 250);
            caller.assert_acknowledged(&replica);
            replica.advance(Duration::from_secs(1_000));
        }
    }
}

/// Calls each of which is one line of words.
const LUA: &str = "for _, line in ipairs(ARGV) do \
    local words = {} \
    for word in string.gmatch(line, '%S+') do words[#words + 1] = word end \
    redis.call(unpack(words)) \
    end";

/// The effects of a transaction, a script and a function are one block each, in the
/// order of the calls, and without those that left nothing.
#[test]
fn one_block_for_a_transaction_a_script_and_a_function() {
    let calls = [
        "TB.ACQUIRE a 10 1/h 1",
        "TB.ACQUIRE b 10 1/h 11",
        "TB.DEBIT b 10 1/h 1",
        "TB.RESERVE c 10 1/h 1 0",
        "TB.PEEK c 10 1/h",
        "TB.MACQUIRE d 10 1/h 1 e 10 1/h 0 f 10 1/h 1",
        "TB.CREDIT b 10 1/h 1",
    ];
    let want = [
        "MULTI", "SET a", "SET b", "SET c", "SET d", "SET f", "DEL b", "EXEC",
    ];
    let primary = builder().start();
    let mut client = primary.raw();
    let mut ways = vec!["MULTI", "EVAL"];
    if installed_server().1 .0 >= 7 {
        let function = LUA.replace("ARGV", "args");
        let library = format!(
            "#!lua name=tb\nredis.register_function('run', function(keys, args) {function} end)"
        );
        assert_eq!(client.text(&["FUNCTION", "LOAD", &library]).error(), None);
        ways.push("FCALL");
    } else {
        eprintln!("skipped by name: this server has no functions");
    }
    for way in ways {
        client.text(&["FLUSHALL"]);
        let mut stream = primary.replication_stream();
        if way == "MULTI" {
            client.text(&["MULTI"]);
            for call in calls {
                client.text(&words(call));
            }
            assert!(matches!(client.text(&["EXEC"]), Reply::Array(Some(_))));
        } else {
            let what = if way == "EVAL" { LUA } else { "run" };
            let reply = client.text(&[&[way, what, "0"], &calls[..]].concat());
            assert_eq!(reply.error(), None, "{way}");
        }
        client.text(&["SET", "end", "x"]);
        let sent: Vec<String> = stream
            .until_set(b"end")
            .iter()
            .map(|command| {
                let words = command
                    .iter()
                    .take(2)
                    .map(|word| word.escape_ascii().to_string());
                words.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(sent, want, "{way}");
    }
}

fn count(server: &Server, name: &str) -> u64 {
    server.info("stats")[name].parse().unwrap()
}

/// Cuts the connections of the replicas, which come back by themselves.
fn cut_links(primary: &mut RawClient) {
    let killed = primary
        .text(&["CLIENT", "KILL", "TYPE", "replica"])
        .integer();
    assert!(killed > 0, "no replica is connected");
}

/// A replica that is taken on in the middle of traffic, and one whose connection is
/// cut again and again, hold at the end what the primary holds.
#[test]
fn full_and_partial_resyncs_in_the_middle_of_traffic() {
    let primary = builder().config("repl-backlog-size", "64mb").start();
    let callers = (20..24).map(|number| Caller::new(number, SLOW));
    let traffic = Traffic::start(&primary, callers.collect());
    let mut client = primary.raw();
    let mut replicas = Vec::new();
    for (diskless, ahead_us, module) in [("yes", HOUR_US, true), ("no", -HOUR_US, false)] {
        client.text(&["CONFIG", "SET", "repl-diskless-sync", diskless]);
        traffic.wait_for_calls(300);
        // In step for a moment while the primary is written to.
        replicas.push(replica_of(&primary, ahead_us, module));
    }
    for _ in 0..5 {
        let resumed = count(&primary, "sync_partial_ok");
        traffic.wait_for_calls(200);
        cut_links(&mut client);
        traffic.wait_for_calls(200);
        wait_for("both replicas to resume", DEADLINE, || {
            count(&primary, "sync_partial_ok") >= resumed + 2
        });
    }
    let mut callers = traffic.stop();
    for replica in &replicas {
        assert_alike(replica, &primary);
    }
    for caller in &mut callers {
        caller.assert_acknowledged(&primary);
        caller.assert_acknowledged(&replicas[0]);
    }
    assert!(count(&primary, "sync_full") >= 2);
    println!(
        "{} calls, {} full and {} partial resyncs",
        callers.iter().map(Caller::acknowledged).sum::<u64>(),
        count(&primary, "sync_full"),
        count(&primary, "sync_partial_ok"),
    );
}
