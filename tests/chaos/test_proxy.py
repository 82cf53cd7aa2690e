# SPDX-License-Identifier: MIT
"""The fault proxy: each of its modes, by the bytes and by what PostgreSQL has."""
import contextlib
import errno
import random
import select
import socket
import threading
import time

import pytest

import harness
from proxy import Link
from servers import resp_client, wait_for

TEXT = bytes(random.Random(7).randrange(256) for _ in range(200_000))


class Peer:
    """A server in a thread: answers each connection with what it sends, and
    keeps what it got and how the connection ended."""

    def __init__(self, address):
        self.family = socket.AF_INET if isinstance(address, tuple) \
            else socket.AF_UNIX
        self.listener = socket.create_server(address, family=self.family)
        self.got = []
        self.ends = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self.got.append(b"")
                self.ends.append(None)
                threading.Thread(target=self.serve, daemon=True,
                                 args=(sock, len(self.got) - 1)).start()

    def serve(self, sock, n):
        try:
            while data := sock.recv(65536):
                self.got[n] += data
                with contextlib.suppress(OSError):
                    sock.sendall(data)
            self.ends[n] = "eof"
        except OSError as error:
            self.ends[n] = errno.errorcode[error.errno]
        sock.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture(params=["unix", "tcp"])
def peer(bed, request):
    if request.param == "unix":
        peer = Peer(str(bed.dir / "peer"))
        peer.address = f"unix:{bed.dir}/peer"
    else:
        peer = Peer(("127.0.0.1", 0))
        peer.address = "tcp:127.0.0.1:%d" % peer.listener.getsockname()[1]
    yield peer
    peer.close()


@pytest.fixture
def link(bed, peer):
    return Link(bed, peer.address, seed=1)


@pytest.fixture
def tcp_link(bed, peer):
    """Real resets for the client, whatever the server's socket is."""
    return Link(bed, peer.address, tcp=True, seed=1)


def read(sock, n):
    data = b""
    while len(data) < n and (more := sock.recv(n - len(data))):
        data += more
    return data


