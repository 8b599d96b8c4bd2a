//! A proxy that injects faults between a client and a server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How soon an idle connection sees that the fault has changed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a [`FaultProxy`] does to what passes through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Forward,
    /// Takes connections and bytes, and lets nothing through in either direction. A
    /// connection that lost bytes this way stays silent for ever, as behind a firewall
    /// that has forgotten it.
    BlackHole,
    /// Holds everything back; when the fault is over it goes on its way.
    Stall,
    /// Requests are carried out, their replies are dropped.
    SwallowReplies,
    /// The next request is carried out, and the connection is closed in the place of its
    /// reply.
    CutAfterExecution,
    /// The first half of the next reply, and the connection is closed.
    HalfReply,
    /// These bytes in the place of each reply.
    Replace(Vec<u8>),
    /// Each reply is held back so long.
    Delay(Duration),
    /// Connections are taken and closed at once; so are those that are open.
    Close,
}

/// A TCP proxy on a free port of the loopback interface. Everything ends when it is
/// dropped.
///
/// The faults that are about replies meet the replies to requests that hold `TB.` only, so
/// that a client can shake hands.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<Fault>,
    changed: Condvar,
    target: AtomicU16,
    listening: AtomicBool,
    dials: AtomicU64,
    connections: Mutex<Vec<Arc<Connection>>>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Commands of the kind that the faults are about, sent and not answered yet.
    pending: AtomicUsize,
    /// It lost bytes and will never pass any again.
    dead: AtomicBool,
    closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultProxy {
    /// A proxy to `port` on 127.0.0.1, which forwards until it is told otherwise.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    #[track_caller]
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let own = listener.local_addr().expect("its own address").port();
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::Forward),
            changed: Condvar::new(),
            target: AtomicU16::new(port),
            listening: AtomicBool::new(true),
            dials: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        shared.listen(listener);
        Self { port: own, shared }
    }

    /// Its own port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on new connections go to `port`; those that are open stay where they are.
    pub fn retarget(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// From now on all connections meet `fault`.
    pub fn set(&self, fault: Fault) {
        let close = fault == Fault::Close;
        *lock(&self.shared.fault) = fault;
        self.shared.changed.notify_all();
        if close {
            self.cut_all();
        }
    }

    /// Closes all connections.
    pub fn cut_all(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            connection.close();
        }
    }

    /// How many connections were made to it.
    pub fn dials(&self) -> u64 {
        self.shared.dials.load(Ordering::SeqCst)
    }

    /// Refuses new connections, and closes those that are open.
    pub fn refuse(&self) {
        if self.shared.listening.swap(false, Ordering::SeqCst) {
            // Wakes the one who listens, who then goes.
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
            crate::wait_for("the port to be closed", Duration::from_secs(10), || {
                TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
            });
        }
        self.cut_all();
    }

    /// Takes connections again after [`refuse`](Self::refuse), on the same port.
    ///
    /// # Panics
    ///
    /// When somebody else has taken the port.
    #[track_caller]
    pub fn listen_again(&self) {
        if !self.shared.listening.swap(true, Ordering::SeqCst) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port));
            self.shared.listen(listener.expect("its own port"));
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.refuse();
        // Those that hold bytes back look up.
        self.set(Fault::Close);
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: TcpListener) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if !shared.listening.load(Ordering::SeqCst) {
                    return;
                }
                shared.dials.fetch_add(1, Ordering::SeqCst);
                // An error here is one between two others: they see a closed connection.
                let _ = shared.take(client);
            }
        });
    }

    fn take(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        if *lock(&self.fault) == Fault::Close {
            return Ok(());
        }
        let target = (Ipv4Addr::LOCALHOST, self.target.load(Ordering::SeqCst));
        let server = TcpStream::connect(target)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK_EVERY))?;
        }
        let connection = Arc::new(Connection {
            client,
            server,
            pending: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        lock(&self.connections).push(Arc::clone(&connection));
        for requests in [true, false] {
            let (shared, connection) = (Arc::clone(self), Arc::clone(&connection));
            thread::spawn(move || {
                // An error ends it, as the end of the stream does.
                let _ = if requests {
                    shared.pass_requests(&connection)
                } else {
                    shared.pass_replies(&connection)
                };
                connection.close();
            });
        }
        Ok(())
    }

    /// The fault, once it is none that holds everything back.
    fn fault(&self) -> Fault {
        let mut fault = lock(&self.fault);
        while *fault == Fault::Stall {
            fault = self
                .changed
                .wait(fault)
                .unwrap_or_else(PoisonError::into_inner);
        }
        fault.clone()
    }

    fn pass_requests(&self, connection: &Connection) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        while let Some(bytes) = connection.read(&connection.client, &mut buffer)? {
            if self.fault() == Fault::BlackHole {
                connection.dead.store(true, Ordering::SeqCst);
            }
            if connection.dead.load(Ordering::SeqCst) {
                continue;
            }
            let commands = bytes.windows(3).filter(|word| word == b"TB.").count();
            connection.pending.fetch_add(commands, Ordering::SeqCst);
            (&connection.server).write_all(bytes)?;
        }
        Ok(())
    }

    fn pass_replies(&self, connection: &Connection) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        while let Some(bytes) = connection.read(&connection.server, &mut buffer)? {
            let fault = self.fault();
            if fault == Fault::BlackHole {
                connection.dead.store(true, Ordering::SeqCst);
            }
            if connection.dead.load(Ordering::SeqCst) {
                continue;
            }
            let pending = connection.pending.swap(0, Ordering::SeqCst);
            let mut client = &connection.client;
            match fault {
                Fault::Close => return Ok(()),
                _ if pending == 0 => client.write_all(bytes)?,
                Fault::SwallowReplies => {}
                Fault::CutAfterExecution => return Ok(()),
                Fault::HalfReply => {
                    client.write_all(&bytes[..bytes.len() / 2])?;
                    return Ok(());
                }
                Fault::Replace(reply) => client.write_all(&reply.repeat(pending))?,
                Fault::Delay(time) => {
                    thread::sleep(time);
                    client.write_all(bytes)?;
                }
                Fault::Forward | Fault::BlackHole | Fault::Stall => client.write_all(bytes)?,
            }
        }
        Ok(())
    }
}

