#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures likesyncd beside plain Redis and plain PostgreSQL.
set -eu
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

usage() {
    cat <<'EOF'
usage: sh tests/bench.sh [--rounds N] [--seconds S] [--events N] [--backlog N]
                         [--followers N] [--long] [--backlog-max N]
                         [--only TEXT] [--json FILE] [--svg FILE]

On Debian 12 or 13, as root or with sudo: installs the packages that are
missing, builds into build-bench/, and measures on a Redis (append-only file,
everysec) and a PostgreSQL (fsync on, as it comes) of its own, in a private
directory below /tmp, on unix sockets. Beside it, in the same rounds: the same
commands straight to Redis, one script for each event, upserts straight to
PostgreSQL, a cron script, a bare COPY. Prints a table of medians.

  --rounds N    rounds, of which the median is taken (3)
  --seconds S   length of each timed load (3)
  --events N    size of the loads and backlogs of a fixed size (200000)
  --backlog N   rows that drain while a fixed rate is measured (200000)
  --followers N followers of the one user whose list is long (1000000)
  --long        also what grows with the backlog and with the likes of a post,
                up to --backlog-max rows (5000000), and 10,000 connections
  --only TEXT   only the workloads with TEXT in what is shown of them, such as
                "beside an attack"
  --json FILE   also writes every single figure
  --svg FILE    also draws the main ones
EOF
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
esac

# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $SERVER_PACKAGES

# Runs a step of the build quietly; shows what it said only when it failed.
build_step() {
    if ! "$@" >build-bench/log 2>&1; then
        tail -n 40 build-bench/log >&2
        die "the build failed (its last lines are above)"
    fi
}

say "building (build-bench/)"
mkdir -p build-bench
build_step cmake -S . -B build-bench -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_TESTING=OFF -DLIKESYNCD_BENCH=ON
build_step cmake --build build-bench -j "$(nproc)"

LIKESYNCD_BUILD=$PWD/build-bench PYTHONDONTWRITEBYTECODE=1 \
    exec /usr/bin/python3 tests/bench.py "$@"
