//! The README's own examples: each is run, and answers what is printed there.

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

/// Files that README names are there, and the version is the package's.
#[test]
fn links_resolve() {
    for link in README.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        if !target.contains("://") {
            assert!(workspace().join(target).exists(), "{target}");
        }
    }
}
