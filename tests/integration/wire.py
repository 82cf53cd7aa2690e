# SPDX-License-Identifier: MIT
"""RESP by hand, for tests that compare replies byte by byte, or send what no
client library would."""
import socket


def encode(*arguments):
    """One request as an array of bulk strings."""
    parts = [a if isinstance(a, bytes) else str(a).encode()
             for a in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(
        b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Wire:
    """A connection to a unix socket's path or a (host, port)."""

    def __init__(self, address, timeout=30):
        kind = socket.AF_INET if isinstance(address, tuple) else \
            socket.AF_UNIX
        self.socket = socket.socket(kind)
        self.socket.settimeout(timeout)
        self.socket.connect(address if isinstance(address, tuple)
                            else str(address))
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """The bytes of one reply, whole with what is nested in it; empty at
        the end of the connection."""
        line = self.file.readline()
        if not line:
            return b""
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=!" and int(rest) >= 0:
            return line + self.file.read(int(rest) + 2)
        items = 0
        if kind in b"*~>":
            items = max(int(rest), 0)
        elif kind == b"%":
            items = 2 * int(rest)
        return line + b"".join(self.read() for _ in range(items))

    def call(self, *arguments):
        """The reply's bytes to one request."""
        self.send(encode(*arguments))
        return self.read()

    def closed(self):
        """Waits for the other side to close; whether it did without a word."""
        return self.file.read(1) == b""

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
