//! What redis-cli shows while a command is typed.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokenbucket_testkit::{installed_server, wait_for, Server};

use crate::running;

/// redis-cli in a terminal of its own, killed on drop.
struct Terminal {
    program: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// `script` gives the program a terminal without which redis-cli shows no
    /// hints.
    fn open(server: &Server) -> Self {
        let line = format!("stty cols 120; exec redis-cli -p {}", server.port());
        let mut program = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is installed");
        let keyboard = program.stdin.take().unwrap();
        let mut output = program.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self {
            program,
            keyboard,
            screen,
        }
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    #[track_caller]
    fn wait_to_show(&self, text: &str) {
        wait_for(text, Duration::from_secs(30), || {
            plain(&self.screen.lock().unwrap()).contains(text)
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// What a terminal shows, without colours and the movements of the cursor.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic());
        text + end.map_or("", |end| &part[end + 1..])
    })
}

/// The arguments are shown as one types, from the documentation of the commands
/// (Redis 7.0 and newer), and those that were typed are gone from the hint.
#[test]
fn arguments_are_shown_while_typing() {
    if installed_server().1 < (7, 0, 0) {
        eprintln!("skipped by name: COMMAND DOCS is not there before Redis 7.0");
        return;
    }
    // A root without /dev/pts has no terminals.
    let opened = Command::new("script")
        .args(["-qec", "true", "/dev/null"])
        .stdin(Stdio::null())
        .output();
    if !opened.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped by name: no terminal can be opened here");
        return;
    }
    let server = running();
    let prompt = format!("127.0.0.1:{}> ", server.port());
    for (typed, hint) in [
        ("TB.ACQUIRE ", "key capacity rate cost"),
        ("TB.ACQUIRE user:42 10 ", "rate cost"),
        ("tb.peek ", "key capacity rate [cost]"),
        ("TB.RESERVE ", "key capacity rate cost max_wait_ms"),
        ("TB.CREDIT ", "key capacity rate amount"),
        ("TB.DEBIT user:42 ", "capacity rate amount"),
        (
            "TB.MACQUIRE ",
            "key capacity rate cost [key capacity rate cost ...]",
        ),
        (
            "TB.MACQUIRE user:42 10 1 ",
            "cost [key capacity rate cost ...]",
        ),
    ] {
        let mut terminal = Terminal::open(&server);
        terminal.wait_to_show(&prompt);
        terminal.type_in(typed);
        terminal.wait_to_show(&format!("{prompt}{typed}{hint}\r"));
    }
}
