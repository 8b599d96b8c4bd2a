//! What the server tells of the commands: arity, flags, keys, who may call them.

use std::collections::BTreeMap;

use tokenbucket_testkit::{installed_server, RawClient, Reply};

use crate::running;

/// One entry of COMMAND INFO, without what differs by design: the name, the ACL
/// categories, tips and subcommands.
#[derive(Debug, PartialEq)]
struct Info {
    arity: i64,
    flags: Vec<String>,
    keys: [i64; 3],
    key_specs: Vec<BTreeMap<String, String>>,
}

fn info(client: &mut RawClient, command: &str) -> Info {
    let Reply::Array(Some(mut entries)) = client.text(&["COMMAND", "INFO", command]) else {
        panic!("no COMMAND INFO")
    };
    let Reply::Array(Some(fields)) = entries.remove(0) else {
        panic!("{command} is not known")
    };
    let number = |at: usize| fields[at].clone().integer();
    let mut flags = texts(&fields[2]);
    // Where a command comes from is what differs.
    flags.retain(|flag| flag != "module" && flag != "movablekeys");
    flags.sort();
    Info {
        arity: number(1),
        flags,
        keys: [number(3), number(4), number(5)],
        key_specs: match fields.get(8) {
            Some(Reply::Array(Some(specs))) => specs.iter().map(flat).collect(),
            _ => Vec::new(),
        },
    }
}

fn texts(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(Some(items)) | Reply::Set(items) => items.iter().map(text).collect(),
        other => panic!("not a list: {other:?}"),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Array(Some(items)) => items.iter().map(text).collect::<Vec<_>>().join(" "),
        other => String::from_utf8(other.clone().bytes().unwrap_or_default()).unwrap(),
    }
}

/// `[name, value, name, value]` as a map.
fn flat(reply: &Reply) -> BTreeMap<String, String> {
    let Reply::Array(Some(items)) = reply else {
        panic!("not a list: {reply:?}")
    };
    items
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect()
}

/// Field by field as the core's commands of the same kind: one key, read and
/// written; one key, read.
#[test]
fn command_info_as_for_core_commands() {
    let server = running();
    let mut client = server.raw();
    let has_info = installed_server().1 >= (7, 0, 0);

    let mut ours = info(&mut client, "TB.ACQUIRE");
    let core = info(&mut client, "INCRBY");
    assert_eq!(ours.flags, ["denyoom", "fast", "write"]);
    assert_eq!((&ours.flags, ours.keys), (&core.flags, [1, 1, 1]));
    if has_info {
        assert_eq!(ours.arity, 5);
        assert_eq!(ours.key_specs.len(), 1);
        ours.arity = core.arity;
        assert_eq!(ours, core);
    }

    let mut ours = info(&mut client, "TB.PEEK");
    let core = info(&mut client, "GET");
    assert_eq!(ours.flags, ["fast", "readonly"]);
    assert_eq!((&ours.flags, ours.keys), (&core.flags, [1, 1, 1]));
    if has_info {
        assert_eq!(ours.arity, -4);
        assert_eq!(ours.key_specs.len(), 1);
        ours.arity = core.arity;
        assert_eq!(ours, core);
    }
}

#[test]
fn keys_are_found_in_a_call() {
    let server = running();
    let mut client = server.raw();
    for call in [
        &["TB.ACQUIRE", "k", "1", "1", "1"][..],
        &["TB.PEEK", "k", "1", "1"],
    ] {
        let args = [&["COMMAND", "GETKEYS"], call].concat();
        assert_eq!(texts(&client.text(&args)), ["k"], "{call:?}");
    }
}

/// The documentation, as clients and redis-cli show it (7.0 and newer).
#[test]
fn command_docs() {
    if installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: COMMAND DOCS is not there before Redis 7.0");
        return;
    }
    let server = running();
    let mut client = server.raw();
    for (name, arguments) in [
        (
            "TB.ACQUIRE",
            &["key:key", "capacity:double", "rate:string", "cost:double"][..],
        ),
        (
            "TB.PEEK",
            &[
                "key:key",
                "capacity:double",
                "rate:string",
                "cost:double:optional",
            ],
        ),
    ] {
        let Reply::Array(Some(docs)) = client.text(&["COMMAND", "DOCS", name]) else {
            panic!("no COMMAND DOCS")
        };
        assert_eq!(text(&docs[0]).to_ascii_uppercase(), name);
        let docs_of = flat(&docs[1]);
        assert!(docs_of["summary"].ends_with('.'));
        assert_eq!(docs_of["complexity"], "O(1)");
        assert_eq!(docs_of["since"], "0.1.0");
        assert_eq!(docs_of["module"], "tokenbucket");
        let Reply::Array(Some(fields)) = &docs[1] else {
            panic!("no fields")
        };
        let at = fields
            .iter()
            .position(|field| text(field) == "arguments")
            .unwrap();
        let Reply::Array(Some(args)) = &fields[at + 1] else {
            panic!("no arguments")
        };
        let args: Vec<String> = args
            .iter()
            .map(|arg| {
                let arg = flat(arg);
                let mut line = format!("{}:{}", arg["name"], arg["type"]);
                if let Some(flags) = arg.get("flags") {
                    line = format!("{line}:{flags}");
                }
                line
            })
            .collect();
        assert_eq!(args, arguments, "{name}");
    }
}

/// One command and one key pattern are all that a limiter's user needs.
#[test]
fn acl_rules() {
    let server = running();
    let (mut admin, mut user) = (server.raw(), server.raw());
    let rules = ["ACL", "SETUSER", "u", "on", ">p", "~rl:*", "+tb.acquire"];
    assert_eq!(admin.text(&rules).error(), None);
    assert_eq!(user.text(&["AUTH", "u", "p"]).error(), None);
    assert_eq!(
        user.tb(&["TB.ACQUIRE", "rl:a", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    for refused in [
        &["TB.ACQUIRE", "other:a", "10", "1", "1"][..],
        &["TB.PEEK", "rl:a", "10", "1"],
        &["GET", "rl:a"],
    ] {
        let error = user.text(refused);
        assert!(
            error.error().is_some_and(|e| e.starts_with("NOPERM")),
            "{refused:?}: {error:?}"
        );
    }
    assert_eq!(admin.text(&["EXISTS", "other:a"]).integer(), 0);
    if installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: ACL DRYRUN and %R~ are not there before Redis 7.0");
        return;
    }
    let mut dry_run = |call: &[&str]| text(&admin.text(&[&["ACL", "DRYRUN", "u"], call].concat()));
    assert_eq!(dry_run(&["TB.ACQUIRE", "rl:a", "1", "1", "1"]), "OK");
    assert_ne!(dry_run(&["TB.ACQUIRE", "other:a", "1", "1", "1"]), "OK");
    assert_ne!(dry_run(&["TB.PEEK", "rl:a", "1", "1"]), "OK");
    // Who may only read can peek, and can't take.
    admin.text(&["ACL", "SETUSER", "u", "resetkeys", "%R~rl:*", "+tb.peek"]);
    let mut dry_run = |call: &[&str]| text(&admin.text(&[&["ACL", "DRYRUN", "u"], call].concat()));
    assert_eq!(dry_run(&["TB.PEEK", "rl:a", "1", "1"]), "OK");
    assert_ne!(dry_run(&["TB.ACQUIRE", "rl:a", "1", "1", "1"]), "OK");
}
