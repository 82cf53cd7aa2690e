#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian package, boots a minimal Debian with systemd, and goes through
# the package's life there: install without and with its backends, kill, PostgreSQL
# away, upgrade under load, reboot, a second instance, removal.
#
#   sh tests/system.sh [bookworm|trixie]      as root; 4 to 8 minutes
#
# tests/lib/roots.sh tells of two variables that make it faster. The booted system
# has a network of its own, with nothing in it but itself.
set -eu
case ${1-} in
-h | --help)
    sed -n '3,11s/^# *//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
. tests/lib/deps.sh
. tests/lib/roots.sh

release=${1:-bookworm}
start=$(date +%s)
passed=0
machine_pid=

# ---- the machine ----

init_pid() {
    tr -d ' ' <"/proc/$machine_pid/task/$machine_pid/children" 2>/dev/null
}

inside() {
    nsenter -t "$(init_pid)" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

boot() {
    root_become booted -b --private-network >"$roots/console" 2>&1 &
    machine_pid=$!
    wait_for "the system to boot" is_up || fail "boot"
}

is_up() {
    [ "$(inside systemctl is-system-running 2>/dev/null)" = running ]
}

power_off() {
    [ -n "$machine_pid" ] || return 0
    inside systemctl poweroff >/dev/null 2>&1 || true
    wait_for "the system to power off" is_down || kill "$machine_pid"
    wait "$machine_pid" || true
    machine_pid=
}

is_down() {
    ! kill -0 "$machine_pid" 2>/dev/null
}

# ---- what tells how it goes ----

step() {
    say "[$(($(date +%s) - start)) s] $*"
}

# Waits for a command to succeed.
wait_for() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -ge 300 ]; then
            say "no sign of $what ($*)"
            return 1
        fi
        sleep 0.2
    done
}

# check WHAT COMMAND...: the command succeeds, within a minute.
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

roots_end() {
    power_off || true
    roots_remove
}

# ---- looks ----

property() {
    inside systemctl show -P "$1" "${2:-likesyncd.service}"
}

status_has() {
    property StatusText | grep -Eq "$1"
}

is_active() {
    [ "$(property ActiveState "$1")" = active ]
}

http() {
    # shellcheck disable=SC2016
    inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/9480 &&
        printf "GET %s HTTP/1.0\r\n\r\n" "$0" >&3 && cat <&3' "$1"
}

http_has() {
    http "$1" | tr -d '\r' | tr '\n' ' ' | grep -Eq "$2"
}

ask() {
    inside redis-cli -s "${socket:-/run/likesyncd/likesyncd.sock}" "$@"
}

says() {
    want=$1
    shift
    [ "$("$@" 2>&1)" = "$want" ]
}

# As a DBA: a person of the system with the read-only role.
dba() {
    inside runuser -u dba -- psql -X -A -t -d likesync -c "$1"
}

# The counters equal the rows, and the rows are those that were answered.
consistent() {
    inside likesyncctl drain >/dev/null &&
        says "$1|t" dba "SELECT (SELECT count(*) FROM user_like_post
            WHERE user_id >= 1000), NOT EXISTS (SELECT FROM post_like p
            WHERE like_count - unattributed <> (SELECT count(*)
            FROM user_like_post u WHERE u.post_id = p.post_id
            AND u.status = 1))"
}

no_trace() {
    left=$(inside find / /run /tmp -xdev -path /root -prune -o \
        -iname '*likesync*' -print)
    left=$left$(inside getent passwd likesyncd || true)
    left=$left$(inside getent group likesync || true)
    left=$left$(inside systemctl list-units --all --no-legend 'likesyncd*')
    [ -z "$left" ] || {
        say "left behind: $left"
        return 1
    }
}

# ---- load ----

first_user=1000
all_acked=0

load_start() {
    quietly inside systemd-run -q --unit=load -p StandardOutput=truncate:/run/load.out \
        python3 /root/system_load.py $first_user
    wait_for "load" says t dba \
        "SELECT count(*) > 100 FROM user_like_post WHERE user_id >= $first_user" ||
        fail "load"
}

