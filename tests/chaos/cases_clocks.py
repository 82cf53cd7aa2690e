# SPDX-License-Identifier: MIT
"""Cases of wall clocks that jump, by up to an hour either way, while the load
runs. Redis' clock makes the times of events, leases and TTLs; PostgreSQL's and
the daemons' own must mean nothing."""
import contextlib
import time

import redis as redis_py

from case import case
from cases_everything import OPTIMISTIC
from clients import POSTS
from judge import ALL, NONE
from record import REFUSED
from shims import Clock

HOUR = 3600
NEAR = HOUR / 4
US = 10**6
REDIS, PG = ("redis", 0), ("pg", 0)


class Clocks:
    """The clocks of a run: those of `parts`, which is (part, n)..."""

    def __init__(self, run, *parts):
        self.run, self.parts = run, parts
        self.offsets = dict.fromkeys(parts, 0)

    def move(self, part, offset):
        name, n = part
        if offset == self.offsets[part]:
            return
        self.run.fault(f"the clock of {name} {n}: {self.offsets[part]:+d} s, "
                       f"now {offset:+d} s")
        self.offsets[part] = offset
        self.run.shim(*part).move(offset)

    def jump(self, part=None):
        """Somewhere else, of which every other time is the true time."""
        random = self.run.random
        part = part or random.choice(self.parts)
        offset = 0
        if not self.offsets[part]:
            offset = random.choice([-1, 1]) * random.choice(
                [HOUR, random.randint(1, HOUR)])
        self.move(part, offset)


def redis_us(run):
    seconds, micros = run.redis.ask("TIME")
    return seconds * US + micros


def shown_by(run, name, n):
    """What a server takes for the time."""
    if name == "redis":
        return redis_us(run) / US
    if name == "pg":
        return float(run.pg.value("SELECT extract(epoch FROM"
                                  " clock_timestamp())"))
    run.daemons[n].sighup()             # it says so
    return run.daemons[n].last_logged()


def check_time(run, clocks):
    """Each is as far off as it was told to be."""
    for part, offset in clocks.offsets.items():
        run.until(lambda: abs(shown_by(run, *part) - time.time() - offset)
                  < NEAR, f"the clock of {part} to be moved")


def rows_ahead(run, since, ahead_us):
    """Kinds of which a row got a time that no clock shows yet, and that it
    does not owe to the one that it had."""
    return {kind for kind, in run.pg.query(
        "SELECT DISTINCT kind FROM chaos_audit WHERE seq > %s AND new_us > %s"
        " AND coalesce(old_us, 0) <= %s", since, ahead_us, ahead_us)}


def go_back(run, clocks, seconds=HOUR):
    """Redis' clock, after rows were made by it: what comes now must be made
    newer than these all the same."""
    clocks.move(REDIS, clocks.offsets[REDIS] - seconds)
    ahead = redis_us(run) + seconds * US // 2
    run.load.wait_acked(100)
    last = run.pg.value("SELECT coalesce(max(seq), 0) FROM chaos_audit")
    run.until(lambda: rows_ahead(run, last, ahead) == {"like", "follow"},
              "events to be newer than a clock that was set back")


def hold_posts(run, daemon):
    """Claims leave them alone for a moment, so that they can be counted."""
    with contextlib.closing(run.redis.client()) as keys, \
            contextlib.closing(daemon.client()) as client:
        def is_held():
            for name in keys.scan_iter("likesync:count:like:*", count=1000):
                keys.delete(name)
            with contextlib.suppress(redis_py.ResponseError):   # too often
                client.execute_command("LIKECOUNT", *POSTS, 901, 902, 903)
            return keys.exists("likesync:hold:like")
        # Posts that are at rest are counted without.
        run.until(is_held, "a post to be held")


def taken_over(daemon):
    return daemon.metrics()["likesyncd_batches_taken_over_total"]


def kill_one(run):
    victim = run.random.choice([run.redis, run.cluster, *run.daemons])
    run.fault(f"SIGKILL of {victim.dir.name}", repair=victim.start)
    if victim is run.cluster:
        victim.stop("immediate")
    else:
        victim.kill9()
    run.wait(0, 0.1)
    run.mend()


@case("clock_redis", "Redis' clock jumps an hour either way; what a dead daemon"
      " left is taken over by the time that it shows then", daemons=2,
      shims={"redis": Clock}, answers=NONE)
def clock_redis(run):
    clocks, others = Clocks(run, REDIS), run.others()
    one, other = run.daemons
    for offset in run.rounds(1) * [0, HOUR]:
        # Its leases, holds and second looks end in an hour from then.
        clocks.move(REDIS, offset)
        others.write()
        hold_posts(run, other)
        one.kill9()
        run.fault("SIGKILL with a batch on record", repair=one.start)
        one.start(run.random.choice(["claimed", "committed"]), wait=None)
        one.wait_fault()
        before = taken_over(other)
        go_back(run, clocks)
        run.until(lambda: taken_over(other) > before, "a takeover")
        run.mend()
        run.load.wait_each()


@case("clock_redis_killed", "Redis' clock jumps while Redis is dead, or under"
      " load; lookups assume, so that only the floor makes events new",
      daemon=OPTIMISTIC, shims={"redis": Clock}, answers=NONE, mostly=(REFUSED,))
def clock_redis_killed(run):
    clocks = Clocks(run, REDIS)
    for _ in range(run.rounds(6)):
        run.load.wait_acked(run.random.randint(1, 200))
        run.fault("SIGKILL of Redis", repair=run.redis.start)
        run.redis.kill9()
        clocks.jump()
        run.mend()
        check_time(run, clocks)
        run.load.wait_acked(run.random.randint(1, 200))
        clocks.jump()


@case("clock_postgres", "PostgreSQL's clock jumps", daemons=2,
      shims={"pg": Clock}, answers=ALL)
def clock_postgres(run):
    clocks = Clocks(run, PG)
    for _ in range(run.rounds(6)):
        clocks.jump()
        run.load.wait_acked(100)
        check_time(run, clocks)


@case("clock_daemons", "four daemons, and each has a clock that jumps", daemons=4,
      shims={"daemons": Clock}, answers=ALL)
def clock_daemons(run):
    clocks = Clocks(run, *(("daemons", n) for n in range(4)))
    for n in range(4):
        clocks.jump(("daemons", n))
    for _ in range(run.rounds(8)):
        clocks.jump()
        run.load.wait_acked(50)
        check_time(run, clocks)


@case("clocks", "all clocks jump, and all are killed now and then", daemons=4,
      shims={"redis": Clock, "pg": Clock, "daemons": Clock}, answers=NONE,
      mostly=(REFUSED,))
def clocks(run):
    clocks = Clocks(run, REDIS, PG, *(("daemons", n) for n in range(4)))
    for _ in range(run.rounds(16)):
        clocks.jump(run.random.choice([REDIS, None]))
        run.wait(0, 0.2)
        if run.random.random() < 0.5:
            kill_one(run)
        run.load.wait_acked(run.random.randint(1, 50))
