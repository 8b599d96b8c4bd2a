//! The commands beside each other on one server, over loopback, in one run: what
//! counts is how their times compare, not what they are.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a bench"
)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use tokenbucket_testkit::{module_path, RawClient, Server};

const LUA: &str = include_str!("token_bucket.lua");
/// Keys that the calls go round.
const KEYS: usize = 10_000;

/// A batch of calls as bytes, made once, and the replies read one by one.
struct Batch {
    bytes: Vec<u8>,
    calls: usize,
}

impl Batch {
    fn new(pipeline: usize, first_key: usize, call: &dyn Fn(&str) -> Vec<String>) -> Self {
        let mut bytes = Vec::new();
        for number in 0..pipeline {
            let key = format!("key:{}", first_key.wrapping_add(number) % KEYS);
            let args = call(&key);
            bytes.extend(format!("*{}\r\n", args.len()).bytes());
            for arg in args {
                bytes.extend(format!("${}\r\n{arg}\r\n", arg.len()).bytes());
            }
        }
        Self {
            bytes,
            calls: pipeline,
        }
    }

    fn run(&self, client: &mut RawClient) {
        client.send_bytes(&self.bytes);
        for _ in 0..self.calls {
            let reply = client.read_reply();
            assert_eq!(reply.error(), None);
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

fn commands(c: &mut Criterion) {
    let server = Server::builder().module(module_path()).start();
    let mut client = server.raw();
    let loaded = client.text(&["SCRIPT", "LOAD", LUA]).bytes().unwrap();
    let sha = String::from_utf8(loaded).unwrap();
    type Call<'a> = Box<dyn Fn(&str) -> Vec<String> + 'a>;
    let calls: [(&str, Call<'_>); 6] = [
        (
            "TB.ACQUIRE allowed",
            Box::new(|key| words(&format!("TB.ACQUIRE {key} 1000000000 1000000 1"))),
        ),
        (
            "TB.ACQUIRE denied",
            Box::new(|key| words(&format!("TB.ACQUIRE {key} 10 1000000 11"))),
        ),
        (
            "TB.PEEK",
            Box::new(|key| words(&format!("TB.PEEK {key} 1000000000 1000000 1"))),
        ),
        (
            "SET PX",
            Box::new(|key| words(&format!("SET {key} 01234567890123456789 PX 60000"))),
        ),
        ("INCR", Box::new(|key| words(&format!("INCR {key}")))),
        (
            "Lua script",
            Box::new(|key| {
                words(&format!(
                    "EVALSHA {sha} 1 {key} 1000000000 1000000 1800000000 1"
                ))
            }),
        ),
    ];
    for pipeline in [1, 16, 64] {
        let mut group = c.benchmark_group(format!("pipeline {pipeline}"));
        group.throughput(Throughput::Elements(pipeline as u64));
        for (name, call) in &calls {
            // Each command on keys of its own kind.
            client.text(&["FLUSHALL"]);
            let batches: Vec<Batch> = (0..KEYS)
                .step_by(pipeline)
                .map(|first| Batch::new(pipeline, first, call))
                .collect();
            let mut round = batches.iter().cycle();
            group.bench_function(*name, |b| {
                b.iter(|| round.next().unwrap().run(&mut client));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, commands);
criterion_main!(benches);
