# SPDX-License-Identifier: MIT
"""Who gets in: passwords and how their guessers are slowed, what an admin
listener asks for, password files and credentials, groups of sockets, and
addresses that need a password."""
import contextlib
import grp
import os
import shutil
import socket
import time

import pytest

import harness
from servers import run_status, unprivileged_user, wait_for, wrapped
from wire import Wire, encode

PASSWORD = "correct horse battery staple"
DENIED = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
NO_AUTH = b"-NOAUTH Authentication required.\r\n"
LONG_MS = 60000     # nothing here may wait for it


class Nowhere:
    """Both backends, away: these tests need none."""
    address = "unix:/nonexistent/redis"

    @staticmethod
    def conninfo():
        return "host=/nonexistent dbname=x"


@pytest.fixture
def start(bed):
    """Starts a daemon without backends, which has a password and is asked for
    it also on 127.0.0.1, by clients (`port`) and by admins (`admin_port`)."""
    def start(password=PASSWORD, backends=(Nowhere, Nowhere), **options):
        admin_port = harness.free_port()
        base = bed.make_dir("admin")
        given = {"server_admin_listen":
                 f"unix:{base}/s tcp:127.0.0.1:{admin_port}"}
        if password is not None:
            file = base / "password"
            file.write_text(password + "\n")
            file.chmod(0o600)
            given["server_password_file"] = file
        daemon = bed.daemon(*backends, wait=None, tcp=True,
                            **{**given, **options})
        daemon.admin_socket = base / "s"
        daemon.admin_port = admin_port
        daemon.wait_up(lambda: daemon.http("/healthz")[0] == 200)
        return daemon
    return start


def both(daemon):
    return [daemon.socket, ("127.0.0.1", daemon.port)]


def failures(daemon):
    return daemon.metrics()["likesyncd_auth_failures_total"]


# ---- passwords ----

WRONG = [PASSWORD[:-1], PASSWORD + "x", PASSWORD * 2, "", "x", PASSWORD + "\n",
         PASSWORD[:-1] + "\0", PASSWORD + "\0", "x" * 4096, "x" * 16000,
         PASSWORD.upper()]


def test_only_the_whole_password(start):
    daemon = start(server_auth_delay_ms=0)
    for address in both(daemon):
        for wrong in WRONG:
            with Wire(address) as wire:
                assert wire.call("AUTH", wrong) == DENIED, wrong
                assert wire.call("AUTH", "default", wrong) == DENIED, wrong
                assert wire.call("HELLO", 3, "AUTH", "default", wrong) == \
                    DENIED, wrong
                assert wire.call("PING") == NO_AUTH
        for user in ("bob", "DEFAULT", "", "default\0", "defaul"):
            with Wire(address) as wire:
                assert wire.call("AUTH", user, PASSWORD) == DENIED, user
                assert wire.call("PING") == NO_AUTH
        for right in (["AUTH", PASSWORD], ["AUTH", "default", PASSWORD]):
            with Wire(address) as wire:
                assert wire.call(*right) == b"+OK\r\n"
                assert wire.call("PING") == b"+PONG\r\n"
                # Redis: whoever is in stays in.
                assert wire.call("AUTH", "wrong") == DENIED
                assert wire.call("PING") == b"+PONG\r\n"
    assert failures(daemon) == 2 * (3 * len(WRONG) + 5 + 2)


@pytest.mark.parametrize("length", [1, 4095, 4096])
def test_passwords_of_all_lengths(start, length):
    """What is kept for a password has room for 4096 bytes. (The file's newline
    is one of them.)"""
    daemon = start(None, server_auth_delay_ms=0)
    file = daemon.dir / "password"
    file.write_bytes(b"p" * length)
    file.chmod(0o600)
    daemon.write_config(server_password_file=file)
    daemon.term()
    daemon.start(wait=None)
    daemon.wait_up(lambda: daemon.http("/healthz")[0] == 200)
    with Wire(daemon.socket) as wire:
        assert wire.call("AUTH", "p" * (length + 1)) == DENIED
        assert wire.call("AUTH", "p" * (length - 1)) == DENIED
        assert wire.call("AUTH", "p" * length) == b"+OK\r\n"


