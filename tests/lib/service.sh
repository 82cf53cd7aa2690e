# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2154
# Looks at likesyncd on a booted Debian, and load for it. Sourced after machine.sh.
CONFIG=/etc/likesyncd/likesyncd.ini

property() {
    inside systemctl show -P "$1" "${2:-likesyncd.service}"
}

status_has() {
    property StatusText | grep -Eq "$1"
}

is_active() {
    [ "$(property ActiveState "${1-likesyncd.service}")" = active ]
}

journal_has() {
    inside journalctl -q --no-pager -o cat -u likesyncd.service |
        grep -Eq "$1"
}

http() {
    # shellcheck disable=SC2016
    inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/$1 &&
        printf "GET %s HTTP/1.0\r\n\r\n" "$0" >&3 && cat <&3' \
        "$1" "${port:-9480}"
}

http_has() {
    http "$1" | tr -d '\r' | tr '\n' ' ' | grep -Eq "$2"
}

ask() {
    inside redis-cli -s "${socket:-/run/likesyncd/likesyncd.sock}" "$@"
}

answers() {
    wanted=$1
    shift
    ask "$@" 2>&1 | grep -Eq "$wanted"
}

# mode_is WANTED FILE: mode and owner.
mode_is() {
    says "$1" inside stat -c '%a %U:%G' "$2"
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
    [ -z "$left" ] || {
        say "left behind: $left"
        return 1
    }
}

same_process() {
    is_active && [ "$(property MainPID)" = "$1" ]
}

another_process() {
    is_active "${2-likesyncd.service}" &&
        [ "$(property MainPID "${2-likesyncd.service}")" != "$1" ]
}

# set_option SECTION NAME VALUE
set_option() {
    quietly inside sed -i "/^\[$1\]/,/^\[/s/^$2 =.*/$2 =${3:+ $3}/" $CONFIG
}

config_has() {
    grep -q "$1" "$roots/booted$CONFIG${2-}"
}

forgotten() {
    says "" inside systemctl list-units --all --no-legend 'likesyncd*'
}

# ---- HTTP over a restart ----

# One connect after another: a line for each, "refused" or what was answered, which
# may be nothing.
knock_start() {
    # shellcheck disable=SC2016
    quietly inside systemd-run -q --unit=knock \
        -p StandardOutput=truncate:/run/knock.out bash -c 'while :; do (
            exec 3<>/dev/tcp/127.0.0.1/9480 || { echo refused && exit; }
            printf "GET /healthz HTTP/1.0\r\n\r\n" >&3
            head -n 1 <&3); done'
    wait_for "answers" knocked 20 || fail "answers"
}

knock_stop() {
    quietly inside systemctl stop knock
}

knocks() {
    inside grep -c "$1" /run/knock.out || true
}

# knocked N: at least so many were answered.
knocked() {
    [ "$(knocks '^HTTP/1.[01] 200')" -ge "$1" ]
}

restart_refuses() {
    inside systemctl restart likesyncd.service && [ "$(knocks refused)" -gt 0 ]
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
