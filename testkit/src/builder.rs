//! What a server is started with.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::launch::{default_program, installed_version, Home, Launch, CONFIGURATION, LOG};
use crate::{HeldClock, Server, StartError};

/// What a server is started with. See [`Server::builder`].
#[derive(Clone, Debug, Default)]
pub struct ServerBuilder {
    program: Option<String>,
    module: Option<PathBuf>,
    module_args: Vec<String>,
    clock: Clock,
    config: Vec<(String, String)>,
    args: Vec<String>,
    dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Default)]
enum Clock {
    #[default]
    True,
    HeldAt(i64),
    Shared(Arc<HeldClock>),
}

impl ServerBuilder {
    /// The program to start, with leading arguments if there are blanks in it,
    /// instead of what `TOKENBUCKET_SERVER` names.
    #[must_use]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// The module to load at the start.
    #[must_use]
    pub fn module(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = Some(path.into());
        self
    }

    /// The arguments that the module gets.
    #[must_use]
    pub fn module_args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.module_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Puts the server under a clock of its own that stands still at `us`
    /// microseconds since 1970.
    #[must_use]
    pub fn held_clock(mut self, us: i64) -> Self {
        self.clock = Clock::HeldAt(us);
        self
    }

    /// Puts the server under the clock of `other`.
    ///
    /// # Panics
    ///
    /// When `other` runs on the true clock.
    #[must_use]
    pub fn clock_of(mut self, other: &Server) -> Self {
        self.clock = Clock::Shared(other.shared_clock());
        self
    }

    /// One line of the configuration file: `name value`, where `value` may hold
    /// several words as there (`config("save", "60 1")`). An empty value is
    /// written as `""`. Later lines rule over earlier ones and over the kit's
    /// own. The port is no setting: the kit chooses it.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// Arguments at the end of the command line, as they are (`["--hz", "100"]`).
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Keeps an append-only file. Nothing is synced to the disk: what the server
    /// has written outlives its death, and no write waits for a slow disk.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "no")
    }

    /// Makes the server a replica of `primary`. It starts before the two are in
    /// step: see [`Server::wait_for_sync`].
    #[must_use]
    pub fn replica_of(self, primary: &Server) -> Self {
        self.config("replicaof", format!("127.0.0.1 {}", primary.port()))
    }

    /// Allows DEBUG from the loopback interface, which Redis 7.0 and later
    /// refuse by default.
    #[must_use]
    pub fn debug_commands(self) -> Self {
        self.config_from_7("enable-debug-command", "local")
    }

    /// Allows MODULE LOAD and MODULE UNLOAD from the loopback interface, which
    /// Redis 7.0 and later refuse by default.
    #[must_use]
    pub fn module_commands(self) -> Self {
        self.config_from_7("enable-module-command", "local")
    }

    /// Uses `dir` instead of a new folder. It must exist, and is kept.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start; the message holds its log.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// When the program can't be run, exits, or does not answer within 60
    /// seconds. The error holds what the server has logged.
    pub fn try_start(self) -> Result<Server, StartError> {
        let home = match &self.dir {
            Some(dir) => Home::Lent(dir.clone()),
            None => Home::Own(TempDir::with_prefix("tokenbucket-").map_err(StartError::from_io)?),
        };
        let dir = home.path();
        let clock = match &self.clock {
            Clock::True => None,
            Clock::HeldAt(us) => {
                let clock = HeldClock::create_in(dir, *us).map_err(StartError::from_io)?;
                Some(Arc::new(clock))
            }
            Clock::Shared(clock) => Some(Arc::clone(clock)),
        };
        fs::write(dir.join(CONFIGURATION), self.configuration(dir)).map_err(StartError::from_io)?;
        let launch = Launch {
            program: self.program.clone().unwrap_or_else(default_program),
            args: self.args.clone(),
            environment: clock.iter().flat_map(|clock| clock.environment()).collect(),
            dir: dir.to_path_buf(),
        };
        let (child, port) = launch.start(None)?;
        Ok(Server::running(self, launch, home, clock, child, port))
    }

    /// The builder of a server like this one that owns no folder or clock yet.
    pub(crate) fn sibling(&self) -> Self {
        Self {
            dir: None,
            clock: Clock::True,
            ..self.clone()
        }
    }

    /// A directive that servers before 7.0 refuse to start with.
    fn config_from_7(self, name: &str, value: &str) -> Self {
        let program = self.program.clone().unwrap_or_else(default_program);
        match installed_version(&program) {
            Some((_, (major, _, _))) if major < 7 => self,
            _ => self.config(name, value),
        }
    }

    fn configuration(&self, dir: &Path) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_string(),
            "daemonize no".to_string(),
            "loglevel notice".to_string(),
            format!("logfile {}", quoted(&dir.join(LOG))),
            format!("dir {}", quoted(dir)),
            "save \"\"".to_string(),
            "appendonly no".to_string(),
            // A replica that asks is served at once, not 5 seconds later.
            "repl-diskless-sync-delay 0".to_string(),
        ];
        if let Some(module) = &self.module {
            let args: String = self
                .module_args
                .iter()
                .map(|arg| format!(" {arg}"))
                .collect();
            lines.push(format!("loadmodule {}{args}", quoted(module)));
        }
        for (name, value) in &self.config {
            let value = if value.is_empty() { "\"\"" } else { value };
            lines.push(format!("{name} {value}"));
        }
        lines.join("\n") + "\n"
    }
}

/// A path as one word of the configuration file.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_paths() {
        assert_eq!(quoted(Path::new("/a b/\"c")), "\"/a b/\\\"c\"");
    }
}
