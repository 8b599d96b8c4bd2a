#!/usr/bin/env bash
# Runs the tests over the wire on every server there is, with one and the same module,
# and prints a table. Fails when a test fails on one of them, or when there is none.
# Arguments go to the tests: a name to pick some.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

require_module
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
"$ROOT/scripts/servers.sh" >"$logs/servers"
cd "$ROOT"
cargo test --locked --test wire --no-run

ran=0 failed=0
: >"$logs/table"
row() { printf '%-22s  %-8s  %s\n' "$@" >>"$logs/table"; }
while IFS='|' read -r -u 3 name program why; do
    if [[ -z $program ]]; then
        echo "$name: skipped, $why"
        row "$name" - "skipped: $why"
        continue
    fi
    read -ra words <<<"$program"
    version=$("${words[@]}" --version 2>&1 | sed -n 's/.* v=\([^ ]*\).*/\1/p') || true
    if [[ -z $version ]]; then
        why=$("${words[@]}" --version 2>&1 | tail -n 1) || true
        echo "$name: skipped, it does not run: $why"
        row "$name" - "skipped: it does not run: $why"
        continue
    fi
    echo "$name ($version): $program"
    ran=$((ran + 1))
    if TOKENBUCKET_SERVER=$program cargo test --locked --test wire "$@" >"$logs/log" 2>&1; then
        row "$name" "$version" "$(sed -n 's/^test result: ok. \([0-9]* passed\).*/\1/p' "$logs/log")"
    else
        failed=$((failed + 1))
        cat "$logs/log"
        row "$name" "$version" "FAILED, $(sed -n 's/^test result: FAILED. \(.* failed\);.*/\1/p' "$logs/log")"
    fi
done 3<"$logs/servers"

printf '\n%-22s  %-8s  %s\n' server version "tests over the wire"
cat "$logs/table"
((ran > 0)) || die 'no server could be had'
((failed == 0)) || die "failed on $failed of $ran servers"
