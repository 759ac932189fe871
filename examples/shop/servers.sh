#!/usr/bin/env bash
# usage: servers.sh COMMAND...
#
# Runs a command with a PostgreSQL and a Redis of its own, on free ports of 127.0.0.1, whose URLs are in DATABASE_URL and
# REDIS_URL. Both are ended after the command, and what they kept is removed.
#
# Job control gives each its own process group: Ctrl-C reaches the command first, which still has its servers then.
# shellcheck disable=SC2329 # Functions are called by a trap, and by a part of their name.
set -meuo pipefail

fail() {
    printf 'servers.sh: %s\n' "$1" >&2
    exit 1
}

[ $# -gt 0 ] || fail "usage: servers.sh COMMAND..."

# Debian keeps the programs of PostgreSQL out of PATH, in a folder for each version; the last one wins.
if ! command -v initdb >/dev/null; then
    for programs in /usr/lib/postgresql/*/bin; do
        PATH=$programs:$PATH
    done
fi
command -v initdb >/dev/null ||
    fail "PostgreSQL is missing: apt-get install postgresql (or dnf install postgresql-server, brew install postgresql)"
command -v redis-server >/dev/null ||
    fail "Redis is missing: apt-get install redis-server (or dnf install redis, brew install redis)"

kept=$(mktemp -d)
pids=()
finish() {
    trap '' INT TERM HUP
    # For PostgreSQL this is the fast shutdown, which waits for no client.
    [ ${#pids[@]} -eq 0 ] || kill -INT "${pids[@]}" 2>/dev/null || true
    wait
    rm -rf "$kept"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# PostgreSQL refuses to run as root.
as_postgres=()
if [ "$(id -u)" -eq 0 ]; then
    id postgres >/dev/null 2>&1 || fail "there is no user postgres, and PostgreSQL does not run as root"
    as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)
    chmod 711 "$kept"
fi
install -d -m 700 "$kept/postgres" "$kept/redis"
[ ${#as_postgres[@]} -eq 0 ] || chown postgres "$kept/postgres"

run_postgres() {
    cd "$kept/postgres"
    exec ${as_postgres[@]+"${as_postgres[@]}"} postgres -D "$kept/postgres/data" -p "$1" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
}

run_redis() {
    cd "$kept/redis"
    exec redis-server --port "$1" --bind 127.0.0.1 --save '' --appendonly no
}

# start NAME: starts a server and waits until it is ready; another port if somebody was faster to take it.
start() {
    local log=$kept/$1.log
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 30000))
        : >"$log"
        "run_$1" "$port" >>"$log" 2>&1 &
        local pid=$!
        while kill -0 "$pid" 2>/dev/null; do
            if grep -qi 'ready to accept connections' "$log"; then
                pids+=("$pid")
                return
            fi
            sleep 0.05
        done
    done
    cat "$log" >&2
    fail "$1 does not start"
}

(cd "$kept/postgres" && ${as_postgres[@]+"${as_postgres[@]}"} initdb -D data -U shop --auth=trust \
    --encoding=UTF8 --no-locale --no-sync) >"$kept/initdb.log" 2>&1 ||
    { cat "$kept/initdb.log" >&2; fail "initdb failed"; }
start postgres
export DATABASE_URL=postgres://shop@127.0.0.1:$port/postgres
start redis
export REDIS_URL=redis://127.0.0.1:$port

"$@" &
command=$!
# What is told to this script is meant for the command, whose end is awaited in any case: a signal ends `wait` before it.
told=false
trap 'told=true; kill -INT -- "-$command" 2>/dev/null || true' INT
trap 'told=true; kill -TERM -- "-$command" 2>/dev/null || true' TERM HUP
while :; do
    status=0
    wait "$command" || status=$?
    $told || break
    told=false
done
exit "$status"
