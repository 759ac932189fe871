#!/usr/bin/env bash
# usage: servers.sh COMMAND...
#
# Runs a command with a PostgreSQL and a Redis of its own, on free ports of 127.0.0.1, whose URLs are in DATABASE_URL and
# REDIS_URL. Both are ended after the command, and what they kept is removed.
#
# What is started under job control (`set -m`) has a process group of its own: Ctrl-C does not end the servers before the command.
# shellcheck disable=SC2329 # Functions are called by a trap, and by a part of their name.
set -euo pipefail

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

kept=
command=
told=false

# Those of ours that have not ended, from the list that the shell keeps: it has them from the moment they are started.
running() {
    jobs -rp
    jobs -sp
}

# A signal may come before a child can hear it, so it is sent until they are gone, and after ten seconds one that all hear.
# For PostgreSQL SIGINT is the fast shutdown, which waits for no client.
finish() {
    trap '' INT TERM HUP
    local pid tries=0 signal=INT
    while [ -n "$(running)" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || signal=KILL
        for pid in $(running); do
            kill "-$signal" -- "-$pid" 2>/dev/null || kill "-$signal" "$pid" 2>/dev/null || true
            kill -CONT "$pid" 2>/dev/null || true
        done
        sleep 0.1
    done
    [ -z "$kept" ] || rm -rf "$kept"
}

# tell SIGNAL STATUS: what this script is told is meant for the command, whose end is awaited in any case. Before there is
# one it is the end.
tell() {
    [ -n "$command" ] || exit "$2"
    told=true
    kill "-$1" -- "-$command" 2>/dev/null || true
}

trap finish EXIT
trap 'tell INT 130' INT
trap 'tell TERM 143' TERM HUP
# Without a `$(...)`, in which the shell may miss a SIGINT.
kept=${TMPDIR:-/tmp}/servers.$$.$RANDOM
mkdir -m 700 "$kept" || { kept=; fail "set TMPDIR to a folder that can be written"; }

# PostgreSQL refuses to run as root.
as_postgres=()
if [ "$EUID" -eq 0 ]; then
    id postgres >/dev/null 2>&1 || fail "there is no user postgres, and PostgreSQL does not run as root"
    as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)
    chmod 711 "$kept"
fi
install -d -m 700 "$kept/postgres" "$kept/redis"
if [ ${#as_postgres[@]} -gt 0 ]; then
    chown postgres "$kept/postgres"
    "${as_postgres[@]}" test -x "$kept/postgres" ||
        fail "the user postgres cannot enter $kept; set TMPDIR to a folder that everybody can enter, such as /tmp"
fi

run_initdb() {
    cd "$kept/postgres"
    exec ${as_postgres[@]+"${as_postgres[@]}"} initdb -D data -U shop --auth=trust \
        --encoding=UTF8 --no-locale --no-sync
}

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
    local log=$kept/$1.log pid deadline=$((SECONDS + 60))
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 30000))
        : >"$log"
        set -m
        "run_$1" "$port" >>"$log" 2>&1 </dev/null &
        pid=$!
        set +m
        while kill -0 "$pid" 2>/dev/null; do
            ! grep -qi 'ready to accept connections' "$log" || return 0
            [ "$SECONDS" -lt "$deadline" ] || { cat "$log" >&2; fail "$1 is not ready after a minute"; }
            sleep 0.05
        done
    done
    cat "$log" >&2
    fail "$1 does not start"
}

# In the background as well: a trap waits for what is in the foreground.
set -m
run_initdb >"$kept/initdb.log" 2>&1 </dev/null &
set +m
wait $! || { cat "$kept/initdb.log" >&2; fail "initdb failed"; }
start postgres
export DATABASE_URL=postgres://shop@127.0.0.1:$port/postgres
start redis
export REDIS_URL=redis://127.0.0.1:$port

# A group of its own could not read from the terminal. In the foreground the command hears its keys itself; another signal to
# this script waits until it ends.
if [ -t 0 ]; then
    trap : INT
    status=0
    "$@" || status=$?
    exit "$status"
fi
set -m
"$@" &
set +m
command=$!
# A signal ends `wait` before the command has ended.
while :; do
    status=0
    wait "$command" || status=$?
    $told || break
    told=false
done
exit "$status"
