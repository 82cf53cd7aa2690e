# SPDX-License-Identifier: MIT
"""A fault proxy: what stands between two programs and may go wrong.

    link = Link(bed, redis)                 # or an address: unix:/p, tcp:h:p
    daemon = bed.daemon(link, pg)           # its redis.address is link.address
    link.mode("blackhole", direction="down")
    link.wait_fired()
    link.mode("pass")

    link = Link(bed, cluster)
    daemon = bed.daemon(redis, link.database(pg))
    link.lose_commit_answer()

Each link is a process of its own (proxy_process.py), for unix and TCP targets, and
listens on the kind of socket that the target has, or on TCP when asked to.

Modes, and what they are given (direction: "up" is from the client to the server,
"down" back, or "both"; which: "all" connections, the "old" ones, or the "new"):

pass
delay         seconds, jitter: each read arrives that much later, in order
blackhole     nothing gets through, connects are accepted and not passed on; what
              was taken is delivered when the mode ends
half_open     the server goes away without the client hearing of it; what the
              client sends then is answered by a reset when the mode ends. (That
              one direction is dead: blackhole with a direction.)
refuse        connects are refused, connections are reset
reset         connections are reset, and new ones as soon as they are accepted
cut           nbytes: so many bytes of a connection go on from now, then it is
              reset. times: so many connections, 0 is all of them
trickle       size, pause: writes of so many bytes
cut_before    pattern, nth, times: the connection is reset in front of the nth
cut_after     occurrence, or behind it, counted over all connections. Bytes that
              may be the beginning of a pattern wait for its rest, for a second.
flap          period, bad: pass and the bad mode in turns, each for half to one
              and a half periods

`fired()` counts what the present mode has done to bytes or connections, so that a
case can demand that its fault took place. Connects that are refused never get here,
so "refuse" counts the connections that it resets."""
import contextlib
import json
import pathlib
import re
import socket
import sys
import threading

from harness import free_port
from servers import DAEMON_ROLE, Database, Failed, Server, wait_for

PROCESS = pathlib.Path(__file__).with_name("proxy_process.py")
# What each mode takes, with its defaults; None: has to be given.
MODES = {
    "pass": {},
    "delay": {"seconds": None, "jitter": 0.0},
    "blackhole": {},
    "half_open": {},
    "refuse": {},
    "reset": {},
    "cut": {"nbytes": None, "times": 1},
    "trickle": {"size": 1, "pause": 0.0},
    "cut_before": {"pattern": None, "nth": 1, "times": 1},
    "cut_after": {"pattern": None, "nth": 1, "times": 1},
    "flap": {"period": None, "bad": "reset"},
}
# The daemon sends a transaction as one pipeline: BEGIN, settings, statements and
# COMMIT (each as Parse, Bind, Describe, Execute), then one Sync. This is COMMIT's
# Parse, of the unnamed statement and without parameter types; and its
# CommandComplete, which PostgreSQL sends only once the transaction is durable.
COMMIT_SENT = b"P\x00\x00\x00\x0e\x00COMMIT\x00\x00\x00"
COMMIT_ANSWER = b"C\x00\x00\x00\x0bCOMMIT\x00"


def address_of(target):
    """A server's address as likesyncd.ini has it, or such an address."""
    return target if isinstance(target, str) else target.address