def read_end(sock):
    """What still comes, and how it ends."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
        return data, "eof"
    except OSError as error:
        return data, errno.errorcode[error.errno]


def quiet(sock, seconds=0.1):
    """Nothing comes, not even an end."""
    return not select.select([sock], [], [], seconds)[0]


def send_aside(sock, data):
    """More than buffers take, while the test reads."""
    def send():
        with contextlib.suppress(OSError):
            sock.sendall(data)
    threading.Thread(target=send).start()


def echo(sock, data=b"x"):
    sock.sendall(data)
    assert read(sock, len(data)) == data


def test_pass(link, peer):
    socks = [link.connect() for _ in range(50)]
    for sock in socks:
        echo(sock, b"hello")
    sock = socks[0]
    send_aside(sock, TEXT * 5)
    assert read(sock, len(TEXT) * 5) == TEXT * 5
    for sock in socks:
        sock.shutdown(socket.SHUT_WR)
        assert read_end(sock) == (b"", "eof")
    wait_for(lambda: link.stats()["open"] == 0)
    assert peer.ends == ["eof"] * 50
    size = 50 * 5 + len(TEXT) * 5
    assert link.stats() == {"connections": 50, "open": 0, "up": size, "down": size,
                            "fired": 0, "fired_ever": 0, "let_go": 0}


def test_server_away(bed, peer):
    link = Link(bed, f"unix:{bed.dir}/nobody")
    assert read_end(link.connect()) == (b"", "eof")
    link.target(peer.address)
    echo(link.connect())


def test_delay(link):
    sock = link.connect()
    link.mode("delay", seconds=0.2, jitter=0.1)
    start = time.monotonic()
    echo(sock)
    assert time.monotonic() - start >= 0.4       # there and back
    assert link.mode("delay", seconds=1000, direction="down") == 2
    sock.sendall(b"abc")
    assert quiet(sock)
    link.mode("pass")
    assert read(sock, 3) == b"abc"


@pytest.mark.parametrize("direction", ["up", "down", "both"])
def test_blackhole(link, peer, direction):
    sock = link.connect()
    echo(sock)
    link.mode("blackhole", direction=direction)
    sock.sendall(b"late")
    link.wait_fired()
    assert quiet(sock)
    if direction == "down":
        wait_for(lambda: peer.got[0] == b"xlate")
    else:
        assert peer.got[0] == b"x"
    # Not even new ones get through, though they are accepted.
    new = link.connect()
    new.sendall(b"new")
    assert quiet(new)
    assert len(peer.got) == 1
    link.mode("pass")
    assert read(sock, 4) == b"late"
    assert read(new, 3) == b"new"


def test_blackhole_hides_the_end(link, peer):
    sock, other = link.connect(), link.connect()
    echo(sock)
    echo(other)
    link.mode("blackhole")
    sock.close()
    link.wait_fired()
    assert peer.ends == [None, None]
    link.mode("pass")
    wait_for(lambda: peer.ends[0])
    echo(other)


def test_blackhole_of_the_new_only(link):
    old = link.connect()
    echo(old)
    link.mode("blackhole", which="new")
    new = link.connect()
    new.sendall(b"new")
    link.wait_fired()
    assert quiet(new)
    echo(old)


def test_half_open(tcp_link, peer):
    sock = tcp_link.connect()
    echo(sock)
    tcp_link.mode("half_open", which="old")
    wait_for(lambda: peer.ends[0])
    assert tcp_link.fired() == 1
    sock.sendall(b"anybody?")
    assert quiet(sock)
    echo(tcp_link.connect())
    tcp_link.mode("pass")
    assert read_end(sock) == (b"", "ECONNRESET")


def test_refuse(link, peer):
    old = link.connect()
    echo(old)
    link.mode("refuse")
    assert read_end(old)[0] == b""
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            link.connect()
    assert link.fired() >= 1
    link.mode("pass")
    kept = link.connect()
    echo(kept)
    link.mode("refuse", which="new")
    echo(kept)
    with pytest.raises(ConnectionRefusedError):
        link.connect()


def test_reset(tcp_link):
    old = tcp_link.connect()
    echo(old)
    tcp_link.mode("reset")
    assert read_end(old) == (b"", "ECONNRESET")
    try:
        assert read_end(tcp_link.connect()) == (b"", "ECONNRESET")
    except ConnectionResetError:
        pass  # connect() was not even back
    assert tcp_link.mode("pass") == 2
    echo(tcp_link.connect())


def test_reset_of_a_unix_socket(bed):
    """With something unread, its close is a reset."""
    peer = Peer(str(bed.dir / "peer"))
    link = Link(bed, f"unix:{bed.dir}/peer")
    link.mode("reset")
    sock = link.connect()
    sock.sendall(b"x")
    assert read_end(sock) == (b"", "ECONNRESET")
    peer.close()


@pytest.mark.parametrize("whole", ["reset", "refuse", "half_open"])
def test_one_direction_after_both(link, whole):
    """Nothing of what had no direction stays in the other one."""
    link.mode(whole)
    link.mode("delay", seconds=0.01, direction="down")
    # It stays open until they are counted: an end is a read, too.
    with contextlib.closing(link.connect()) as sock:
        echo(sock)
        assert link.fired() == 1


@pytest.mark.parametrize("nbytes", [0, 1, 70_000])
def test_cut_up(tcp_link, peer, nbytes):
    """The server gets so many bytes, to the last, and no more."""
    sock = tcp_link.connect()
    echo(sock, b"before")
    tcp_link.mode("cut", nbytes=nbytes, direction="up")
    with contextlib.suppress(OSError):
        sock.sendall(TEXT)
    assert read_end(sock)[1] in ("ECONNRESET", "EPIPE")
    wait_for(lambda: peer.ends[0])
    assert peer.got[0] == b"before" + TEXT[:nbytes]
    # Once.
    assert tcp_link.fired() == 1
    echo(tcp_link.connect(), b"another")


@pytest.mark.parametrize("nbytes", [0, 1, 70_000])
def test_cut_down(tcp_link, peer, nbytes):
    sock = tcp_link.connect()
    echo(sock, b"before")
    tcp_link.mode("cut", nbytes=nbytes, direction="down", times=0)
    data = TEXT[:100_000]
    send_aside(sock, data)
    assert read_end(sock) == (data[:nbytes], "ECONNRESET")
    again = tcp_link.connect()
    send_aside(again, data)
    assert read_end(again) == (data[:nbytes], "ECONNRESET")
    assert tcp_link.fired() == 2


def test_trickle(link, peer):
    sock = link.connect()
    link.mode("trickle", pause=0.001, direction="up")
    echo(sock, b"0123456789" * 5)
    assert link.fired() == 50
    link.mode("trickle", pause=1000, direction="up")
    sock.sendall(b"abc")
    assert read(sock, 1) == b"a"
    assert quiet(sock)
    link.mode("pass")
    assert read(sock, 2) == b"bc"


def pieces(data, seed):
    """The same bytes, in reads of 1 to 4."""
    rng = random.Random(seed)
    while data:
        n = rng.randint(1, 4)
        yield data[:n]
        data = data[n:]


@pytest.mark.parametrize("mode,kept", [("cut_before", b"aCOMMIxCOMMITbCOM"),
                                       ("cut_after", b"aCOMMIxCOMMITbCOMCOMMIT")])
@pytest.mark.parametrize("seed", range(4))
def test_cut_at_a_pattern(tcp_link, peer, mode, kept, seed):
    """At the second occurrence, however it is split."""
    sock = tcp_link.connect()
    tcp_link.mode(mode, pattern=b"COMMIT", nth=2, direction="up")
    with contextlib.suppress(OSError):
        for piece in pieces(b"aCOMMIxCOMMITbCOMCOMMITcCOMMIT", seed):
            up = tcp_link.stats()["up"]
            sock.sendall(piece)
            # So that it is a read of its own; a piece may be kept back.
            with contextlib.suppress(harness.Failed):
                wait_for(lambda: tcp_link.stats()["up"] > up, 0.01)
    wait_for(lambda: peer.ends[0])
    assert peer.got[0] == kept
    assert tcp_link.stats()["fired"] == 1
    echo(tcp_link.connect(), b"COMMIT")


def test_a_beginning_is_let_go(link, peer):
    """What only looked like a pattern does not wait for ever."""
    sock = link.connect()
    link.mode("cut_before", pattern=b"COMMIT", direction="up")
    echo(sock, b"COMM")
    assert link.stats()["let_go"] == 1
    echo(sock, b"IT")
    assert link.fired() == 0


def test_flap(tcp_link):
    tcp_link.mode("flap", period=0.05)
    ends = 0
    while ends < 3:
        try:
            # Even connect may hear of the reset.
            with contextlib.closing(tcp_link.connect()) as sock:
                while True:
                    echo(sock)
        except (OSError, AssertionError):
            ends += 1
    tcp_link.wait_fired(3)
    tcp_link.mode("pass")
    echo(tcp_link.connect())


def test_flap_refuses_and_blackholes(link):
    def fires():
        with contextlib.suppress(OSError, AssertionError), \
                contextlib.closing(link.connect()) as sock:
            echo(sock)
        return link.fired() >= 5
    for bad in ("refuse", "blackhole"):
        link.mode("flap", period=0.02, bad=bad)
        wait_for(fires, 30, f"{bad} to meet them")
        link.mode("pass")
        echo(link.connect())


@pytest.mark.parametrize("bad", ["reset", "refuse", "blackhole", "half_open"])
def test_what_nobody_meets_does_not_count(link, bad):
    link.mode(bad)
    assert link.mode("flap", period=0.01, bad=bad) == 0
    time.sleep(0.1)     # some turns: fewer would only show less
    assert link.mode("pass") == 0
    echo(link.connect())


def test_target(bed, link, peer):
    other = Peer(str(bed.dir / "other"))
    old = link.connect()
    echo(old)
    link.target(f"unix:{bed.dir}/other", old="keep")
    echo(old)
    echo(link.connect(), b"new")
    assert other.got == [b"new"]
    link.target(peer.address)
    assert read_end(old)[0] == b""
    other.close()


def test_wrong_words(link):
    for wrong in ({"name": "cut"}, {"name": "delay", "second": 1},
                  {"name": "pass", "direction": "left"},
                  {"name": "pass", "which": "some"}):
        with pytest.raises(ValueError):
            link.mode(**wrong)


def test_redis_and_clients(bed):
    """A server of the bed, and a client library through the link."""
    redis = bed.redis()
    for link in (Link(bed, redis), Link(bed, redis, tcp=True)):
        with contextlib.closing(link.connect()) as sock:
            sock.sendall(b"PING\r\n")
            assert read(sock, 7) == b"+PONG\r\n"
    client = resp_client(bed.servers[1].socket)
    assert client.ping()
    client.close()


def rolled_back(pg):
    return pg.value("SELECT xact_rollback FROM pg_stat_database"
                    " WHERE datname = %s", pg.name)


def liked(pg):
    return pg.value("SELECT count(*) FROM user_like_post WHERE status = 1")


@pytest.fixture(params=["unix", "tcp"])
def pg_link(session_bed, cluster, request):
    """To the session's cluster; its own bed is closed after the daemon's."""
    with harness.Bed() as bed:
        if request.param == "tcp":
            yield Link(bed, cluster, tcp=True)
        else:
            yield Link(bed, cluster)


@pytest.fixture
def behind(pg_link, redis, cluster, bed):
    """A daemon behind the link: it, and its database. It makes no second try
    before the test has looked."""
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg_link.database(pg),
                        postgres_write_timeout_ms=3000)
    yield daemon, pg
    daemon.check_end()
    pg.drop()


def test_commit_lost(behind, pg_link):
    """All of the transaction but COMMIT: PostgreSQL has nothing of it."""
    daemon, pg = behind
    pg_link.lose_commit(times=0)
    with contextlib.closing(daemon.client()) as client:
        assert client.execute_command("LIKE", 7, 42) == 1
        pg_link.wait_fired(2)
        # They were begun.
        wait_for(lambda: rolled_back(pg) >= 2)
        assert liked(pg) == 0
        pg_link.mode("pass")
        daemon.drain()
    assert liked(pg) == 1
    harness.check_exact(pg)


def test_commit_answer_lost(behind, pg_link):
    """PostgreSQL has it, the daemon cannot know."""
    daemon, pg = behind
    pg_link.lose_commit_answer(times=0)
    with contextlib.closing(daemon.client()) as client:
        assert client.execute_command("LIKE", 7, 42) == 1
        wait_for(lambda: liked(pg) == 1)
        assert daemon.metrics()["likesyncd_rows_acked_total"] == 0
        fired = pg_link.fired()
        pg_link.wait_fired(fired + 2)   # it comes again, and does nothing twice
        assert liked(pg) == 1
        pg_link.mode("pass")
        daemon.drain()
    harness.check_exact(pg)