def test_failures_are_logged_with_who_but_not_with_what(start):
    daemon = start(server_auth_delay_ms=0)
    with Wire(("127.0.0.1", daemon.port)) as wire:
        peer = "127.0.0.1:%d" % wire.socket.getsockname()[1]
        for i in range(50):
            wire.call("AUTH", f"guess{i}", f"secret{i}")
    assert failures(daemon) == 50
    log = daemon.log_text()
    lines = [line for line in log.splitlines() if "wrong password" in line]
    # One in 10 s; the machine may be slow, but not that slow.
    assert 1 <= len(lines) < 25
    assert peer in lines[0]
    assert "guess" not in log and "secret" not in log


# ---- guesses take their time ----

def test_pipelined_guesses_wait_for_each_other(start):
    delay_ms = 300
    daemon = start(server_auth_delay_ms=delay_ms)
    begin = time.monotonic()
    with Wire(daemon.socket) as wire:
        wire.send(b"".join(encode("AUTH", f"guess{i}") for i in range(4))
                  + encode("HELLO", 3, "AUTH", "default", "x")
                  + encode("PING") + encode("AUTH", PASSWORD)
                  + encode("PING"))
        for i in range(1, 6):
            assert wire.read() == DENIED
            # A timer counts from the start of the loop's turn.
            assert time.monotonic() - begin >= 0.9 * i * delay_ms / 1000
        assert [wire.read() for _ in range(3)] == \
            [NO_AUTH, b"+OK\r\n", b"+PONG\r\n"]
    assert failures(daemon) == 5


def test_a_guess_holds_up_nobody_else(start):
    """Nor the right password of others."""
    daemon = start(server_auth_delay_ms=LONG_MS,
                   server_auth_timeout=0)
    with contextlib.ExitStack() as stack:
        for i in range(20):
            guesser = stack.enter_context(Wire(both(daemon)[i % 2]))
            guesser.send(encode("AUTH", "guess") + encode("AUTH", "another"))
        wait_for(lambda: failures(daemon) == 20, what="all guesses")
        for address in both(daemon):
            with Wire(address) as wire:
                assert wire.call("PING") == NO_AUTH
                assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
                assert wire.call("PING") == b"+PONG\r\n"
        guesser.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            guesser.read()
        # What is behind it has not even been looked at.
        assert failures(daemon) == 20
        assert daemon.metrics()["likesyncd_auth_refusals_waiting"] == 20


def test_the_delay_is_reloaded(start):
    daemon = start(server_auth_delay_ms=LONG_MS,
                   server_auth_timeout=0)
    with Wire(daemon.socket) as waiting, Wire(daemon.socket) as wire:
        waiting.send(encode("AUTH", "guess"))
        wait_for(lambda: failures(daemon) == 1, what="the guess")
        daemon.write_config(server_auth_delay_ms=0)
        daemon.sighup()
        wait_for(lambda: "reloaded: 1 options" in daemon.log_text(),
                 what="the reload")
        assert wire.call("AUTH", "guess") == DENIED


def test_the_end_waits_for_no_guess(start):
    daemon = start(server_auth_delay_ms=LONG_MS,
                   server_auth_timeout=0)
    with Wire(daemon.socket) as stays, Wire(daemon.socket) as goes:
        for wire in (stays, goes):
            wire.send(encode("AUTH", "guess") + encode("AUTH", "more"))
        wait_for(lambda: failures(daemon) == 2, what="the guesses")
        goes.close()
        daemon.term()
        assert stays.read() == DENIED


