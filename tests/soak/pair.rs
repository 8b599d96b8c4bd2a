//! A primary and its replica, which take turns.

use std::time::Duration;

use tokenbucket_testkit::{module_path, wait_for, RawClient, Reply, Server};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Pair {
    pub primary: Server,
    pub replica: Server,
}

impl Pair {
    /// Both with an append-only file that is written before a call is answered, so
    /// that nothing acknowledged is lost to a kill -9.
    pub fn start() -> Self {
        let settings = || {
            Server::builder()
                .module(module_path())
                .module_commands()
                .debug_commands()
                .config("appendonly", "yes")
                .config("appendfsync", "always")
                .config("auto-aof-rewrite-percentage", "0")
                .config("repl-diskless-sync-delay", "0")
        };
        let primary = settings().start();
        let replica = settings().replica_of(&primary).start();
        let pair = Self { primary, replica };
        pair.wait_for_sync();
        pair
    }

    pub fn wait_for_sync(&self) {
        self.replica.wait_for_sync(&self.primary);
    }

    /// From now on the replica is told nothing.
    pub fn part(&self) {
        done(&self.replica, &["REPLICAOF", "NO", "ONE"]);
    }

    /// The replica becomes the primary, and the other, started again if it was
    /// killed, its replica.
    pub fn fail_over(&mut self) {
        done(&self.replica, &["REPLICAOF", "NO", "ONE"]);
        std::mem::swap(&mut self.primary, &mut self.replica);
        if RawClient::try_connect(self.replica.port()).is_err() {
            self.replica.restart();
        }
        let port = self.primary.port().to_string();
        done(&self.replica, &["REPLICAOF", "127.0.0.1", &port]);
        // A restart finds the role that it has now.
        for server in [&self.primary, &self.replica] {
            done(server, &["CONFIG", "REWRITE"]);
        }
    }

    pub fn rewrite_aof(&self) {
        done_soon(&self.primary, &["BGREWRITEAOF"]);
        wait_for("the rewrite", PATIENCE, || {
            let info = self.primary.info("persistence");
            info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
        });
        let info = self.primary.info("persistence");
        assert_eq!(info["aof_last_bgrewrite_status"], "ok");
    }

    pub fn save(&self) {
        done_soon(&self.primary, &["BGSAVE"]);
        wait_for("the snapshot", PATIENCE, || {
            self.primary.info("persistence")["rdb_bgsave_in_progress"] == "0"
        });
        let info = self.primary.info("persistence");
        assert_eq!(info["rdb_last_bgsave_status"], "ok");
    }

    pub fn reload(&self) {
        done(&self.primary, &["DEBUG", "RELOAD"]);
    }

    pub fn upgrade(&self) {
        let path = module_path();
        done(&self.primary, &["MODULE", "UNLOAD", "tokenbucket"]);
        done(&self.primary, &["MODULE", "LOAD", path.to_str().unwrap()]);
    }

    #[track_caller]
    pub fn assert_same_bytes(&self, keys: &[&str]) {
        let (mut primary, mut replica) = (self.primary.raw(), self.replica.raw());
        for key in keys {
            assert_eq!(
                primary.text(&["GET", key]),
                replica.text(&["GET", key]),
                "{key} on the primary and on the replica"
            );
        }
    }
}

#[track_caller]
fn done(server: &Server, call: &[&str]) {
    let reply = server.raw().text(call);
    assert_eq!(reply.error(), None, "{call:?}");
}

/// As `done`, but a child of the server that saves already (for a replica that syncs)
/// is waited for.
#[track_caller]
fn done_soon(server: &Server, call: &[&str]) {
    let mut reply = Reply::Null;
    wait_for(&call.join(" "), PATIENCE, || {
        reply = server.raw().text(call);
        !reply
            .error()
            .is_some_and(|error| error.contains("in progress") || error.contains("child"))
    });
    assert_eq!(reply.error(), None, "{call:?}");
}
