# SPDX-License-Identifier: MIT
"""Cases of single calls that fail in the daemon: the N-th allocation, write to a
socket or connect, counted from its start or from when it is ready, for N = 1, 2, …
up to what a whole round takes: events, their flush, their ack.

What the daemon cannot allocate ends it, which it says (base/mem.h); what a library
cannot is handled, or ends it likewise. It must never crash or hang, and what it
answered is kept.

A run takes the first N and every stride-th of the others, from the seed on. The
stride is a power of two, so that it is the same in each run: with --minutes, whose
seeds count up, the rounds come by all N. --scale divides it: with --scale 512 it is
1 and one run takes every N, about an hour for calls_alloc and some minutes for the
others. A note says how many of how many were tried."""
import contextlib
import re
import signal

import psycopg2
import redis as redis_py

from case import case
from checker import dirty_keys
from record import REFUSED, UNKNOWN
from shims import Nth

FIRST = 4               # the N that are always taken
SAMPLE = 7              # of the others, at least
OPTIONS = {"daemons": 1, "clients": 2, "pipeline": 4, "start": "held",
           "shims": {"daemons": Nth}, "mostly": (REFUSED, UNKNOWN)}


class Calls:
    """One family of calls of the one daemon."""

    def __init__(self, run, family, *errors):
        self.run, self.family, self.errors = run, family, errors
        self.daemon, self.nth = run.daemons[0], run.shim("daemons")

    def each(self, stir, from_start=False):
        """All N that are to be taken; `stir` makes the calls come."""
        last = min(self.count(stir, from_start) for _ in range(2))
        numbers = self.numbers(last)
        failed = [n for n in numbers if self.fail_at(n, stir, from_start)]
        told = f"{self.family}: tried {len(numbers)} of {last}, {len(failed)} failed"
        self.run.note(told)
        # How many there are depends on time, too: only the first surely come again.
        if failed[:FIRST] != numbers[:FIRST] or len(failed) < min(len(numbers),
                                                                  FIRST + 1):
            self.run.fail("case", f"{told}: {failed}")

    def numbers(self, last):
        stride, most = 1, self.run.rounds(SAMPLE)
        while last // (2 * stride) >= most:
            stride *= 2
        return sorted({*range(1, min(FIRST, last) + 1),
                       *range(self.run.seed % stride or stride, last + 1,
                              stride)})

    def count(self, stir, from_start):
        """How many calls there are, when none fails."""
        self.begin(0, from_start)
        self.round(stir)
        return self.nth.disarm()[0]

    def begin(self, n, from_start, error=None, times=1):
        if from_start and self.daemon.running():
            self.daemon.term()
        self.nth.arm(self.family, n, error, times)
        if not self.daemon.running():
            self.daemon.start(wait=None)

    def fail_at(self, n, stir, from_start):
        """Whether there was such a call."""
        error = self.run.random.choice(self.errors)
        times = self.run.random.choice([1, 1, 3])
        when = "from its start" if from_start else "from when it was ready"
        what = f"{self.family} {n} {when}: {error}, {times} in a row"
        log = len(self.daemon.log_text())
        self.begin(n, from_start, error, times)
        self.round(stir)
        came = self.nth.disarm()[1] > 0
        if came:
            self.run.fault(what)
        if not self.daemon.running():
            self.judge_end(what, self.daemon.log_text()[log:])
            self.daemon.start()
        return came

    def round(self, stir):
        """Until events of each client were flushed and acked; or it has
        ended."""
        load = self.run.load
        stir(self.run)
        targets = [client.acked + 3 for client in load.clients]
        load.held.clear()
        self.until(lambda: all(client.acked >= target for client, target
                               in zip(load.clients, targets)), "to answer")
        load.held.set()
        self.until(lambda: not dirty_keys(self.run.redis), "to flush")
        self.until(self.has_pages, "to show its pages")

    def until(self, condition, what):
        self.run.until(lambda: not self.daemon.running() or condition(),
                       f"the daemon {what}")

    def has_pages(self):
        return all(self.daemon.http(page)[0] == 200
                   for page in ("/", "/metrics", "/status.json"))

    def judge_end(self, what, log):
        """Says why, and exits or aborts."""
        status = self.daemon.wait_exit()
        lines = log.splitlines()
        # Lines of others are those of assert and of glibc's malloc.
        says = any(" error " in line for line in lines) and \
            all(re.match(r"\d{4}-\d\d-|<3>likesyncd: ", line) for line in lines)
        if not says or not (status > 0 or status == -signal.SIGABRT):
            self.run.fail("end", f"{what}: exit status {status}: {lines[-3:]}")


def nothing(_run):
    pass


def drop(run):
    """All that the daemon is connected to it has to connect to again."""
    with contextlib.suppress(redis_py.RedisError):
        run.redis.ask("CLIENT", "KILL", "TYPE", "normal")
    for pid in run.pg.backends():
        with contextlib.suppress(psycopg2.Error):
            run.pg.value("SELECT pg_terminate_backend(%s)", pid)


@case("calls_alloc", "the N-th allocation fails", **OPTIONS)
def calls_alloc(run):
    calls = Calls(run, "alloc", "ENOMEM")
    calls.each(nothing, from_start=True)
    calls.each(drop)


@case("calls_write", "the N-th write to a socket fails", **OPTIONS)
def calls_write(run):
    calls = Calls(run, "write", "EPIPE", "ECONNRESET", "ENOBUFS")
    calls.each(nothing, from_start=True)
    calls.each(nothing)


@case("calls_connect", "the N-th connect fails", **OPTIONS)
def calls_connect(run):
    calls = Calls(run, "connect", "ECONNREFUSED", "EAGAIN", "ENOENT", "ENOMEM")
    calls.each(nothing, from_start=True)
    calls.each(drop)
