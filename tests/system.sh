#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian package, boots a minimal Debian with systemd, and goes through
# the package's life there: install without and with its backends, reload, kill,
# hang, crash loop, each backend away, a password, HTTP over a restart, a second
# instance, upgrades under load, reboot, removal with and without a return.
#
#   sh tests/system.sh [bookworm|trixie]      as root; 5 to 10 minutes
#
# tests/lib/roots.sh tells of two variables that make it faster. It exits with 77,
# and says why, where the machine cannot boot such a system even without the
# package; whatever fails after that has it exit with 1.
set -eu
# shellcheck source=tests/lib/roots.sh
. "$(dirname "$0")/lib/roots.sh"
# shellcheck source=tests/lib/machine.sh
. "$(dirname "$0")/lib/machine.sh"
# shellcheck source=tests/lib/service.sh
. "$(dirname "$0")/lib/service.sh"

# ---- the life of a package ----

# Until the package comes in, what fails is the machine's.
preflight() {
    step "$release: booting it bare"
    root_new "$release" booted
    boot booted || {
        tail -n 20 "$roots/console" >&2
        inside systemctl list-units --failed --no-legend >&2 || true
        cannot "does not boot a bare $release under systemd-nspawn (see above)"
    }
    power_off
}

# The same under higher versions, with other configurations.
build_next() {
    # shellcheck disable=SC2016
    quietly root_run build sh -ec 'for next in 1 2; do
            rm -rf /next
            dpkg-deb -R /build/likesyncd_*.deb /next
            sed -i "s/^Version: .*/&+$next/" /next/DEBIAN/control
            echo "# new in $next" >>/next/etc/likesyncd/likesyncd.ini
            dpkg-deb -Znone -b /next /build/next$next.deb
        done'
    version=$(root_run build dpkg-deb -f /build/next2.deb Version)
}

build_package() {
    step "building the package"
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
    check_now "it comes and goes where systemd does not run, or work" \
        quietly root_run build sh -ec '
        printf "#!/bin/sh\nexit 65\n" >/usr/local/bin/systemd-tmpfiles
        chmod 755 /usr/local/bin/systemd-tmpfiles
        apt-get -q install -y --no-install-recommends /build/likesyncd_*.deb
        likesyncd --version
        apt-get -q purge -y likesyncd
        ! getent passwd likesyncd && ! test -e /etc/likesyncd'
    build_next
}

prepare() {
    step "fetching what the system will install"
    cp "$roots/build/build/"likesyncd_*.deb "$roots/booted/root/likesyncd.deb"
    cp "$roots/build/build/"next?.deb tests/lib/system_load.py \
        "$roots/booted/root/"
    rm -rf --one-file-system "$roots/build"
    quietly root_run booted sh -ec 'apt-get -q update
        apt-get -q install -y -d --no-install-recommends /root/likesyncd.deb \
            redis-server postgresql python3'
}

install_alone() {
    step "installing it where there is no Redis and no PostgreSQL"
    boot booted || fail "boot"
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
    check_now "the configuration is not for everybody" \
        mode_is "640 root:likesync" $CONFIG
    check_now "nor is its directory" mode_is "750 root:likesync" /etc/likesyncd
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
        useradd -G likesync app
        runuser -u postgres -- psql -q -d likesync -c "CREATE ROLE dba LOGIN" \
            -c "GRANT likesync_read TO dba"'
    check "/readyz is content" http_has /readyz ' 200 '
    check_now "it is the same process" same_process "$before"
    check_now "a like is answered" says 1 ask LIKE 7 42
    check "the read-only role sees the row" says '42|7|1' dba \
        'SELECT post_id, user_id, status FROM user_like_post'
    check_now "and cannot write" fails dba 'DELETE FROM post_like'
    check_now "an app server gets in" says PONG inside runuser -u app -- \
        redis-cli -s /run/likesyncd/likesyncd.sock PING
    check_now "but not where the admin does" fails inside runuser -u app -- \
        likesyncctl ping
    check_now "and others do not" fails inside runuser -u dba -- \
        redis-cli -s /run/likesyncd/likesyncd.sock PING
}

