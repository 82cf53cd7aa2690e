# SPDX-License-Identifier: MIT
"""Sockets that the service manager makes, passes, and keeps over restarts."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

import harness
from servers import Failed, resp_client, wait_for

# Puts the descriptors where sd_listen_fds(3) looks for them, and goes on as
# the daemon: LISTEN_PID is its own.
AS_SYSTEMD = """
import fcntl, os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
    os.close(fd)
os.environ.update(LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=sys.argv[2])
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv(sys.argv[3], sys.argv[3:])
"""


class Sockets:
    """What socket units hold: [(name, socket)]."""

    def __init__(self):
        self.held = []

    def hold(self, name, listener):
        self.held.append((name, listener))
        return listener

    def unix(self, name, path, mode=0o666):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        os.chmod(path, mode)
        listener.listen(4096)
        return self.hold(name, listener)

    def tcp(self, name, host, port, family=socket.AF_INET):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(4096)
        return self.hold(name, listener)

    def close(self):
        for _, listener in self.held:
            listener.close()


class Activated(harness.Daemon):
    """A daemon that gets sockets. `make(daemon, sockets)` makes them, once its
    paths are known."""

    def __init__(self, bed, redis, pg, sockets, make, env=None, **options):
        self.sockets = sockets
        self.make = make
        self.extra_env = env or {}
        super().__init__(bed, redis, pg, **options)

    def spawn(self, command, user=None, env=None, pass_fds=()):
        if self.make:
            self.make(self, self.sockets)
            self.make = None
        names = ":".join(name for name, _ in self.sockets.held)
        fds = [listener.fileno() for _, listener in self.sockets.held]
        super().spawn([sys.executable, "-c", AS_SYSTEMD,
                       ",".join(map(str, fds)), names, *command], user,
                      {**(env or {}), **self.extra_env}, pass_fds=fds)


@pytest.fixture
def sockets():
    sockets = Sockets()
    yield sockets
    sockets.close()


def make_both(daemon, sockets):
    sockets.unix("listen", daemon.socket)
    sockets.unix("admin", daemon.admin_socket, 0o600)


@pytest.fixture
def activated(bed, redis, pg, sockets):
    return Activated(bed, redis, pg, sockets, make_both)


def identity(path):
    stat = os.lstat(path)
    return stat.st_ino, oct(stat.st_mode), stat.st_ctime_ns


def ask(path, line=b"PING\r\n"):
    """A connection with a request under way."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(path))
    connection.sendall(line)
    return connection


# ---- what is passed ----

def test_passed_sockets_are_used_and_left_alone(activated):
    before = [identity(p) for p in (activated.socket, activated.admin_socket)]
    with activated.client() as client, activated.admin() as admin:
        assert client.execute_command("LIKE", 7, 42) == 1
        with pytest.raises(Exception, match="admin listener"):
            client.execute_command("FLUSHER", "STATE")
        assert admin.execute_command("FLUSHER", "DRAIN", 10000) is not None
    log = activated.log_text()
    assert f"unix:{activated.socket} for clients comes from the service " \
           "manager\n" in log
    assert f"unix:{activated.admin_socket} for admins comes from the service " \
           "manager\n" in log
    # Neither locked, nor given another mode, nor removed at the end.
    activated.term()
    assert [identity(p) for p in
            (activated.socket, activated.admin_socket)] == before
    assert list(activated.dir.glob("*.lock")) == []


def test_configured_ones_that_were_not_passed_are_bound(bed, redis, pg,
                                                        sockets):
    daemon = Activated(
        bed, redis, pg, sockets,
        lambda d, s: s.unix("listen", d.socket), tcp=True)
    with contextlib.closing(socket.create_connection(
            ("127.0.0.1", daemon.port))) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
    assert daemon.admin().ping()
    daemon.term()
    assert daemon.socket.exists()
    assert not daemon.admin_socket.exists()     # its own


