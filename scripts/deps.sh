#!/usr/bin/env bash
# Looks for what building, running and testing need, and for the programs that are
# named as arguments, as program:package where the two differ. Says nothing when all is there;
# installs what is missing through apt-get when it may; else says what to install
# and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
programs=("$@")

have() { command -v "$1" >/dev/null; }

# The headers of the C library, which the bindings to Redis are made from.
have_libc_headers() { have cc && cc -E -x c - <<<'#include <stdio.h>' &>/dev/null; }

# libclang and, beside it, the compiler's own headers (stddef.h and so on).
have_libclang() {
    [[ -z ${LIBCLANG_PATH:-} ]] || return 0
    local dir
    for dir in /usr/lib/llvm-*/lib /usr/lib /usr/lib64 /usr/local/lib; do
        if { compgen -G "$dir/libclang.so*" || compgen -G "$dir/libclang-[0-9]*.so*"; } >/dev/null &&
            compgen -G "$dir/clang/*/include/stddef.h" >/dev/null; then
            return 0
        fi
    done
    return 1
}

check_cargo() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    local how="install Rust $wanted or newer, for example with rustup"
    have cargo || die "cargo is missing: $how"
    found=$(cargo --version) || die "cargo is there but does not run: $how"
    found=${found#cargo }
    found=${found%% *}
    # The older of the two sorts first.
    if [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
        die "cargo $found is too old: $how"
    fi
}

missing_packages() {
    have cc || echo gcc
    have_libc_headers || echo libc6-dev
    have_libclang || echo libclang-dev
    [[ ${SERVER[0]} != redis-server ]] || have redis-server || echo redis-server
    { have redis-cli && have redis-benchmark; } || echo redis-tools
    local program
    for program in "${programs[@]}"; do
        have "${program%:*}" || echo "${program#*:}"
    done
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

# Debian starts a server when its package is installed, and at every boot from
# then on. Nobody asked for one here: refuse the first, then undo the second.
policy=/usr/sbin/policy-rc.d
policy_is_ours=no

forbid_daemons() {
    [[ ! -e $policy ]] || return 0
    policy_is_ours=yes
    trap allow_daemons EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 0755 "$policy"
}

allow_daemons() {
    if [[ $policy_is_ours == yes ]]; then
        as_root rm -f "$policy"
    fi
}

apt_install() {
    echo "deps: installing $*"
    as_root apt-get update -qq
    forbid_daemons
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
    if [[ " $* " == *' redis-server '* ]]; then
        if [[ -d /run/systemd/system ]]; then
            as_root systemctl disable --quiet redis-server
        fi
        echo 'deps: redis-server is installed but not started; the Makefile starts its own'
    fi
}

check_cargo
if [[ ${SERVER[0]} != redis-server ]] && ! have "${SERVER[0]}"; then
    die "REDIS_SERVER: ${SERVER[0]} is not a program that can be run"
fi

mapfile -t packages < <(missing_packages)
if ((${#packages[@]} == 0)); then exit 0; fi

if ! have apt-get; then
    die "missing, by the names of their Debian packages: ${packages[*]}
Install them (libclang with its headers, Redis with its tools) and run make again."
fi
if ((EUID != 0)) && ! sudo -n true 2>/dev/null; then
    die "packages are missing, and installing them needs root. Run this, then make again:
  sudo apt-get update && sudo apt-get install -y ${packages[*]}"
fi
apt_install "${packages[@]}"

mapfile -t packages < <(missing_packages)
if ((${#packages[@]} > 0)); then
    die "apt-get has run, and still missing is what these packages give: ${packages[*]}"
fi
