//! What the server tells of the commands: arity, flags, keys, who may call them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokenbucket_testkit::{installed_server, module_path, wait_for, RawClient, Reply, Server};

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

/// `[name, value, name, value]` as a map, without the notes that some core
/// commands have.
fn flat(reply: &Reply) -> BTreeMap<String, String> {
    let Reply::Array(Some(items)) = reply else {
        panic!("not a list: {reply:?}")
    };
    items
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .filter(|(name, _)| name != "notes")
        .collect()
}

/// Field by field as the core's commands of the same shape: one key, read and
/// written with or without need of memory; one key, read; many keys.
#[test]
fn command_info_as_for_core_commands() {
    let server = running();
    let mut client = server.raw();
    let has_info = installed_server().1 >= (7, 0, 0);
    for (name, twin, arity, keys) in [
        ("TB.ACQUIRE", "INCRBY", 5, [1, 1, 1]),
        ("TB.RESERVE", "INCRBY", 6, [1, 1, 1]),
        ("TB.DEBIT", "INCRBY", 5, [1, 1, 1]),
        // It may be called when memory is short.
        ("TB.CREDIT", "GETEX", 5, [1, 1, 1]),
        ("TB.PEEK", "GET", -4, [1, 1, 1]),
        ("TB.MACQUIRE", "MSET", -5, [1, -1, 4]),
    ] {
        let mut ours = info(&mut client, name);
        let mut core = info(&mut client, twin);
        assert_eq!(ours.keys, keys, "{name}");
        if name == "TB.MACQUIRE" {
            // MSET overwrites every second argument unread, and is not called fast.
            core.keys[2] = 4;
            core.flags.push("fast".to_string());
            core.flags.sort();
            for spec in &mut core.key_specs {
                spec.insert("flags".into(), "RW access update".into());
                let find = spec.get_mut("find_keys").unwrap();
                assert!(find.contains("keystep 2"), "{find}");
                *find = find.replace("keystep 2", "keystep 4");
            }
        }
        if has_info {
            assert_eq!(ours.arity, arity, "{name}");
            assert_eq!(ours.key_specs.len(), 1, "{name}");
        } else {
            assert_eq!(
                ours.arity, -1,
                "{name}: the server counts no arguments of modules"
            );
        }
        ours.arity = core.arity;
        assert_eq!(ours, core, "{name} beside {twin}");
    }
}

#[test]
fn keys_are_found_in_a_call() {
    let server = running();
    let mut client = server.raw();
    for (call, keys) in [
        ("TB.ACQUIRE k 1 1 1", &["k"][..]),
        ("TB.PEEK k 1 1", &["k"]),
        ("TB.PEEK k 1 1 1", &["k"]),
        ("TB.RESERVE k 1 1 1 1", &["k"]),
        ("TB.CREDIT k 1 1 1", &["k"]),
        ("TB.DEBIT k 1 1 1", &["k"]),
        ("TB.MACQUIRE k 1 1 1", &["k"]),
        ("TB.MACQUIRE k 1 1 1 l 1 1 1 m 1 1 1", &["k", "l", "m"]),
    ] {
        let args = [
            &["COMMAND", "GETKEYS"],
            &call.split(' ').collect::<Vec<_>>()[..],
        ]
        .concat();
        assert_eq!(texts(&client.text(&args)), keys, "{call}");
    }
}