def test_guessers_that_go_leave_nothing(start):
    """By closing, and by a reset (something is unread)."""
    daemon = start(server_auth_delay_ms=200)
    for i in range(50):
        with Wire(both(daemon)[i % 2]) as wire:
            if i % 3 == 0:
                wire.call("PING")
                wire.send(encode("PING"))
                wire.socket.recv(1)
            wire.send(encode("AUTH", "guess"))
    wait_for(lambda: failures(daemon) == 50, what="all guesses")
    wait_for(lambda: daemon.metrics()["likesyncd_clients"] == 0,
             what="the clients to be gone")
    wait_for(lambda: daemon.metrics()["likesyncd_auth_refusals_waiting"] == 0,
             what="the end of the delay")


# ---- the admin listener ----

def test_an_admin_socket_needs_no_password(start):
    """Its file says who may open it."""
    daemon = start()
    with Wire(daemon.admin_socket) as wire:
        assert wire.call("FLUSHER", "STATUS")[:1] == b"*"
        assert wire.call("RESET") == b"+RESET\r\n"
        assert wire.call("FLUSHER", "STATUS")[:1] == b"*"
        assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
        assert wire.call("FLUSHER", "STATUS")[:1] == b"*"


def test_an_admin_by_tcp_needs_the_password(start):
    daemon = start(server_auth_delay_ms=0)
    with Wire(("127.0.0.1", daemon.admin_port)) as wire:
        for line in ("PING", "FLUSHER STATUS", "FLUSHER PAUSE", "ADOPT STATUS",
                     "VERIFY STATUS", "CLIENT LIST", "INFO"):
            assert wire.call(*line.split()) == NO_AUTH, line
        assert wire.call("HELLO", 3)[:8] == b"-NOAUTH "
        assert wire.call("AUTH", "wrong") == DENIED
        assert wire.call("FLUSHER", "PAUSE") == NO_AUTH
        assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
        assert wire.call("FLUSHER", "STATUS")[:1] == b"*"
        assert wire.call("RESET") == b"+RESET\r\n"
        assert wire.call("FLUSHER", "STATUS") == NO_AUTH


def test_an_admin_by_tcp_without_any_password(start):
    daemon = start(None)
    with Wire(("127.0.0.1", daemon.admin_port)) as wire:
        assert wire.call("FLUSHER", "STATUS")[:1] == b"*"
    with Wire(("127.0.0.1", daemon.port)) as wire:
        assert wire.call("FLUSHER", "STATUS")[:8] == b"-NOPERM "


def test_a_password_makes_no_admin(start):
    daemon = start()
    for address in both(daemon):
        with Wire(address) as wire:
            assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
            for line in ("FLUSHER PAUSE", "ADOPT STATUS", "VERIFY STATUS"):
                assert wire.call(*line.split())[:8] == b"-NOPERM ", line


# ---- groups of unix sockets ----

def other_group():
    """A group that is not our own, and that we may give to a file."""
    candidates = range(1, 100) if os.geteuid() == 0 else os.getgroups()
    for gid in candidates:
        with contextlib.suppress(KeyError):
            if gid != os.getegid():
                return grp.getgrgid(gid)
    raise harness.Failed("no group to give a file to: be root, or in a second "
                         "group")


def groups(daemon):
    return [os.stat(path).st_gid for path in (daemon.socket,
                                              daemon.admin_socket)]


def test_sockets_are_of_our_own_group(start):
    daemon = start()
    assert groups(daemon) == [os.getegid()] * 2


def test_groups_by_name_and_number(start):
    group = other_group()
    daemon = start(server_socket_group=group.gr_name, server_socket_mode="0620")
    assert groups(daemon) == [group.gr_gid, os.getegid()]
    assert os.stat(daemon.socket).st_mode & 0o777 == 0o620
    daemon.term()
    daemon = start(server_admin_socket_group=group.gr_gid,
                   server_admin_socket_mode="0660")
    assert groups(daemon) == [os.getegid(), group.gr_gid]
    assert os.stat(daemon.admin_socket).st_mode & 0o777 == 0o660


