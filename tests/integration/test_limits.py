# SPDX-License-Identifier: MIT
"""Each limit on clients: what happens at it, what is counted, and that others
are served. (test_server_limits.c has the fine points.)"""
import contextlib
import signal
import socket

import pytest

from servers import wait_for
from wire import Wire, encode

CLOSED = "likesyncd_clients_closed_total"
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def start(bed, redis, pg):
    """A daemon with a few options and, if `password` is true, a password."""
    def started(password=False, **options):
        if password:
            path = bed.dir / "password"
            path.write_text("good\n")
            path.chmod(0o600)
            options["server_password_file"] = path
            options["wait"] = None  # it would not log in
        daemon = bed.daemon(redis, pg, **options)
        if password:
            daemon.wait_up(lambda: daemon.http("/metrics")[0] == 200)
            wait_for(lambda: backends_up(daemon), what="the backends")
        return daemon
    return started


def backends_up(daemon):
    metrics = daemon.metrics()
    return metrics["likesyncd_redis_up"] == 1 and \
        metrics["likesyncd_postgres_up"] == 1


def closed(daemon, reason):
    return daemon.metrics()[f'{CLOSED}{{reason="{reason}"}}']


def paused(daemon, limit):
    return daemon.metrics()[
        f'likesyncd_clients_paused_total{{limit="{limit}"}}']


def ends(wire):
    """Whether the other side closes, maybe with a reset. What it still sends
    is returned."""
    with contextlib.suppress(ConnectionError):
        return wire.file.read()
    return b""


def send_all(wire, data):
    """Sends as far as the daemon reads; true when that was all."""
    wire.socket.settimeout(1)
    with contextlib.suppress(TimeoutError, ConnectionError):
        wire.send(data)
        return True
    return False


# ---- number of clients ----

def test_max_clients(start):
    daemon = start(server_max_clients=5)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(daemon.socket)) for _ in range(5)]
        for wire in wires:
            assert wire.call("PING") == b"+PONG\r\n"
        with Wire(daemon.socket) as extra:
            assert ends(extra) == b"-ERR max number of clients reached\r\n"
        with Wire(daemon.admin_socket) as admin:
            assert admin.call("PING") == b"+PONG\r\n"
        assert daemon.metrics()["likesyncd_clients_refused_total"] == 1
        assert daemon.metrics()["likesyncd_clients_max"] == 5
        daemon.write_config(server_max_clients=6)
        daemon.signal(signal.SIGHUP)
        wait_for(lambda: daemon.metrics()["likesyncd_clients_max"] == 6,
                 what="the reload")
        with Wire(daemon.socket) as extra:
            assert extra.call("PING") == b"+PONG\r\n"
    wait_for(lambda: all_counted(daemon), what="all to have left")


def all_counted(daemon):
    """Whoever came in is there, or was closed for one reason."""
    metrics = daemon.metrics()
    ended = sum(value for name, value in metrics.items()
                if name.startswith(CLOSED))
    assert ended == metrics[CLOSED + '{reason="left"}']
    return metrics["likesyncd_clients"] == 0 and \
        metrics["likesyncd_clients_accepted_total"] == ended


def test_few_descriptors(start, redis, pg):
    """With RLIMIT_NOFILE at 64 there are fewer clients; backends that went
    away are connected again, and HTTP answers, while all places are taken."""
    daemon = start(nofile=64, tcp=True)
    places = int(daemon.metrics()["likesyncd_clients_max"])
    assert 10 <= places < 64
    assert "RLIMIT_NOFILE is 64" in daemon.log.read_text()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(daemon.socket))
                 for _ in range(places)]
        for wire in wires:
            assert wire.call("PING") == b"+PONG\r\n"
        refused = 0
        for _ in range(100):
            with Wire(("127.0.0.1", daemon.port)) as extra:
                refused += ends(extra) == \
                    b"-ERR max number of clients reached\r\n"
        # Closed with what was asked unread, one may see a reset instead.
        assert refused > 0
        assert daemon.metrics()["likesyncd_clients_refused_total"] == 100
        admins = [stack.enter_context(Wire(daemon.admin_socket))
                  for _ in range(8)]
        for admin in admins:
            assert admin.call("PING") == b"+PONG\r\n"
        pg.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                 " WHERE datname = current_database()"
                 "   AND pid <> pg_backend_pid()")
        redis.restart()
        wait_for(lambda: (m := daemon.metrics())["likesyncd_redis_up"] == 1
                 and m["likesyncd_redis_reconnects_total"] >= 1
                 and m["likesyncd_postgres_up"] == 1
                 and m["likesyncd_postgres_reconnects_total"] >= 2,
                 what="the backends to be there again")
        for i, wire in enumerate(wires):
            assert wire.call("LIKE", i + 1, 1) == b":1\r\n"
        assert wires[0].call("LIKECOUNT", 1) == \
            b"*1\r\n:%d\r\n" % len(wires)
    assert "Too many open files" not in daemon.log.read_text()


