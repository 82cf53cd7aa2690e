# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034
# What the tests and the quickstart need from Debian. Sourced, not run:
#
#   need_packages PACKAGE...   installs those that are missing, or fails saying
#                              what to do; runs nothing when all are there
#
# Installing postgresql, redis-server and pgbouncer may make Debian start services
# of their own. Nothing here uses, configures or stops those.

BUILD_PACKAGES="cmake make gcc libc6-dev pkg-config libhiredis-dev libuv1-dev
    libpq-dev libinih-dev libsystemd-dev libmicrohttpd-dev"
PACKAGE_PACKAGES="dpkg-dev file"
SERVER_PACKAGES="redis-server postgresql python3 python3-redis
    python3-psycopg2"
# systemd is for systemd-analyze; it starts nothing. libclang-rt-dev is for the fuzz
# targets. The version in clang-format and clang-tidy is one that both releases have:
# others lay some lines out differently, and check other things.
TEST_PACKAGES="libcmocka-dev python3-pytest clang clang-format-19
    clang-tidy-19 libclang-rt-dev lua5.1 systemd openssl pgbouncer php-cli
    php-redis ruby ruby-redis libredis-perl mandoc prometheus chromium
    chromium-driver python3-selenium"
# Debian's npm does not go with a nodejs from elsewhere, which brings its own.
command -v npm >/dev/null 2>&1 || TEST_PACKAGES="$TEST_PACKAGES nodejs npm"

say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "error: $*"
    exit 1
}

package_missing() {
    status=$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)
    [ "$status" != installed ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Runs a step of apt-get quietly; shows what it said only when it failed.
apt_step() {
    apt_log=$(mktemp) || die "cannot make a temporary file"
    if ! as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=300 "$@" >"$apt_log" 2>&1; then
        cat "$apt_log" >&2
        rm -f "$apt_log"
        die "apt-get $1 failed (its output is above)"
    fi
    rm -f "$apt_log"
}

need_packages() {
    for tool in dpkg-query apt-get; do
        command -v "$tool" >/dev/null 2>&1 ||
            die "this needs Debian 12 or 13 (there is no $tool here)"
    done
    missing=
    for package in "$@"; do
        if package_missing "$package"; then
            missing="$missing $package"
        fi
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        die "these packages are missing, and installing them takes root or" \
            "sudo:$missing"
    fi
    say "installing (this may take a minute):$missing"
    apt_step update
    # Word splitting is meant: one argument for each package.
    # shellcheck disable=SC2086
    apt_step install -y --no-install-recommends $missing
}
