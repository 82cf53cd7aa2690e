#!/bin/sh
# SPDX-License-Identifier: MIT
# The fault campaign: breaks every part at every point and counts what is lost.
#
#   sh tests/chaos.sh [--seed N] [--minutes M] [CASE...]    --help tells the rest
#
# Each case has a Redis, a PostgreSQL, one daemon or several and a load of its
# own, which no other server sees. Without CASE, all; without --minutes, each once.
set -eu
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $SERVER_PACKAGES pgbouncer python3-pytest

# As tests/run.sh builds them, without the tests.
jobs=$(nproc 2>/dev/null || echo 2)
cmake -S . -B build-chaos -DLIKESYNCD_WERROR=ON -DLIKESYNCD_FAULTS=ON \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" \
    -DLIKESYNCD_SANITIZE=ON -DBUILD_TESTING=OFF >/dev/null
cmake --build build-chaos -j "$jobs" >/dev/null
# For memory, and calls that fail: a sanitizer has an allocator of its own.
cmake -S . -B build-chaos-plain -DLIKESYNCD_WERROR=ON -DLIKESYNCD_FAULTS=ON \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=OFF >/dev/null
cmake --build build-chaos-plain -j "$jobs" --target likesyncd likesyncctl >/dev/null
LIKESYNCD_BUILD="$PWD/build-chaos" PYTHONDONTWRITEBYTECODE=1
LIKESYNCD_PLAIN_BUILD="$PWD/build-chaos-plain"
export LIKESYNCD_BUILD LIKESYNCD_PLAIN_BUILD PYTHONDONTWRITEBYTECODE
exec /usr/bin/python3 tests/chaos/campaign.py "$@"
