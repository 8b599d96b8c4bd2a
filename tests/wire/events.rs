//! The keyspace event `tb.denied`, class `d`.

use tokenbucket_testkit::{RawClient, Reply};

use crate::held;

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

/// The channel and the text of the next message.
fn next(subscriber: &mut RawClient) -> (String, String) {
    let Reply::Array(Some(items)) = subscriber.read_reply() else {
        panic!("not a message")
    };
    let text = |reply: &Reply| String::from_utf8(reply.clone().bytes().unwrap()).unwrap();
    assert_eq!(items[0], bulk("pmessage"));
    (text(&items[2]), text(&items[3]))
}

/// One event for each key that was denied, and for nothing else.
#[test]
fn a_denied_key_is_an_event() {
    let server = held();
    let (mut subscriber, mut client) = (server.raw(), server.raw());
    client.text(&["CONFIG", "SET", "notify-keyspace-events", "KEd"]);
    subscriber.text(&["PSUBSCRIBE", "__key*__:*"]);
    client.text(&["SET", "text", "hello"]);
    for call in [
        // No event: allowed, asked, given, an error.
        "TB.ACQUIRE k 10 1 10",
        "TB.PEEK k 10 1 1",
        "TB.PEEK k 10 1 11",
        "TB.RESERVE k 10 1 1 1000",
        "TB.DEBIT k 10 1 1",
        "TB.CREDIT k 10 1 1",
        "TB.ACQUIRE text 10 1 1",
        "TB.ACQUIRE k 10 1 x",
        // Events.
        "TB.ACQUIRE k 10 1 1",
        "TB.ACQUIRE never 10 1 11",
        "TB.RESERVE k 10 1 1 1000",
        "TB.MACQUIRE fine 10 1 1 k 10 1 1 never 10 1 11",
    ] {
        client.text(&call.split(' ').collect::<Vec<_>>());
    }
    for key in ["k", "never", "k", "k", "never"] {
        let on_key = (format!("__keyspace@0__:{key}"), "tb.denied".to_string());
        assert_eq!(next(&mut subscriber), on_key);
        let on_event = ("__keyevent@0__:tb.denied".to_string(), key.to_string());
        assert_eq!(next(&mut subscriber), on_event);
    }
    // And that was all.
    client.text(&["PUBLISH", "__key__:end", "end"]);
    assert_eq!(next(&mut subscriber), ("__key__:end".into(), "end".into()));
}

/// Without the class `d` nothing is sent.
#[test]
fn other_classes_stay_silent() {
    let server = held();
    let (mut subscriber, mut client) = (server.raw(), server.raw());
    client.text(&["CONFIG", "SET", "notify-keyspace-events", "KEg$"]);
    subscriber.text(&["PSUBSCRIBE", "__key*__:*"]);
    client.tb(&["TB.ACQUIRE", "k", "10", "1", "11"]).unwrap();
    client.text(&["PUBLISH", "__key__:end", "end"]);
    assert_eq!(next(&mut subscriber), ("__key__:end".into(), "end".into()));
}
