# SPDX-License-Identifier: MIT
"""Cases of the process: the daemon killed and stopped, at any time and at every
named point."""
import contextlib
import re

import redis as redis_py

import bed  # noqa: F401
from case import case
from harness import Failed
from judge import ALL
from load import EVICT
from record import REFUSED, UNKNOWN
from servers import ROOT, process_state

# The flow of a batch, which comes by many times a second.
FLOW = ("claimed", "before_write", "write_sent", "committed", "before_ack",
        "ack_part", "acked")
# Only where a dead daemon left a batch that was written.
TAKEOVER = ("taken_over", "reloaded", "read_back")
TRIES = 10
# Where no error is right, no stall of the machine may make one.
DEADLINES = ("redis_timeout_ms", "redis_connect_timeout_ms",
             "postgres_connect_timeout_ms", "postgres_lookup_timeout_ms",
             "postgres_write_timeout_ms", "flush_lease_ms")


def points():
    """Every name in the source, so that a new one is not forgotten."""
    names = {name for path in sorted((ROOT / "daemon").rglob("*.c"))
             for name in re.findall(r'\bfault_point\("(\w+)"\)',
                                    path.read_text())}
    if not names.issuperset((*FLOW, *TAKEOVER)):
        raise Failed(f"these are not the points: {sorted(names)}")
    return sorted(names)


class Points:
    """Brings the one daemon to a point: others write keys, so that there are
    rows to adopt and deltas without rows; there is poison, for dead letters;
    lists are evicted, to be loaded again; takeovers and adopts are made."""

    def __init__(self, run):
        self.run, self.daemon = run, run.daemons[0]
        self.others = run.others()
        run.poison(run.load.users()[:1])
        run.go()

    def reach(self, point, fault=None, env=None):
        """Starts the daemon, which runs until it has come to the point."""
        if self.daemon.running():
            self.daemon.term(15)
        self.others.write()
        if point in TAKEOVER:
            self.take_over(fault, env)
        else:
            self.daemon.start(fault, wait=None, env=env)
            self.run.until(lambda: self.nudge(point), f"{point} to be reached")

    def take_over(self, fault, env):
        """Dies with a batch, and starts: until the point is passed. What is in
        a batch is newer by then, now and then: nothing of it is read back."""
        for _ in range(TRIES):
            if self.daemon.running():
                self.daemon.kill9()
            self.die_at(self.run.random.choice(["committed", "write_sent"]))
            left, log = self.batches(), len(self.daemon.log_text())
            self.daemon.start(fault, wait=None, env=env)
            self.run.until(lambda: not self.daemon.running()
                           or not left & self.batches(), "a takeover")
            with contextlib.suppress(Failed):
                self.run.until(lambda: self.is_ending(log), "it to end", 1)
                return
        raise Failed(f"no batch of {TRIES} was taken over so")

    def is_ending(self, log):
        """How long a stop takes is not asked here."""
        return not self.daemon.running() or \
            "main: stopping" in self.daemon.log_text()[log:]

    def batches(self):
        with contextlib.closing(self.run.redis.client()) as keys:
            return {batch for kind in ("like", "follow") for batch
                    in keys.zrange(f"likesync:batches:{kind}", 0, -1)}

    def die_at(self, point, after=None, term=False):
        """By SIGKILL, or SIGTERM; `after`: behind this point."""
        if self.daemon.running():
            self.daemon.kill9()
        env = {"LIKESYNCD_AFTER": after} if after else {}
        if term:
            env["LIKESYNCD_TERM"] = point
        self.daemon.start(None if term else point, wait=None, env=env)
        self.run.until(lambda: self.nudge(point), f"{point} to be reached")
        if not term:
            self.daemon.wait_fault()
        elif self.daemon.wait_exit() != 0:
            self.run.fail("end", f"SIGTERM at {point}: {self.daemon.wait_exit()}")

    def nth(self, point):
        n = self.run.random.randint(1, 3) if point in FLOW else 1
        return f"{point}:{n}"

    def nudge(self, point):
        """Whether it is there, and has ended."""
        if not self.daemon.running():
            return True
        with contextlib.suppress(redis_py.RedisError):
            if point.startswith("list_"):
                self.evict_lists()
            elif point.startswith("adopt_"):
                kind = "likes"
                if point == "adopt_list":
                    kind = "follows"
                    self.others.write_lists()
                with contextlib.closing(self.daemon.admin()) as admin:
                    admin.execute_command("ADOPT", "START", kind)
        return False

    def end(self):
        self.daemon.start()
        self.others.adopt(self.daemon)

    def evict_lists(self):
        """As by their TTL: the mark before the list."""
        users = self.run.random.sample(self.run.load.users(), 10)
        with contextlib.closing(self.run.redis.client()) as keys:
            for name in (f"{user}:{end}" for user in users
                         for end in ("follow", "fans")):
                keys.eval(EVICT, 1, f"likesync:list:{name}")
                keys.eval(EVICT, 1, name)


