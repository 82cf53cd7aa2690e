# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2154
# A booted Debian, and what tells how its tests go. Sourced after roots.sh, whose
# roots_end it replaces.
#
#   machine_alone            waits until no other script like this has one: they
#                            would share a tree of control groups
#   boot NAME                boots $roots/NAME with a network of its own, with
#                            nothing in it but itself; fails when that takes long
#   inside COMMAND           runs it in there, as root
#   step, quietly, check, check_now, fail: see there
start=$(date +%s)
passed=0
machine_pid=

# What is waited for comes within this time (s), on a slow machine, too.
PATIENCE=120

# Held by what is booted, too, as long as it runs.
machine_alone() {
    exec 9>/run/likesyncd-machine.lock
    flock -n 9 || {
        say "waiting for another system to go that such a test has booted"
        flock 9
    }
}

# Only what is the first process of a namespace of its own: before that there is a
# child in ours, and what is done inside must never be done to this machine.
init_pid() {
    for pid in $(cat "/proc/$machine_pid/task/$machine_pid/children" 2>/dev/null); do
        if grep -Eq '^NSpid:.*[[:space:]]1$' "/proc/$pid/status" 2>/dev/null; then
            echo "$pid"
            return
        fi
    done
    return 1
}

inside() {
    init=$(init_pid) || return
    nsenter -t "$init" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

boot() {
    root_become "$1" -b --private-network >"$roots/console" 2>&1 &
    machine_pid=$!
    wait_for "the system to boot" is_up_or_down
    is_up
}

is_up() {
    [ "$(inside systemctl is-system-running 2>/dev/null)" = running ]
}

is_down() {
    ! kill -0 "$machine_pid" 2>/dev/null
}

is_up_or_down() {
    is_up || is_down
}

power_off() {
    [ -n "$machine_pid" ] || return 0
    inside systemctl poweroff >/dev/null 2>&1 ||
        kill "$machine_pid" 2>/dev/null || true
    wait_for "the system to power off" is_down || kill -9 "$machine_pid"
    wait "$machine_pid" || true
    machine_pid=
}

roots_end() {
    power_off || true
    roots_remove
}

# Says what comes next.
step() {
    say "[$(($(date +%s) - start)) s] $*"
}

# wait_for WHAT COMMAND...: until the command succeeds.
wait_for() {
    what=$1
    shift
    until=$(($(date +%s) + PATIENCE))
    until "$@" >/dev/null 2>&1; do
        if [ "$(date +%s)" -ge "$until" ]; then
            say "no sign of $what ($*)"
            return 1
        fi
        sleep 0.2
    done
}

# check WHAT COMMAND...: the command succeeds sooner or later.
check() {
    wait_for "$@" || fail "$1"
    passed=$((passed + 1))
    say "    ok: $1"
}

# check_now WHAT COMMAND...: it succeeds at once.
check_now() {
    check_what=$1
    shift
    "$@" || fail "$check_what"
    passed=$((passed + 1))
    say "    ok: $check_what"
}

fail() {
    say "FAILED: $1"
    if [ -n "$machine_pid" ]; then
        inside systemctl status --no-pager -n 0 'likesyncd*' >&2 || true
        inside journalctl -q --no-pager -n 40 -u 'likesyncd*' >&2 || true
    fi
    say "$passed passed, 1 failed"
    exit 1
}

# Runs a long step; shows what it said only when it failed.
quietly() {
    "$@" >"$roots/log" 2>&1 || {
        tail -n 30 "$roots/log" >&2
        fail "$*"
    }
}

# says WANTED COMMAND...: it prints just this.
says() {
    want=$1
    shift
    [ "$("$@" 2>&1)" = "$want" ]
}

# fails COMMAND...: it does not succeed.
fails() {
    ! "$@" >/dev/null 2>&1
}
