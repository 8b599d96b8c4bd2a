//! Snapshots and rewrites of the append-only file, waited for.

use std::path::PathBuf;

use crate::server::PATIENCE;
use crate::{aof, wait_for, Reply, Server};

const SAVED: &str = "Background saving terminated with success";
const REWRITTEN: &str = "Background AOF rewrite finished successfully";

impl Server {
    /// BGSAVE, until it has succeeded.
    ///
    /// # Panics
    ///
    /// When it is refused, or has not succeeded within 30 seconds.
    #[track_caller]
    pub fn bgsave(&self) {
        self.in_background("BGSAVE", SAVED, || ());
    }

    /// BGREWRITEAOF, until it has succeeded.
    ///
    /// # Panics
    ///
    /// As [`Server::bgsave`].
    #[track_caller]
    pub fn rewrite_aof(&self) {
        self.rewrite_aof_while(|| ());
    }

    /// BGREWRITEAOF, until `meanwhile` has been done and the rewrite has succeeded.
    /// Calls without a pause must end with `meanwhile`: before Redis 7.0 a rewrite
    /// reads them for a second of a clock that may stand still.
    ///
    /// # Panics
    ///
    /// As [`Server::bgsave`].
    #[track_caller]
    pub fn rewrite_aof_while(&self, meanwhile: impl FnOnce()) {
        self.in_background("BGREWRITEAOF", REWRITTEN, meanwhile);
    }

    /// How many snapshots have succeeded in the background, by BGSAVE or by a
    /// `save` rule.
    pub fn background_saves(&self) -> usize {
        self.said(SAVED)
    }

    /// The file that the newest writes are appended to.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    pub fn aof_file(&self) -> PathBuf {
        aof::newest(self.dir()).expect("a server with an append-only file")
    }

    fn said(&self, line: &str) -> usize {
        self.log().matches(line).count()
    }

    #[track_caller]
    fn in_background(&self, command: &str, done: &str, meanwhile: impl FnOnce()) {
        let before = self.said(done);
        let reply = self.ask(&[command]);
        assert!(matches!(reply, Reply::Simple(_)), "{command}: {reply:?}");
        meanwhile();
        wait_for(&format!("{command} to be done"), PATIENCE, || {
            self.said(done) > before
        });
    }
}
