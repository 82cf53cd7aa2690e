# SPDX-License-Identifier: MIT
"""What a link of the fault proxy does to sockets, and its modes; see proxy.py."""
import array
import asyncio
import fcntl
import select
import socket
import struct
import termios
import time

# On a unix socket a close is a reset only when something was left unread.
UNREAD_SECONDS = 0.05
WHOLE = ("refuse", "reset", "half_open")    # modes that have no direction


def parse(address):
    """unix:/path or tcp:host:port: (family, what connect and bind take)."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        return socket.AF_UNIX, rest
    host, _, port = rest.rpartition(":")
    return socket.AF_INET, (host, int(port))


def new_socket(family):
    sock = socket.socket(family)
    sock.setblocking(False)
    return sock


def no_delay(sock):
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def close_reset(sock):
    """RST on TCP. On a unix socket: ECONNRESET for the peer if it has sent
    something that was not read, else the end of the stream."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
    sock.close()


async def delivered(sock):
    """Until the peer's kernel has all that was sent: a reset throws away what
    is still on its way."""
    left = array.array("i", [0])
    deadline = time.monotonic() + 1
    while sock.family != socket.AF_UNIX and time.monotonic() < deadline:
        fcntl.ioctl(sock, termios.TIOCOUTQ, left)
        if left[0] == 0:
            return
        await asyncio.sleep(0.001)


async def unread(sock):
    """Until there is something to read, for a short time."""
    deadline = time.monotonic() + UNREAD_SECONDS
    while sock.family == socket.AF_UNIX and time.monotonic() < deadline:
        if select.select([sock], [], [], 0)[0]:
            return
        await asyncio.sleep(0.001)


class Mode:
    """What happens to bytes and connections, and how often it did; `total` is
    the mode that it is a turn of."""

    def __init__(self, link, name, args, total=None):
        self.link = link
        self.total = total
        self.name = name
        self.fired = 0
        self.args = args
        self.pattern = args.get("pattern", "").encode("latin-1")
        self.seen = 0

    def fire(self):
        self.fired += 1
        if self.total:
            self.total.fired += 1
        self.link.fired += 1

    def delay(self):
        if self.name != "delay":
            return 0
        self.fire()
        return self.args["seconds"] + \
            self.link.random.random() * self.args["jitter"]

    def cuts(self):
        times = self.args.get("times")
        return self.name.startswith("cut") and \
            (not times or self.fired < times)

    def split(self, pipe, data):
        """What of `data` goes out now, what stays back, and whether the
        connection is cut between the two."""
        if self.name == "cut":
            left = self.args["nbytes"] - pipe.passed
            return data[:left], b"", len(data) >= left
        if self.name == "cut_before":
            return self.split_before(data)
        return self.split_after(pipe, data)

    def nth(self, data):
        """Where in `data` the pattern is for the nth time, or -1; and where
        the search for another one goes on."""
        start = 0
        while (at := data.find(self.pattern, start)) >= 0:
            start = at + len(self.pattern)
            self.seen += 1
            if self.seen == self.args["nth"]:
                self.seen = 0
                return at, start
        return -1, start

    def split_before(self, data):
        at, rest = self.nth(data)
        if at >= 0:
            return data[:at], b"", True
        # The longest end that may be the beginning of a pattern.
        for n in range(min(len(self.pattern) - 1, len(data) - rest), 0, -1):
            if data.endswith(self.pattern[:n]):
                return data[:-n], data[-n:], False
        return data, b"", False

    def split_after(self, pipe, data):
        """Keeps nothing back, but remembers what went out."""
        tail = pipe.tail
        at, rest = self.nth(tail + data)
        if at >= 0:
            return data[:rest - len(tail)], b"", True
        pipe.tail = (tail + data)[rest:][-(len(self.pattern) - 1):] \
            if len(self.pattern) > 1 else b""
        return data, b"", False
