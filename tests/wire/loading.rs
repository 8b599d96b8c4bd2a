//! Loading the module: its name, its version, what is refused and in which words.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use tokenbucket_testkit::{module_path, Reply, Server};

use crate::running;

#[test]
fn name_and_version_are_those_of_the_package() {
    let server = running();
    let Reply::Array(Some(modules)) = server.raw().text(&["MODULE", "LIST"]) else {
        panic!("no MODULE LIST")
    };
    let version: i64 = env!("CARGO_PKG_VERSION")
        .split('.')
        .fold(0, |sum, part| sum * 100 + part.parse::<i64>().unwrap());
    let ours = modules.into_iter().find_map(|module| {
        let Reply::Array(Some(fields)) = module else {
            panic!("not a list")
        };
        (fields[1].clone().bytes().unwrap() == b"tokenbucket").then(|| fields[3].clone().integer())
    });
    assert_eq!(ours, Some(version));
}

#[test]
fn arguments_are_refused_in_words() {
    for args in [&["cl-throttle"][..], &["x", "y"], &["\u{ff15}%s%n"]] {
        let refused = Server::builder()
            .module(module_path())
            .module_args(args.iter().copied())
            .try_start();
        let log = refused.expect_err("it loaded").log().to_string();
        assert!(
            log.contains("module arguments are refused: none are known"),
            "{log}"
        );
    }
}

#[test]
fn a_second_load_is_refused_in_words_and_harms_nothing() {
    let server = Server::builder()
        .module(module_path())
        .module_commands()
        .start();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1/d", "4"]).unwrap();
    let path = module_path();
    let again = client.text(&["MODULE", "LOAD", path.to_str().unwrap()]);
    assert!(again.error().is_some(), "{again:?}");
    assert!(server
        .log()
        .contains("a module named tokenbucket is loaded already"));
    assert_eq!(
        client.tb(&["TB.PEEK", "k", "10", "1/d", "0"]).unwrap()[1],
        6
    );
}

// H04: a copy without the execute bit was refused, and nobody knew why. It is refused
// still, in the server's own words, which README names with the cure; with the bit
// it loads. The servers that look at the bit no more load it either way.
#[test]
fn a_file_that_may_not_be_executed() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("tokenbucket.so");
    std::fs::copy(module_path(), &copy).unwrap();
    let allow = |mode| std::fs::set_permissions(&copy, Permissions::from_mode(mode)).unwrap();
    allow(0o644);
    if let Err(refused) = Server::builder().module(&copy).try_start() {
        let log = refused.log();
        assert!(
            log.contains("does not have execute permissions") || log.contains("Permission denied"),
            "{log}"
        );
    }
    allow(0o755);
    let server = Server::builder().module(&copy).start();
    assert_eq!(server.raw().ask("TB.ACQUIRE k 10 1 1"), [1, 9, 0, 1000]);
}

// H08: a configuration that was included twice loads the module twice: the server does
// not start, and the log says what to look for. What CONFIG REWRITE writes loads once.
#[test]
fn a_configuration_that_loads_it_twice() {
    let path = module_path();
    let refused = Server::builder()
        .module(&path)
        .config("loadmodule", path.to_str().unwrap())
        .try_start()
        .expect_err("it loaded twice");
    assert!(
        refused
            .log()
            .contains("a module named tokenbucket is loaded already"),
        "{refused}"
    );

    let mut server = running();
    for _ in 0..2 {
        let reply = server.raw().text(&["CONFIG", "REWRITE"]);
        assert_eq!(reply, Reply::Simple("OK".into()));
        server.restart();
        assert_eq!(server.raw().ask("TB.ACQUIRE k 10 1 1"), [1, 9, 0, 1000]);
    }
}

/// Nothing of the module is needed for the data to stay: it can be unloaded and
/// loaded again, and buckets go on.
#[test]
fn unloaded_and_loaded_again() {
    let server = Server::builder()
        .module(module_path())
        .module_commands()
        .start();
    let mut client = server.raw();
    let path = module_path();
    for left in (0..10).rev() {
        let reply = client.tb(&["TB.ACQUIRE", "k", "10", "1/d", "1"]).unwrap();
        assert_eq!(reply[..2], [1, left]);
        assert_eq!(
            client.text(&["MODULE", "UNLOAD", "tokenbucket"]).error(),
            None
        );
        let unknown = client.text(&["TB.ACQUIRE", "k", "10", "1/d", "1"]);
        assert!(
            unknown.error().unwrap().starts_with("ERR unknown command"),
            "{unknown:?}"
        );
        assert_eq!(
            client
                .text(&["MODULE", "LOAD", path.to_str().unwrap()])
                .error(),
            None
        );
    }
}
