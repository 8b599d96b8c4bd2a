//! Sentinels that watch a primary and its replicas.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::launch::{default_program, free_port, program};
use crate::{try_wait_for, wait_for, RawClient, Reply, Server};

const AGREEMENT: Duration = Duration::from_secs(60);
/// The name that the sentinels give the primary.
const NAME: &str = "limits";
/// How long a server may be silent before a sentinel takes it for dead.
const DOWN_AFTER_MS: u32 = 1_000;

/// Three sentinels, of which two must agree that a primary is dead. They are killed
/// on drop.
#[derive(Debug)]
pub struct Sentinels {
    watchers: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Sentinels {
    /// Starts them, and waits until all of them know each other and `replicas`
    /// replicas of `primary`.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute.
    #[track_caller]
    pub fn watch(primary: &Server, replicas: usize) -> Self {
        let watchers = (0..3).map(|_| Watcher::start(primary.port())).collect();
        let sentinels = Self { watchers };
        sentinels.wait_until_agreed(primary.port(), replicas);
        sentinels
    }

    /// Waits until all sentinels say that the server at `primary` is the primary, that
    /// it lives, and that it has so many replicas, all alive.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute; the message holds what they say.
    #[track_caller]
    pub fn wait_until_agreed(&self, primary: u16, replicas: usize) {
        let mut said = Vec::new();
        let agreed = try_wait_for(AGREEMENT, || {
            said = self.watchers.iter().map(Watcher::state).collect();
            said.iter().all(|state: &State| {
                state.primary == primary
                    && state.flags == "master"
                    && state.others == 2
                    && state.replicas == vec!["slave"; replicas]
            })
        });
        assert!(agreed, "the sentinels do not agree: {said:?}");
    }

    /// The ports of the sentinels.
    pub fn ports(&self) -> Vec<u16> {
        self.watchers.iter().map(|watcher| watcher.port).collect()
    }

    /// The port of the primary, as the first sentinel knows it.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    #[track_caller]
    pub fn primary(&self) -> u16 {
        self.watchers[0].state().primary
    }

    /// Waits until all sentinels name another primary than the one at `old`, and gives
    /// its port.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute.
    #[track_caller]
    pub fn wait_for_failover(&self, old: u16) -> u16 {
        let mut primary = old;
        wait_for("another primary", AGREEMENT, || {
            primary = self.primary();
            primary != old
                && self
                    .watchers
                    .iter()
                    .all(|watcher| watcher.state().primary == primary)
        });
        primary
    }
}

/// What a sentinel says of the primary, the other sentinels and the replicas.
#[derive(Debug)]
struct State {
    primary: u16,
    flags: String,
    others: u64,
    replicas: Vec<String>,
}

impl Watcher {
    fn start(primary: u16) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tokenbucket-sentinel-")
            .tempdir()
            .expect("a folder");
        // Another process may be quicker to take a port.
        for _ in 0..5 {
            let port = free_port().expect("a free port");
            let settings = format!(
                "port {port}\nbind 127.0.0.1\nlogfile \"{log}\"\n\
                 sentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {NAME} 5000\n",
                log = folder.path().join("log").display(),
            );
            let file = folder.path().join("sentinel.conf");
            fs::write(&file, settings).expect("a file in a folder of ours");
            let mut process = program(&default_program())
                .arg(&file)
                .arg("--sentinel")
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("the server's program can be run");
            let answers = || {
                RawClient::try_connect(port)
                    .and_then(|mut client| client.try_call(&[b"PING"]))
                    .is_ok()
            };
            let mut exited = false;
            try_wait_for(AGREEMENT, || {
                exited = matches!(process.try_wait(), Ok(Some(_)));
                exited || answers()
            });
            if !exited {
                return Self {
                    process,
                    port,
                    folder,
                };
            }
        }
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("a sentinel did not start; its log:\n{log}");
    }

    #[track_caller]
    fn state(&self) -> State {
        let mut client = RawClient::connect(self.port);
        let primary = fields(&client.text(&["SENTINEL", "MASTER", NAME]));
        let Reply::Array(Some(replicas)) = client.text(&["SENTINEL", "REPLICAS", NAME]) else {
            panic!("no replicas")
        };
        State {
            primary: field(&primary, "port").parse().expect("a port"),
            flags: field(&primary, "flags"),
            others: field(&primary, "num-other-sentinels")
                .parse()
                .expect("a number"),
            replicas: replicas
                .iter()
                .map(|replica| field(&fields(replica), "flags"))
                .collect(),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Nothing to do about an error here, and a panic would abort.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("--- log of the sentinel on port {} ---\n{log}", self.port);
        }
    }
}

/// Names and values in turn.
#[track_caller]
fn fields(reply: &Reply) -> Vec<String> {
    let Reply::Array(Some(items)) = reply else {
        panic!("no fields: {reply:?}")
    };
    items
        .iter()
        .map(|item| {
            let bytes = item.clone().bytes().unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .collect()
}

fn field(fields: &[String], name: &str) -> String {
    let pair = fields.chunks_exact(2).find(|pair| pair[0] == name);
    pair.map(|pair| pair[1].clone()).unwrap_or_default()
}
