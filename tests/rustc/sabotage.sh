#!/usr/bin/env bash
# Compiles this workspace's packages with the saboteurs. Dependencies are those of all other builds.
exec "$@" --cfg sabotage