def each_point(run):
    """(Points, point), each once while likes and once while follows come."""
    at = Points(run)
    for kind in ("like", "follow"):
        run.load.kind = kind
        names = points()
        run.random.shuffle(names)
        for name in names:
            if kind == "follow" and name == "orphans_committed":
                continue                # it is likes that have counters
            yield at, name


@case("points_kill", "SIGKILL at every named point", start="held", mostly=(UNKNOWN,))
def points_kill(run):
    for at, point in each_point(run):
        run.fault(f"SIGKILL at {point}, {run.load.kind}s")
        at.reach(point, at.nth(point))
        at.daemon.wait_fault()
    at.end()


@case("points_term", "SIGTERM at every named point: it ends well", start="held",
      mostly=(UNKNOWN,))
def points_term(run):
    for at, point in each_point(run):
        run.fault(f"SIGTERM at {point}, {run.load.kind}s")
        at.reach(point, env={"LIKESYNCD_TERM": at.nth(point)})
        status = at.daemon.wait_exit()
        if status != 0:
            run.fail("end", f"SIGTERM at {point}: exit status {status}")
    at.end()


@case("points_takeover", "killed, or told to stop, again and again while it takes"
      " over what it left when it was killed", start="held", mostly=(UNKNOWN,))
def points_takeover(run):
    for at, point in each_point(run):
        if point.startswith(("list_", "adopt_")):
            continue                    # nothing of a batch
        term = run.random.random() < 0.5
        signal = "SIGTERM" if term else "SIGKILL"
        run.fault(f"{signal} at {point} behind a takeover, {run.load.kind}s")
        at.others.write()
        at.die_at(run.random.choice(FLOW[:5]))
        if point in ("taken_over", "reloaded"):
            at.die_at(point, term=term)
        else:
            at.die_at("reloaded")
            at.die_at(point, after="reloaded", term=term)
    at.end()


@case("calm", "nothing happens: what a case has to find nothing in", daemons=2,
      daemon={option: 20000 for option in DEADLINES}, answers=ALL, errors=())
def calm(run):
    run.load.wait_acked(1500)


@case("killed", "the daemons are killed at random", daemons=2)
def killed(run):
    kill_at_random(run)


@case("killed_roaming", "the same, and clients go on at another daemon", daemons=3,
      late=True, roams=True)
def killed_roaming(run):
    kill_at_random(run)


def kill_at_random(run):
    for _ in range(run.rounds(12)):
        run.load.wait_acked(run.random.randint(1, 200))
        daemon = run.random.choice(run.daemons)
        run.fault(f"SIGKILL of {daemon.dir.name}")
        daemon.kill9()
        run.wait(0, 0.1)
        daemon.start(wait=None)
        run.mended()


@case("stale", "one is stopped in front of its write until another has taken the"
      " batch over and written newer rows", daemons=2)
def stale(run):
    daemon = run.daemons[0]
    for _ in range(run.rounds(4)):
        daemon.kill9()
        run.fault("SIGSTOP in front of a write", repair=daemon.resume)
        daemon.start(wait=None, env={
            "LIKESYNCD_STOP": f"before_write:{run.random.randint(1, 5)}"})
        run.until(lambda: process_state(daemon.pid) == "T", "SIGSTOP")
        taken = run.daemons[1].metrics()["likesyncd_batches_taken_over_total"]
        run.until(lambda: run.daemons[1].metrics()[
            "likesyncd_batches_taken_over_total"] > taken, "a takeover")
        run.load.wait_acked(300)
        run.mend()
        run.load.wait_each()


@case("late_ack", "one is stopped in front of an ack, within its lease, until others"
      " have written newer rows of the same pairs", daemons=2,
      daemon={"flush_lease_ms": 20000}, mostly=(REFUSED,))
def late_ack(run):
    """Events of the one that is stopped may be too late when it goes on."""
    daemon = run.daemons[0]
    for _ in range(run.rounds(8)):
        daemon.term()
        run.fault("SIGSTOP in front of an ack", repair=daemon.resume)
        daemon.start(wait=None, env={
            "LIKESYNCD_STOP": f"before_ack:{run.random.randint(1, 5)}"})
        run.until(lambda: process_state(daemon.pid) == "T", "SIGSTOP")
        run.load.wait_acked(300)
        run.mend()
        run.load.wait_each()
