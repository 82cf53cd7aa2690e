#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and runs all tests through CTest.
#
#   sh tests/run.sh [CTEST ARGUMENT...]      e.g. -R unit, -L integration
#
# The tests run on a gcc build with ASan and UBSan (build-test/). A second
# build, by clang and without what tests do to a daemon from within (build-clang/),
# only has to be free of warnings. Memory is measured on a third, without sanitizers
# (build-plain/).
set -eu
case ${1-} in
-h | --help)
    sed -n '3,10s/^# *//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $SERVER_PACKAGES $TEST_PACKAGES

jobs=$(nproc 2>/dev/null || echo 2)

build() {
    dir=$1
    shift
    say "building $dir"
    cmake -S . -B "$dir" -DLIKESYNCD_WERROR=ON -DLIKESYNCD_FAULTS=ON \
        -DCMAKE_BUILD_TYPE=Debug "$@" >/dev/null
    cmake --build "$dir" -j "$jobs"
}

build build-clang -DCMAKE_C_COMPILER=clang -DLIKESYNCD_FAULTS=OFF
build build-test -DCMAKE_C_COMPILER=gcc -DLIKESYNCD_SANITIZE=ON \
    -DCMAKE_C_FLAGS_DEBUG="-O1 -g"
build build-plain -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=OFF
export LIKESYNCD_PLAIN_BUILD="$PWD/build-plain"

# The last command: CTest's summary and exit status are those of this script. A
# failure is shown, and counts when the test fails a second time: some wait for other
# programs on a machine that may stall. What a case of the campaign finds counts at
# once: it is kept in chaos-failed, and found there by the second try.
rm -rf build-test/chaos-failed
exec ctest --test-dir build-test --output-on-failure --no-tests=error \
    --repeat until-pass:2 -j "$jobs" "$@"
