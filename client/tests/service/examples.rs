//! The examples run, against a real server, and show what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tokenbucket_testkit::Server;

use crate::*;

/// Cargo builds the examples before it runs the tests, next to them.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{}: cargo test builds it, cargo test --test does not",
        path.display()
    );
    path
}

fn output(name: &str, server: &Server) -> Vec<String> {
    let output = Command::new(example(name))
        .arg(address(server))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name}: {text}{errors}");
    assert_eq!(errors, "");
    text.lines().map(str::to_string).collect()
}

#[test]
fn basic() {
    let server = with_module().start();
    let lines = output("basic", &server);
    assert_eq!(lines.len(), 10);
    assert!(lines[0].starts_with("call 1: yes, 4 left"), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains(": no, 0 left")),
        "{lines:?}"
    );
}

#[test]
fn basic_without_a_server() {
    let mut server = with_module().start();
    server.kill();
    let output = Command::new(example("basic"))
        .arg(address(&server))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    // A sixth of 5 is less than a request: one is let through.
    assert_eq!(text.matches(": yes").count(), 1, "{text}");
    assert!(text.contains("Local(Connection)"), "{text}");
    assert!(text.contains("Local(BreakerOpen)"), "{text}");
}

#[test]
fn worker() {
    let server = with_module().start();
    let lines = output("worker", &server);
    assert_eq!(lines.len(), 10);
    assert!(
        lines.iter().all(|line| line.contains("sent after")),
        "{lines:?}"
    );
}

#[test]
fn llm() {
    let server = with_module().start();
    let lines = output("llm", &server);
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with("estimated 4000, used 5, 8999"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("estimated 4000, used 5000, 8"),
        "{lines:?}"
    );
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn axum() {
    let server = with_module().start();
    let mut child = Command::new(example("axum"))
        .args([&address(&server), "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    let _child = Killed(child);
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_string();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: me\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.to_lowercase()
    };
    let mut denied = String::new();
    for _ in 0..10 {
        let reply = ask("/");
        assert!(
            reply.contains("ratelimit-policy: \"api\";q=3;w=3"),
            "{reply}"
        );
        if reply.starts_with("http/1.1 429") {
            denied = reply;
        }
        assert!(ask("/health").starts_with("http/1.1 200"));
    }
    assert!(denied.contains("retry-after: 1"), "{denied}");
    assert!(denied.contains("ratelimit: \"api\";r=0;t=3"), "{denied}");
}
