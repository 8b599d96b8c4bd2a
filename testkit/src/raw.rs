//! A small blocking client that hides nothing of the protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::Reply;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A blocking connection to a server on the loopback interface. Nothing is sent
/// but what the test sends: no HELLO, no CLIENT SETINFO.
///
/// Methods without `try_` panic when the connection breaks, when the server
/// takes more than 30 seconds, or when the bytes are not RESP.
#[derive(Debug)]
pub struct RawClient {
    stream: BufReader<TcpStream>,
    /// The bytes of the reply last read.
    tape: Vec<u8>,
}

impl RawClient {
    /// Connects to `port` on 127.0.0.1.
    ///
    /// # Panics
    ///
    /// When nobody listens there.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("the server takes a connection")
    }

    /// Connects to `port` on 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When nobody listens there, or within 5 seconds nobody answers.
    pub fn try_connect(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
            tape: Vec::new(),
        })
    }

    /// How long a read may take; `None` for ever. 30 seconds at first.
    ///
    /// # Panics
    ///
    /// When the time is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(timeout).expect("a time above zero");
    }

    /// Sends one command, its arguments as bulk strings, and reads nothing.
    #[track_caller]
    pub fn send(&mut self, args: &[&[u8]]) {
        let bytes = encode(args);
        self.send_bytes(&bytes);
    }

    /// Sends `bytes` as they are, RESP or not.
    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).expect("the server reads");
    }

    /// Sends `bytes` as they are, RESP or not.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads the next reply.
    #[track_caller]
    pub fn read_reply(&mut self) -> Reply {
        self.try_read_reply().expect("the server answers")
    }

    /// Reads the next reply.
    ///
    /// # Errors
    ///
    /// When the connection is broken or the time is over, and `InvalidData`
    /// when the bytes are not RESP.
    pub fn try_read_reply(&mut self) -> io::Result<Reply> {
        self.tape.clear();
        self.parse()
    }

    /// The exact bytes of the reply that was read last.
    pub fn last_bytes(&self) -> &[u8] {
        &self.tape
    }

    /// Sends one command and reads its reply.
    #[track_caller]
    pub fn call(&mut self, args: &[&[u8]]) -> Reply {
        self.send(args);
        self.read_reply()
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    ///
    /// As [`RawClient::try_read_reply`].
    pub fn try_call(&mut self, args: &[&[u8]]) -> io::Result<Reply> {
        self.try_send_bytes(&encode(args))?;
        self.try_read_reply()
    }

    /// Sends one command given as texts and reads its reply.
    #[track_caller]
    pub fn text(&mut self, args: &[&str]) -> Reply {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.call(&args)
    }

    /// Sends all `commands` in one write, then reads one reply for each.
    #[track_caller]
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for command in commands {
            let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            bytes.extend(encode(&args));
        }
        self.send_bytes(&bytes);
        commands.iter().map(|_| self.read_reply()).collect()
    }

    /// Sends one TB.* command that answers four integers.
    ///
    /// # Errors
    ///
    /// The text of the server's error reply.
    #[track_caller]
    pub fn tb(&mut self, args: &[&str]) -> Result<[i64; 4], String> {
        self.text(args).four()
    }

    /// What a TB.* command, its words split at single blanks, is answered.
    ///
    /// # Panics
    ///
    /// When that is an error.
    #[track_caller]
    pub fn ask(&mut self, call: &str) -> [i64; 4] {
        let words: Vec<&str> = call.split(' ').collect();
        self.tb(&words)
            .unwrap_or_else(|error| panic!("{call}: {error}"))
    }

    /// Reads over the snapshot that a primary sends first: newlines while it is
    /// made, its length, and the bytes.
    pub(crate) fn skip_snapshot(&mut self) -> io::Result<()> {
        let mut line = Vec::new();
        while line.trim_ascii().is_empty() {
            line.clear();
            if self.stream.read_until(b'\n', &mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = line.trim_ascii().strip_prefix(b"$");
        let count = count.ok_or_else(|| not_resp(&line))?;
        let length = length(count, &line)?.ok_or_else(|| not_resp(&line))?;
        let mut snapshot = vec![0; length];
        self.stream.read_exact(&mut snapshot)
    }

    fn parse(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let Some((kind, rest)) = line.split_first() else {
            return Err(not_resp(&line));
        };
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(match kind {
            b'+' => Reply::Simple(text()),
            b'-' => Reply::Error(text()),
            b':' => Reply::Integer(text().parse().map_err(|_| not_resp(&line))?),
            b'$' => match length(rest, &line)? {
                Some(length) => Reply::Bulk(Some(self.body(length)?)),
                None => Reply::Bulk(None),
            },
            b'*' => match length(rest, &line)? {
                Some(length) => Reply::Array(Some(self.items(length)?)),
                None => Reply::Array(None),
            },
            b'_' => Reply::Null,
            b'#' if rest == b"t" => Reply::Boolean(true),
            b'#' if rest == b"f" => Reply::Boolean(false),
            b',' => Reply::Double(text().parse().map_err(|_| not_resp(&line))?),
            b'(' => Reply::BigNumber(text()),
            b'~' => Reply::Set(self.counted(rest, &line)?),
            b'>' => Reply::Push(self.counted(rest, &line)?),
            b'%' => Reply::Map(self.pairs(rest, &line)?),
            b'|' => {
                // An attribute says something about the reply that follows it.
                self.pairs(rest, &line)?;
                self.parse()?
            }
            b'!' => {
                let body = self.some_body(rest, &line)?;
                Reply::Error(String::from_utf8_lossy(&body).into_owned())
            }
            b'=' => {
                let body = self.some_body(rest, &line)?;
                let (format, text) = body
                    .split_at_checked(4)
                    .filter(|(format, _)| format.ends_with(b":"))
                    .ok_or_else(|| not_resp(&line))?;
                let format = String::from_utf8_lossy(&format[..3]).into_owned();
                Reply::Verbatim(format, text.to_vec())
            }
            _ => return Err(not_resp(&line)),
        })
    }

    /// One line without its `\r\n`.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let start = self.tape.len();
        self.stream.read_until(b'\n', &mut self.tape)?;
        let read = &self.tape[start..];
        match read.strip_suffix(b"\r\n") {
            Some(line) => Ok(line.to_vec()),
            None if read.ends_with(b"\n") => Err(not_resp(read)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// `length` bytes and the `\r\n` after them.
    fn body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; length + 2];
        self.stream.read_exact(&mut body)?;
        self.tape.extend_from_slice(&body);
        if !body.ends_with(b"\r\n") {
            return Err(not_resp(&body));
        }
        body.truncate(length);
        Ok(body)
    }

    fn some_body(&mut self, count: &[u8], line: &[u8]) -> io::Result<Vec<u8>> {
        let length = length(count, line)?.ok_or_else(|| not_resp(line))?;
        self.body(length)
    }

    fn items(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.parse()).collect()
    }

    fn counted(&mut self, count: &[u8], line: &[u8]) -> io::Result<Vec<Reply>> {
        let count = length(count, line)?.ok_or_else(|| not_resp(line))?;
        self.items(count)
    }

    fn pairs(&mut self, count: &[u8], line: &[u8]) -> io::Result<Vec<(Reply, Reply)>> {
        let count = length(count, line)?.ok_or_else(|| not_resp(line))?;
        (0..count)
            .map(|_| Ok((self.parse()?, self.parse()?)))
            .collect()
    }
}