# ---- memory ----

def test_max_client_memory(start):
    """Clients that send half a request each take what there is, and no more;
    one that works beside them is right all the time."""
    daemon = start(server_max_client_memory=4 * MIB)
    with contextlib.ExitStack() as stack:
        good = stack.enter_context(Wire(daemon.socket))
        for i in range(60):
            greedy = stack.enter_context(Wire(daemon.socket))
            send_all(greedy, b"*30\r\n" + encode("x" * 64000)[4:] * 8)
            assert good.call("LIKE", i, 1) == b":1\r\n"
            assert good.call("LIKECOUNT", 1) == b"*1\r\n:%d\r\n" % (i + 1)
            memory = daemon.metrics()["likesyncd_client_memory_bytes"]
            assert memory <= 4 * MIB
        assert memory > 2 * MIB
        assert closed(daemon, "memory") >= 60 - 8
        assert daemon.metrics()["likesyncd_clients"] <= 9
    assert "server.max_client_memory" in daemon.log.read_text()


def test_less_memory_by_reload(start):
    daemon = start()
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            wire = stack.enter_context(Wire(daemon.socket))
            assert send_all(wire, b"*30\r\n" + encode("x" * 64000)[4:] * 8)
        wait_for(lambda: daemon.metrics()["likesyncd_client_memory_bytes"]
                 > 4 * MIB, what="the bytes to arrive")
        daemon.write_config(server_max_client_memory=2 * MIB)
        daemon.signal(signal.SIGHUP)
        wait_for(lambda: daemon.metrics()["likesyncd_client_memory_bytes"]
                 <= 2 * MIB, what="the new limit")
        assert 0 < daemon.metrics()["likesyncd_clients"] < 8
        assert closed(daemon, "memory") == \
            8 - daemon.metrics()["likesyncd_clients"]


# ---- one client's replies and requests under way ----

def test_output_soft_bytes(start):
    """One that does not read is not read; then it gets all replies."""
    daemon = start(server_output_soft_bytes=16 * KIB)
    n, text = 500, "y" * 20000
    with Wire(daemon.socket) as wire:
        sent = send_all(wire, encode("ECHO", text) * n)
        assert not sent
        wait_for(lambda: paused(daemon, "output") > 0, what="the pause")
        assert paused(daemon, "pipeline") == 0
        assert daemon.metrics()["likesyncd_client_memory_bytes"] < MIB
        wire.socket.settimeout(30)
        for _ in range(20):
            assert wire.read() == b"$20000\r\n" + text.encode() + b"\r\n"
    with Wire(daemon.socket) as other:
        assert other.call("PING") == b"+PONG\r\n"
    assert closed(daemon, "output") == 0


def test_output_hard_bytes(start, redis):
    """Replies that wait behind one that does not come are bounded, too."""
    daemon = start(server_output_soft_bytes=MIB, server_output_hard_bytes=MIB)
    redis.pause()
    try:
        with Wire(daemon.socket) as wire, Wire(daemon.socket) as other:
            data = encode("LIKE", 1, 1) + encode("ECHO", "z" * 60000) * 30
            send_all(wire, data)
            wait_for(lambda: closed(daemon, "output") == 1, what="the end")
            assert ends(wire) == b""
            assert other.call("PING") == b"+PONG\r\n"
    finally:
        redis.resume()
    assert "server.output_hard_bytes" in daemon.log.read_text()


def test_max_pipeline(start, redis):
    daemon = start(server_max_pipeline=10)
    before = requests(daemon)
    redis.pause()
    try:
        with Wire(daemon.socket) as wire:
            wire.send(b"".join(encode("LIKE", i, 1) for i in range(25)))
            wait_for(lambda: paused(daemon, "pipeline") == 1,
                     what="the pause")
            assert requests(daemon) == before + 10
            redis.resume()
            assert [wire.read() for _ in range(25)] == [b":1\r\n"] * 25
    finally:
        redis.resume()
    assert paused(daemon, "pipeline") >= 2
    assert paused(daemon, "output") == 0
    assert requests(daemon) == before + 25


def requests(daemon):
    return daemon.metrics()["likesyncd_requests_total"]


# ---- time ----

def test_idle_timeout(start):
    daemon = start(server_idle_timeout=1)
    with Wire(daemon.socket) as idle:
        assert idle.call("PING") == b"+PONG\r\n"
        assert ends(idle) == b""
    assert closed(daemon, "idle") >= 1


def test_auth_timeout(start):
    daemon = start(password=True, server_auth_timeout=1)
    with Wire(daemon.socket) as silent, Wire(daemon.socket) as good, \
            Wire(daemon.admin_socket) as admin:
        assert good.call("AUTH", "good") == b"+OK\r\n"
        assert ends(silent) == b""
        assert closed(daemon, "auth_timeout") == 1
        assert good.call("PING") == b"+PONG\r\n"
        assert admin.call("PING") == b"+PONG\r\n"
        assert good.call("RESET") == b"+RESET\r\n"  # the time starts again
        assert ends(good) == b""
        assert admin.call("PING") == b"+PONG\r\n"
    assert closed(daemon, "auth_timeout") == 2
    assert "server.auth_timeout" in daemon.log.read_text()


