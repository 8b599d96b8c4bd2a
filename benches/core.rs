//! The arithmetic alone: one decision, the texts of one call, the stored bytes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a bench"
)]

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use tokenbucket_core::{Amount, Bucket, Limit, Rate};

const NOW: u64 = 1_800_000_000_000_000;

fn limit(capacity: &str, rate: &str) -> Limit {
    Limit {
        capacity: Amount::parse(capacity.as_bytes()).unwrap(),
        rate: Rate::parse(rate.as_bytes()).unwrap(),
    }
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    let limit = limit("100", "100/m");
    let full = Bucket::full(&limit, NOW);
    let empty = Bucket::new(0, NOW);
    let cost = Amount::ONE;
    for (name, bucket) in [("allowed", full), ("denied", empty)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                black_box(bucket).acquire(black_box(&limit), black_box(cost), black_box(NOW + 1000))
            });
        });
    }
    group.finish();
}

fn texts(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    for text in ["10", "0.1", "0.30000000000000004"] {
        group.bench_function(format!("amount {text}"), |b| {
            b.iter(|| Amount::parse(black_box(text.as_bytes())));
        });
    }
    for text in ["10", "0.1", "100/m", "1/86400s"] {
        group.bench_function(format!("rate {text}"), |b| {
            b.iter(|| Rate::parse(black_box(text.as_bytes())));
        });
    }
    group.finish();
}

fn stored_bytes(c: &mut Criterion) {
    let mut group = c.benchmark_group("stored");
    let bucket = Bucket::new(-123_456_789_000_000_000_000, NOW);
    let bytes = bucket.encode();
    group.bench_function("encode", |b| b.iter(|| black_box(bucket).encode()));
    group.bench_function("decode", |b| b.iter(|| Bucket::decode(black_box(&bytes))));
    group.finish();
}

criterion_group!(benches, decisions, texts, stored_bytes);
criterion_main!(benches);
