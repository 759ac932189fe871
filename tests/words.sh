#!/usr/bin/env bash
# Fails if names, comments, strings or documents contain a word that docs/internals/style.md rules
# out. A line may contain one if tests/words-allowed.txt has a fixed string that occurs in
# "PATH:LINE". A string that no such line needs fails as well.
# usage: tests/words.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
allowed=tests/words-allowed.txt

words='who|whoever|whom|tells?|told|telling|nobody|somebody|home|lanes?'
# Parts of snake_case names count as words.
found=$(git grep -niE "(^|[^a-z])($words)([^a-z]|$)" -- \
    '*.rs' '*.lua' '*.sql' '*.md' '*.sh' '*.toml' '*.yml' '*.stderr' ':!tests/words.sh' |
    sed -E 's/^([^:]*):[0-9]+:/\1:/' || true)

status=0
if violations=$(grep -vFf "$allowed" <<<"$found") && [ -n "$violations" ]; then
    printf '%s\n' "$violations" >&2
    echo "these lines contain words that docs/internals/style.md rules out: reword them" >&2
    status=1
fi
while IFS= read -r entry; do
    # An empty entry would allow every line.
    if [ -z "$entry" ] || ! grep -qF -- "$entry" <<<"$found"; then
        echo "$allowed: no line needs \`$entry\`: remove it" >&2
        status=1
    fi
done <"$allowed"
exit $status
