#!/usr/bin/env bash
# Shows what TB.ACQUIRE answers, on a server that lives as long as this script.
# Fails when an answer is not what the text beside it says.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

bucket=(user:42 5 2)

# call TB.NAME ARG...: sends the command and sets allowed, remaining,
# retry_after_ms and reset_after_ms.
call() {
    local reply
    mapfile -t reply < <(redis-cli -p "$port" "$@")
    [[ "${reply[*]}" =~ ^[01]\ [0-9]+\ -?[0-9]+\ [0-9]+$ ]] || die "$* answered: ${reply[*]}"
    allowed=${reply[0]} remaining=${reply[1]} retry_after_ms=${reply[2]} reset_after_ms=${reply[3]}
    printf '  %-27s -> %s %s %4s %4s   ' "$*" "${reply[@]}"
}

acquire() { call TB.ACQUIRE "${bucket[@]}" 1; }

expect() {
    if ! (($1)); then
        echo
        die "expected $1"
    fi
}

pause_ms() {
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

show_exists() {
    exists=$(redis-cli -p "$port" EXISTS "${bucket[0]}")
    printf '  %-27s -> %s\n' "EXISTS ${bucket[0]}" "$exists"
}

start_server
cat <<END
A server with the module runs on port $port.
The bucket ${bucket[0]} holds ${bucket[1]} tokens and gets ${bucket[2]} per second; each call wants 1.
The four integers: allowed, remaining, retry_after_ms, reset_after_ms.

A burst, until the bucket is empty:
END

calls=0
while acquire && ((allowed)); do
    echo "allowed, $remaining left, full again in $reset_after_ms ms"
    calls=$((calls + 1))
    expect "calls < 100"
done
echo "DENIED: a token will be there in $retry_after_ms ms"
expect "calls >= ${bucket[1]}"
expect "retry_after_ms >= 1"

echo
echo "Waiting exactly $retry_after_ms ms, then the same call again:"
pause_ms "$retry_after_ms"
acquire
echo "allowed: the wait was right"
expect "allowed == 1"

echo
echo "One second later, asking for 0 tokens, which takes nothing:"
pause_ms 1000
call TB.PEEK "${bucket[@]}" 0
echo "$remaining tokens have flowed in"
expect "remaining >= 2"

echo
echo "A full bucket is no key at all. This one is full in $reset_after_ms ms:"
show_exists
pause_ms "$reset_after_ms"
show_exists
expect "exists == 0"

echo
echo "The server stops now. To play with one of your own: make run"
