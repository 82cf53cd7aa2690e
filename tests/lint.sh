#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh format        the layout of all C files, by clang-format
# lint.sh tidy BUILD    clang-tidy over daemon/, with BUILD's compile commands
# lint.sh lua           syntax and global names of the Lua scripts
# lint.sh man BUILD     the pages of the manual that BUILD made
#
# The first two by version 14 only: other versions lay some lines out differently and
# check other things. Exit status 77 (CTest: skipped) where there is none.
set -eu
cd "$(dirname "$0")/.."

# Prints the tool's name when it is the version that counts here.
version_14() {
    for tool in "$1-14" "$1"; do
        case $("$tool" --version 2>/dev/null) in
        *"version 14."*)
            echo "$tool"
            return
            ;;
        esac
    done
    echo "skipped: no $1 of version 14 here" >&2
    exit 77
}

format() {
    tool=$(version_14 clang-format)
    find daemon man tests/unit tests/fuzz -name '*.[ch]' -exec "$tool" --dry-run -Werror {} +
}

# Only what BUILD compiles, which is all of daemon/: clang-tidy would guess at
# the flags of anything else.
tidy() {
    tool=$(version_14 clang-tidy)
    sed -n 's/^ *"file": "\(.*\/daemon\/.*\.c\)",*$/\1/p' \
        "$1/compile_commands.json" |
        xargs -P "$(nproc)" -n 1 "$tool" --quiet -p "$1"
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
