#!/usr/bin/env bash
# Compiles this workspace's packages as they are published: without the flag of
# .cargo/config.toml. Dependencies are those of all other builds.
set -euo pipefail
flags=()
for flag in "$@"; do
    if [ "$flag" = distlock_inside ]; then
        unset 'flags[-1]' # --cfg
    else
        flags+=("$flag")
    fi
done
exec "${flags[@]}" -Dwarnings