/// A length or count; `None` for RESP2's -1.
fn length(text: &[u8], line: &[u8]) -> io::Result<Option<usize>> {
    if text == b"-1" {
        return Ok(None);
    }
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| not_resp(line))
}

fn not_resp(bytes: &[u8]) -> io::Error {
    let text = format!("not RESP: {}", bytes.escape_ascii());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A client of a server that says `bytes` and hangs up.
    fn client_of(bytes: &'static [u8]) -> RawClient {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap());
        RawClient::connect(port)
    }

    #[test]
    fn reads_every_type() {
        let mut client = client_of(
            b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n*0\r\n\
              _\r\n#t\r\n,1.5\r\n(123\r\n~1\r\n:1\r\n>1\r\n+x\r\n%1\r\n+k\r\n:2\r\n\
              |1\r\n+a\r\n+b\r\n:3\r\n!5\r\nERR x\r\n=6\r\ntxt:hi\r\n",
        );
        let expected = [
            Reply::Simple("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(Some(b"a\r\n".to_vec())),
            Reply::Bulk(None),
            Reply::Array(None),
            Reply::Array(Some(vec![Reply::Integer(1), Reply::Array(Some(vec![]))])),
            Reply::Null,
            Reply::Boolean(true),
            Reply::Double(1.5),
            Reply::BigNumber("123".into()),
            Reply::Set(vec![Reply::Integer(1)]),
            Reply::Push(vec![Reply::Simple("x".into())]),
            Reply::Map(vec![(Reply::Simple("k".into()), Reply::Integer(2))]),
            Reply::Integer(3),
            Reply::Error("ERR x".into()),
            Reply::Verbatim("txt".into(), b"hi".to_vec()),
        ];
        for reply in expected {
            assert_eq!(client.read_reply(), reply);
        }
        let end = client.try_read_reply().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn keeps_the_bytes_and_refuses_others() {
        let mut client = client_of(b"*1\r\n$2\r\n\xff\x00\r\nhello\r\n");
        client.read_reply();
        assert_eq!(client.last_bytes(), b"*1\r\n$2\r\n\xff\x00\r\n");
        let error = client.try_read_reply().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
