//! Starting the process of a server.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{try_wait_for, RawClient, Reply};

/// Long enough for a server under an instruction counter.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How many ports to try when other processes are quicker to take them.
const PORTS: usize = 20;
/// The file names in the folder of a server.
pub(crate) const CONFIGURATION: &str = "server.conf";
/// What a server says before it has opened its log, or instead of it.
const CONSOLE: &str = "console.log";
pub(crate) const LOG: &str = "server.log";
const LOGS: [&str; 2] = [CONSOLE, LOG];

/// The folder of a server.
#[derive(Debug)]
pub(crate) enum Home {
    /// Deleted with the server.
    Own(TempDir),
    Lent(PathBuf),
}

impl Home {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Home::Own(dir) => dir.path(),
            Home::Lent(dir) => dir,
        }
    }
}

/// All that is needed to start the same server again.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) dir: PathBuf,
}

impl Launch {
    /// Starts the server on `port`, or on another one when that is taken.
    pub(crate) fn start(&self, port: Option<u16>) -> Result<(Child, u16), StartError> {
        let mut wanted = port;
        for _ in 0..PORTS {
            let port = match wanted.take() {
                Some(port) => port,
                None => free_port().map_err(StartError::from_io)?,
            };
            let mark = self.log_mark();
            let mut child = self.spawn(port)?;
            match self.wait_until_ready(&mut child, port, mark) {
                Ok(()) => return Ok((child, port)),
                Err(reason) => {
                    // Both fail only when it has exited already.
                    let _ = child.kill();
                    let _ = child.wait();
                    let log = self.log_since(mark);
                    if !log.contains("Address already in use") {
                        return Err(StartError::new(reason, &log));
                    }
                }
            }
        }
        Err(StartError::new(
            format!("{PORTS} ports were all taken by others"),
            &self.log(),
        ))
    }

    /// What the server wrote to its standard output and error streams, then what
    /// it wrote to its log file.
    pub(crate) fn log(&self) -> String {
        self.log_since([0, 0])
    }

    /// How long each of the two files of the log is now.
    fn log_mark(&self) -> [usize; 2] {
        LOGS.map(|name| self.read(name).len())
    }

    /// What was logged since the mark was taken.
    fn log_since(&self, mark: [usize; 2]) -> String {
        let [console, log] = LOGS.map(|name| self.read(name));
        let new = [
            console.get(mark[0]..).unwrap_or_default(),
            log.get(mark[1]..).unwrap_or_default(),
        ];
        String::from_utf8_lossy(&new.concat()).into_owned()
    }

    /// A file of the log; one that is not there yet is empty.
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.join(name)).unwrap_or_default()
    }

    fn spawn(&self, port: u16) -> Result<Child, StartError> {
        let console = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(CONSOLE))
            .map_err(StartError::from_io)?;
        let errors = console.try_clone().map_err(StartError::from_io)?;
        program(&self.program)
            .arg(self.dir.join(CONFIGURATION))
            .args(["--port", &port.to_string()])
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(console)
            .stderr(errors)
            .spawn()
            .map_err(|error| StartError::new(format!("{}: {error}", self.program), ""))
    }

    /// Waits until the server says in its log that it is ready, and answers.
    /// The log is asked first: on a port that another process was quicker to
    /// take, that process may answer in place of ours.
    fn wait_until_ready(
        &self,
        child: &mut Child,
        port: u16,
        mark: [usize; 2],
    ) -> Result<(), String> {
        let mut exited = None;
        let done = try_wait_for(START_DEADLINE, || {
            if let Ok(Some(status)) = child.try_wait() {
                exited = Some(status);
                return true;
            }
            let said = self.log_since(mark).contains("Ready to accept connections");
            said && answers(port)
        });
        match exited {
            Some(status) => Err(format!("the server has exited: {status}")),
            None if done => Ok(()),
            None => Err(format!(
                "the server did not answer within {START_DEADLINE:?}"
            )),
        }
    }
}

/// Whether somebody answers there. A server that wants a password is ready too.
fn answers(port: u16) -> bool {
    let reply = RawClient::try_connect(port).and_then(|mut client| client.try_call(&[b"PING"]));
    match reply {
        Ok(Reply::Simple(pong)) => pong == "PONG",
        Ok(Reply::Error(text)) => text.starts_with("NOAUTH"),
        _ => false,
    }
}

/// A port nobody listens on. Low enough for a cluster bus, which a server in
/// cluster mode opens 10,000 above.
pub(crate) fn free_port() -> io::Result<u16> {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if port < 55_000 {
            return Ok(port);
        }
    }
}

pub(crate) fn default_program() -> String {
    std::env::var("TOKENBUCKET_SERVER")
        .ok()
        .filter(|program| !program.trim().is_empty())
        .unwrap_or_else(|| "redis-server".to_string())
}

/// `program` and its leading arguments.
pub(crate) fn program(program: &str) -> Command {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Whether the server that the tests start is a Valkey, and its version as it
/// prints it itself; for a test that must know before it starts one.
///
/// # Panics
///
/// When the program can't be run or prints no version.
#[track_caller]
pub fn installed_server() -> (bool, (u32, u32, u32)) {
    let name = default_program();
    installed_version(&name).unwrap_or_else(|| panic!("{name} --version prints no version"))
}

pub(crate) fn installed_version(name: &str) -> Option<(bool, (u32, u32, u32))> {
    let output = program(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))?;
    Some((text.contains("Valkey"), parse_version(version)))
}

/// The three numbers of `7.0.15` or `9.1.0-rc1`; a number that is missing is 0.
pub(crate) fn parse_version(text: &str) -> (u32, u32, u32) {
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    reason: String,
    log: String,
}

impl StartError {
    fn new(reason: String, log: &str) -> Self {
        let log = log.to_string();
        Self { reason, log }
    }

    pub(crate) fn from_io(error: io::Error) -> Self {
        Self::new(error.to_string(), "")
    }

    /// What the server has logged at this start, its console included.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; its log:\n{}", self.reason, self.log)
    }
}

impl std::error::Error for StartError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        assert_eq!(parse_version("7.0.15"), (7, 0, 15));
        assert_eq!(parse_version("9.1.0-rc1"), (9, 1, 0));
        assert_eq!(parse_version("8"), (8, 0, 0));
        assert!(installed_server().1 .0 >= 6);
    }
}
