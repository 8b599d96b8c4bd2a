//! The seeds of the fuzz targets, as they are and changed at random: what the fuzzers
//! begin with holds in every run of the tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "tests: a broken expectation stops at the place it broke"
)]

use std::fs;

use tokenbucket_testkit::fuzz::PROPERTIES;
use tokenbucket_testkit::{workspace, Random};

const MUTATIONS: usize = 20_000;

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = workspace().join("fuzz/seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// One byte put in, taken out or made another, a few times, or the end of another seed.
fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let any = |random: &mut Random| seeds[random.below(seeds.len() as i64) as usize].clone();
    let mut bytes = any(random);
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as i64 + 1) as usize;
        match random.below(4) {
            0 => bytes.insert(at, random.bytes(1)[0]),
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            2 if at < bytes.len() => bytes[at] = random.bytes(1)[0],
            _ => {
                let other = any(random);
                bytes.truncate(at);
                bytes.extend(&other[random.below(other.len() as i64 + 1) as usize..]);
            }
        }
    }
    bytes
}

#[test]
fn seeds_and_their_neighbours() {
    for (name, property) in PROPERTIES {
        let seeds = seeds(name);
        assert!(seeds.len() > 10, "{name}: {} seeds", seeds.len());
        for seed in &seeds {
            property(seed);
        }
        let mut random = Random::new(0xf022);
        for _ in 0..MUTATIONS {
            property(&mutated(&mut random, &seeds));
        }
        println!("{name}: {} seeds, {MUTATIONS} mutations", seeds.len());
    }
}
