#!/bin/sh
# SPDX-License-Identifier: MIT
# The fault campaign: breaks every part at every point and counts what is lost.
#
#   sh tests/chaos.sh [--seed N] [--minutes M] [CASE...]    --help tells the rest
#
# Each case has a Redis, a PostgreSQL, one daemon or several and a load of its
# own, which no other server sees. Without CASE, all; without --minutes, each once.
# Installs the packages that are missing, and builds into build-chaos/ and
# build-chaos-plain/.
set -eu
cd "$(dirname "$0")/.."
. tests/lib/deps.sh

# Where the packages are missing, this is the help: none is installed for it.
case " $* " in
*" -h "* | *" --help "*)
    if ! /usr/bin/python3 -c 'import psycopg2, redis' 2>/dev/null; then
        sed -n '3,10s/^# *//p' "$0"
        exit 0
    fi
    ;;
*)
    # shellcheck disable=SC2086
    need_packages $BUILD_PACKAGES $SERVER_PACKAGES pgbouncer python3-pytest
    ;;
esac

LIKESYNCD_BUILD="$PWD/build-chaos" PYTHONDONTWRITEBYTECODE=1
LIKESYNCD_PLAIN_BUILD="$PWD/build-chaos-plain"
export LIKESYNCD_BUILD LIKESYNCD_PLAIN_BUILD PYTHONDONTWRITEBYTECODE
# It builds when it has found its arguments to be good.
exec /usr/bin/python3 tests/chaos/campaign.py --build tests/chaos/build.sh "$@"
