#!/usr/bin/env bash
# Makes the packages of the crates that others build on, and builds from them. A warning is
# an error. Nothing is published.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# What is not committed is packaged too: a person runs this before a commit.
cargo package --locked --allow-dirty -p tokenbucket-core -p tokenbucket-client 2>&1 | tee "$log"
if grep -q '^warning' "$log"; then
    echo 'package: a package must be made without a warning' >&2
    exit 1
fi