class Link(Server):
    """One link; `seed` is for its jitter and its periods."""

    def __init__(self, bed, target, *, tcp=False, seed=0):
        super().__init__(bed, "link")
        self.target_address = address_of(target)
        self.lock = threading.Lock()
        # libpq looks for a file of this name in the directory it is given.
        named = re.search(r"/(\.s\.PGSQL\.(\d+))$", self.target_address)
        if tcp or self.target_address.startswith("tcp:"):
            self.socket = None
            self.port = free_port()
            self.address = f"tcp:127.0.0.1:{self.port}"
        else:
            self.socket = self.dir / (named[1] if named else "s")
            self.port = int(named[2]) if named else None
            self.address = f"unix:{self.socket}"
        self.start(seed)

    def start(self, seed):
        ours, its = socket.socketpair()
        with its:
            self.spawn([sys.executable, PROCESS, its.fileno(), self.address,
                        self.target_address, seed], pass_fds=[its.fileno()])
        ours.settimeout(30)
        self.control = ours
        self.answers = ours.makefile("r")
        self.read_answer()

    def read_answer(self):
        line = self.answers.readline()
        if not line:
            raise Failed(f"{self.dir.name}: its process ended\n"
                         f"{self.log_tail(20)}")
        answer = json.loads(line)
        if answer.get("errors"):
            raise Failed(f"{self.dir.name}: {answer['errors'][0]}")
        return answer.get("answer")

    def call(self, op, **args):
        """Any thread may."""
        with self.lock:
            self.control.sendall(json.dumps([op, args]).encode() + b"\n")
            return self.read_answer()

    def mode(self, name, *, direction="both", which="all", **args):
        """From now on; returns how often the mode before it had fired."""
        if direction not in ("up", "down", "both"):
            raise ValueError(f"direction: {direction}")
        if which not in ("all", "old", "new"):
            raise ValueError(f"which: {which}")
        args = {**MODES[name], **args}
        if args.keys() != MODES[name].keys() or None in args.values():
            raise ValueError(f"{name} takes {MODES[name]}, not {args}")
        if "pattern" in args:
            args["pattern"] = args["pattern"].decode("latin-1")
        return self.call("mode", name=name, direction=direction, which=which,
                         args=args)

    def lose_commit(self, nth=1, times=1):
        """The nth COMMIT never reaches PostgreSQL, which has had all
        statements in front of it. (Any transaction counts, also the one that
        only moves sync_state on; times=0 loses them all.)"""
        return self.mode("cut_before", direction="up", pattern=COMMIT_SENT,
                         nth=nth, times=times)

    def lose_commit_answer(self, nth=1, times=1):
        """The nth COMMIT is done, and its client never hears of it."""
        return self.mode("cut_before", direction="down", pattern=COMMIT_ANSWER,
                         nth=nth, times=times)

    def target(self, target, old="reset"):
        """New connections go elsewhere, as with an address that has moved;
        the old ones are reset, or stay ("keep")."""
        self.target_address = address_of(target)
        self.call("target", address=self.target_address, old=old)

    def stats(self):
        """connections (ever), open, up and down (bytes), fired (by the
        present mode), fired_ever, let_go (beginnings of a pattern that never
        came, which had been held back)."""
        return self.call("stats")

    def fired(self):
        return self.stats()["fired"]

    def wait_fired(self, times=1, timeout=30.0):
        return wait_for(lambda: self.fired() >= times, timeout,
                        f"{self.dir.name} to fire {times} times")

    def connect(self, timeout=30.0):
        """A plain socket through it."""
        sock = socket.socket(
            socket.AF_UNIX if self.socket else socket.AF_INET)
        sock.settimeout(timeout)
        sock.connect(str(self.socket) if self.socket
                     else ("127.0.0.1", self.port))
        return sock

    def conninfo(self, database, user=DAEMON_ROLE):
        """Of a link to PostgreSQL, for the name of a database."""
        host = self.dir if self.socket else "127.0.0.1"
        return f"host={host} port={self.port} dbname={database} user={user}"

    def database(self, database):
        """The same database, which daemons reach through the link; what the
        test itself asks of it goes straight to PostgreSQL."""
        return Linked(database, self)

    def close(self):
        """All its connections end."""
        self.stop()
        self.answers.close()
        self.control.close()

    def stop(self):
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        super().stop()


class Linked(Database):
    """A database whose daemons go through a link."""

    def __init__(self, database, link):
        super().__init__(database.cluster, database.name)
        self.link = link

    def conninfo(self, user=DAEMON_ROLE):
        if user != DAEMON_ROLE:
            return super().conninfo(user)
        return self.link.conninfo(self.name, user)
