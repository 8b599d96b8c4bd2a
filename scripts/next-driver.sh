#!/usr/bin/env bash
# Checks that the client builds with the newest release candidate of the next major version
# of the driver (the crate `redis`), from the same sources. What it runs on is the version
# in Cargo.toml.
#
# TLS is left out: in the next version its feature has another name, so that no one
# manifest serves both.
set -euo pipefail
cd "$(dirname "$0")/.."

next='>=2.0.0-rc.1'
features=blocking,cluster,sentinel,tower,tracing,metrics
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# Cargo wants to see every member of the workspace; only the client is built.
for part in Cargo.toml Cargo.lock core client testkit src benches tests; do
    cp -r "$part" "$copy"
done
sed -i "s/^redis = { version = \"[^\"]*\"/redis = { version = \"$next\"/" "$copy/Cargo.toml"
cd "$copy"
cargo check --quiet -p tokenbucket-client --features "$features"
cargo tree --quiet -p tokenbucket-client --features "$features" --depth 1 | sed -n 's/^.* \(redis v[^ ]*\).*/the client builds with \1/p' | sort -u
