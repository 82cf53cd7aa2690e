#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh format        the layout of all C files, by clang-format 14
# lint.sh tidy BUILD    clang-tidy over daemon/, with BUILD's compile commands
#
# Exit status 77 (CTest: skipped) where the tool is not there, or is another
# version of clang-format: each lays some lines out differently.
set -eu
cd "$(dirname "$0")/.."

skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

format() {
    tool=$(command -v clang-format-14 || command -v clang-format) ||
        skip "no clang-format here"
    version=$("$tool" --version)
    case $version in
    *"version 14."*) ;;
    *) skip "the layout is checked by clang-format 14, this is: $version" ;;
    esac
    find daemon tests/unit -name '*.[ch]' -exec "$tool" --dry-run -Werror {} +
}

# A file that has no compile command (nothing builds it) would be guessed at:
# only those of the build are looked at, which is all of daemon/.
tidy() {
    command -v clang-tidy >/dev/null || skip "no clang-tidy here"
    sed -n 's/^ *"file": "\(.*\/daemon\/.*\.c\)",*$/\1/p' \
        "$1/compile_commands.json" |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$1"
}

case ${1-} in
format) format ;;
tidy) tidy "${2:?lint.sh tidy BUILD}" ;;
*)
    sed -n '3,4s/^# //p' "$0" >&2
    exit 2
    ;;
esac
