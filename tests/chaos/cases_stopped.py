# SPDX-License-Identifier: MIT
"""Cases of SIGSTOP: each process stands still for longer than leases and
deadlines, and goes on as if nothing had been."""
import contextlib
import os
import signal

import bed  # noqa: F401
from case import DAEMON, case
from harness import wait_for
from judge import ALL
from record import REFUSED
from servers import process_state


class Backend:
    """A server process of PostgreSQL that a daemon is connected to."""

    def __init__(self, pid):
        self.pid = pid

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def state(self):
        with contextlib.suppress(OSError):
            return process_state(self.pid)
        return None                     # it is gone

    def pause(self):
        self.signal(signal.SIGSTOP)
        wait_for(lambda: self.state() in ("T", None), 10, "SIGSTOP")

    def resume(self):
        self.signal(signal.SIGCONT)


def backends_of(run):
    """Two at least; the daemons may be on their way back to them."""
    def connected():
        pids = run.pg.backends()
        return pids if len(pids) > 1 else None
    return [Backend(pid) for pid in run.until(connected, "two connections")]


def stop(run, what, process):
    """Stops it for as long as run.mend() is not called."""
    run.fault(f"SIGSTOP of {what}", repair=process.resume)
    process.pause()


def is_stopped(process):
    return process_state(process.pid) == "T"


def outlast(run):
    """Longer than a lease and the longest deadline together."""
    options = {**DAEMON, **run.case.daemon}
    least = (options["flush_lease_ms"] + max(
        ms for name, ms in options.items() if name.endswith("_timeout_ms"))) / 1000
    run.wait(least + 0.1, least + 0.8)


def stand_still(run, what, process):
    """It must have stood still to the end."""
    stop(run, what, process)
    outlast(run)
    if not is_stopped(process):
        run.fail("case", f"{what} went on by itself")


def go_on(run):
    run.mend()
    run.load.wait_acked(run.random.randint(20, 150))


@case("stopped_daemon", "SIGSTOP of a daemon, of both", daemons=2)
def stopped_daemon(run):
    for _ in range(run.rounds(5)):
        daemons = run.random.sample(run.daemons, run.random.choice([1, 1, 2]))
        for daemon in daemons:
            stop(run, daemon.dir.name, daemon)
        outlast(run)
        if not all(map(is_stopped, daemons)):
            run.fail("case", "a daemon went on by itself")
        go_on(run)


@case("stopped_redis", "SIGSTOP of Redis", daemons=2, answers=ALL, mostly=(REFUSED,))
def stopped_redis(run):
    for _ in range(run.rounds(5)):
        stand_still(run, "Redis", run.redis)
        go_on(run)


@case("stopped_postmaster", "SIGSTOP of PostgreSQL's first process, and an end"
      " of some connections: no new one can be made", daemons=2)
def stopped_postmaster(run):
    for _ in range(run.rounds(4)):
        backends = backends_of(run)
        stop(run, "the postmaster", run.cluster)
        ended = run.random.sample(
            backends, run.random.randint(1, len(backends)))
        for backend in ended:
            backend.signal(signal.SIGTERM)
        run.until(lambda: all(b.state() in ("Z", None) for b in ended),
                  "backends to end")
        outlast(run)
        if not is_stopped(run.cluster):
            run.fail("case", "the postmaster went on by itself")
        go_on(run)


@case("stopped_backends", "SIGSTOP of one server process of PostgreSQL, or of"
      " several, in the middle of their transactions", daemons=2)
def stopped_backends(run):
    for _ in range(run.rounds(6)):
        backends = backends_of(run)
        stopped = run.random.sample(
            backends, run.random.choice([1, 2, len(backends)]))
        for backend in stopped:
            stop(run, f"backend {backend.pid}", backend)
        outlast(run)
        if all(backend.state() is None for backend in stopped):
            run.fail("case", "none stood still to the end")
        go_on(run)


@case("stopped_client", "SIGSTOP of clients: of the process through which they"
      " are connected", daemons=2, links="clients", answers=ALL)
def stopped_client(run):
    for _ in range(run.rounds(4)):
        n = run.random.randrange(2)
        stand_still(run, f"the clients of daemon {n + 1}",
                    run.link("clients", n))
        go_on(run)
