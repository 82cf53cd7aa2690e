# SPDX-License-Identifier: MIT
# redis-benchmark, in the protocol given (2 or 3): see README.md. It has no
# session to keep over a restart: it is run again.
set -eu -o pipefail

readonly PIPELINE=1000
if [ -n "$SOCKET" ]; then
    address=(-s "$SOCKET")
else
    address=(-p "$PORT")
fi
if [ -n "$PASSWORD" ]; then
    address+=(-a "$PASSWORD")
fi
protocol=()
[ "$1" = 2 ] || protocol=("-$1")

# Prints how many of the requests were answered; fails as redis-benchmark does.
bench() {
    local output
    output=$(redis-benchmark "${address[@]}" "${protocol[@]}" "$@" 2>&1 |
        tr '\r' '\n') || {
        printf '%s\n' "$output"
        return 1
    }
    printf '%s\n' "$output" >&2
    sed -n 's/^ *\([0-9]*\) requests completed in .*/\1/p' <<<"$output"
}

echo "version $(redis-benchmark --version | cut -d' ' -f2)"
ping=$(bench -n 1 -c 1 PING)
echo "ping $([ "$ping" = 1 ] && echo PONG)"
# Random users, so a few may come twice.
echo "pipeline $(bench -n $PIPELINE -P $PIPELINE -c 1 -r 2000000000 \
    LIKE __rand_int__ 42)"
# It reads replies, but does not show them: fifty connections, as by default.
echo "array $(bench -n 100 LIKED 7 42 43)"
if reply=$(bench -n 1 -c 1 LIKE 7 nobody); then
    echo "reply $reply"
else
    sed -n 's/^Error from server: /error /p' <<<"$reply"
fi
echo restart
read -r
echo "again $(bench -n 1 -c 1 LIKE 1001 42)"
