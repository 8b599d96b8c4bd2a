#!/usr/bin/env bash
# Runs each fuzz target for FUZZ_SECONDS (60), from its seeds. Fails when one finds
# bytes for which a property is broken; those are kept in fuzz/artifacts.
#
# libFuzzer needs a nightly toolchain. Without one the seeds and their neighbours run
# in `make test` all the same.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

seconds=${FUZZ_SECONDS:-60}
cargo +nightly --version >/dev/null 2>&1 ||
    die 'a nightly toolchain is missing; with rustup: rustup toolchain install nightly'
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked

cd "$ROOT"
for target in numbers rates stored decisions; do
    echo "== $target, $seconds s"
    # What it finds goes into the first folder; the seeds stay as they are.
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 2>&1 |
        tee "fuzz/corpus/$target.log" | grep -E '^(stat::number_of_executed|#[0-9]+.*DONE|==|.*panicked)' || {
        tail -n 40 "fuzz/corpus/$target.log" >&2
        die "$target did not end well, see above; bytes it has found are in fuzz/artifacts/$target"
    }
done
