//! Starting and ending real servers.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failure is a failed test

use std::path::Path;
use std::time::Duration;

use redis::Commands;
use tokenbucket_testkit::{wait_for, RawClient, Reply, Server};

const PATIENCE: Duration = Duration::from_secs(30);

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn answers_over_every_kind_of_connection() {
    let server = Server::builder().start();
    let () = server.connection().set("k", "v").unwrap();
    let value: String = server.resp3_connection().get("k").unwrap();
    assert_eq!(value, "v");
    let mut raw = server.raw();
    assert_eq!(raw.text(&["GET", "k"]), Reply::Bulk(Some(b"v".to_vec())));
    assert_eq!(raw.last_bytes(), b"$1\r\nv\r\n");
    let get = vec![b"GET".to_vec(), b"k".to_vec()];
    let replies = raw.pipeline(&[get.clone(), vec![b"NOSUCH".to_vec()], get]);
    assert_eq!(replies.len(), 3);
    assert!(replies.get(1).unwrap().error().unwrap().starts_with("ERR"));
}

#[test]
fn is_killed_on_drop() {
    let server = Server::builder().start();
    let (pid, dir) = (server.pid(), server.dir().to_path_buf());
    assert!(alive(pid) && dir.is_dir());
    drop(server);
    assert!(!alive(pid) && !dir.exists());
}

#[test]
fn is_killed_when_the_test_panics() {
    let (tell, told) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Server::builder().start();
        tell.send(server.pid()).unwrap();
        panic!("as a failing test does");
    });
    let pid = told.recv().unwrap();
    assert!(test.join().is_err());
    assert!(!alive(pid));
}

#[test]
fn a_failed_start_gives_the_log() {
    let error = Server::builder()
        .module("/nowhere/module.so")
        .try_start()
        .unwrap_err();
    assert!(error.log().contains("/nowhere/module.so"), "{error}");

    // The server refuses this before it has opened its log file.
    let error = Server::builder()
        .config("no-such-directive", "1")
        .try_start()
        .unwrap_err();
    assert!(error.log().contains("no-such-directive"), "{error}");

    let error = Server::builder()
        .program("/nowhere/server --flag")
        .try_start()
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/server"), "{error}");
}

#[test]
fn many_start_at_once() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let server = Server::builder().start();
                // Each one answers for itself.
                let mut client = server.raw();
                let reply = client.text(&["CONFIG", "GET", "dir"]);
                let Reply::Array(Some(pair)) = reply else {
                    panic!("{reply:?}")
                };
                let dir = pair.into_iter().nth(1).unwrap().bytes().unwrap();
                let real = server.dir().canonicalize().unwrap();
                assert_eq!(String::from_utf8(dir).unwrap(), real.to_str().unwrap());
            });
        }
    });
}

#[test]
fn another_port_is_taken_when_the_old_one_is_gone() {
    let mut server = Server::builder().start();
    let old = server.port();
    server.shutdown();
    let thief = std::net::TcpListener::bind(("127.0.0.1", old)).unwrap();
    server.restart();
    assert_ne!(server.port(), old);
    assert!(server.log().contains("Address already in use"));
    drop(thief);
}

#[test]
fn settings_reach_the_server() {
    let server = Server::builder()
        .config("save", "60 1")
        .config("maxmemory-policy", "volatile-ttl")
        .args(["--hz", "50"])
        .debug_commands()
        .start();
    let mut client = server.raw();
    let mut setting = |name: &str| {
        let reply = client.text(&["CONFIG", "GET", name]);
        let Reply::Array(Some(pair)) = reply else {
            panic!("{reply:?}")
        };
        String::from_utf8(pair.into_iter().nth(1).unwrap().bytes().unwrap()).unwrap()
    };
    assert_eq!(setting("save"), "60 1");
    assert_eq!(setting("maxmemory-policy"), "volatile-ttl");
    assert_eq!(setting("hz"), "50");
    assert_eq!(client.text(&["DEBUG", "RELOAD"]).error(), None);
    assert!(server.version() >= (6, 2, 0));
}

