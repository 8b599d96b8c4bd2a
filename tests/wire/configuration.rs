//! redis.conf.example: it loads as it is, and does what it says.

use std::time::Duration;

use tokenbucket_testkit::{module_path, workspace, Reply, Server};

/// The lines of the example that set something.
fn settings() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(workspace().join("redis.conf.example")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_string(), value.trim().to_string())
        })
        .collect()
}

/// A server with the settings of the example, but for the port, the folder and
/// the place of the module, which are the test's own.
fn server() -> Server {
    settings()
        .into_iter()
        .filter(|(name, _)| !["port", "dir", "loadmodule"].contains(&name.as_str()))
        .fold(
            Server::builder().module(module_path()),
            |builder, (name, value)| builder.config(name, value),
        )
        .start()
}

#[test]
fn it_loads_and_limits() {
    let server = server();
    let mut client = server.raw();
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "rl:k", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    // A full memory costs the bucket that is nearest to full, not the newest.
    let policy = client.text(&["CONFIG", "GET", "maxmemory-policy"]);
    let name = |text: &str| Reply::Bulk(Some(text.as_bytes().to_vec()));
    let pair = vec![name("maxmemory-policy"), name("volatile-ttl")];
    assert_eq!(policy, Reply::Array(Some(pair)));
}

/// It keeps an AOF, as it says.
#[test]
fn it_keeps_the_buckets() {
    let server = server();
    server
        .raw()
        .tb(&["TB.ACQUIRE", "rl:k", "10", "1/d", "1"])
        .unwrap();
    server.wait_for_aof(Duration::from_secs(30), |commands| {
        commands
            .iter()
            .any(|command| command[0] == b"SET" && command[1] == b"rl:k")
    });
}

/// Its user may call the two commands on its own keys, and nothing else.
#[test]
fn its_user_may_limit_and_nothing_else() {
    let server = server();
    let mut client = server.raw();
    let user = settings()
        .into_iter()
        .find(|(name, _)| name == "user")
        .unwrap()
        .1;
    let mut words = user.split_whitespace();
    let name = words.next().unwrap();
    let password = words.find_map(|word| word.strip_prefix('>')).unwrap();
    assert_eq!(client.text(&["AUTH", name, password]).error(), None);
    assert_eq!(
        client.tb(&["TB.ACQUIRE", "rl:k", "10", "1", "1"]),
        Ok([1, 9, 0, 1000])
    );
    assert_eq!(
        client
            .tb(&["TB.PEEK", "rl:k", "10", "1"])
            .map(|reply| reply[0]),
        Ok(1)
    );
    for refused in [
        &["TB.ACQUIRE", "k", "10", "1", "1"][..],
        &["GET", "rl:k"],
        &["DEL", "rl:k"],
        &["CONFIG", "GET", "*"],
        &["PUBLISH", "c", "m"],
    ] {
        let error = client.text(refused);
        assert!(
            error.error().is_some_and(|e| e.starts_with("NOPERM")),
            "{refused:?}: {error:?}"
        );
    }
}

/// The module is loaded from where `make install` puts it.
#[test]
fn it_names_the_place_of_the_installed_module() {
    let path = settings()
        .into_iter()
        .find(|(name, _)| name == "loadmodule")
        .unwrap()
        .1;
    assert_eq!(path, "/usr/local/lib/redis/modules/tokenbucket.so");
}