def fails(bed, **options):
    """The log of a daemon that does not start."""
    base = bed.make_dir("fails")
    daemon = bed.daemon(Nowhere, Nowhere, wait=None, **{
        "server_admin_listen": f"unix:{base}/admin", **options})
    assert daemon.wait_exit() == 1, daemon.log_text()
    assert not daemon.socket.exists() and not (base / "admin").exists()
    return daemon.log_text()


@pytest.mark.parametrize("name", ["", "admin_"])
@pytest.mark.parametrize("group", [
    "no-such-group", "4294967295", "4294967296", "-1", "1x", "+1"])
def test_a_group_that_is_none(bed, name, group):
    assert f'server.{name}socket_group = "{group}": there is no such group' \
        in fails(bed, **{f"server_{name}socket_group": group})


def test_a_group_that_we_may_not_give(bed):
    """By a user who is in none but his own."""
    base = bed.make_dir("unprivileged")
    config = base / "likesyncd.conf"
    config.write_text(
        f"[server]\nlisten = unix:{base}/s\nadmin_listen =\n"
        "socket_group = 0\n[metrics]\nlisten =\n")
    # The build may be where nobody else gets to.
    copy = shutil.copy(harness.BUILD / "likesyncd", base)
    user = unprivileged_user()
    if user:
        shutil.chown(base, user)
    status, output = run_status(wrapped([copy, "-c", config], user))
    assert status == 1, output
    assert f'{base}/s: server.socket_group = "0": not permitted: is the ' \
        "daemon in that group?" in output
    assert not (base / "s").exists()


# ---- password files and credentials ----

def secret_file(bed, content, mode=0o600):
    path = bed.make_dir("secret") / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("option", ["server", "redis"])
@pytest.mark.parametrize("content, why", [
    (b"", "it is empty"),
    (b"\n", "it is empty"),
    (b"a\0b\n", "it holds a NUL byte"),
    (b"hunter\ntwo\n", "it has more than one line"),
    (b"x" * 4097, "the file is too large"),
])
def test_a_file_that_holds_no_password(bed, option, content, why):
    path = secret_file(bed, content)
    log = fails(bed, **{f"{option}_password_file": path})
    assert f"{option}.password_file: {path}: {why}" in log
    assert "hunter" not in log


@pytest.mark.parametrize("option", ["server", "redis"])
def test_a_credential_that_is_none(bed, monkeypatch, option):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    given = {f"{option}_password_file": "credential:clients"}
    assert f"{option}.password_file: credential:clients: " \
        "CREDENTIALS_DIRECTORY is not set" in fails(bed, **given)
    base = bed.make_dir("credentials")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(base))
    assert f"{option}.password_file: credential:clients: cannot read " \
        f"{base}/clients: No such file" in fails(bed, **given)
    assert f'{option}.password_file = "credential:../x": expected a name' in \
        fails(bed, **{f"{option}_password_file": "credential:../x"})


def test_credentials(bed, start, monkeypatch):
    """Of clients, and of Redis."""
    base = bed.make_dir("credentials")
    (base / "clients").write_text(PASSWORD)
    (base / "redis").write_text("of redis\r\n")
    for name in ("clients", "redis"):
        (base / name).chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(base))
    redis = bed.redis()
    with contextlib.closing(redis.client()) as keys:
        keys.config_set("requirepass", "of redis")
    daemon = start(None, redis_address=redis.address,
                   server_password_file="credential:clients",
                   redis_password_file="credential:redis")
    wait_for(lambda: daemon.metrics()["likesyncd_redis_up"] == 1,
             what="Redis to take the password")
    with Wire(daemon.socket) as wire:
        assert wire.call("PING") == NO_AUTH
        assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
    assert "may read it" not in daemon.log_text()