def test_passed_ones_that_are_not_configured_are_used_too(bed, redis, pg,
                                                          sockets):
    port = harness.free_port()

    def make(daemon, held):
        make_both(daemon, held)
        held.unix("listen", daemon.dir / "more")
        held.tcp("listen", "127.0.0.1", port)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0likesyncd-test-{os.getpid()}-{port}")
        listener.listen()
        held.hold("listen", listener)

    daemon = Activated(bed, redis, pg, sockets, make)
    assert resp_client(daemon.dir / "more").ping()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
    assert ask(f"\0likesyncd-test-{os.getpid()}-{port}").recv(9) == \
        b"+PONG\r\n"
    log = daemon.log_text()
    for address in (f"unix:{daemon.dir}/more", f"tcp:127.0.0.1:{port}",
                    f"unix:@likesyncd-test-{os.getpid()}-{port}"):
        assert re.search(
            r" warn +server: " + re.escape(
                f"{address} for clients is open: it comes from the service "
                "manager, though server.listen has it not (to close it: "
                "systemctl edit likesyncd.socket)\n"), log), log


def test_what_to_do_for_admins(bed, redis, pg, sockets):
    daemon = Activated(bed, redis, pg, sockets,
                       lambda d, s: s.unix("admin", d.dir / "more"))
    assert f"unix:{daemon.dir}/more for admins is open: it comes from the " \
        "service manager, though server.admin_listen has it not (to close " \
        "it: systemctl edit likesyncd-admin.socket)\n" in daemon.log_text()