def test_no_auth_timeout_without_a_password(start):
    daemon = start(server_auth_timeout=1, server_idle_timeout=0)
    with Wire(daemon.socket) as silent, Wire(daemon.socket) as watch:
        assert silent.call("PING") == b"+PONG\r\n"
        with pytest.raises(TimeoutError):
            watch.socket.settimeout(3)
            watch.socket.recv(1)
        assert silent.call("PING") == b"+PONG\r\n"
    assert closed(daemon, "auth_timeout") == 0


# ---- before AUTH ----

def test_max_requests_before_auth(start):
    daemon = start(password=True, server_max_requests_before_auth=3)
    with Wire(daemon.socket) as wire:
        wire.send(encode("PING") * 5)
        assert ends(wire) == \
            b"-NOAUTH Authentication required.\r\n" * 3 + \
            b"-NOAUTH Authentication required, and not done in 3 requests" \
            b" (server.max_requests_before_auth)\r\n"
    assert closed(daemon, "before_auth") == 1
    with Wire(daemon.socket) as wire:
        wire.send(encode("PING") * 2 + encode("AUTH", "good") +
                  encode("PING") * 5)
        replies = [wire.read() for _ in range(8)]
        assert replies[2:] == [b"+OK\r\n"] + [b"+PONG\r\n"] * 5
    assert closed(daemon, "before_auth") == 1


@pytest.mark.parametrize("request_, reply, reason", [
    (b"*11\r\n",
     b"-ERR Protocol error: unauthenticated multibulk length\r\n", "args"),
    (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
     b"-ERR Protocol error: unauthenticated bulk length\r\n", "arg_bytes"),
], ids=["args", "arg_bytes"])
def test_a_request_before_auth(start, request_, reply, reason):
    daemon = start(password=True)
    with Wire(daemon.socket) as wire:
        wire.send(request_)
        assert ends(wire) == reply
    assert closed(daemon, reason) == 1
    with Wire(daemon.socket) as wire:
        assert wire.call("AUTH", "good") == b"+OK\r\n"
        assert wire.call("LIKECOUNT", *range(100)).startswith(b"*100\r\n")
        assert len(wire.call("ECHO", "x" * 16385)) == 16385 + 10


# ---- one request ----

@pytest.mark.parametrize("option, limit, request_, reason", [
    ("server_max_args", 16, b"*17\r\n", "args"),
    ("server_max_arg_bytes", 1024, b"*2\r\n$4\r\nECHO\r\n$1025\r\n",
     "arg_bytes"),
], ids=["args", "arg_bytes"])
def test_a_request(start, option, limit, request_, reason):
    daemon = start(**{option: limit})
    with Wire(daemon.socket) as wire:
        assert wire.call("LIKECOUNT", *range(15)).startswith(b"*15\r\n")
        assert wire.call("ECHO", "x" * 1024) != b""
        wire.send(request_)
        assert option.replace("_", ".", 1).encode() in ends(wire)
    assert closed(daemon, reason) == 1


def test_a_whole_request(start):
    """Many arguments and long ones are allowed, not both at a time."""
    daemon = start()
    with Wire(daemon.socket) as wire:
        wire.send(b"*20\r\n" + (b"$65536\r\n" + b"x" * 65536 + b"\r\n") * 15)
        wire.send(b"$65536\r\n")
        assert ends(wire) == b"-ERR Protocol error: too big request\r\n"
    assert closed(daemon, "request") == 1


@pytest.mark.parametrize("sent, reason", [
    (b"*1\r\n:1\r\n", "protocol"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "attack"),
], ids=["protocol", "attack"])
def test_not_resp(start, sent, reason):
    daemon = start()
    with Wire(daemon.socket) as wire:
        wire.send(sent)
        ends(wire)
    assert closed(daemon, reason) == 1


def test_who_sends_on_reads_why_it_ends(start):
    """Over TCP, where a socket that is closed with something unread resets the
    connection."""
    daemon = start(tcp=True)
    with socket.create_connection(("127.0.0.1", daemon.port), 30) as client:
        client.sendall(b"PING\r\n*x\r\n")
        wait_for(lambda: closed(daemon, "protocol") == 1, what="the end")
        for _ in range(100):
            client.sendall(bytes(1000))
        replies = client.makefile("rb").read()
    assert replies.startswith(b"+PONG\r\n-ERR Protocol error: ")
    assert replies.count(b"\r\n") == 2
    wait_for(lambda: daemon.metrics()["likesyncd_clients"] == 0,
             what="its end")
    assert closed(daemon, "protocol") == 1
