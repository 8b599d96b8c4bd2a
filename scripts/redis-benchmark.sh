#!/usr/bin/env bash
# Measures the commands beside SET, INCR and the usual Lua script with
# redis-benchmark, all on one server in one run, and prints one table.
#
# ROUNDS (3), CALLS_PIPELINED (1000000) and CALLS_SINGLE (200000) change how
# much is measured. Fails when the server has answered any call with an error.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${ROUNDS:-3}
keys=100000
declare -A calls=([16]=${CALLS_PIPELINED:-1000000} [1]=${CALLS_SINGLE:-200000})

cli() { redis-cli -p "$port" "$@"; }

# What is measured, in this order; the first one is what the others are compared to.
names=('SET key 20-bytes PX 60000' 'INCR' 'TB.ACQUIRE, allowed' 'TB.ACQUIRE, denied' 'Lua script, EVALSHA')
command_of() {
    case $1 in
        SET*) echo SET set:__rand_int__ xxxxxxxxxxxxxxxxxxxx PX 60000 ;;
        INCR) echo INCR incr:__rand_int__ ;;
        *allowed) echo TB.ACQUIRE allowed:__rand_int__ 1000000 1 1 ;;
        *denied) echo TB.ACQUIRE denied:__rand_int__ 1 1/d 1 ;;
        Lua*) echo EVALSHA "$lua_sha" 1 lua:__rand_int__ 1000000 1 "$now" 1 ;;
    esac
}

# The buckets to be denied: all empty, and for longer than the run takes.
drain() {
    cli EVAL 'local allowed = 0
        for i = 0, ARGV[1] - 1 do
            allowed = allowed + redis.call("TB.ACQUIRE", string.format("denied:%012d", i), 1, "1/d", 1)[1]
        end
        return allowed' 0 "$keys"
}

# measure NAME PIPELINE: calls per second.
measure() {
    local words
    read -ra words <<<"$(command_of "$1")"
    redis-benchmark -p "$port" -P "$2" -n "${calls[$2]}" -r "$keys" --csv "${words[@]}" |
        tail -n 1 | cut -d '"' -f 4
}

median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# Any error reply, also one that redis-benchmark did not show.
check_errors() {
    local errors
    errors=$(cli INFO errorstats | tr -d '\r' | grep '^errorstat_' || true)
    [[ -z $errors ]] || die "the server answered errors: $errors"
}

start_server
lua_sha=$(cli SCRIPT LOAD "$(<"$ROOT/benches/token_bucket.lua")")
now=$(date +%s)
drained=$(drain)
[[ $drained == "$keys" ]] || die "draining the buckets answered: $drained"

# The rounds are interleaved, so that a busy minute of this machine hits all alike.
declare -A results
for ((round = 1; round <= rounds; round++)); do
    for pipeline in 16 1; do
        for name in "${names[@]}"; do
            echo "round $round of $rounds: $name, pipeline of $pipeline" >&2
            results[$name,$pipeline]+="$(measure "$name" "$pipeline")"$'\n'
        done
    done
done
check_errors

version=$(cli INFO server | tr -d '\r' | sed -n 's/^\(redis\|valkey\)_version:/\1 /p' | tail -n 1)
echo "Calls per second on $version, $keys random keys, 50 connections, median of $rounds rounds."
echo "x: in proportion to ${names[0]}. Error replies: 0."
echo
printf '%-27s %12s %6s %12s %6s\n' '' 'pipeline 16' 'x' 'no pipeline' 'x'
declare -A base
for name in "${names[@]}"; do
    row=("$name")
    for pipeline in 16 1; do
        rate=$(printf '%s' "${results[$name,$pipeline]}" | median)
        : "${base[$pipeline]:=$rate}"
        row+=("$rate" "$(awk "BEGIN { print $rate / ${base[$pipeline]} }")")
    done
    printf '%-27s %12.0f %6.2f %12.0f %6.2f\n' "${row[@]}"
done
