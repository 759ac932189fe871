#!/usr/bin/env bash
# Runs every suite with every saboteur, and records in docs/internals/saboteurs.md which test detects
# it. A suite stops at its first failing test. An interrupted run continues from target/sabotage/found.
# Needs an idle machine, because a failure under load would count as a detection.
# usage: tests/sabotage/table.sh [SABOTEUR...]   (default: all; takes some hours)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export RUSTC_WORKSPACE_WRAPPER=$PWD/tests/rustc/sabotage.sh
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} DISTLOCK_SEEDS=${DISTLOCK_SEEDS:-1000}
target=${CARGO_TARGET_DIR:-$PWD/target}
found=$target/sabotage/found
suites=(simulation equivalence conformance faults torture)

# The saboteurs that the model runs as well. It must find a counter-example for each.
model=" acquire-after-cancel cancelled-once publish-before-write no-queue-check
    newcomer-passes long-grant-lease silent-not-skipped grant-age-unchecked token-of-push minority-acquires minority-extends
    refused-not-released server-counts-twice no-write-back no-quarantine keys-in-given-order equal-keys-count-twice takes-held-keys
    number-of-the-last-call "

saboteurs() {
    sed -n '/^rules! {/,/^}/ s/^    [a-z_]* = "\(.*\)",$/\1/p' distlock/src/protocol/rules.rs
}

# binary PACKAGE TARGET...: builds a test and prints its path.
binary() {
    cargo test --no-run --message-format=json -p "$1" "${@:2}" 2>/dev/null |
        sed -n 's/.*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1/p' | tail -1
}

# suite SUITE SABOTEUR: prints the command of a suite.
suite() {
    case $1 in
        simulation) echo "$library simulation::" ;;
        equivalence) echo "$library equivalence::" ;;
        conformance) echo "$conformance" ;;
        faults) echo "$faults" ;;
        # With the faults listed for the saboteur, or otherwise a minute of all faults.
        torture)
            if grep -q "\"$2\"" tests/torture/src/saboteurs.rs tests/torture/src/directed.rs; then
                echo "$torture saboteurs --only $2"
            elif grep -q "\"$2\"" tests/sabotage/postgres.rs; then
                echo "$torture --topology postgres --seconds 60 --sabotage $2"
            else
                echo "$torture --seconds 60 --sabotage $2"
            fi
            ;;
    esac
}

# failure LOG: prints the first test that failed, or the violation that torture found.
failure() {
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p; s/^caught  [^ ]* *\(.*[^ ]\)  *[0-9]* s$/\1/p; s/^FAILED: /all faults: /p' "$1" |
        head -1
}

# first_failure SUITE SABOTEUR: prints the first test that fails, `-` if all pass.
first_failure() {
    local log=$found/$2.$1.log session failure=- sabotage=$2
    # Torture sets the variable only for its workers, because the same seed must pass without it.
    [ "$1" != torture ] || sabotage=
    # shellcheck disable=SC2046
    CARGO_MANIFEST_DIR=$PWD/tests DISTLOCK_SABOTAGE=$sabotage setsid --fork --wait \
        bash -c 'cd tests; echo $$ >"$0"; exec timeout 1200 "$@"' "$log.pid" $(suite "$1" "$2") >"$log" 2>&1 &
    session=$!
    while kill -0 "$session" 2>/dev/null; do
        failure=$(failure "$log")
        [ -z "$failure" ] || break
        sleep 1
    done
    # The servers of the tests are in the same session.
    pkill -KILL -s "$(cat "$log.pid")" || true
    wait "$session" 2>/dev/null || true
    failure=$(failure "$log")
    if [ -z "$failure" ] && ! grep -q '^test result: ok\|^MISSED\|^passed' "$log"; then
        failure="(no result within 20 minutes)"
    fi
    printf '%s\n' "${failure:--}"
}

table() {
    printf '# What detects each saboteur\n\n'
    printf 'A saboteur is a build without one of the [rules](rules-in-code.md#what-breaks-each-rule), and the tests must detect it.\n'
    printf '`tests/sabotage/table.sh` writes the table.\n\n'
    printf 'Each suite runs with each saboteur until its first failing test, which the table names. `-` means that all tests pass,\n'
    printf 'and `not run` that there is no result. The model explores without the rule, and its tests expect a counter-example.\n'
    printf 'Torture runs with the faults that `tests/torture/src/saboteurs.rs` lists for the saboteur, or otherwise for a minute\n'
    printf 'with all faults. A saboteur of the functions in PostgreSQL also has a check in `tests/sabotage/postgres.rs`, which notices\n'
    printf 'it in every build.\n\n'
    printf '| saboteur | model | %s |\n|---|---|%s\n' "$(printf '%s | ' "${suites[@]}" | sed 's/ | $//')" "$(printf -- '---|%.0s' "${suites[@]}")"
    local name one cell
    for name in $(saboteurs); do
        if grep -qw -- "$name" <<<"$model"; then cell="counter-example"; else cell=-; fi
        printf '| `%s` | %s' "$name" "$cell"
        for one in "${suites[@]}"; do
            printf ' | %s' "$(cat "$found/$name.$one" 2>/dev/null || echo 'not run')"
        done
        printf ' |\n'
    done
}

mkdir -p "$found"
library=$(binary distlock --lib)
conformance=$(binary distlock-tests --test conformance)
faults=$(binary distlock-tests --test faults)
cargo build -q -p torture
torture=$target/debug/torture
[ $# -gt 0 ] || set -- $(saboteurs)
for name; do
    for one in "${suites[@]}"; do
        [ ! -e "$found/$name.$one" ] || continue
        start=$SECONDS
        first_failure "$one" "$name" >"$found/$name.$one.new"
        mv "$found/$name.$one.new" "$found/$name.$one"
        printf '%-28s %-12s %4d s  %s\n' "$name" "$one" $((SECONDS - start)) "$(cat "$found/$name.$one")"
        table >docs/internals/saboteurs.md
    done
done
table >docs/internals/saboteurs.md