/// A cluster routes a call by all its keys: over two slots it is refused before we
/// see it, in one slot it runs, and a slot that nobody serves is known as such.
#[test]
fn a_cluster_knows_the_keys() {
    let server = Server::builder()
        .module(module_path())
        .config("cluster-enabled", "yes")
        .config("cluster-require-full-coverage", "no")
        .start();
    let mut client = server.raw();
    let slot_of = |client: &mut RawClient, key| client.text(&["CLUSTER", "KEYSLOT", key]).integer();
    // `{a}` and `b` hash to slots of their own; that of `c` is served by nobody.
    for key in ["a", "b"] {
        let slot = slot_of(&mut client, key).to_string();
        assert_eq!(client.text(&["CLUSTER", "ADDSLOTS", &slot]).error(), None);
    }
    wait_for("the cluster to serve", Duration::from_secs(30), || {
        client.text(&["GET", "a"]).error().is_none()
    });
    let mut code = |call: &str| {
        let reply = client.text(&call.split(' ').collect::<Vec<_>>());
        reply
            .error()
            .map(|error| error.split(' ').next().unwrap_or_default().to_string())
    };
    for call in ["ACQUIRE", "PEEK", "RESERVE", "CREDIT", "DEBIT", "MACQUIRE"] {
        let wait = if call == "RESERVE" { " 0" } else { "" };
        let at = |key: &str| format!("TB.{call} {key} 9 1 1{wait}");
        assert_eq!(code(&at("a")), None, "{call}");
        assert_eq!(code(&at("c")).as_deref(), Some("CLUSTERDOWN"), "{call}");
    }
    assert_eq!(code("TB.MACQUIRE {a}1 9 1 1 {a}2 9 1 1 a 9 1 1"), None);
    for call in [
        "TB.MACQUIRE a 9 1 1 b 9 1 1",
        "TB.MACQUIRE {a}1 9 1 1 {a}2 9 1 1 b 9 1 1",
        "TB.MACQUIRE {a}1 9 1 1 {a}2 9 1 1 c 9 1 1",
    ] {
        assert_eq!(code(call).as_deref(), Some("CROSSSLOT"), "{call}");
    }
}

