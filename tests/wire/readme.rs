//! The documents: README's examples are run and answer what is printed there, and what
//! is linked or named exists.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tokenbucket_testkit::{workspace, Server};

use crate::held;

const README: &str = include_str!("../../README.md");

/// Every ```console block: `$ redis-cli ...` with the lines that follow it, and
/// `$ sleep n`, for which the clock is moved instead. One server for all, so that
/// a block goes on where the one before it left off.
#[test]
fn every_example_answers_as_printed() {
    let server = held();
    let mut shown = 0;
    for block in README.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for example in block.split("$ ").skip(1) {
            let (command, printed) = example.split_once('\n').unwrap();
            let words: Vec<&str> = command.split_whitespace().collect();
            match words[..] {
                ["sleep", seconds] => {
                    server.advance(Duration::from_secs(seconds.parse().unwrap()));
                }
                ["redis-cli", ref args @ ..] => {
                    assert_eq!(redis_cli(&server, args).trim(), printed.trim(), "{command}");
                    shown += 1;
                }
                _ => panic!("not an example that can be run: {command}"),
            }
        }
    }
    assert!(shown >= 10, "only {shown} examples were found");
}

fn redis_cli(server: &Server, args: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["--no-raw", "-p", &server.port().to_string()])
        .args(args)
        .output()
        .expect("redis-cli is installed");
    // INFO ends its lines as the protocol does.
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

/// The documents, by their path in the repository.
fn documents() -> Vec<(PathBuf, String)> {
    let folder = workspace().join("docs");
    let docs = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    docs.filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .chain([
            workspace().join("README.md"),
            workspace().join("CHANGELOG.md"),
        ])
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
        .collect()
}

/// Files that the documents name are there.
#[test]
fn links_resolve() {
    for (file, text) in documents() {
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if !target.contains("://") && !target.is_empty() {
                let place = file.parent().unwrap().join(target);
                assert!(place.exists(), "{target} in {}", file.display());
            }
        }
    }
}

/// Where a test named in the documents is: `binary::module::name`.
fn source_of(path: &[&str]) -> PathBuf {
    let [binary, modules @ ..] = path else {
        panic!("no path of a test")
    };
    let (folder, modules) = match (*binary, modules) {
        // Integration tests of the other crates: `crate::binary::name`.
        ("core" | "testkit", [binary, ..]) => {
            return workspace().join(format!("{}/tests/{binary}.rs", path[0]));
        }
        ("faults" | "service", [modules @ .., _name]) => {
            (workspace().join("client/tests").join(path[0]), modules)
        }
        (binary, [_name]) => {
            let one = workspace().join(format!("tests/{binary}.rs"));
            let many = workspace().join(format!("tests/{binary}/main.rs"));
            return if one.exists() { one } else { many };
        }
        (binary, [modules @ .., _name]) => (workspace().join("tests").join(binary), modules),
        (_, []) => panic!("no name of a test"),
    };
    folder.join(modules.join("/")).with_extension("rs")
}

/// Tests that the documents name are there.
#[test]
fn tests_that_are_named_exist() {
    let mut named = 0;
    for (file, text) in documents() {
        for word in text.split('`').skip(1).step_by(2) {
            let path: Vec<&str> = word.split("::").collect();
            let known = [
                "wire",
                "survival",
                "soak",
                "memory",
                "running_clock",
                "core",
                "testkit",
                "faults",
                "service",
            ];
            if path.len() < 2 || !known.contains(&path[0]) || word.contains(' ') {
                continue;
            }
            let source = source_of(&path);
            let code = fs::read_to_string(&source)
                .unwrap_or_else(|error| panic!("{word}: {}: {error}", source.display()));
            let function = format!("fn {}(", path[path.len() - 1]);
            assert!(code.contains(&function), "{word} in {}", file.display());
            named += 1;
        }
    }
    assert!(named > 40, "{named}");
}
