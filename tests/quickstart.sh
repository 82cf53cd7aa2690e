#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds likesyncd, plays real streams of likes and of follows through it on a
# Redis and a PostgreSQL of its own, and shows what became of them.
set -eu
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

usage() {
    cat <<'EOF'
usage: sh tests/quickstart.sh [--keep] [--help]

On Debian 12 or 13, as root or with sudo: installs the packages that are
missing, builds into build-quickstart/, starts a Redis, a PostgreSQL and the
daemon in a private directory below /tmp, on unix sockets (only the metrics
are on a free port of 127.0.0.1), plays tests/data/likes.tsv and follows.tsv,
waits until all of it is durable, checks every row and every count, shows a
page of followers, and stops and removes what it started.

  --keep   leave everything running, and print how to use and how to stop it
EOF
}

keep=
for argument in "$@"; do
    case $argument in
    --keep) keep=--keep ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        say "error: unknown argument: $argument"
        exit 2
        ;;
    esac
done

# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $SERVER_PACKAGES

# Runs a step of the build quietly; shows what it said only when it failed.
build_step() {
    if ! "$@" >build-quickstart/log 2>&1; then
        tail -n 40 build-quickstart/log >&2
        die "the build failed (its last lines are above)"
    fi
}

say "building (build-quickstart/)"
mkdir -p build-quickstart
build_step cmake -S . -B build-quickstart -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_TESTING=OFF
build_step cmake --build build-quickstart -j "$(nproc)"

LIKESYNCD_BUILD=$PWD/build-quickstart PYTHONDONTWRITEBYTECODE=1 \
    exec /usr/bin/python3 tests/quickstart.py $keep
