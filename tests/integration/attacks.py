# SPDX-License-Identifier: MIT
"""Hostile clients, for test_hostile.py, which asks whether anybody else
notices, and for bench_hostile.py, which measures how much.

An attack is made of steps, each short: none waits for the daemon, so that it
can be kept up for any time and left at any. Run as a program it goes on until
SIGTERM, once it has said that it is under way:

    attacks.py NAME SOCKET PORT SEED"""
import contextlib
import itertools
import random
import resource
import signal
import socket
import ssl
import struct
import sys

from servers import Failed, wait_for
from wire import encode

MIB = 1024 * 1024
# Ids that only attackers use: seven digits.
USER, POST = 6_666_666, 6_666_667


def allow_files(count):
    """Raises this process' limit of descriptors as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            raise Failed(f"RLIMIT_NOFILE is {hard}: {count} are needed here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Peer:
    """A client that never waits, neither to send nor to receive. `sent` is
    how many bytes were taken of what it pushed, `inbox` what it got. `broken`
    is seen in sending, `ended` in receiving."""

    def __init__(self, address):
        self.is_tcp = isinstance(address, tuple)
        self.address = address if self.is_tcp else str(address)
        self.socket = socket.socket(
            socket.AF_INET if self.is_tcp else socket.AF_UNIX)
        wait_for(self.connected, 30, "a connection to be taken")
        self.socket.setblocking(False)
        if self.is_tcp:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = bytearray()
        self.sent = 0
        self.broken = self.ended = False

    def connected(self):
        """A unix socket says at once that its backlog is full."""
        self.socket.settimeout(30)
        with contextlib.suppress(BlockingIOError):
            self.socket.connect(self.address)
            return True
        return False

    def push(self, data):
        """Sends what is taken of it: how many bytes."""
        taken = 0
        try:
            taken = self.socket.send(data)
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self.broken = True
        self.sent += taken
        return taken

    def pour(self, request, most=MIB // 2):
        """Pushes a request over and over until no more is taken. (Some are
        read as fast as they send: `most` bytes.)"""
        stop = self.sent + most
        while self.sent < stop:
            rest = request[self.sent % len(request):]
            if self.push(rest) < len(rest):
                break

    def pull(self, most=65536):
        """Takes what is there, at most so much: how many bytes."""
        if self.ended:
            return 0
        try:
            got = self.socket.recv(most)
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            got = b""
        self.ended = got == b""
        self.inbox += got
        return len(got)

    def pull_all(self):
        while self.pull():
            pass
        return len(self.inbox)

    def is_over(self):
        self.pull_all()
        return self.ended

    def half_close(self, how=socket.SHUT_WR):
        with contextlib.suppress(OSError):
            self.socket.shutdown(how)

    def reset(self):
        """Closes so that the other side reads an error, where that can be."""
        if self.is_tcp:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                   struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


class Attack:
    """One kind of mischief. After `rounds` steps it is in full swing."""

    options = {}     # of the daemon
    rounds = 20
    memory_mib = 4   # what it may cost the daemon, without sanitizers

    def __init__(self, addresses, rng):
        """`addresses`: of the unix socket, and of TCP."""
        self.unix_address, self.tcp_address = addresses
        self.addresses = itertools.cycle(addresses)
        self.rng = rng
        self.peers = []

    def new_peer(self, address=None):
        """By the unix socket and by TCP in turn, if nothing else is said."""
        peer = Peer(address or next(self.addresses))
        self.peers.append(peer)
        return peer

    def step(self):
        raise NotImplementedError

    def check(self):
        """When no more steps are made: that the attackers themselves got what
        is their due."""

    def close_peer(self, peer):
        self.peers.remove(peer)
        peer.close()

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers = []


def wait_over(peers):
    for peer in peers:
        wait_for(peer.is_over, 60, "an attacker to be closed")


def wait_inbox(peer, expected):
    """All that it has got, and that it is not closed."""
    wait_for(lambda: peer.pull_all() >= len(expected) or peer.ended, 60,
             "all replies")
    assert peer.inbox == expected, peer.inbox[-200:]
    assert not peer.ended


# ---- those who do not read ----

class SlowReaders(Attack):
    """They send for ever, and read nothing, or a few bytes now and then. Each
    has a soft limit of replies waiting, and is no longer read."""

    PEERS = 24
    LINE = bytes(range(0x20, 0x7f)) * 160
    memory_mib = PEERS * 2

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.requests = {}

    def step(self):
        while len(self.peers) < self.PEERS:
            line = b"%02d" % len(self.peers) + self.LINE
            self.requests[self.new_peer()] = encode("ECHO", line)
        for n, (peer, request) in enumerate(self.requests.items()):
            peer.pour(request)
            if n % 3 == 0:
                peer.pull(self.rng.randrange(1, 400))

    def check(self):
        for peer, request in self.requests.items():
            bulk = request[len(encode("ECHO")):]
            wait_inbox(peer, peer.sent // len(request) * bulk)
            assert peer.inbox


class Unread(Attack):
    """They ask for more than the hard limit before the first reply is there:
    closed, and then others come."""

    options = {"server_output_soft_bytes": 16384,
               "server_output_hard_bytes": 65536,
               "server_max_pipeline": 200}
    ASK = encode("LIKED", USER, *range(1000, 1200))
    PEERS = 2
    memory_mib = 16
    rounds = 10

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.closed = 0

    def step(self):
        while len(self.peers) < self.PEERS:
            # TCP's own buffers would hold megabytes of replies.
            self.new_peer(self.unix_address)
        for peer in list(self.peers):
            peer.pour(self.ASK)
            if peer.broken:
                self.closed += 1
                self.close_peer(peer)

    def check(self):
        def some_closed():
            self.step()
            return self.closed >= self.PEERS
        wait_for(some_closed, 60, "those who do not read to be closed")


class HalfClosed(Attack):
    """One half of the connection closed: what was asked before is answered,
    what is incomplete is forgotten, who is deaf is closed. (Who is stuck has
    asked for more than it reads.)"""

    BULK = b"$1000\r\n" + b"x" * 1000 + b"\r\n"
    ASK = encode("PING") + encode("LIKED", USER, POST, POST) + \
        encode("ECHO", "x" * 1000)
    REPLY = b"+PONG\r\n*2\r\n:0\r\n:0\r\n" + BULK
    BIG_ASK = encode("ECHO", "x" * 1000)
    ASKS = 50   # no more than what a socket takes at once
    memory_mib = 8

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asking, self.stuck, self.partial, self.deaf = [], [], [], []

    def step(self):
        for kind in self.asking, self.stuck, self.partial, self.deaf:
            if len(kind) == self.rounds:
                self.close_peer(kind.pop(0))
            kind.append(self.new_peer())
        self.asking[-1].pour(self.ASK, self.ASKS * len(self.ASK))
        self.asking[-1].half_close()
        self.stuck[-1].pour(self.BIG_ASK)
        self.stuck[-1].half_close()
        self.partial[-1].push(self.ASK[:-10])
        self.partial[-1].half_close()
        self.deaf[-1].half_close(socket.SHUT_RD)
        self.deaf[-1].push(self.ASK)

    def check(self):
        wait_over(self.asking + self.stuck + self.partial)
        for peer in self.asking:
            assert peer.inbox == self.REPLY * self.ASKS
        for peer in self.stuck:
            done = peer.sent // len(self.BIG_ASK)
            assert done > 0 and peer.inbox == done * self.BULK
        for peer in self.partial:
            assert peer.inbox == self.REPLY[:-len(self.BULK)]
        for peer in self.deaf:
            # TCP does not tell the other side.
            if not peer.is_tcp:
                wait_for(lambda: peer.push(b"\n") == 0 and peer.broken, 60,
                         "who is deaf to be closed")


# ---- those who are slow ----

class ByteAtATime(Attack):
    """Requests of all forms, a byte from each of many in turn."""

    PEERS = 20
    TALK = (
        (encode("LIKED", USER, POST), b"*1\r\n:0\r\n"),
        (b"ECHO \"a\\x41\\n\"\r\n", b"$3\r\naA\n\r\n"),
        (b"\r\n*0\r\nPING\n", b"+PONG\r\n"),
        (encode("ECHO", b"\r\n*1\r\n$-1\0"), b"$10\r\n\r\n*1\r\n$-1\0\r\n"),
        (encode("RELATION", USER, USER + 1), b"*1\r\n:0\r\n"),
    )
    ASK = b"".join(ask for ask, _ in TALK)
    REPLY = b"".join(reply for _, reply in TALK)
    rounds = 2 * len(ASK)

    def step(self):
        while len(self.peers) < self.PEERS:
            self.new_peer()
        for peer in self.peers:
            at = peer.sent % len(self.ASK)
            peer.push(self.ASK[at:at + 1])
            peer.pull()

    def check(self):
        for peer in self.peers:
            peer.push(self.ASK[peer.sent % len(self.ASK):])
            wait_inbox(peer, peer.sent // len(self.ASK) * self.REPLY)


class Unfinished(Attack):
    """Nearly all of the greatest request that is taken, and no more."""

    PEERS = 24
    PARTS = b"*1000\r\n" + b"".join(
        b"$65000\r\n" + bytes(65000) + b"\r\n" for _ in range(16))
    memory_mib = PEERS * 1.5

    def step(self):
        while len(self.peers) < self.PEERS:
            self.new_peer()
        for peer in self.peers:
            peer.push(self.PARTS[peer.sent:])

    def check(self):
        """None was closed, so all of that was held."""
        for peer in self.peers:
            wait_for(lambda: self.is_sent(peer), 60, "it to be taken")
            wait_inbox(peer, b"")

    def is_sent(self, peer):
        peer.push(self.PARTS[peer.sent:])
        return peer.sent == len(self.PARTS)


class Hoarding(Unfinished):
    """The same by so many that they would hold too much all together: some
    are closed, and others come in their place."""

    PEERS = 48
    options = {"server_max_client_memory": 16 * MIB}
    memory_mib = 32

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.closed = 0

    def step(self):
        super().step()
        for peer in self.peers[:]:
            if peer.broken:
                self.closed += 1
                self.close_peer(peer)

    def check(self):
        """For no other reason than that, and without a word."""
        def half_closed():
            self.step()
            return self.closed >= self.PEERS // 2
        wait_for(half_closed, 60, "those who hold too much to be closed")
        for peer in self.peers:
            peer.pull_all()
            assert not peer.inbox


class Idle(Attack):
    """A thousand that do nothing; one of two has said something once."""

    PEERS = 1000
    rounds = 20

    def step(self):
        for n in range(len(self.peers),
                       min(self.PEERS, len(self.peers) + 50)):
            if n % 4 < 2:
                self.new_peer().push(encode("ECHO", n))
            else:
                self.new_peer()

    def check(self):
        for n, peer in enumerate(self.peers):
            if n % 4 >= 2:
                peer.push(encode("ECHO", n))
            wait_inbox(peer, b"$%d\r\n%d\r\n" % (len(str(n)), n))


# ---- those who talk nonsense ----

class Nonsense(Attack):
    """What must be refused: all of `cases`, each on a connection of its own
    by TCP and by the unix socket, time and again."""

    cases = ()
    rounds = 4
    memory_mib = 8

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rest = {}

    def step(self):
        for peer in self.peers[:]:
            self.go_on(peer)
        for case in self.cases if len(self.peers) < 500 else ():
            for address in self.unix_address, self.tcp_address:
                self.rest[self.new_peer(address)] = case

    def go_on(self, peer):
        self.rest[peer] = self.rest[peer][peer.push(self.rest[peer]):]
        if peer.is_over():
            self.check_refused(peer)
            self.close_peer(peer)
            del self.rest[peer]

    def check_refused(self, peer):
        """An error was the last word."""
        *words, last = peer.inbox.split(b"\r\n")
        assert last == b"" and words, peer.inbox
        assert all(word.startswith(b"-ERR ") for word in words), peer.inbox
        assert words[-1].startswith(b"-ERR Protocol error"), peer.inbox

    def check(self):
        def all_over():
            for peer in self.peers[:]:
                self.go_on(peer)
            return not self.peers
        wait_for(all_over, 60, "all nonsense to be refused")


class Lengths(Nonsense):
    """Of 512 MB, of a million, below zero, and no lengths at all; what is
    announced, and what really comes."""

    cases = (
        b"*3\r\n$4\r\nLIKE\r\n$536870912\r\n" + bytes(300000),
        b"*1\r\n$536870912\r\n",
        b"*1\r\n$9223372036854775807\r\n",
        b"*1\r\n$18446744073709551616\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$ 4\r\nPING\r\n",
        b"*1\r\n$4\r\nPINGPING\r\n",
        b"*1\r\n$" + b"1" * MIB,
        b"*1000000\r\n" + b"$1\r\n7\r\n" * 30000,
        b"*2147483648\r\n",
        b"*9223372036854775808\r\n",
        b"*1x\r\n$4\r\nPING\r\n",
        b"*\r\n",
        b"*" + b"0" * MIB,
        # a million words, a line of a MiB, a quote without an end
        b"LIKED 7" + b" 7" * 1000000,
        b"P" * MIB,
        b"ECHO \"" + b"x" * 1000 + b"\r\n",
        # more of all together than is taken of each
        b"*1000\r\n" + (b"$65536\r\n" + bytes(65536) + b"\r\n") * 40,
    )


class Nested(Nonsense):
    """Requests are flat: arrays in arrays, and what RESP3 has besides."""

    cases = (
        b"*1\r\n" * 200000,
        b"*2\r\n$4\r\nECHO\r\n*1\r\n$1\r\nx\r\n",
        b"*1\r\n" + b"%1\r\n" * 1000,
        b"*1\r\n~1\r\n$4\r\nPING\r\n",
        b"*1\r\n>1\r\n$4\r\nPING\r\n",
        b"*1\r\n=8\r\ntxt:PING\r\n",
        b"*1\r\n$?\r\n;4\r\nPING\r\n;0\r\n",
        b"*?\r\n$4\r\nPING\r\n.\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"*1\r\n+PING\r\n",
        b"*1\r\n_\r\n",
        b"*1\r\n*-1\r\n",
    )


class Http(Nonsense):
    """A browser, made to send commands by a page it shows."""

    BODY = encode("LIKE", USER, POST) + b"LIKE %d %d\r\n" % (USER, POST)
    cases = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n" + BODY,
        b"post /LIKE HTTP/1.0\r\n\r\n" + BODY,
        b"PUT / HTTP/1.1\r\nhost: localhost\r\n\r\n" + BODY,
        b"OPTIONS * HTTP/1.1\r\nX: y\r\nHOST: localhost\r\n\r\n" + BODY,
    )

    def check_refused(self, peer):
        """Errors, if anything: nothing was done."""
        *words, last = peer.inbox.split(b"\r\n")
        assert last == b"", peer.inbox
        assert all(word.startswith(b"-ERR ") for word in words), peer.inbox

    def check(self):
        super().check()
        peer = self.new_peer()
        peer.push(encode("LIKED", USER, POST))
        wait_inbox(peer, b"*1\r\n:0\r\n")


class Noise(Attack):
    """Random bytes, and requests with some bytes changed or lost."""

    VERBS = ("LIKED", "LIKECOUNT", "FOLLOWING", "FOLLOWERS", "RELATION",
             "PING", "ECHO", "HELLO", "AUTH", "CLIENT", "COMMAND", "CONFIG",
             "INFO", "SELECT", "LIKE", "UNLIKE", "FLUSHER", "MUTUALS")

    def step(self):
        for peer in self.peers[:-50]:
            self.close_peer(peer)
        for _ in range(20):
            peer = self.new_peer()
            peer.push(self.noise() if self.rng.random() < 0.3 else
                      self.mutated())
            if self.rng.random() < 0.5:
                peer.half_close()
        for peer in self.peers:
            peer.pull()

    def noise(self):
        return self.rng.randbytes(self.rng.choice((3, 30, 3000, 100000)))

    def mutated(self):
        rng = self.rng
        data = bytearray(b"".join(
            encode(rng.choice(self.VERBS),
                   *(rng.choice((USER, POST, "3", "LIST", "AUTH", ""))
                     for _ in range(rng.randrange(4))))
            for _ in range(rng.randrange(1, 20))))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            if rng.random() < 0.7:
                data[at] = rng.randrange(256)
            else:
                del data[at:at + rng.randrange(1, 8)]
            data = data or bytearray(b"*")
        return bytes(data)

    def check(self):
        """Who has no more to say is let go."""
        for peer in self.peers:
            peer.half_close()
        wait_over(self.peers)


class Tls(Attack):
    """Clients that believe this is a TLS port."""

    def step(self):
        if len(self.peers) >= 200:
            self.close_peer(self.peers[0])
        for name in "localhost", "a" * 63 + ".example":
            self.new_peer(self.tcp_address).push(self.hello(name))
        for peer in self.peers:
            peer.pull()

    @staticmethod
    def hello(name):
        out = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), out,
                             server_hostname=name).do_handshake()
        return out.read()

    def check(self):
        """Nothing but errors (a hello may hold the end of a line); it goes
        when the client does."""
        for peer in self.peers:
            peer.half_close()
        wait_over(self.peers)
        for peer in self.peers:
            assert all(word.startswith(b"-ERR ")
                       for word in peer.inbox.split(b"\r\n")[:-1])


# ---- those who come in numbers ----

class Vanishing(Attack):
    """They connect and are gone: at once, after a request, in the middle of
    one, in good order or not."""

    SAY = (b"", b"*3\r\n$4\r\nLI", encode("LIKE", USER, POST),
           encode("UNLIKE", USER, POST) * 20, encode("INFO") * 20,
           encode("LIKED", USER, *range(1000, 1100)) * 5, b"QUIT\r\n")
    memory_mib = 16

    def step(self):
        for _ in range(40):
            peer = Peer(next(self.addresses))
            peer.push(self.rng.choice(self.SAY))
            self.rng.choice((peer.close, peer.reset))()


class Flood(Attack):
    """Requests as fast as they go, replies taken as fast as they come."""

    PEERS = 8
    PINGS = encode("PING") * 1000

    def step(self):
        while len(self.peers) < self.PEERS:
            self.new_peer()
        for peer in self.peers:
            peer.pour(self.PINGS, 65536)
            while peer.pull():
                self.count(peer)

    def count(self, peer):
        """All replies are of one length."""
        whole = len(peer.inbox) // 7 * 7
        assert peer.inbox[:whole] == b"+PONG\r\n" * (whole // 7)
        del peer.inbox[:whole]
        peer.replies = getattr(peer, "replies", 0) + whole // 7

    def check(self):
        for peer in self.peers:
            peer.push(self.PINGS[peer.sent % len(self.PINGS):])
            wait_for(lambda: self.is_answered(peer), 60, "the last PONG")
            assert not peer.ended

    def is_answered(self, peer):
        peer.push(self.PINGS[peer.sent % len(self.PINGS):]
                  if peer.sent % len(self.PINGS) else b"")
        peer.pull()
        self.count(peer)
        return peer.replies * len(encode("PING")) == peer.sent


class Greedy(Attack):
    """As many reads as they may have under way, each of many posts, time and
    again."""

    POSTS = 100
    ASK = encode("LIKED", USER, *range(1000, 1000 + POSTS))
    REPLY = b"*%d\r\n" % POSTS + b":0\r\n" * POSTS
    PEERS = 2
    memory_mib = 64     # of this kind of work, there may be so much

    def step(self):
        while len(self.peers) < self.PEERS:
            self.new_peer().seen = 0
        for peer in self.peers:
            peer.pour(self.ASK)
            self.count(peer)

    def count(self, peer):
        """Whole replies, until now."""
        peer.pull_all()
        whole = len(peer.inbox) // len(self.REPLY)
        end = whole * len(self.REPLY)
        assert peer.inbox[:end] == self.REPLY * whole, peer.inbox[:200]
        del peer.inbox[:end]
        peer.seen += whole
        return peer.seen

    def check(self):
        for peer in self.peers:
            wait_for(lambda: self.is_answered(peer), 60, "the last answer")
            assert not peer.ended

    def is_answered(self, peer):
        rest = -peer.sent % len(self.ASK)
        if rest:
            peer.push(self.ASK[-rest:])
        return self.count(peer) * len(self.ASK) == peer.sent


ATTACKS = {
    "slow_readers": SlowReaders, "unread": Unread, "half_closed": HalfClosed,
    "byte_at_a_time": ByteAtATime, "unfinished": Unfinished,
    "hoarding": Hoarding, "idle": Idle,
    "lengths": Lengths, "nested": Nested, "http": Http, "noise": Noise,
    "tls": Tls, "vanishing": Vanishing, "flood": Flood,
    "greedy": Greedy,
}


def main(name, path, port, seed):
    def stop(number, frame):
        raise SystemExit
    signal.signal(signal.SIGTERM, stop)
    allow_files(4096)
    attack = ATTACKS[name]([path, ("127.0.0.1", int(port))],
                           random.Random(seed))
    for number in itertools.count(1):
        attack.step()
        if number == attack.rounds:
            print("under way", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
