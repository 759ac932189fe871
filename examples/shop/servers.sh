#!/usr/bin/env bash
# usage: servers.sh COMMAND...
#
# Runs a command with its own PostgreSQL and Redis, on free ports of 127.0.0.1, with their URLs in
# DATABASE_URL and LOCKS_URL. With LOCKS=postgresql the locks are in that database, and there is no
# Redis. Stops the servers after the command, and deletes their data.
#
# Job control (`set -m`) gives each server a process group, so Ctrl-C does not stop it too early.
# shellcheck disable=SC2329 # Functions are called by a trap, and by a part of their name.
set -euo pipefail

fail() {
    printf 'servers.sh: %s\n' "$1" >&2
    exit 1
}

[ $# -gt 0 ] || fail "usage: servers.sh COMMAND..."

# Debian has PostgreSQL's programs in a folder per version, outside PATH. The last version wins.
if ! command -v initdb >/dev/null; then
    for programs in /usr/lib/postgresql/*/bin; do
        PATH=$programs:$PATH
    done
fi
command -v initdb >/dev/null ||
    fail "PostgreSQL is missing: apt-get install postgresql (or dnf install postgresql-server, brew install postgresql)"
locks=${LOCKS:-redis}
[ "$locks" = postgresql ] || command -v redis-server >/dev/null ||
    fail "Redis is missing: apt-get install redis-server (or dnf install redis, brew install redis)"

data_dir=
command=
is_signaled=false

# Lists our processes that have not ended. The shell's job table has each from its start.
running() {
    jobs -rp
    jobs -sp
}

# Repeats the signal until all have ended, because a child may not handle it yet, and sends SIGKILL
# after ten seconds. For PostgreSQL, SIGINT is the fast shutdown, which waits for no client.
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
    [ -z "$data_dir" ] || rm -rf "$data_dir"
}

# forward SIGNAL STATUS: forwards a signal to the command, and the script still waits for its end.
# Exits with the status if there is no command yet.
forward() {
    [ -n "$command" ] || exit "$2"
    is_signaled=true
    kill "-$1" -- "-$command" 2>/dev/null || true
}

trap finish EXIT
trap 'forward INT 130' INT
trap 'forward TERM 143' TERM HUP
# Avoids `$(...)`, in which the shell may miss a SIGINT.
data_dir=${TMPDIR:-/tmp}/servers.$$.$RANDOM
mkdir -m 700 "$data_dir" || { data_dir=; fail "set TMPDIR to a folder that can be written"; }

# PostgreSQL does not run as root.
as_postgres=()
if [ "$EUID" -eq 0 ]; then
    id postgres >/dev/null 2>&1 ||
        fail "PostgreSQL does not run as root, and there is no user postgres; create it, or do not run this as root"
    as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)
    chmod 711 "$data_dir"
fi
install -d -m 700 "$data_dir/postgres" "$data_dir/redis"
if [ ${#as_postgres[@]} -gt 0 ]; then
    chown postgres "$data_dir/postgres"
    "${as_postgres[@]}" test -x "$data_dir/postgres" ||
        fail "the user postgres cannot enter $data_dir; set TMPDIR to a folder that every user can enter, such as /tmp"
fi

run_initdb() {
    cd "$data_dir/postgres"
    exec ${as_postgres[@]+"${as_postgres[@]}"} initdb -D data -U shop --auth=trust \
        --encoding=UTF8 --no-locale --no-sync
}

run_postgres() {
    cd "$data_dir/postgres"
    exec ${as_postgres[@]+"${as_postgres[@]}"} postgres -D "$data_dir/postgres/data" -p "$1" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off
}

run_redis() {
    cd "$data_dir/redis"
    exec redis-server --port "$1" --bind 127.0.0.1 --save '' --appendonly no
}

# start NAME: starts a server and waits until it is ready. Uses another port if its port is taken.
start() {
    local log=$data_dir/$1.log pid deadline=$((SECONDS + 60))
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

# Also in the background, because a trap waits for a foreground process.
set -m
run_initdb >"$data_dir/initdb.log" 2>&1 </dev/null &
set +m
wait $! || { cat "$data_dir/initdb.log" >&2; fail "initdb failed"; }
start postgres
export DATABASE_URL=postgres://shop@127.0.0.1:$port/postgres
export LOCKS_URL=$DATABASE_URL
if [ "$locks" != postgresql ]; then
    start redis
    export LOCKS_URL=redis://127.0.0.1:$port
fi

# On a terminal, the command runs in the foreground, because another group cannot read from it. The
# terminal signals the command directly, and other signals to this script wait for its end.
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
# A signal ends `wait` before the command ends.
while :; do
    status=0
    wait "$command" || status=$?
    $is_signaled || break
    is_signaled=false
done
exit "$status"