@pytest.mark.parametrize("family, host", [
    (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::")])
def test_a_tcp_address_is_found_among_the_passed(bed, redis, pg, sockets,
                                                 family, host):
    """`ListenStream=6480` makes [::], which takes IPv4 too: a second socket at
    that port could not be bound."""
    def make(daemon, held):
        held.tcp("listen", host, daemon.port, family)

    (bed.dir / "password").write_text("secret\n")
    (bed.dir / "password").chmod(0o600)
    daemon = Activated(bed, redis, pg, sockets, make, tcp=True, wait=None,
                       server_password_file=f"{bed.dir}/password")
    wait_for(lambda: "is ready" in daemon.log_text() or not daemon.running(),
             what="the start")
    line = re.search(r"tcp:\S+ for clients comes from .*", daemon.log_text())[0]
    assert "though" not in line
    with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
        connection.sendall(b"AUTH secret\r\n")
        assert connection.recv(100) == b"+OK\r\n"


def test_sockets_of_another_process_are_not_taken(bed, redis, pg, sockets):
    """A child of a daemon that was activated inherits the environment."""
    daemon = Activated(bed, redis, pg, sockets, lambda d, s: s.unix(
        "nonsense", d.dir / "other"), env={"LISTEN_PID": "1"})
    assert "service manager" not in daemon.log_text()
    assert daemon.client().ping()


# ---- what cannot be ----

def passed_datagram(daemon, held):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(daemon.dir / "d"))
    held.hold("listen", listener)


def passed_deaf(daemon, held):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(daemon.dir / "d"))
    held.hold("listen", listener)


def passed_file(daemon, held):
    held.hold("listen", (daemon.dir / "file").open("w"))


@pytest.mark.parametrize("make, expected", [
    (lambda d, s: s.unix("likesyncd.socket", d.socket),
     r'socket "likesyncd.socket" of the service manager \(3\): expected '
     r"FileDescriptorName=listen, admin or metrics"),
    (passed_datagram, "(3): not a stream socket"),
    (passed_file, "(3): not a stream socket"),
    (passed_deaf, "(3): not a socket that listens"),
    (lambda d, s: s.unix("admin", d.socket),
     "stands in server.listen, but the service manager passed it for admins"),
    (lambda d, s: s.unix("listen", d.admin_socket),
     "stands in server.admin_listen, but the service manager passed it for "
     "clients"),
    (lambda d, s: s.tcp("admin", "127.0.0.1", d.port),
     "stands in server.listen, but the service manager passed it for admins"),
    # The rule for addresses in the configuration.
    (lambda d, s: s.tcp("listen", "0.0.0.0", harness.free_port()),
     "is not loopback: expected server.password_file to be set"),
    # HTTP.
    (lambda d, s: s.unix("metrics", d.dir / "m"),
     'socket "metrics" of the service manager (3): HTTP listens on TCP only'),
    (lambda d, s: [s.tcp("metrics", "127.0.0.1", harness.free_port())
                   for _ in range(2)],
     'socket "metrics" of the service manager (4): expected one socket for '
     "HTTP"),
    (lambda d, s: s.tcp("admin", "::", harness.free_port(), socket.AF_INET6),
     "is not loopback: expected server.password_file to be set"),
])
def test_it_does_not_start_with(bed, redis, pg, sockets, make, expected):
    daemon = Activated(bed, redis, pg, sockets, make, wait=None, tcp=True)
    assert daemon.wait_exit() == 1
    assert re.search(expected if "\\" in expected else re.escape(expected),
                     daemon.log_text()), daemon.log_text()
    daemon.check_log()


# ---- restarts ----

@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_who_connects_meanwhile_waits_and_is_served(activated, end):
    activated.signal(end)
    activated.wait_exit()
    waiting = [ask(activated.socket, b"LIKE %d 42\r\n" % user)
               for user in range(600)]      # more than a queue of our own
    activated.start(wait="answers")
    assert [c.recv(100) for c in waiting] == [b":1\r\n"] * len(waiting)
    for connection in waiting:
        connection.close()
    activated.drain()
    with activated.client() as client:
        assert client.execute_command("LIKECOUNT", 42) == [600]


READS = {b"LIKECOUNT 42": b"*1\r\n:3\r\n", b"LIKED 1 42 43": b"*2\r\n:1\r\n:0\r\n",
         b"FOLLOWERS 5": b"*1\r\n$1\r\n6\r\n",
         b"FOLLOWCOUNT 5": b"*1\r\n*2\r\n:0\r\n:1\r\n",
         b"RELATION 6 5": b"*1\r\n:1\r\n"}


def test_reads_wait_for_the_backends_too(activated, redis):
    """Nobody who waited over a restart is told that Redis is away. (A machine
    on which connecting takes seconds gets more tries; one would do.)"""
    with activated.client() as client:
        for user in range(3):
            client.execute_command("LIKE", user, 42)
        client.execute_command("FOLLOW", 6, 5)
    activated.drain()
    redis.client().flushall()       # PostgreSQL has to be asked
    for _ in range(5):
        activated.term()
        waiting = {line: ask(activated.socket, line + b"\r\n")
                   for line in READS}
        activated.start(wait=None)
        found = {line: c.recv(100) for line, c in waiting.items()}
        if found == READS:
            return
        assert any(reply.startswith(b"-UNAVAILABLE")
                   for reply in found.values()), found
    raise Failed(f"{found}")


def test_who_waits_is_told_when_redis_stays_away(activated, redis):
    activated.term()
    redis.stop()
    waiting = ask(activated.socket, b"LIKECOUNT 42\r\n")
    activated.start(wait=None)
    wait_for(activated.admin_socket.exists, what="the admin socket")
    with activated.admin() as admin:        # at once
        assert admin.ping()
    assert waiting.recv(100).startswith(b"-UNAVAILABLE")


# ---- HTTP ----

def metrics_port(daemon):
    return int(daemon.options["metrics_listen"].rpartition(":")[2])


def make_metrics(daemon, sockets):
    make_both(daemon, sockets)
    sockets.tcp("metrics", "127.0.0.1", metrics_port(daemon))


def scrape(daemon, path=b"/healthz"):
    """A connection with a request under way."""
    connection = socket.create_connection(
        ("127.0.0.1", metrics_port(daemon)), timeout=30)
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n"
                       b"Connection: close\r\n\r\n" % path)
    return connection


def whole(connection):
    with contextlib.closing(connection):
        return connection.makefile("rb").read()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_who_asks_by_http_meanwhile_waits_too(bed, redis, pg, sockets, end):
    daemon = Activated(bed, redis, pg, sockets, make_metrics)
    assert f"http: tcp:127.0.0.1:{metrics_port(daemon)} comes from the " \
        "service manager\n" in daemon.log_text()
    for _ in range(2):
        daemon.signal(end)
        daemon.wait_exit()
        waiting = [scrape(daemon) for _ in range(100)]  # more than at a time
        daemon.start()
        for connection in waiting:
            text = whole(connection)
            assert text.startswith(b"HTTP/1.1 200 ") and text.endswith(b"ok\n")


