//! What a primary sends to its replicas.

use crate::aof::Command;
use crate::{RawClient, Reply, Server};

/// A connection that has asked for replication as a replica does, and reads what
/// comes.
#[derive(Debug)]
pub struct ReplicationStream {
    client: RawClient,
}

impl Server {
    /// All that is replicated from now on.
    ///
    /// # Panics
    ///
    /// When the server does not take the connection for a replica's.
    #[track_caller]
    pub fn replication_stream(&self) -> ReplicationStream {
        let mut client = self.raw();
        // The old command: with it the server wants no acknowledgements.
        client.send(&[b"SYNC"]);
        client.skip_snapshot().expect("a snapshot comes first");
        ReplicationStream { client }
    }
}

impl ReplicationStream {
    /// The next command with its arguments. What belongs to the connection and
    /// changes no key is left out: SELECT, and the server's own PING and REPLCONF.
    ///
    /// # Panics
    ///
    /// When none comes within 30 seconds.
    #[track_caller]
    pub fn next_command(&mut self) -> Command {
        let own = [&b"SELECT"[..], b"PING", b"REPLCONF"];
        loop {
            let Reply::Array(Some(args)) = self.client.read_reply() else {
                panic!("no command: {}", self.client.last_bytes().escape_ascii());
            };
            let args: Option<Command> = args.into_iter().map(Reply::bytes).collect();
            let args = args.expect("arguments are strings");
            if !own.contains(&args[0].to_ascii_uppercase().as_slice()) {
                return args;
            }
        }
    }

    /// The commands up to the one that sets `key`, without that one.
    ///
    /// # Panics
    ///
    /// When it does not come within 30 seconds.
    #[track_caller]
    pub fn until_set(&mut self, key: &[u8]) -> Vec<Command> {
        let mut commands = Vec::new();
        loop {
            let command = self.next_command();
            if command[0].eq_ignore_ascii_case(b"SET") && command[1] == key {
                return commands;
            }
            commands.push(command);
        }
    }
}
