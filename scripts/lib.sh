# shellcheck shell=bash
# What the scripts share: paths, messages, ports, and a throw-away server.
# Source it after `set -euo pipefail`.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MODULE=${TOKENBUCKET_MODULE:-${CARGO_TARGET_DIR:-$ROOT/target}/release/libtokenbucket.so}
read -ra SERVER <<<"${TOKENBUCKET_SERVER:-redis-server}"

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

require_module() {
    [[ -f $MODULE ]] || die "$MODULE is not built yet, run: make build"
}

# Whether something listens on this port of 127.0.0.1.
port_taken() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# server_answers PORT PID: whether the server at PORT is the process PID and
# has loaded its data. Another server at the same port does not count.
server_answers() {
    redis-cli -p "$1" INFO 2>/dev/null | tr -d '\r' |
        awk -v pid="process_id:$2" '$0 == pid || $0 == "loading:0" { n++ } END { exit n != 2 }'
}

# wait_for_server PORT PID SECONDS: 0 once it answers, 1 when it has ended or
# the time is up.
wait_for_server() {
    local deadline=$((SECONDS + $3))
    until server_answers "$1" "$2"; do
        if ! kill -0 "$2" 2>/dev/null || ((SECONDS >= deadline)); then
            return 1
        fi
        sleep 0.05
    done
}

# start_server: a server with the module on a free port and in a temporary
# folder, without persistence. Sets `port`; ends with the script that called it.
start_server() {
    require_module
    server_dir=$(mktemp -d)
    server_pid=
    trap stop_server EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    local try
    for try in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 10000))
        if port_taken "$port"; then continue; fi
        "${SERVER[@]}" --port "$port" --bind 127.0.0.1 --dir "$server_dir" --save '' \
            --appendonly no --loadmodule "$MODULE" >"$server_dir/log" 2>&1 &
        server_pid=$!
        if wait_for_server "$port" "$server_pid" 10; then return; fi
        kill_server
        # Somebody else was quicker to take the port: try another one.
        grep -q 'Address already in use' "$server_dir/log" || break
    done
    cat "$server_dir/log" >&2
    die "${SERVER[*]} did not start with $MODULE (try $try), its log is above"
}

kill_server() {
    if [[ -n $server_pid ]]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
}

stop_server() {
    kill_server
    rm -rf "$server_dir"
}
