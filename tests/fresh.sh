#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the first commands of the README, as they stand there, on a minimal Debian
# that has never seen anything else.
#
#   sh tests/fresh.sh [bookworm|trixie]      as root; 20 minutes
#
# tests/lib/roots.sh tells of two variables that make it faster.
set -eu
case ${1-} in
-h | --help)
    sed -n '3,8s/^# *//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
. tests/lib/deps.sh
. tests/lib/roots.sh

release=${1:-bookworm}
roots_begin
root_new "$release" fresh

mkdir "$roots/fresh/root/likesyncd"
tar -c --exclude=./.git --exclude='./build*' . |
    tar -x -C "$roots/fresh/root/likesyncd"
# The network is that of this machine, where servers of the same ports may run:
# Debian is not to start any when it installs them.
printf '#!/bin/sh\nexit 101\n' >"$roots/fresh/usr/sbin/policy-rc.d"
chmod 755 "$roots/fresh/usr/sbin/policy-rc.d"

# The first block of commands.
sed -n '/^```sh$/,/^```$/{/^```$/q;/^```/d;p}' README.md >"$roots/fresh/root/first.sh"
grep -c 'sh tests/' "$roots/fresh/root/first.sh" >/dev/null ||
    die "the README has no commands to begin with"

start=$(date +%s)
while read -r command; do
    say "$release: $command"
    root_run fresh sh -c "cd /root/likesyncd && $command" ||
        die "$release: failed: $command"
done <"$roots/fresh/root/first.sh"
say "$release: all of it passed in $(($(date +%s) - start)) s"