reload() {
    step "reload"
    before=$(property MainPID)
    check_now "follows are not limited at one" says 1 ask FOLLOW 7 8
    check_now "not at two" says 1 ask FOLLOW 7 9
    set_option follow max_following 2
    quietly inside systemctl reload likesyncd
    check "the journal tells of it" journal_has 'reloaded: 1 options? changed'
    check_now "now they are" answers '^ERR .*2' FOLLOW 7 10
    set_option follow max_following many
    quietly inside systemctl reload likesyncd
    check "the journal names a fault" journal_has 'max_following.*many'
    check "and that it changed nothing" journal_has 'not reloaded'
    check_now "which is so" answers '^ERR .*2' FOLLOW 7 10
    set_option follow max_following 0
    quietly inside systemctl reload likesyncd
    check "it is mended by another one" says 1 ask FOLLOW 7 10
    check_now "it is the same process" same_process "$before"
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

# What it was told and has not written is in Redis when it hangs.
hang() {
    step "a loop that hangs"
    before=$(property MainPID)
    quietly inside likesyncctl pause
    check_now "a like is answered" says 1 ask LIKE 11 42
    quietly inside systemctl kill -s STOP likesyncd.service
    check "systemd ends it" journal_has 'Watchdog timeout'
    check "another process is back" another_process "$before"
    check "the row comes" says 1 dba \
        'SELECT status FROM user_like_post WHERE user_id = 11'
    check_now "what was there is there" consistent $all_acked
}

# A client knocks all the time, which makes systemd start the service, too.
tried_often() {
    inside timeout 0.5 redis-cli -s /run/likesyncd/likesyncd.sock PING
    [ "$(property NRestarts)" -ge 7 ]
}

crash_loop() {
    step "a crash loop"
    quietly inside sed -i 's/^\[server\]$/&\nnonsense = 1/' $CONFIG
    check_now "a restart fails" fails inside systemctl restart likesyncd
    check "it is tried more often than systemd would by itself" tried_often
    check_now "the journal names the fault" journal_has \
        'likesyncd.ini:[0-9]+: .*nonsense'
    check_now "it is not given up" fails inside systemctl is-failed -q \
        likesyncd.service likesyncd.socket likesyncd-admin.socket
    quietly inside sed -i '/^nonsense/d' $CONFIG
    check "mended, it serves by itself" http_has /readyz ' 200 '
    check_now "a like is known" says 0 ask LIKE 11 42
    check_now "no unit failed" inside systemctl is-system-running -q
}

stop_postgres() {
    step "PostgreSQL away"
    quietly inside systemctl stop postgresql.service 'postgresql@*.service'
    check "STATUS says so" status_has '^postgres: .*retry.*redis: connected'
    check "/readyz says so" http_has /readyz ' 503 .*postgres:'
    check_now "and nothing of Redis" fails http_has /readyz 'redis:'
    check_now "/healthz goes on" http_has /healthz ' 200 '
    check_now "a like is answered" says 1 ask LIKE 8 42
    quietly inside systemctl start postgresql.service
    check "the row comes when it is back" says 1 dba \
        'SELECT status FROM user_like_post WHERE user_id = 8'
    check "/readyz is content again" http_has /readyz ' 200 '
}

stop_redis() {
    step "Redis away"
    before=$(property MainPID)
    quietly inside systemctl stop redis-server.service
    check "STATUS says so" status_has '^redis: .*retry.*postgres: connected'
    check "/readyz says so" http_has /readyz ' 503 .*redis:'
    check_now "and nothing of PostgreSQL" fails http_has /readyz 'postgres:'
    check_now "/healthz goes on" http_has /healthz ' 200 '
    check_now "a like is refused" answers '^UNAVAILABLE not recorded' LIKE 12 42
    quietly inside systemctl start redis-server.service
    check "/readyz is content when it is back" http_has /readyz ' 200 '
    check "STATUS is, too" status_has '^redis: connected; postgres: connected'
    check_now "a like is answered" says 1 ask LIKE 12 42
    check "its row comes" says 1 dba \
        'SELECT status FROM user_like_post WHERE user_id = 12'
    check_now "it is the same process" same_process "$before"
}

# from_readme PATTERN: its line that is just this.
from_readme() {
    sed -n "s/^ *\($1\)\$/\1/p" README.md | grep . ||
        fail "README.md tells no more how: $1"
}

password() {
    step "a password by LoadCredential"
    credential=$(from_readme 'LoadCredential=clients:.*')
    option=$(from_readme 'password_file = credential:clients')
    # shellcheck disable=SC2016
    quietly inside sh -ec 'umask 077
        echo "opened by $0" >"${1##*:}"
        umask 022
        mkdir /etc/systemd/system/likesyncd.service.d
        printf "[Service]\n%s\n" "$1" \
            >/etc/systemd/system/likesyncd.service.d/password.conf
        systemctl daemon-reload' sesame "$credential"
    set_option server password_file "${option#*= }"
    quietly inside systemctl restart likesyncd
    check "it is ready" http_has /readyz ' 200 '
    check_now "a client without it is refused" answers '^NOAUTH' LIKE 13 42
    check_now "so is one with another" answers WRONGPASS \
        --no-auth-warning -a sesame LIKE 13 42
    check_now "one with it is served" says 1 \
        ask --no-auth-warning -a 'opened by sesame' LIKE 13 42
    check_now "likesyncctl needs none" says PONG inside likesyncctl ping
    check_now "an app server cannot read it" fails inside runuser -u app -- \
        cat /etc/likesyncd/clients.password
    quietly inside sh -ec '
        rm -r /etc/systemd/system/likesyncd.service.d
        systemctl daemon-reload'
    set_option server password_file ""
    quietly inside systemctl restart likesyncd
    check "without, all are served again" says 0 ask LIKE 13 42
}

# As the unit itself says it. Enabled, it stays so over what comes after this.
http_over_a_restart() {
    step "a socket that holds HTTP over a restart"
    knock_start
    check "without it, who connects is refused" restart_refuses
    knock_stop
    sed -n 's/^#   \(systemctl .*\)$/\1/p' systemd/likesyncd-metrics.socket \
        >"$roots/booted/root/enable"
    quietly inside sh -ex /root/enable
    check_now "the socket is active" is_active likesyncd-metrics.socket
    knock_start
    for _ in 1 2 3; do
        before=$(property MainPID)
        quietly inside systemctl restart likesyncd.service
        check_now "another process runs" another_process "$before"
        check "it answers" knocked $(($(knocks '^HTTP/1.[01] 200') + 20))
    done
    knock_stop
    check_now "who connected meanwhile was not refused" says 0 knocks refused
}

# shop COMMAND...: as for the second instance.
shop() (
    socket=/run/likesyncd/shop.sock
    port=9481
    "$@"
)

shop_works() {
    for unit in likesyncd@shop.service likesyncd@shop.socket \
        likesyncd-admin@shop.socket; do
        check "$unit is active" is_active $unit
    done
    check "it is ready" shop http_has /readyz ' 200 '
    check_now "it answers" says PONG shop ask PING
    check_now "likesyncctl reaches it" says PONG inside likesyncctl \
        -s unix:/run/likesyncd/shop-admin.sock ping
}

# As "Sockets and instances" in the README says it.
second_instance() {
    step "a second instance"
    sed -n '/enable --now likesyncd@shop/,/^```$/p' README.md |
        sed '1,/^```ini$/d;/^```$/d' >"$roots/booted/etc/likesyncd/shop.ini"
    grep -q shop.sock "$roots/booted/etc/likesyncd/shop.ini" ||
        fail "README.md has no configuration of a second instance"
    quietly inside systemctl enable --now likesyncd@shop
    shop_works
    check_now "it takes likes" says 1 shop ask LIKE 9 42
    check_now "the first one knows of it" says 1 ask LIKED 9 42
}

upgrade() {
    step "upgrading, with the configuration as it came"
    quietly inside dpkg -i /root/next1.deb
    check_now "it is the new one" config_has 'new in 1'
    check_now "modes are as they were" \
        mode_is "640 root:likesync" $CONFIG
}

# The admin has made the configuration the daemon's alone, and its directory
# everybody's.
modes_are_the_admins() {
    mode_is "600 likesyncd:likesync" $CONFIG &&
        mode_is "755 root:likesync" /etc/likesyncd
}

upgrade_under_load() {
    step "upgrading under load, with one of the admin's"
    set_option flush batch_rows 4000
    quietly inside sh -ec "chown likesyncd $CONFIG
        chmod 600 $CONFIG
        chmod 755 /etc/likesyncd"
    before=$(property MainPID)
    shop_before=$(property MainPID likesyncd@shop.service)
    load_start
    quietly inside dpkg -i --force-confold /root/next2.deb
    check_now "the new version is there" says "$version" inside dpkg-query \
        -W -f '${Version}' likesyncd
    check_now "the configuration is the admin's" \
        config_has 'batch_rows = 4000'
    check_now "with nothing of the new one" fails config_has 'new in 2'
    check_now "the new one lies beside it" config_has 'new in 2' .dpkg-dist
    check_now "so are the modes" modes_are_the_admins
    check "another process runs" another_process "$before"
    check "of the second instance, too" another_process "$shop_before" \
        likesyncd@shop.service
    check_load "upgrade"
}

reboot() {
    step "rebooting"
    power_off
    boot booted || fail "boot"
    check "it is ready" http_has /readyz ' 200 '
    check "likes are still known" says 0 ask LIKE 8 42
    shop_works
    check_now "modes are the admin's" modes_are_the_admins
}

all_sockets_are_active() {
    for unit in likesyncd.socket likesyncd-admin.socket \
        likesyncd-metrics.socket; do
        is_active $unit || return
    done
}

come_back() {
    step "removing it, and installing it again"
    quietly inside apt-get -q remove -y likesyncd
    check_now "nothing is left but the configuration" fails inside sh -c \
        'command -v likesyncd || test -e /run/likesyncd/likesyncd.sock'
    check_now "no unit failed" inside systemctl is-system-running -q
    quietly inside apt-get -q install -y --no-install-recommends \
        /root/next2.deb
    check "it is ready" http_has /readyz ' 200 '
    check_now "with all that was enabled" all_sockets_are_active
    check_now "likes are still known" says 0 ask LIKE 8 42
    check_now "a like is answered" says 1 ask LIKE 14 42
    check_now "the configuration is the admin's" \
        config_has 'batch_rows = 4000'
    check_now "modes are, too" modes_are_the_admins
}

removal() {
    step "removing it"
    quietly inside sh -ec 'umask 077; echo secret >/etc/likesyncd/pgpass
        chown likesyncd /etc/likesyncd/pgpass'
    quietly inside apt-get -q remove -y likesyncd
    check_now "nothing runs" says "" inside sh -c \
        'cat /proc/[0-9]*/comm 2>/dev/null | grep likesyncd'
    check_now "the configuration stays" inside test -f $CONFIG
    quietly inside apt-get -q purge -y likesyncd
    check_now "a purge leaves what the admin made" says \
        "clients.password pgpass shop.ini" inside sh -c \
        'echo $(ls /etc/likesyncd)'
    check_now "and nobody inherits it" mode_is "600 likesyncd:root" \
        /etc/likesyncd/pgpass
    check_now "nothing is enabled any more" says "" inside find \
        /etc/systemd -name '*likesync*'
    check_now "no unit failed" inside systemctl is-system-running -q
}

once_more() {
    step "installing it again, and purging"
    quietly inside sh -ec "rm -r /etc/likesyncd
        dpkg-statoverride --add root root 0644 $CONFIG
        apt-get -q install -y --no-install-recommends /root/likesyncd.deb"
    check "it is ready" http_has /readyz ' 200 '
    check_now "the mode is what dpkg-statoverride says" \
        mode_is "644 root:root" $CONFIG
    quietly inside apt-get -q purge -y likesyncd
    check_now "a purge leaves nothing" no_trace
    check "systemd has forgotten it" forgotten
    check_now "no unit failed" inside systemctl is-system-running -q
}

roots_begin "$@"
machine_alone
preflight
build_package
prepare
install_alone
add_backends
reload
kill_it
hang
crash_loop
stop_postgres
stop_redis
password
http_over_a_restart
second_instance
upgrade
upgrade_under_load
reboot
come_back
removal
once_more
step "$release: done"
say "$passed passed, 0 failed"
