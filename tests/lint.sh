#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh format        the layout of all C files, by clang-format
# lint.sh tidy BUILD    clang-tidy over daemon/ and the load generator, with
#                       BUILD's compile commands
# lint.sh lua           syntax and global names of the Lua scripts
# lint.sh man BUILD     the pages of the manual that BUILD made
#
# The tools are what tests/lib/deps.sh names.
set -eu
cd "$(dirname "$0")/.."

format() {
    find daemon man tests -name '*.[ch]' \
        -exec clang-format-19 --dry-run -Werror {} +
}

# Only what BUILD compiles, which is all of these: clang-tidy would guess at the flags
# of anything else.
tidy() {
    sed -nE 's/^ *"file": "(.*\/(daemon|likebench)\/.*\.c)",*$/\1/p' \
        "$1/compile_commands.json" |
        xargs -P "$(nproc)" -n 1 clang-tidy-19 --quiet -p "$1"
}

# A misspelt name in a script is a global, which Redis refuses only when it gets
# there. What stands in front of a script (core/edge.c) is made of its names.
lua() {
    kind="KIND REGISTRY SET HASH OWNER_FIELD MEMBER_FIELD COUNTER_PRE COUNTER_POST \
        LISTS UNSYNCED_SETS FOLLOW_PRE FOLLOW_POST FANS_PRE FANS_POST"
    known=" redis ARGV string math table tonumber tostring type ipairs pairs next unpack "
    status=0
    for script in daemon/lua/*.lua; do
        # shellcheck disable=SC2086
        code=$(printf 'local %s\n' $kind |
            cat - daemon/lua/common.lua daemon/lua/lists.lua \
                daemon/lua/rows.lua "$script" | luac5.1 -l -p -) || status=1
        for name in $(echo "$code" |
            sed -n 's/^.*[GS]ETGLOBAL.*; \(.*\)$/\1/p' | sort -u); do
            case $known in
            *" $name "*) ;;
            *)
                echo "$script: global variable '$name'" >&2
                status=1
                ;;
            esac
        done
    done
    return $status
}

man() {
    mandoc -Tlint -W warning "$1"/man/*.[1-8]
}

case ${1-} in
format) format ;;
lua) lua ;;
man) man "${2:?lint.sh man BUILD}" ;;
tidy) tidy "${2:?lint.sh tidy BUILD}" ;;
*)
    sed -n '3,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac
