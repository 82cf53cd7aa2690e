#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the two commands at the top of the README, as they stand there, on a minimal
# Debian that has never seen anything else.
#
#   sh tests/fresh.sh [bookworm|trixie]      as root; 20 minutes
#
# tests/lib/roots.sh tells of two variables that make it faster. It exits with 77
# where the machine does not let it run such a Debian.
set -eu
# shellcheck source=tests/lib/roots.sh
. "$(dirname "$0")/lib/roots.sh"

roots_begin "$@"

# The first block of commands, without its comments.
sed -n '/^```sh$/,/^```$/{/^```$/q;/^```/d;s/ *#.*//;p}' README.md >"$roots/first.sh"
[ "$(cat "$roots/first.sh")" = "sh tests/quickstart.sh
sh tests/run.sh" ] ||
    die "the README does not begin with its two commands:" "$(cat "$roots/first.sh")"

root_new "$release" fresh
mkdir "$roots/fresh/root/likesyncd"
tar -c --exclude=./.git --exclude='./build*' . |
    tar -x -C "$roots/fresh/root/likesyncd"
# The network is that of this machine, where servers of the same ports may run:
# Debian is not to start any when it installs them.
printf '#!/bin/sh\nexit 101\n' >"$roots/fresh/usr/sbin/policy-rc.d"
chmod 755 "$roots/fresh/usr/sbin/policy-rc.d"

start=$(date +%s)
while read -r command; do
    say "$release: $command"
    root_run fresh sh -c "cd /root/likesyncd && $command" ||
        die "$release: failed: $command"
done <"$roots/first.sh"
say "$release: all of it passed in $(($(date +%s) - start)) s"
