//! Reading the append-only file as commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A command with its arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// The commands in the append-only file of a server whose folder is `dir`: from
/// `appendonly.aof` (before 7.0) or the increments that the manifest in
/// `appendonlydir` names, in their order. What a rewrite has put into an RDB
/// preamble or a base file is left out, and so is a command that the server
/// has not yet written to its end.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Command>> {
    let Some(parts) = parts(dir)? else {
        let file = or_empty(fs::read(dir.join("appendonly.aof")))?;
        return commands(after_preamble(&file));
    };
    let mut all = Vec::new();
    for part in parts {
        all.extend(commands(&or_empty(fs::read(part))?)?);
    }
    Ok(all)
}

/// The file that the newest commands are in.
pub(crate) fn newest(dir: &Path) -> io::Result<PathBuf> {
    let newest = match parts(dir)? {
        Some(mut parts) => parts.pop(),
        None => Some(dir.join("appendonly.aof")),
    };
    newest
        .filter(|file| file.is_file())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The increments in their order; `None` for a server that keeps one file.
fn parts(dir: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let folder = dir.join("appendonlydir");
    if !folder.is_dir() {
        return Ok(None);
    }
    let manifest = or_empty(fs::read(folder.join("appendonly.aof.manifest")))?;
    let manifest = String::from_utf8_lossy(&manifest);
    let files = increments(&manifest).into_iter();
    Ok(Some(files.map(|name| folder.join(name)).collect()))
}

/// A file that is not there yet, or that a rewrite has just removed, is empty.
fn or_empty(read: io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The names of the increments in a manifest, whose lines read
/// `file appendonly.aof.1.incr.aof seq 1 type i` and stand in order.
fn increments(manifest: &str) -> Vec<&str> {
    manifest
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["file", name, "seq", _, "type", "i", ..] => Some(name),
                _ => None,
            }
        })
        .collect()
}

/// What follows an RDB preamble, which ends in the byte 0xFF and eight bytes of
/// checksum. The byte may also stand inside the preamble, so the end is the
/// first such place behind which there are only commands, or nothing.
fn after_preamble(file: &[u8]) -> &[u8] {
    if !file.starts_with(b"REDIS") && !file.starts_with(b"VALKEY") {
        return file;
    }
    file.iter()
        .enumerate()
        .filter(|(_, byte)| **byte == 0xff)
        .filter_map(|(at, _)| file.get(at + 9..))
        .find(|rest| rest.is_empty() || commands(rest).is_ok_and(|found| !found.is_empty()))
        .unwrap_or_default()
}

/// The commands in `bytes`, without `#` annotation lines. An end in the middle
/// of a command is the server still writing; any other fault is an error.
fn commands(bytes: &[u8]) -> io::Result<Vec<Command>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if *first == b'#' {
            match line(rest) {
                Some((_, after)) => rest = after,
                None => break,
            }
            continue;
        }
        match command(rest)? {
            Some((command, after)) => {
                found.push(command);
                rest = after;
            }
            None => break,
        }
    }
    Ok(found)
}

/// The command at the head of `bytes` and what follows it; `None` when it is
/// not complete.
fn command(bytes: &[u8]) -> io::Result<Option<(Command, &[u8])>> {
    let Some((count, mut rest)) = number(bytes, b'*')? else {
        return Ok(None);
    };
    let mut args = Vec::new();
    for _ in 0..count {
        let Some((length, after)) = number(rest, b'$')? else {
            return Ok(None);
        };
        let Some((arg, after)) = after.split_at_checked(length) else {
            return Ok(None);
        };
        let Some((end, after)) = after.split_at_checked(2) else {
            return Ok(None);
        };
        if end != b"\r\n" {
            return Err(broken(rest));
        }
        args.push(arg.to_vec());
        rest = after;
    }
    Ok(Some((args, rest)))
}

/// The number in a line that begins with `mark`.
fn number(bytes: &[u8], mark: u8) -> io::Result<Option<(usize, &[u8])>> {
    if bytes.first().is_some_and(|first| *first != mark) {
        return Err(broken(bytes));
    }
    let Some((line, rest)) = line(bytes) else {
        return Ok(None);
    };
    std::str::from_utf8(&line[1..])
        .ok()
        .and_then(|text| text.trim_end_matches('\r').parse().ok())
        .map(|number| Some((number, rest)))
        .ok_or_else(|| broken(bytes))
}

/// The head of `bytes` up to its first `\n`, and what follows.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn broken(bytes: &[u8]) -> io::Error {
    let head = &bytes[..bytes.len().min(40)];
    let text = format!(
        "no command in the append-only file: {}",
        head.escape_ascii()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEL: &[u8] = b"*2\r\n$3\r\nDEL\r\n$2\r\n\r\n\r\n";

    fn del() -> Command {
        vec![b"DEL".to_vec(), b"\r\n".to_vec()]
    }

    #[test]
    fn reads_commands_and_skips_annotations() {
        let file = [b"#TS:1700000000\r\n", DEL, b"#TS:1\r\n", DEL].concat();
        assert_eq!(commands(&file).unwrap(), [del(), del()]);
    }

    #[test]
    fn leaves_out_what_is_not_complete() {
        for end in 0..DEL.len() {
            let file = [DEL, &DEL[..end]].concat();
            assert_eq!(commands(&file).unwrap(), [del()], "{end}");
        }
        assert!(commands(b"hello").is_err());
        assert!(commands(b"*1\r\n$1\r\nabc").is_err());
    }

    #[test]
    fn skips_a_preamble() {
        let preamble = b"REDIS0009\xfa\xff\x00\x00\xff*2\r\n$1\xff12345678";
        assert_eq!(after_preamble(preamble), b"");
        let file = [preamble.as_slice(), DEL].concat();
        assert_eq!(commands(after_preamble(&file)).unwrap(), [del()]);
        assert_eq!(after_preamble(DEL), DEL);
    }

    #[test]
    fn skips_a_preamble_that_a_server_wrote() {
        let server = crate::Server::builder().start();
        let mut client = server.raw();
        for number in 0..500_u32 {
            let bytes = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            client.call(&[b"SET", &bytes, &[bytes, bytes].concat(), b"PX", b"99999"]);
        }
        client.text(&["SAVE"]);
        let dump = fs::read(server.dir().join("dump.rdb")).unwrap();
        assert_eq!(after_preamble(&dump), b"");
        let file = [dump.as_slice(), DEL, DEL].concat();
        assert_eq!(commands(after_preamble(&file)).unwrap(), [del(), del()]);
    }

    #[test]
    fn finds_the_increments() {
        let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                        file appendonly.aof.1.incr.aof seq 1 type h\n\
                        file appendonly.aof.2.incr.aof seq 2 type i\n\
                        file appendonly.aof.3.incr.aof seq 3 type i\n";
        assert_eq!(
            increments(manifest),
            ["appendonly.aof.2.incr.aof", "appendonly.aof.3.incr.aof"]
        );
    }
}
