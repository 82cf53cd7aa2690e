#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds for the fault campaign, as tests/run.sh does, without the tests.
set -eu
cd "$(dirname "$0")/../.."
. tests/lib/deps.sh

# Runs a step quietly; shows what it said only when it failed.
step() {
    if ! "$@" >build-chaos/log 2>&1; then
        tail -n 40 build-chaos/log >&2
        die "the build failed (its last lines are above)"
    fi
}

build() {
    dir=$1
    shift
    say "building $dir/"
    step cmake -S . -B "$dir" -DLIKESYNCD_WERROR=ON -DLIKESYNCD_FAULTS=ON \
        -DBUILD_TESTING=OFF "$@"
    step cmake --build "$dir" -j "$(nproc 2>/dev/null || echo 2)"
}

mkdir -p build-chaos
build build-chaos -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" \
    -DLIKESYNCD_SANITIZE=ON
# For memory, and calls that fail: a sanitizer has an allocator of its own.
build build-chaos-plain -DCMAKE_BUILD_TYPE=RelWithDebInfo
