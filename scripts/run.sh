#!/usr/bin/env bash
# Becomes a redis-server with the module, by the settings of redis.conf.example.
# PORT chooses the port; without it 6379, or the next free one up to 6399.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

choose_port() {
    if [[ -n ${PORT:-} ]]; then
        if ! [[ $PORT =~ ^[1-9][0-9]{0,4}$ ]] || ((PORT > 65535)); then
            die "PORT=$PORT is not a port: give a number from 1 to 65535"
        fi
        if port_taken "$PORT"; then
            die "port $PORT is taken by another program: choose another with PORT="
        fi
        port=$PORT
        return
    fi
    for port in {6379..6399}; do
        if ! port_taken "$port"; then
            [[ $port == 6379 ]] || echo "Port 6379 is taken, so this server listens on $port."
            return
        fi
    done
    die 'the ports from 6379 to 6399 are all taken: choose another with PORT='
}

# The example as it stands, but for where the module and the data are.
write_conf() {
    LOADMODULE="loadmodule \"$MODULE\"" DIR="dir \"$dir\"" awk '
        $1 == "loadmodule" { print ENVIRON["LOADMODULE"]; next }
        $1 == "dir" { print ENVIRON["DIR"]; next }
        { print }
    ' "$ROOT/redis.conf.example" >"$dir/redis.conf"
}

say_ready() {
    wait_for_server "$port" "$$" 600 || return 0
    cat <<END

Ready. Paste this into another terminal:

  redis-cli -p $port TB.ACQUIRE user:42 10 1 1

It takes 1 token from the bucket user:42, which holds 10 and gets 1 per second.
The four integers it answers:

  1) allowed         1: go ahead, 0: refused
  2) remaining       whole tokens left
  3) retry_after_ms  when refused, wait this long and call again (-1: it never fits)
  4) reset_after_ms  until the bucket is full again

Ctrl-C stops the server. Its data and settings: $dir

END
}

require_module
choose_port
# One folder per port: two servers must not write the same files.
dir=${CARGO_TARGET_DIR:-$ROOT/target}/run/$port
mkdir -p "$dir"
write_conf
# Detached, so that the server below does not get a child that it did not fork.
(say_ready &)
exec "${SERVER[@]}" "$dir/redis.conf" --port "$port"