# Leaves what the clients saw in $acked, $broken and $failed.
load_stop() {
    sleep 1
    quietly inside systemctl stop load
    inside cat /run/load.out >"$roots/load"
    acked=$(sed -n 's/^acked //p' "$roots/load")
    broken=$(sed -n 's/^broken //p' "$roots/load")
    failed=$(sed -n 's/^failed //p' "$roots/load")
    first_user=$((first_user + 1000000))
    all_acked=$((all_acked + acked))
    say "    load: $acked likes answered, $broken connections broken," \
        "$failed failed"
}

# check_load WHAT: clients were cut off, and saw no failure.
check_load() {
    load_stop
    [ "$failed" -eq 0 ] || cat "$roots/load" >&2
    check_now "$1: clients were cut off" [ "$broken" -gt 0 ]
    check_now "$1: no request failed" [ "$failed" -eq 0 ]
    check "$1: each like that was answered is a row" consistent $all_acked
}

# ---- the life of a package ----

build_package() {
    step "$release: building the package"
    root_new "$release" build
    # shellcheck disable=SC2086
    quietly root_run build sh -ec '
        . /source/tests/lib/deps.sh
        need_packages $BUILD_PACKAGES $PACKAGE_PACKAGES lintian
        cmake -S /source -B /build -DCMAKE_INSTALL_PREFIX=/usr \
            -DBUILD_TESTING=OFF -DLIKESYNCD_WERROR=ON
        cmake --build /build --target package -j "$(nproc)"'
    # Who builds a package is its maintainer, and here that is nobody.
    check_now "lintian finds no fault" root_run build sh -c \
        'lintian --fail-on error,warning --suppress-tags \
        bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact \
        /build/*.deb 2>/dev/null'
    check_now "it comes and goes where no systemd runs" \
        quietly root_run build sh -ec '
        apt-get -q install -y --no-install-recommends /build/likesyncd_*.deb
        likesyncd --version
        apt-get -q purge -y likesyncd
        ! getent passwd likesyncd && ! test -e /etc/likesyncd'
    # The same under a higher version.
    quietly root_run build sh -ec '
        dpkg-deb -R /build/*.deb /next
        sed -i "s/^Version: .*/&+1/" /next/DEBIAN/control
        dpkg-deb -b /next /build/next.deb'
    version=$(root_run build dpkg-deb -f /build/next.deb Version)
}

prepare() {
    step "fetching what the system will install"
    root_new "$release" booted
    cp "$roots/build/build/"likesyncd_*.deb "$roots/booted/root/likesyncd.deb"
    cp "$roots/build/build/next.deb" tests/lib/system_load.py \
        "$roots/booted/root/"
    rm -rf --one-file-system "$roots/build"
    quietly root_run booted sh -ec 'apt-get -q update
        apt-get -q install -y -d --no-install-recommends /root/likesyncd.deb \
            redis-server postgresql python3'
}

install_alone() {
    step "installing it where there is no Redis and no PostgreSQL"
    boot
    quietly inside apt-get -q install -y --no-install-recommends \
        /root/likesyncd.deb
    check_now "the hint tells of the tables" grep -q schema.sql "$roots/log"
    for unit in likesyncd.service likesyncd.socket likesyncd-admin.socket; do
        check "$unit is active" is_active $unit
        check_now "$unit is enabled" inside systemctl is-enabled -q $unit
    done
    check "STATUS tells of both" status_has 'redis: .*refused.*postgres: '
    check "/readyz tells of both" http_has /readyz ' 503 .*redis.*postgres'
    check_now "/healthz says alive" http_has /healthz ' 200 '
    check_now "likesyncctl reaches it" says PONG inside likesyncctl ping
    check_now "the configuration is not for everybody" says \
        "640 root:likesync" inside stat -c '%a %U:%G' \
        /etc/likesyncd/likesyncd.ini
    check_now "no unit failed" inside systemctl is-system-running -q
}

