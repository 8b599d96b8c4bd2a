//! What can be asked of a running server: its version, INFO, TIME, its
//! append-only file, its replicas.

use std::collections::HashMap;
use std::time::Duration;

use crate::launch::parse_version;
use crate::server::PATIENCE;
use crate::{aof, try_wait_for, wait_for, Reply, Server};

impl Server {
    /// What TIME answers, in microseconds since 1970.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn time_us(&self) -> i64 {
        let reply = self.ask(&["TIME"]);
        let Reply::Array(Some(parts)) = reply else {
            panic!("no answer to TIME: {reply:?}");
        };
        let mut numbers = parts.into_iter().map(|part| -> i64 {
            let digits = part.bytes().expect("TIME answers strings");
            let digits = String::from_utf8(digits).expect("TIME answers digits");
            digits.parse().expect("TIME answers digits")
        });
        let mut next = || numbers.next().expect("TIME answers two numbers");
        next() * 1_000_000 + next()
    }

    /// Starts a replica of this server with the same module and settings, in a
    /// folder of its own and on the true clock, and waits until the two are in
    /// step. For a replica with other settings see
    /// [`ServerBuilder::replica_of`](crate::ServerBuilder::replica_of).
    ///
    /// # Panics
    ///
    /// When it does not start, or not get in step within 30 seconds.
    #[track_caller]
    pub fn start_replica(&self) -> Server {
        let replica = self.builder.sibling().replica_of(self).start();
        replica.wait_for_sync(self);
        replica
    }

    /// Waits until this replica has what `primary` has written until now.
    ///
    /// # Panics
    ///
    /// When it does not within 30 seconds.
    #[track_caller]
    pub fn wait_for_sync(&self, primary: &Server) {
        let offset = |server: &Server, name: &str| -> i64 {
            let info = server.info("replication");
            info.get(name)
                .and_then(|text| text.parse().ok())
                .unwrap_or(-1)
        };
        let target = offset(primary, "master_repl_offset");
        wait_for("the replica to be in step", PATIENCE, || {
            let info = self.info("replication");
            info.get("master_link_status")
                .is_some_and(|link| link == "up")
                && offset(self, "slave_repl_offset") >= target
        });
    }

    /// The commands in the append-only file, SELECT, MULTI and EXEC included, in
    /// the order of the file. What a rewrite has moved into a base file or an RDB
    /// preamble is not among them, nor is a command not yet written to its end.
    ///
    /// # Panics
    ///
    /// When the file can't be read or holds anything else.
    #[track_caller]
    pub fn aof_commands(&self) -> Vec<Vec<Vec<u8>>> {
        aof::read(self.dir()).expect("the append-only file can be read")
    }

    /// Waits until `predicate` says yes to the commands in the append-only file,
    /// and gives those.
    ///
    /// # Panics
    ///
    /// When it does not within `deadline`; the message holds the commands.
    #[track_caller]
    pub fn wait_for_aof(
        &self,
        deadline: Duration,
        mut predicate: impl FnMut(&[Vec<Vec<u8>>]) -> bool,
    ) -> Vec<Vec<Vec<u8>>> {
        let mut commands = Vec::new();
        let found = try_wait_for(deadline, || {
            commands = self.aof_commands();
            predicate(&commands)
        });
        if !found {
            let text = |arg: &Vec<u8>| arg.escape_ascii().to_string();
            let line = |args: &Vec<_>| args.iter().map(text).collect::<Vec<_>>().join(" ");
            let lines: Vec<_> = commands.iter().map(line).collect();
            panic!("the append-only file holds only:\n{}", lines.join("\n"));
        }
        commands
    }

    /// The version: of Valkey itself for a Valkey, not the Redis version that it
    /// claims to be compatible with.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn version(&self) -> (u32, u32, u32) {
        self.about().1
    }

    /// Whether it is a Valkey.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn is_valkey(&self) -> bool {
        self.about().0
    }

    #[track_caller]
    fn about(&self) -> (bool, (u32, u32, u32)) {
        *self.about.get_or_init(|| {
            let info = self.info("server");
            let version = |name| info.get(name).map(|text| parse_version(text));
            match version("valkey_version") {
                Some(version) => (true, version),
                None => (false, version("redis_version").unwrap_or_default()),
            }
        })
    }

    /// One section of INFO, its names with their values.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        let reply = self.ask(&["INFO", section]);
        let text = reply.bytes().expect("INFO answers a text");
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }
}
