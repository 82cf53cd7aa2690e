# SPDX-License-Identifier: MIT
# redis-cli, in the protocol given (2 or 3): see README.md.
set -eu

readonly PIPELINE=1000
if [ -n "$SOCKET" ]; then
    address=(-s "$SOCKET")
else
    address=(-p "$PORT")
fi
if [ -n "$PASSWORD" ]; then
    export REDISCLI_AUTH=$PASSWORD
fi
cli=(redis-cli "${address[@]}" "-$1")

echo "version $(redis-cli --version | cut -d' ' -f2)"

# One process for all that is asked, as a person would use it, who types again
# what a broken connection swallowed.
coproc SESSION { "${cli[@]}" 2>&1; }
ask() {
    local answer='Error: ' tries=0
    while [[ $answer == 'Error: '* && $((++tries)) -le 3 ]]; do
        echo "$*" >&"${SESSION[1]}"
        read -r answer <&"${SESSION[0]}"
    done
    echo "$answer"
}

echo "ping $(ask PING)"
seq "$PIPELINE" | sed 's/.*/LIKE & 42\r/' |
    "${cli[@]}" --pipe | sed -n 's/^errors: 0, replies: /pipeline /p'
echo "array $("${cli[@]}" LIKED 7 42 43 | paste -s -d,)"
# -e: an error is the exit status, and goes to stderr.
if reply=$("${cli[@]}" -e LIKE 7 nobody 2>&1); then
    echo "reply $reply"
else
    echo "error $reply"
fi
echo restart
read -r
echo "again $(ask LIKE 1001 42)"