#[test]
fn an_append_only_file_outlives_the_server() {
    let mut server = Server::builder().appendonly().start();
    let mut client = server.raw();
    client.call(&[b"SET", b"a\r\n", b"\xff"]);
    let set = [b"SET".to_vec(), b"a\r\n".to_vec(), b"\xff".to_vec()];
    let commands = server.wait_for_aof(PATIENCE, |commands| commands.len() == 2);
    assert_eq!(commands.last().unwrap(), &set);

    server.restart();
    client = server.raw();
    assert_eq!(client.call(&[b"GET", b"a\r\n"]).bytes().unwrap(), b"\xff");
    assert_eq!(server.aof_commands().last().unwrap(), &set);

    // After a rewrite, the old command is in the base and only new ones are seen.
    client.text(&["BGREWRITEAOF"]);
    wait_for("the rewrite", PATIENCE, || {
        let info = server.info("persistence");
        info.get("aof_rewrite_in_progress").unwrap() == "0"
            && info.get("aof_rewrite_scheduled").unwrap() == "0"
    });
    client.text(&["SET", "b", "2"]);
    let commands = server.wait_for_aof(PATIENCE, |commands| {
        commands
            .last()
            .is_some_and(|last| last.contains(&b"b".to_vec()))
    });
    assert!(!commands.contains(&set.to_vec()), "{commands:?}");
}

#[test]
fn a_folder_can_be_handed_on() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || Server::builder().appendonly().dir(folder.path());
    let mut first = builder().start();
    first.raw().text(&["SET", "k", "v"]);
    first.kill();
    drop(first);
    let second = builder().start();
    assert_eq!(second.raw().text(&["GET", "k"]).bytes().unwrap(), b"v");
}

#[test]
fn a_replica_gets_in_step() {
    let primary = Server::builder().start();
    let mut client = primary.raw();
    client.text(&["SET", "k", "v"]);
    let replica = primary.start_replica();
    assert_eq!(replica.raw().text(&["GET", "k"]).bytes().unwrap(), b"v");
    client.text(&["SET", "k", "w"]);
    replica.wait_for_sync(&primary);
    assert_eq!(replica.raw().text(&["GET", "k"]).bytes().unwrap(), b"w");
}

#[test]
fn gives_all_keys_with_their_expiries() {
    let server = Server::builder().held_clock(1_700_000_000_000_000).start();
    let mut client = server.raw();
    assert!(server.keys().is_empty());
    for number in 0..3_000_u32 {
        client.call(&[b"SET", &number.to_be_bytes(), b"v"]);
    }
    client.call(&[b"SET", b"", b"\r\n", b"PXAT", b"1700000001234"]);
    let keys = server.keys();
    assert_eq!(keys.len(), 3_001);
    assert_eq!(keys[&b""[..]], (b"\r\n".to_vec(), 1_700_000_001_234));
    assert_eq!(keys[&7_u32.to_be_bytes()[..]], (b"v".to_vec(), -1));
    server.hold(1_700_000_001_235_000);
    assert_eq!(server.keys().len(), 3_000);
}

#[test]
fn the_replication_stream_can_be_read() {
    let server = Server::builder().start();
    let mut client = server.raw();
    client.text(&["SET", "before", "x"]);
    let mut stream = server.replication_stream();
    client.text(&["MULTI"]);
    client.text(&["SET", "k", "v"]);
    client.text(&["DEL", "k"]);
    client.text(&["EXEC"]);
    client.text(&["SET", "end", "x"]);
    let names: Vec<_> = stream
        .until_set(b"end")
        .into_iter()
        .filter_map(|command| command.into_iter().next())
        .collect();
    assert_eq!(names, [&b"MULTI"[..], b"SET", b"DEL", b"EXEC"]);
}

#[test]
fn snapshots_and_rewrites_are_waited_for() {
    let server = Server::builder().appendonly().start();
    server.raw().text(&["SET", "k", "v"]);
    server.bgsave();
    assert_eq!(server.background_saves(), 1);
    assert!(server.dir().join("dump.rdb").is_file());
    server.rewrite_aof();
    server.raw().text(&["SET", "k", "w"]);
    assert!(server.aof_file().is_file());
    assert_eq!(server.aof_commands().last().map(Vec::len), Some(3));
}

#[test]
fn killed_means_killed() {
    let mut server = Server::builder().start();
    let (pid, port) = (server.pid(), server.port());
    server.kill();
    server.kill();
    assert!(!alive(pid));
    assert!(RawClient::try_connect(port).is_err());
    server.restart();
    server.shutdown();
    assert!(server.log().contains("ready to exit"));
}
