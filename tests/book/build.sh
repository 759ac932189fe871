#!/usr/bin/env bash
# Builds the book from docs into target/book, and checks its links, anchors and pictures. Installs
# missing tools below target: mdbook with cargo, linkchecker with pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mdbook_version=0.5.2
linkchecker_version=10.6.0
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/tools
book=$target/book

# Not piped to `grep -q`, which exits at the first match and can make the writer fail.
version=$("$tools/bin/mdbook" --version 2>/dev/null || true)
if [ "$version" != "mdbook v$mdbook_version" ]; then
    # Without optimization and without the server, mdbook builds in 90 s, and the book in a second.
    CARGO_TARGET_DIR=$tools/build cargo install mdbook --locked --version "$mdbook_version" --root "$tools" --force \
        --debug --no-default-features --features search
    rm -rf "$tools/build"
fi
version=$("$tools/python/bin/pip" show linkchecker 2>/dev/null || true)
version=$(grep '^Version: ' <<<"$version" || true)
if [ "$version" != "Version: $linkchecker_version" ]; then
    python3 -m venv "$tools/python" || {
        echo 'error: python3 has no venv; as root, run: apt-get update && apt-get install python3-venv' >&2
        exit 1
    }
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check "linkchecker==$linkchecker_version"
fi

# mdbook only warns about a chapter with an unclosed tag, or about a missing file.
warnings=$(mktemp)
trap 'rm -f "$warnings"' EXIT
MDBOOK_LOG=warn "$tools/bin/mdbook" build docs --dest-dir "$book" 2>"$warnings" || {
    cat "$warnings" >&2
    exit 1
}
if [ -s "$warnings" ]; then
    cat "$warnings" >&2
    echo 'error: mdbook warns of something in docs' >&2
    exit 1
fi

# Checks internal links only. As root, linkchecker would become `nobody`, which may not be able to
# read the book, so it sees another user id.
"$tools/python/bin/python" - --config tests/book/linkchecker.ini --no-status "$book/index.html" <<'PYTHON'
import os

os.geteuid = lambda: 1
from linkcheck.command.linkchecker import linkchecker

linkchecker()
PYTHON
