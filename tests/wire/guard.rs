//! A panic in a command is caught: the caller gets an error, the log a line, and
//! the server goes on.

use tokenbucket_testkit::{panic_module_path, Reply, Server};

/// Every way to panic, while the key is held open for writing.
#[test]
fn a_panic_is_an_error_and_the_server_goes_on() {
    let server = Server::builder().module(panic_module_path()).start();
    let mut client = server.raw();
    client.tb(&["TB.ACQUIRE", "k", "10", "1/d", "4"]).unwrap();
    let look = |client: &mut tokenbucket_testkit::RawClient| {
        (
            client.text(&["GET", "k"]),
            client.text(&["EXISTS", "k", "fresh", "text"]),
        )
    };
    client.text(&["SET", "text", "hello"]);
    let before = look(&mut client);
    for kind in ["message", "value", "nul", "overflow", "index"] {
        for key in ["k", "fresh", "text"] {
            let reply = client.text(&["TB.PANIC", key, kind]);
            assert_eq!(reply, Reply::Error("ERR internal error".into()), "{kind}");
            assert_eq!(
                client.text(&["PING"]),
                Reply::Simple("PONG".into()),
                "{kind}"
            );
        }
    }
    assert_eq!(look(&mut client), before);

    // Inside a transaction and a script too, and many times over.
    client.text(&["MULTI"]);
    client.text(&["TB.PANIC", "k", "message"]);
    client.text(&["TB.PEEK", "k", "10", "1/d", "0"]);
    let Reply::Array(Some(replies)) = client.text(&["EXEC"]) else {
        panic!("no EXEC")
    };
    assert_eq!(replies[0].error(), Some("ERR internal error"));
    assert_eq!(replies[1].clone().four().unwrap()[..2], [1, 6]);
    let script = "return redis.pcall('TB.PANIC', KEYS[1], 'message')";
    let error = client.text(&["EVAL", script, "1", "k"]);
    assert!(
        error.error().unwrap().contains("ERR internal error"),
        "{error:?}"
    );
    let panic = ["TB.PANIC", "k", "message"]
        .map(|arg| arg.as_bytes().to_vec())
        .to_vec();
    let replies = client.pipeline(&vec![panic; 1000]);
    assert!(replies
        .iter()
        .all(|reply| reply.error() == Some("ERR internal error")));
    assert_eq!(look(&mut client), before);

    let log = server.log();
    for text in [
        "tokenbucket: internal error, the call was refused",
        "asked to panic",
        "before after",
        "attempt to add with overflow",
        "index out of bounds",
        "src/panic.rs",
    ] {
        assert!(log.contains(text), "the log lacks {text:?}:\n{log}");
    }
}

/// What is installed has no command that panics.
#[test]
fn the_release_has_no_such_command() {
    let server = crate::running();
    let reply = server.raw().text(&["TB.PANIC", "k", "message"]);
    assert!(
        reply.error().unwrap().starts_with("ERR unknown command"),
        "{reply:?}"
    );
}