add_backends() {
    step "installing Redis and PostgreSQL"
    before=$(property MainPID)
    quietly inside apt-get -q install -y --no-install-recommends \
        redis-server postgresql python3
    quietly inside sh -ec 'cd /usr/share/likesyncd/sql
        runuser -u postgres -- createdb likesync
        runuser -u postgres -- psql -q -d likesync -f schema.sql -f roles.sql \
            -f views.sql
        useradd dba
        runuser -u postgres -- psql -q -d likesync -c "CREATE ROLE dba LOGIN" \
            -c "GRANT likesync_read TO dba"'
    check "/readyz is content" http_has /readyz ' 200 '
    check_now "it is the same process" [ "$before" = "$(property MainPID)" ]
    check_now "a like is answered" says 1 ask LIKE 7 42
    check "the read-only role sees the row" says '42|7|1' dba \
        'SELECT post_id, user_id, status FROM user_like_post'
    check_now "and cannot write" says 1 sh_status dba 'DELETE FROM post_like'
}

# Prints 1 for any failure.
sh_status() {
    if "$@" >/dev/null 2>&1; then echo 0; else echo 1; fi
}

kill_it() {
    step "kill -9 under load"
    before=$(property MainPID)
    load_start
    quietly inside systemctl kill -s KILL likesyncd.service
    check "another process is back" another_process "$before"
    check "STATUS tells of both" status_has \
        'redis: connected.*postgres: connected'
    check_load "kill -9"
}

another_process() {
    is_active likesyncd.service && [ "$(property MainPID)" != "$1" ]
}

stop_postgres() {
    step "PostgreSQL away"
    quietly inside systemctl stop postgresql.service 'postgresql@*.service'
    check "STATUS says so" status_has '^postgres: .*retry.*redis: connected'
    check "/readyz says so" http_has /readyz ' 503 .*postgres'
    check_now "/healthz does not" http_has /healthz ' 200 '
    check_now "a like is answered" says 1 ask LIKE 8 42
    quietly inside systemctl start postgresql.service
    check "the row comes when it is back" says 1 dba \
        'SELECT status FROM user_like_post WHERE user_id = 8'
    check "/readyz is content again" http_has /readyz ' 200 '
}

upgrade() {
    step "upgrading under load"
    before=$(property MainPID)
    quietly inside sed -i 's/^batch_rows = .*/batch_rows = 4000/' \
        /etc/likesyncd/likesyncd.ini
    load_start
    quietly inside dpkg -i /root/next.deb
    check_now "the new version is there" says "$version" inside dpkg-query \
        -W -f '${Version}' likesyncd
    check_now "the configuration is as it was" grep -q 'batch_rows = 4000' \
        "$roots/booted/etc/likesyncd/likesyncd.ini"
    check "another process runs" another_process "$before"
    check_load "upgrade"
}

reboot() {
    step "rebooting"
    power_off
    boot
    check "it is ready" http_has /readyz ' 200 '
    check "likes are still known" says 0 ask LIKE 8 42
}

second_instance() {
    step "a second instance"
    quietly inside sh -ec 'cd /etc/likesyncd
        sed -e "s|likesyncd/likesyncd.sock tcp:.*|likesyncd/eu.sock|" \
            -e "s|likesyncd/admin.sock|likesyncd/eu-admin.sock|" \
            -e "s|^listen = 127.0.0.1:9480|listen = 127.0.0.1:9481|" \
            likesyncd.ini >eu.ini
        chgrp likesync eu.ini
        chmod 640 eu.ini
        systemctl enable -q --now likesyncd@eu.socket likesyncd@eu.service'
    check "it is active" is_active likesyncd@eu.service
    socket=/run/likesyncd/eu.sock
    check "it answers" says PONG ask PING
    check "it takes likes" says 1 ask LIKE 9 42
    socket=
    check_now "the first one knows of it" says 1 ask LIKED 9 42
}

removal() {
    step "removing it"
    quietly inside apt-get -q remove -y likesyncd
    check_now "nothing runs" says "" inside sh -c \
        'cat /proc/[0-9]*/comm 2>/dev/null | grep likesyncd'
    check_now "the configuration stays" inside test -f \
        /etc/likesyncd/likesyncd.ini
    quietly inside apt-get -q purge -y likesyncd
    check_now "a purge leaves nothing" no_trace
    check_now "no unit failed" inside systemctl is-system-running -q
}

roots_begin
build_package
prepare
install_alone
add_backends
kill_it
stop_postgres
upgrade
reboot
second_instance
removal
step "$release: done"
say "$passed passed, 0 failed"
