# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034
# Minimal Debian systems in directories, for tests/system.sh and tests/fresh.sh,
# which source this first. It brings what is in deps.sh.
#
#   roots_begin ARGUMENT... takes --help, or the name of a release into $release
#                           (bookworm without); goes to the top of the sources; makes
#                           the directory $roots, which goes at the exit
#   root_new RELEASE NAME   a system as debootstrap makes it, in $roots/NAME
#   root_run NAME COMMAND   runs it there, with the network of this machine and
#                           the sources at /source; no services are started
#   cannot WHAT             ends with 77: this machine is not able to do it, and
#                           nothing was tested
#
# LIKESYNCD_ROOTS names a directory that keeps what debootstrap made for the next
# time (otherwise it is made anew: two or three minutes). LIKESYNCD_MIRROR is the
# mirror of Debian to take it from, if not debootstrap's own.

# shellcheck source=tests/lib/deps.sh
. "$(dirname "$0")/lib/deps.sh"

ROOTS_PACKAGES="debootstrap systemd-container"

cannot() {
    say "error: this machine $*"
    say "nothing was tested"
    exit 77
}

roots_begin() {
    release=${1:-bookworm}
    case $release in
    -h | --help)
        sed -n -e '1,2d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    bookworm | trixie) ;;
    *)
        say "error: not a release that this is for: $release (see --help)"
        exit 2
        ;;
    esac
    cd "$(dirname "$0")/.." || exit
    [ "$(id -u)" -eq 0 ] ||
        cannot "does not let us make and boot systems: that takes root"
    # shellcheck disable=SC2086
    (need_packages $ROOTS_PACKAGES) || cannot "lacks, of:" $ROOTS_PACKAGES
    # Not /tmp, which may be in memory, or mounted without devices.
    roots=$(mktemp -d /var/tmp/likesyncd-roots.XXXXXX)
    trap 'trap "" HUP INT PIPE TERM; roots_end' EXIT
    trap 'exit 130' HUP INT PIPE TERM
}

# A script may have more to end first: its own roots_end calls roots_remove.
roots_end() {
    roots_remove
}

roots_remove() {
    rm -rf --one-file-system "$roots"
}

root_new() {
    made=${LIKESYNCD_ROOTS:-$roots}/$1
    if ! [ -d "$made" ]; then
        say "making a minimal $1"
        mkdir -p "$(dirname "$made")"
        rm -rf "$made.part"
        # shellcheck disable=SC2086
        debootstrap --variant=minbase \
            --include=systemd-sysv,dbus,ca-certificates \
            "$1" "$made.part" ${LIKESYNCD_MIRROR-} >"$roots/log" 2>&1 || {
            tail -n 20 "$roots/log" >&2
            cannot "could not make a minimal $1 with debootstrap (see above)"
        }
        mv "$made.part" "$made"
    fi
    cp -a "$made" "$roots/$2"
    # It does not have to outlive a loss of power.
    echo force-unsafe-io >"$roots/$2/etc/dpkg/dpkg.cfg.d/unsafe-io"
    root_run "$2" true >"$roots/log" 2>&1 || {
        tail -n 20 "$roots/log" >&2
        cannot "does not let systemd-nspawn run anything (see above)"
    }
    # What this machine trusts beyond Debian's certificates, it takes along: the
    # way to the mirrors may be through something that needs it.
    if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
        cp /usr/local/share/ca-certificates/*.crt \
            "$roots/$2/usr/local/share/ca-certificates/"
        root_run "$2" update-ca-certificates >/dev/null 2>&1
    fi
}

# Becomes systemd-nspawn for $roots/NAME: not to be called but in a subshell. What
# that keeps in /run is thrown away, since it cleans up only where /run is in
# memory.
root_become() {
    root=$1
    shift
    # shellcheck disable=SC2016
    exec unshare -m sh -ec 'mkdir -p /run/systemd/nspawn
        mount -t tmpfs tmpfs /run/systemd/nspawn
        exec systemd-nspawn "$@"' nspawn -q --register=no --keep-unit \
        -D "$roots/$root" --machine="$(basename "$roots" | tr . -)-$root" \
        "$@" </dev/null
}

root_run() (
    root=$1
    shift
    root_become "$root" --console=pipe --bind-ro="$PWD:/source" \
        --setenv=DEBIAN_FRONTEND=noninteractive \
        --setenv=NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$@"
)
