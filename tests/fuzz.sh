#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the fuzz targets (tests/fuzz/) with clang and runs them side by side.
#
#   sh tests/fuzz.sh [SECONDS [TARGET...]]     60 s of requests, replies, config
#
# FUZZ_SEED sets where the random numbers start (1). What was found to be of
# interest stays in build-fuzz/corpus/TARGET/ for the next run. An input that breaks
# a property is left in build-fuzz/found/TARGET/, is tried first the next time, and
# alone by build-fuzz/tests/fuzz_TARGET FILE.
set -eu
case ${1-} in
-h | --help)
    sed -n '3,10s/^# *//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- requests replies config
seed=${FUZZ_SEED:-1}

# One at a time: CTest starts this once for each target.
build() {
    mkdir -p build-fuzz
    exec 9>build-fuzz/lock
    flock 9
    # shellcheck disable=SC2086
    need_packages $BUILD_PACKAGES clang libclang-rt-dev libcmocka-dev
    cmake -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG="-O1 -g" -DLIKESYNCD_WERROR=ON \
        -DLIKESYNCD_SANITIZE=ON -DLIKESYNCD_FUZZ=ON >/dev/null
    for name in "$@"; do
        cmake --build build-fuzz -j "$(nproc)" --target "fuzz_$name" >/dev/null
    done
    flock -u 9
}

# The words of a target. Those of the configuration are taken from its example,
# so that none is forgotten.
words() {
    cat "tests/fuzz/$1.dict"
    [ "$1" != config ] ||
        sed -n 's/^\[.*\]$/"&\\x0a"/p; s/^\([a-z_]* =\).*/"\\x0a\1 "/p' \
            etc/likesyncd.ini
}

fuzz() {
    corpus=build-fuzz/corpus/$1
    found=build-fuzz/found/$1
    mkdir -p "$corpus" "$found"
    words "$1" >"build-fuzz/$1.dict"
    [ "$1" != config ] || grep -v "^#" etc/likesyncd.ini >"$corpus/example"
    exec "build-fuzz/tests/fuzz_$1" -max_total_time="$seconds" -seed="$seed" \
        -dict="build-fuzz/$1.dict" -artifact_prefix="$found/" \
        -max_len=8192 -timeout=60 -malloc_limit_mb=8 -error_exitcode=1 \
        -timeout_exitcode=1 -print_final_stats=1 "$corpus" "$found" \
        "tests/fuzz/$1"
}

# The status and, when it failed, the end of what a target said.
report() {
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' \
        "build-fuzz/$1.log")
    if [ "$2" -eq 0 ]; then
        say "fuzz: $1: passed, ${runs:?} inputs, seed $seed"
    else
        tail -n 60 "build-fuzz/$1.log" >&2
        say "fuzz: $1: FAILED, seed $seed"
    fi
}

build "$@"
pids=
for name in "$@"; do
    fuzz "$name" >"build-fuzz/$name.log" 2>&1 &
    pids="$pids $!"
done
# shellcheck disable=SC2086
trap 'kill $pids' INT TERM
failed=0
rest=$pids
for name in "$@"; do
    rest=${rest# }
    pid=${rest%% *}
    rest=${rest#"$pid"}
    status=0
    wait "$pid" || status=$?
    report "$name" "$status"
    [ "$status" -eq 0 ] || failed=1
done
exit "$failed"
