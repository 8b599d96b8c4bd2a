//! A running server.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::launch::{Home, Launch};
use crate::{try_wait_for, wait_for, HeldClock, RawClient, Reply, ServerBuilder, StartError};

/// How long the kit waits for a server to do what it was told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server of its own for one test: a real process on a free port of the
/// loopback interface, with a folder that nobody else uses. It is killed and
/// reaped on drop; when the thread is panicking then, its log is printed.
///
/// The program must become the server (`exec`), not start it as a child: only
/// the process that the kit has started is killed.
#[derive(Debug)]
pub struct Server {
    pub(crate) builder: ServerBuilder,
    launch: Launch,
    home: Home,
    clock: Option<Arc<HeldClock>>,
    child: Child,
    port: u16,
    /// The kit's own connection, kept so that thousands of looks at TIME do not
    /// use up the ports of the machine.
    control: Mutex<Option<RawClient>>,
    pub(crate) about: OnceLock<(bool, (u32, u32, u32))>,
}

impl Server {
    /// The builder of a server that keeps nothing on disk, loads no module and
    /// runs on the true clock.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub(crate) fn running(
        builder: ServerBuilder,
        launch: Launch,
        home: Home,
        clock: Option<Arc<HeldClock>>,
        child: Child,
        port: u16,
    ) -> Self {
        let server = Self {
            builder,
            launch,
            home,
            clock,
            child,
            port,
            control: Mutex::new(None),
            about: OnceLock::new(),
        };
        if server.clock.is_some() {
            server.settle();
        }
        server
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder that holds its files: `server.conf`, `server.log`, dumps.
    pub fn dir(&self) -> &Path {
        self.home.path()
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged until now, its console first.
    pub fn log(&self) -> String {
        self.launch.log()
    }

    /// A client of the `redis` crate, RESP2.
    ///
    /// # Panics
    ///
    /// Never in practice: the address is one.
    pub fn client(&self) -> redis::Client {
        self.client_for("")
    }

    /// A connection of the `redis` crate, RESP2, whose reads take at most 30
    /// seconds.
    ///
    /// # Panics
    ///
    /// When the server takes none.
    #[track_caller]
    pub fn connection(&self) -> redis::Connection {
        connection(&self.client())
    }

    /// A connection of the `redis` crate that speaks RESP3, otherwise as
    /// [`Server::connection`].
    ///
    /// # Panics
    ///
    /// When the server takes none.
    #[track_caller]
    pub fn resp3_connection(&self) -> redis::Connection {
        connection(&self.client_for("?protocol=resp3"))
    }

    /// A connection that sees the bytes.
    ///
    /// # Panics
    ///
    /// When the server takes none.
    #[track_caller]
    pub fn raw(&self) -> RawClient {
        RawClient::connect(self.port)
    }

    fn client_for(&self, settings: &str) -> redis::Client {
        let address = format!("redis://127.0.0.1:{}/{settings}", self.port);
        redis::Client::open(address).expect("an address of the loopback interface")
    }

    /// The clock this server runs under.
    ///
    /// # Panics
    ///
    /// When it was not started with one.
    #[track_caller]
    pub fn clock(&self) -> &HeldClock {
        self.clock.as_deref().expect("a server with a held clock")
    }

    #[track_caller]
    pub(crate) fn shared_clock(&self) -> Arc<HeldClock> {
        Arc::clone(self.clock.as_ref().expect("a server with a held clock"))
    }

    /// Makes the clock stand still at `us` microseconds since 1970, and waits
    /// until TIME shows it.
    ///
    /// # Panics
    ///
    /// When it does not within 30 seconds, or the server has no held clock.
    #[track_caller]
    pub fn hold(&self, us: i64) {
        self.clock().hold_at(us);
        self.settle();
    }

    /// Moves the clock forward by `step`, and waits until TIME shows it.
    ///
    /// # Panics
    ///
    /// As [`Server::hold`].
    #[track_caller]
    pub fn advance(&self, step: Duration) {
        self.clock().advance(step);
        self.settle();
    }

    /// Sets the clock back by `step`, and waits until TIME shows it.
    ///
    /// # Panics
    ///
    /// As [`Server::hold`].
    #[track_caller]
    pub fn step_back(&self, step: Duration) {
        self.clock().step_back(step);
        self.settle();
    }

    /// Waits until TIME agrees with the clock: to the microsecond when that is
    /// held, to 50 ms when it runs.
    ///
    /// # Panics
    ///
    /// As [`Server::hold`].
    #[track_caller]
    pub fn settle(&self) {
        let clock = self.clock();
        let most = if clock.is_held() { 0 } else { 50_000 };
        let mut shown = 0;
        let agrees = try_wait_for(PATIENCE, || {
            shown = self.time_us();
            shown.abs_diff(clock.now_us()) <= most
        });
        let held = clock.now_us();
        assert!(agrees, "TIME shows {shown} while the clock is at {held}");
    }

    /// Whether it takes connections.
    pub fn is_running(&self) -> bool {
        RawClient::try_connect(self.port).is_ok()
    }

    /// Kills the server with SIGKILL, while others look at it. It is reaped by the next
    /// [`Server::kill`], [`Server::restart`] or drop.
    ///
    /// # Panics
    ///
    /// When the system refuses to.
    #[track_caller]
    pub fn kill_at_once(&self) {
        // The shell's own kill: there may be no program of that name.
        let killed = Command::new("sh")
            .args(["-c", "kill -9 \"$0\"", &self.pid().to_string()])
            .status();
        assert!(killed.is_ok_and(|status| status.success()), "kill -9");
    }

    /// Kills the server with SIGKILL and reaps it.
    ///
    /// # Panics
    ///
    /// When the system refuses to.
    pub fn kill(&mut self) {
        self.forget_control();
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be reaped");
    }

    /// Sends SHUTDOWN NOSAVE and reaps the server.
    ///
    /// # Panics
    ///
    /// When it goes on running for 30 seconds.
    #[track_caller]
    pub fn shutdown(&mut self) {
        // The connection ends instead of a reply.
        let _ = self.raw().try_call(&[b"SHUTDOWN", b"NOSAVE"]);
        self.forget_control();
        let child = &mut self.child;
        wait_for("the server to shut down", PATIENCE, || {
            matches!(child.try_wait(), Ok(Some(_)))
        });
    }

    /// Kills the server with SIGKILL if it runs, and starts it again with the
    /// same folder, configuration file and arguments; with the same port too,
    /// unless that was taken meanwhile.
    ///
    /// # Panics
    ///
    /// When it does not start; the message holds its log.
    #[track_caller]
    pub fn restart(&mut self) {
        if let Err(error) = self.try_restart() {
            panic!("{error}");
        }
    }

    /// As [`Server::restart`].
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::try_start`].
    pub fn try_restart(&mut self) -> Result<(), StartError> {
        self.kill();
        let (child, port) = self.launch.start(Some(self.port))?;
        self.child = child;
        self.port = port;
        self.about = OnceLock::new();
        if self.clock.is_some() {
            self.settle();
        }
        Ok(())
    }

    /// Asks over the kit's own connection, made anew when the old one is broken
    /// (CLIENT KILL, a restart).
    #[track_caller]
    pub(crate) fn ask(&self, args: &[&str]) -> Reply {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = control.as_mut() {
            if let Ok(reply) = client.try_call(&args) {
                return reply;
            }
        }
        let client = control.insert(self.raw());
        client.call(&args)
    }

    fn forget_control(&self) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether servers are to end by themselves, so that what runs them (valgrind) can
/// report what they left behind, instead of being killed.
fn ends_by_itself() -> bool {
    std::env::var_os("TOKENBUCKET_GENTLE").is_some()
}

#[track_caller]
fn connection(client: &redis::Client) -> redis::Connection {
    let connection = client
        .get_connection_with_timeout(PATIENCE)
        .expect("the server takes a connection");
    let limit = Some(PATIENCE);
    connection
        .set_read_timeout(limit)
        .expect("30 s is a time-out");
    connection
        .set_write_timeout(limit)
        .expect("30 s is a time-out");
    connection
}

impl Drop for Server {
    fn drop(&mut self) {
        if ends_by_itself() && !thread::panicking() {
            let asked = RawClient::try_connect(self.port)
                .and_then(|mut client| client.try_call(&[b"SHUTDOWN", b"NOSAVE"]));
            // The connection ends instead of a reply.
            if asked.is_err() {
                let child = &mut self.child;
                try_wait_for(PATIENCE, || {
                    matches!(child.try_wait(), Ok(Some(_)) | Err(_))
                });
            }
        }
        // Nothing to do about an error here, and a panic would abort.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!(
                "--- log of the server on port {} ---\n{}",
                self.port,
                self.log()
            );
        }
    }
}