/// The arguments of a command's documentation: `name:type`, with what else is
/// said of each, and those of a group in parentheses.
fn arguments(docs: &Reply) -> Vec<String> {
    let Reply::Array(Some(fields)) = docs else {
        panic!("no fields")
    };
    let at = fields
        .iter()
        .position(|field| text(field) == "arguments")
        .unwrap();
    let Reply::Array(Some(args)) = &fields[at + 1] else {
        panic!("no arguments")
    };
    args.iter()
        .map(|arg| {
            let fields = flat(arg);
            let mut line = format!("{}:{}", fields["name"], fields["type"]);
            if let Some(index) = fields.get("key_spec_index") {
                line = format!("{line}:{index}");
            }
            if let Some(flags) = fields.get("flags") {
                line = format!("{line}:{flags}");
            }
            if fields.contains_key("arguments") {
                line = format!("{line}({})", arguments(arg).join(" "));
            }
            line
        })
        .collect()
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
    let limit = "key:key:0 capacity:double rate:string";
    for (name, args) in [
        ("TB.ACQUIRE", format!("{limit} cost:double")),
        ("TB.PEEK", format!("{limit} cost:double:optional")),
        (
            "TB.RESERVE",
            format!("{limit} cost:double max_wait_ms:integer"),
        ),
        ("TB.CREDIT", format!("{limit} amount:double")),
        ("TB.DEBIT", format!("{limit} amount:double")),
        (
            "TB.MACQUIRE",
            format!("bucket:block:multiple({limit} cost:double)"),
        ),
    ] {
        let Reply::Array(Some(docs)) = client.text(&["COMMAND", "DOCS", name]) else {
            panic!("no COMMAND DOCS")
        };
        assert_eq!(text(&docs[0]).to_ascii_uppercase(), name);
        let fields = flat(&docs[1]);
        assert!(fields["summary"].ends_with('.'), "{name}");
        assert!(fields["complexity"].starts_with("O("), "{name}");
        assert_eq!(fields["since"], "0.1.0", "{name}");
        assert_eq!(fields["module"], "tokenbucket", "{name}");
        assert_eq!(arguments(&docs[1]).join(" "), args, "{name}");
    }
    // The same fields as a core command has, apart from the module's name.
    let mut names = |command| {
        let Reply::Array(Some(docs)) = client.text(&["COMMAND", "DOCS", command]) else {
            panic!("no COMMAND DOCS")
        };
        let mut fields = flat(&docs[1]);
        fields.remove("module");
        fields.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(names("TB.ACQUIRE"), names("INCRBY"));
}

/// The category `@tokenbucket` holds all commands and nothing else, where the
/// server can add one, and the others are those that follow from the flags. Asked by
/// what a user of the category may call: before Redis 8, ACL CAT lists no commands of
/// modules.
#[test]
fn acl_categories() {
    let (valkey, version) = installed_server();
    if version < (7, 0, 0) {
        eprintln!("skipped by name: ACL DRYRUN is not there before Redis 7.0");
        return;
    }
    let server = running();
    let mut client = server.raw();
    let mut may_call = |category: &str| -> Option<BTreeSet<&str>> {
        let rule = format!("+@{category}");
        let rules = ["ACL", "SETUSER", "c", "reset", "on", "~*", &rule];
        if let Some(error) = client.text(&rules).error() {
            assert!(error.contains("Unknown command or category"), "{error}");
            return None;
        }
        let mut allowed = |call: &&str| {
            let words: Vec<&str> = call.split(' ').collect();
            text(&client.text(&[&["ACL", "DRYRUN", "c"], &words[..]].concat())) == "OK"
        };
        let calls = [CALLS, &["GET k", "SET k v"]].concat();
        let names = calls.into_iter().filter(|call| allowed(call));
        Some(names.map(|call| call.split(' ').next().unwrap()).collect())
    };
    let set = |names: &'static str| Some(names.split(' ').collect());
    let (writing, all) = (
        "TB.ACQUIRE TB.CREDIT TB.DEBIT TB.MACQUIRE TB.RESERVE",
        "TB.ACQUIRE TB.CREDIT TB.DEBIT TB.MACQUIRE TB.RESERVE TB.PEEK",
    );
    if version < (7, 2, 0) {
        eprintln!("skipped by name: this server has no ACL categories for modules");
        assert_eq!(may_call("write"), set("SET"));
        return;
    }
    let mut with = |category, ours: &str, core: &str| {
        let names = format!("{ours} {core}");
        let names: BTreeSet<String> = names.split_whitespace().map(str::to_string).collect();
        let found = may_call(category).unwrap();
        assert_eq!(
            found
                .into_iter()
                .map(str::to_string)
                .collect::<BTreeSet<_>>(),
            names,
            "@{category}"
        );
    };
    with("write", writing, "SET");
    with("read", "TB.PEEK", "GET");
    with("fast", all, "GET");
    with("slow", "", "SET");
    if version >= if valkey { (8, 0, 0) } else { (7, 4, 0) } {
        assert_eq!(may_call("tokenbucket"), set(all));
    } else {
        assert_eq!(may_call("tokenbucket"), None);
        eprintln!("skipped by name: this server adds no ACL categories");
    }
}

/// One call of each command.
const CALLS: &[&str] = &[
    "TB.ACQUIRE rl:k 1 1 1",
    "TB.RESERVE rl:k 1 1 1 1",
    "TB.CREDIT rl:k 1 1 1",
    "TB.DEBIT rl:k 1 1 1",
    "TB.MACQUIRE rl:k 1 1 1 rl:l 1 1 1",
    "TB.PEEK rl:k 1 1",
];

/// ACL DRYRUN for each command, on keys that the user has and on others.
#[test]
fn acl_dry_run() {
    if installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: ACL DRYRUN is not there before Redis 7.0");
        return;
    }
    let server = running();
    let mut client = server.raw();
    client.text(&["ACL", "SETUSER", "rw", "on", "~rl:*", "+@all"]);
    client.text(&["ACL", "SETUSER", "r", "on", "%R~rl:*", "+@all"]);
    client.text(&["ACL", "SETUSER", "w", "on", "%W~rl:*", "+@all"]);
    let mut allowed = |user: &str, call: &str| {
        let args = [
            &["ACL", "DRYRUN", user],
            &call.split(' ').collect::<Vec<_>>()[..],
        ]
        .concat();
        text(&client.text(&args)) == "OK"
    };
    for call in CALLS {
        assert!(allowed("rw", call), "{call}");
        // Whoever takes reads and writes; whoever peeks reads.
        let reads_only = call.starts_with("TB.PEEK");
        assert_eq!(allowed("r", call), reads_only, "{call}");
        assert!(!allowed("w", call), "{call}");
        assert!(!allowed("rw", &call.replace("rl:k", "k")), "{call}");
    }
    // A key behind the first counts as well.
    assert!(!allowed("rw", "TB.MACQUIRE rl:k 1 1 1 l 1 1 1"));
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
