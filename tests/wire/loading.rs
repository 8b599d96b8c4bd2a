//! Loading the module: its name, its version, what is refused and in which words.

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