impl Connection {
    /// The next bytes; `None` at the end.
    fn read<'b>(
        &self,
        mut stream: &TcpStream,
        buffer: &'b mut [u8],
    ) -> io::Result<Option<&'b [u8]>> {
        loop {
            match stream.read(buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => return Ok(Some(&buffer[..count])),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    if self.closed.load(Ordering::SeqCst) {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // It may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{wait_for, RawClient, Reply, Server};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn count(server: &Server) -> Reply {
        server.raw().text(&["GET", "TB.k"])
    }

    fn counted(times: &str) -> Reply {
        Reply::Bulk(Some(times.into()))
    }

    fn incr(client: &mut RawClient) -> io::Result<Reply> {
        client.try_call(&[b"INCR", b"TB.k"])
    }

    #[test]
    fn each_fault_does_what_it_says() {
        let server = Server::builder().start();
        let proxy = FaultProxy::to(server.port());
        let connect = || {
            let client = RawClient::connect(proxy.port());
            client.set_read_timeout(Some(Duration::from_millis(300)));
            client
        };
        let mut client = connect();
        assert_eq!(incr(&mut client).unwrap(), Reply::Integer(1));
        assert_eq!(proxy.dials(), 1);

        proxy.set(Fault::SwallowReplies);
        assert!(incr(&mut client).is_err());
        assert_eq!(count(&server), counted("2"));
        // Other replies pass.
        let ping = connect().text(&["PING"]);
        assert_eq!(ping, Reply::Simple("PONG".into()));

        proxy.set(Fault::CutAfterExecution);
        let error = incr(&mut connect()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(count(&server), counted("3"));

        proxy.set(Fault::HalfReply);
        assert!(incr(&mut connect()).is_err());
        assert_eq!(count(&server), counted("4"));

        proxy.set(Fault::Replace(b"-BUSY no\r\n".to_vec()));
        let reply = incr(&mut connect()).unwrap();
        assert_eq!(reply.error(), Some("BUSY no"));
        assert_eq!(count(&server), counted("5"));

        proxy.set(Fault::BlackHole);
        let mut hole = connect();
        assert!(incr(&mut hole).is_err());
        proxy.set(Fault::Forward);
        assert!(hole.try_read_reply().is_err());
        assert_eq!(count(&server), counted("5"));

        proxy.set(Fault::Stall);
        let mut stalled = connect();
        assert!(incr(&mut stalled).is_err());
        assert_eq!(count(&server), counted("5"));
        proxy.set(Fault::Forward);
        assert_eq!(stalled.try_read_reply().unwrap(), Reply::Integer(6));

        proxy.set(Fault::Close);
        assert!(stalled.try_call(&[b"PING"]).is_err());
        let mut closed = connect();
        assert!(closed.try_call(&[b"PING"]).is_err());
    }

    #[test]
    fn refuses_and_takes_again() {
        let (one, other) = (Server::builder().start(), Server::builder().start());
        other.raw().text(&["SET", "who", "other"]);
        let proxy = FaultProxy::to(one.port());
        let mut old = RawClient::connect(proxy.port());
        assert_eq!(old.text(&["GET", "who"]), Reply::Bulk(None));
        proxy.retarget(other.port());
        assert_eq!(old.text(&["GET", "who"]), Reply::Bulk(None));
        let who = RawClient::connect(proxy.port()).text(&["GET", "who"]);
        assert_eq!(who, counted("other"));

        proxy.refuse();
        assert!(old.try_call(&[b"PING"]).is_err());
        assert!(RawClient::try_connect(proxy.port()).is_err());
        proxy.listen_again();
        wait_for("connections again", PATIENCE, || {
            RawClient::try_connect(proxy.port()).is_ok()
        });
    }
}
