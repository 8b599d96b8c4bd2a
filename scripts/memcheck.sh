#!/usr/bin/env bash
# Runs the tests over the wire with each server under valgrind's memcheck, and
# adds up what it found. Fails on any error, and on any byte lost for good.
#
# Works with servers that take their memory from the C library or from a shared
# jemalloc, as Debian's do. Arguments go to the tests: a name to pick some.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

require_module
"$ROOT/scripts/deps.sh" valgrind
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# The servers end by themselves: one that is killed reports no leaks.
export TOKENBUCKET_GENTLE=1
# Strings of the server are kept by pointers into their middle, so what is
# "possibly" lost tells nothing.
export TOKENBUCKET_SERVER="valgrind --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite --soname-synonyms=somalloc=*jemalloc* \
--suppressions=$ROOT/scripts/memcheck.supp --log-file=$logs/%p ${SERVER[*]}"
cd "$ROOT"
cargo test --locked --test wire -- --test-threads=2 "$@"

# number TEXT: the sum of the numbers that follow TEXT in the logs.
number() { cat "$logs"/* | sed -n "s/.*$1: \([0-9,]*\).*/\1/p" | tr -d , | awk '{ n += $1 } END { print n + 0 }'; }

watched=$(find "$logs" -type f | wc -l)
reported=$({ grep -l 'LEAK SUMMARY' "$logs"/* || true; } | wc -l)
errors=$(number 'ERROR SUMMARY')
lost=$(($(number 'definitely lost') + $(number 'indirectly lost')))
cat <<END

memcheck: ${SERVER[*]}, $watched processes watched; $reported ended by themselves and were
searched for leaks (the others were killed by a test)
errors:     $errors
bytes lost: $lost
END
((reported > 0)) || die 'no process has reported: valgrind did not run'
if ((errors > 0 || lost > 0)); then
    grep -hE -A 12 'Invalid|uninitialised|are definitely lost|Mismatched|overlap' "$logs"/* | head -n 100 >&2 || true
    die 'memcheck has found something, see above'
fi
