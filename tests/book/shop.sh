#!/usr/bin/env bash
# Follows examples/shop/README.md in a copy of that folder: its tests, also with PostgreSQL and
# Redis, and its requests to a running shop.
set -euo pipefail
workspace=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$workspace/target/real}

copy=$(mktemp -d)
running=
finish() {
    [ -z "$running" ] || kill -TERM "$running" 2>/dev/null || true
    wait
    rm -rf "$copy"
}
trap finish EXIT
cp -r "$workspace/examples/shop/." "$copy"
cp "$workspace/Cargo.lock" "$copy"
# Replaces the published crate by this checkout.
printf '\n[patch.crates-io]\ndistlock = { path = "%s/distlock" }\n' "$workspace" >>"$copy/Cargo.toml"
cd "$copy"

# block NAME: prints the commands that README.md has under that name.
block() {
    local commands
    commands=$(sed -n "/^\`\`\`sh $1\$/,/^\`\`\`\$/p" README.md | sed '1d;$d')
    [ -n "$commands" ] || {
        printf 'error: examples/shop/README.md has no block %s\n' "$1" >&2
        exit 1
    }
    printf '%s\n' "$commands"
}

bash -euxc "$(block "test")"

# On a free port, in place of the 8080 of the text.
export LISTEN=127.0.0.1:0
setsid bash -c "exec $(block "run")" >shop.log &
running=$!
until grep -q '^listening on ' shop.log; do
    kill -0 "$running" || { running=; exit 1; }
    sleep 0.1
done
address=$(sed -n 's|^listening on http://||p' shop.log)
bash -euxo pipefail -c "$(block "try" | sed "s|localhost:8080|$address|")" | tee tried
# curl succeeds with any HTTP status.
for answer in 'HTTP/1.1 201 ' 'HTTP/1.1 200 ' distlock_acquire; do
    grep -q "$answer" tried || {
        printf 'error: what README.md has curl do was not answered with %s\n' "$answer" >&2
        exit 1
    }
done
# The responses to the order and to the item.
[ "$(grep -o '{"left":98}' tried | wc -l)" -eq 2 ] || { echo 'error: there is no {"left":98} in both answers' >&2; exit 1; }