def test_a_passed_socket_stands_for_metrics_listen(bed, redis, pg, sockets):
    """And is judged as it would be."""
    port = harness.free_port()

    def make(daemon, held):
        make_both(daemon, held)
        held.tcp("metrics", "0.0.0.0", port)

    daemon = Activated(bed, redis, pg, sockets, make, metrics_listen="")
    log = daemon.log_text()
    assert re.search(rf" warn +http: tcp:0\.0\.0\.0:{port} is open: it comes "
                     "from the service manager, in place of metrics.listen "
                     r"\(to close it: systemctl disable --now "
                     r"likesyncd-metrics.socket\)\n", log), log
    assert f"tcp:0.0.0.0:{port} is not loopback" in log
    daemon.options["metrics_listen"] = f"127.0.0.1:{port}"
    assert whole(scrape(daemon)).startswith(b"HTTP/1.1 200 ")


class Caller(threading.Thread):
    """Likes one post as one user after another, with a connection for each,
    and tries again when it gets no answer, as Redis clients do."""

    def __init__(self, path, first):
        super().__init__(daemon=True)
        self.path = path
        self.user = self.first = first
        self.unanswered = 0
        self.fault = None
        self.ended = threading.Event()

    def once(self):
        with contextlib.closing(ask(self.path, b"LIKE %d 42\r\n"
                                    % self.user)) as connection:
            return connection.recv(100)

    def run(self):
        try:
            while not self.ended.is_set():
                try:
                    reply = self.once()
                except (ConnectionResetError, BrokenPipeError):
                    reply = b""
                if not reply:
                    self.unanswered += 1
                elif re.fullmatch(rb":[01]\r\n", reply):
                    self.user += 1
                elif not reply.startswith(b"-UNAVAILABLE"):
                    raise Failed(f"{reply}")
        except BaseException as error:      # refused, for one
            self.fault = error


def test_no_connect_is_refused_over_restarts(activated, pg):
    callers = [Caller(activated.socket, first)
               for first in (0, 1_000_000, 2_000_000)]
    for caller in callers:
        caller.start()
    for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        seen = [caller.user for caller in callers]
        wait_for(lambda: all(c.user > n + 20 or c.fault
                             for c, n in zip(callers, seen)), what="likes")
        activated.signal(end)
        activated.wait_exit()
        activated.start(wait=None)
    activated.wait_up(activated.ready)
    for caller in callers:
        caller.ended.set()
        caller.join(60)
    assert [caller.fault for caller in callers] == [None] * 3
    activated.drain()
    assert pg.value("SELECT like_count FROM post_like WHERE post_id = 42") == \
        sum(caller.user - caller.first for caller in callers)


def test_a_connect_starts_it(bed, redis, pg):
    """By systemd's own tool."""
    if not shutil.which("systemd-socket-activate"):
        raise Failed("systemd-socket-activate is missing: install systemd")
    daemon = bed.daemon(redis, pg)
    daemon.term()
    path = bed.dir / "activate.log"
    log = path.open("w")
    activate = subprocess.Popen(
        ["systemd-socket-activate", "-l", daemon.socket, "--fdname=listen",
         harness.BUILD / "likesyncd", "-c", daemon.config],
        stdout=log, stderr=log, cwd=daemon.dir,
        env={**os.environ, "ASAN_OPTIONS": "exitcode=99"})
    try:
        wait_for(lambda: "Listening on" in path.read_text(), what="the socket")
        with daemon.client() as client:
            assert client.ping()
        activate.terminate()
        assert activate.wait(10) == 0       # the daemon's own end
        assert daemon.socket.exists()
    finally:
        activate.kill()
        activate.wait()
        log.close()
    assert "comes from the service manager" in path.read_text()