def test_a_password_that_all_may_read_is_warned_of(bed, start):
    path = secret_file(bed, PASSWORD.encode(), 0o644)
    daemon = start(None, server_password_file=path)
    assert f"server.password_file: {path}: every user of this machine may " \
        "read it" in daemon.log_text()
    with Wire(daemon.socket) as wire:
        assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"


# ---- likesyncctl ----

def ctl(daemon, *arguments):
    return run_status([harness.BUILD / "likesyncctl", "-s",
                       f"tcp:127.0.0.1:{daemon.admin_port}", *arguments])


@pytest.mark.parametrize("verb, expected", [
    ("status", 1), ("drain", 1), ("pause", 1), ("ping", 1), ("verify", 2)])
def test_ctl_says_that_it_needs_a_password(start, verb, expected):
    status, output = ctl(start(), verb)
    assert status == expected
    assert "NOAUTH Authentication required. (give the password by " \
        "--password-file FILE)" in output


def test_ctl_with_a_password(start, redis, pg, monkeypatch):
    daemon = start(backends=(redis, pg))
    wait_for(lambda: {daemon.metrics()[f"likesyncd_{backend}_up"]
                      for backend in ("redis", "postgres")} == {1},
             what="the backends")
    file = daemon.options["server_password_file"]
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(file.parent))
    for where in (file, "credential:password"):
        for verb, words in [
                ("ping", "PONG"), ("status", "owners_dirty"), ("pause", "OK"),
                ("resume", "OK"), ("drain", "all is durable")]:
            status, output = ctl(daemon, "--password-file", where, verb)
            assert (status, words in output) == (0, True), output
    # A unix socket takes it, too.
    status, output = daemon.ctl("--password-file", file, "ping")
    assert (status, output) == (0, "PONG\n")
    assert failures(daemon) == 0


def test_ctl_without_the_right_password(start, bed):
    daemon = start(server_auth_delay_ms=1)
    wrong = secret_file(bed, b"wrong")
    for verb, expected in (("ping", 1), ("drain", 1), ("verify", 2)):
        status, output = ctl(daemon, "--password-file", wrong, verb)
        assert (status, "WRONGPASS" in output) == (expected, True), output
        status, output = ctl(daemon, "--password-file", "/nowhere/p", verb)
        assert status == expected and "/nowhere/p: No such file" in output
    assert failures(daemon) == 3
    status, output = ctl(daemon, "--password-file", "credential:", "ping")
    assert status == 1 and "credential:: expected a name" in output
    wrong.chmod(0o644)
    status, output = ctl(daemon, "--password-file", wrong, "ping")
    assert f"{wrong}: every user of this machine may read it" in output


def test_ctl_with_a_password_where_there_is_none(start, bed):
    daemon = start(None)
    status, output = ctl(daemon, "--password-file", secret_file(bed, b"x"),
                         "ping")
    assert status == 1 and "without any password configured" in output
    assert ctl(daemon, "ping") == (0, "PONG\n")


# ---- addresses ----

@pytest.mark.parametrize("option", ["listen", "admin_listen"])
@pytest.mark.parametrize("host", [
    "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "10.0.0.1",
    "0", "127.1", "app.example.com", "localhost.example.com"])
def test_an_address_that_needs_a_password(bed, option, host):
    port = harness.free_port()
    log = fails(bed, **{f"server_{option}": f"tcp:{host}:{port}"})
    assert f'server.{option} = "tcp:{host}:{port}": expected ' \
        "server.password_file to be set" in log
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_open_address_with_a_password(start):
    ports = [harness.free_port(), harness.free_port()]
    daemon = start(server_auth_delay_ms=0,
                   server_listen=f"tcp:0.0.0.0:{ports[0]}",
                   server_admin_listen=f"tcp:0.0.0.0:{ports[1]}")
    for port in ports:
        with Wire(("127.0.0.1", port)) as wire:
            assert wire.call("FLUSHER", "STATUS") == NO_AUTH
            assert wire.call("AUTH", "x") == DENIED
            assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
