# SPDX-License-Identifier: MIT
"""An interactive redis-cli on a terminal: it completes, hints and helps with
what COMMAND DOCS tells it."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pytest


class Terminal:
    """A process with a terminal of its own, wide enough for one line each."""

    def __init__(self, *command):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 50, 300, 0, 0))
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=slave, stdout=slave,
            stderr=slave, env={**os.environ, "TERM": "xterm", "HOME": "/"},
            start_new_session=True)
        os.close(slave)
        self.shown = b""

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, text, timeout=30):
        """Reads until the text is shown, behind what was expected before."""
        deadline = time.monotonic() + timeout
        while text.encode() not in self.shown:
            left = max(deadline - time.monotonic(), 0)
            assert select.select([self.master], [], [], left)[0], \
                (text, self.shown)
            self.shown += os.read(self.master, 65536)
        self.shown = self.shown.partition(text.encode())[2]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(params=["-2", "-3"])
def terminal(daemon, request):
    terminal = Terminal("redis-cli", request.param, "-s", daemon.admin_socket)
    terminal.expect("> ")
    yield terminal
    terminal.close()


CLEAR = "\x15"  # ^U


def test_hints(terminal):
    for typed, hint in (
            ("LIKE ", "user post [AT unix-time] [WITHCOUNT]"),
            ("liked ", "user post [post ...]"),
            ("FOLLOWERS ", "user [RANGE start stop|CURSOR cursor] [COUNT n] "
                           "[ASC|DESC] [WITHTIMES] [VIEWER user]"),
            ("flusher drain ", "[timeout-ms]"),
            ("ADOPT START ", "FOLLOWS|LIKES")):
        terminal.type(typed)
        terminal.expect(hint)
        terminal.type(CLEAR)


def test_completion(terminal):
    for typed, completed in (("UNFO", "UNFOLLOW"), ("flusher d",
                                                    "FLUSHER DRAIN"),
                             ("VERIFY STA", "VERIFY START")):
        terminal.type(typed + "\t")
        terminal.expect(completed)
        terminal.type(CLEAR)


def test_help(terminal):
    terminal.type("help flusher drain\r")
    terminal.expect("Returns once all that was answered before is in")
    terminal.expect("> ")  # what is typed before that is thrown away
    terminal.type("help @likes\r")
    for name in ("LIKE", "LIKERS", "UNLIKE"):
        terminal.expect(f"\x1b[1m{name}\x1b[0m")
