# SPDX-License-Identifier: MIT
"""Cases of a Redis that dies, and of what comes back: all of it, or less. What it
acknowledged and does not have any more may be lost, and nothing else."""
import time

import bed  # noqa: F401
from case import case
from harness import Failed
from judge import ALL, NONE
from load import copy_data, put_back
from proxy import Link
from record import ACKED, REFUSED
from redis_run import ask, lives, pause_flushers, wait_raised
from shims import Power

STATED_S = 2.0          # of everysec, in the README
SLOW_SYNC_S = 1.5


@case("redis_killed", "Redis crashes, for a short time and for a longer one;"
      " AOF always", daemons=2, answers=ALL, mostly=(REFUSED,))
def redis_killed(run):
    for _ in range(run.rounds(6)):
        run.load.wait_acked(run.random.randint(1, 200))
        before = lives(run)
        run.fault("SIGKILL of Redis", repair=run.redis.start)
        run.redis.kill9()
        run.wait(0, run.random.choice([0.05, 1.0]))
        run.mend()
        wait_raised(run, before)


# ---- power cuts ----

def start_with_power(run):
    run.power = Power(run.bed)
    return run.start_redis(preload=[run.power])


def aof(redis):
    """The file that it writes to."""
    [path] = redis.dir.glob("appendonlydir/*.incr.aof")
    return path


def wait_synced(run):
    """Until all that was acked before now is on the disk."""
    now = time.monotonic()
    run.until(lambda: (run.power.synced(aof(run.redis))[1] or 0) > now,
              "a sync of what is written from now on")


def cut_power(run):
    """SIGKILL, and what was not brought to the disk is gone: how many bytes; up to
    when all is there; and when it died."""
    run.redis.kill9()
    killed = time.monotonic()
    run.power.slow(0)
    lost, since = run.power.cut(aof(run.redis))
    run.note(f"{lost} bytes are gone, of the last {killed - since:.2f} s")
    return lost, since, killed


def longest_silence(run, since, until):
    """The longest time in which nothing was acked: Redis, or all, stood still."""
    times = sorted(r.answered for requests in list(run.record.requests.values())
                   for r in list(requests)
                   if r.outcome == ACKED and since < r.answered < until)
    return max(b - a for a, b in zip([since, *times], [*times, until]))


def stated(run, since, killed):
    """What has come since `since` is missing; of that the README allows the last
    2 seconds, and as long as the syncs took: since when that is."""
    _, _, took = run.power.synced(aof(run.redis))
    if run.power.under_way():
        took += killed - run.power.under_way()
    still = longest_silence(run, since, killed)
    window = STATED_S + took + still
    run.note(f"{killed - since:.2f} s are missing of {window:.2f} s that may: "
             f"syncs took {took:.2f} s, and {still:.2f} s nothing was acked")
    return max(since, killed - window)


@case("redis_power_always", "the power of Redis fails; AOF always", daemons=2,
      redis_by=start_with_power, answers=ALL, mostly=(REFUSED,))
def redis_power_always(run):
    for _ in range(run.rounds(4)):
        run.load.wait_acked(run.random.randint(1, 200))
        before = lives(run)
        run.fault("the power of Redis fails", repair=run.redis.start)
        run.power.slow(run.random.choice([0, 0.2]))     # in the middle of a sync
        run.wait(0, 0.3)
        cut_power(run)
        run.mend()
        wait_raised(run, before)


@case("redis_power_everysec", "the power of Redis fails; AOF everysec: what it"
      " did not sync is lost", daemons=2,
      redis={"appendfsync": "everysec"}, redis_by=start_with_power, answers=NONE,
      mostly=(REFUSED,))
def redis_power_everysec(run):
    gone = 0
    for _ in range(run.rounds(4)):
        run.power.slow(run.random.choice([0, 0.5]))
        pause_flushers(run, run.random.random() < 0.5)
        wait_synced(run)
        run.load.wait_acked(run.random.randint(50, 300))
        before = lives(run)
        run.fault("the power of Redis fails", repair=run.redis.start)
        lost, since, killed = cut_power(run)
        run.lossy(stated(run, since, killed), killed)
        run.mend()
        wait_raised(run, before)
        pause_flushers(run, False)
        gone += lost
    if not gone:
        raise Failed("all was on the disk, each time")


# ---- a crash without a power cut: what was written stays ----

def is_written(run):
    """All that was acked before this was asked is in the file."""
    return ask(run, "INFO", "persistence")["aof_buffer_length"] == 0


def until_written(run):
    """Until all is in the file, and nobody asks for more: since when."""
    run.load.held.set()
    since = time.monotonic()

    def done():
        nonlocal since
        since = time.monotonic()
        return is_written(run)
    run.until(done, "all to be written")
    return since


def until_postponed(run):
    """Until a sync is slow and some of what was acked meanwhile is not written:
    since when, at the earliest."""
    since, acked = until_written(run), run.load.acked()
    run.load.held.clear()
    run.power.slow(SLOW_SYNC_S)
    more = run.random.randint(10, 100)

    def done():
        nonlocal since, acked
        now, acked_now = time.monotonic(), run.load.acked()
        if is_written(run):
            since, acked = now, acked_now
            return False
        return run.power.under_way() and acked_now >= acked + more
    run.until(done, "writes to be postponed")
    return since


@case("redis_killed_everysec", "Redis crashes; AOF everysec: nothing is lost"
      " unless a sync is slow, for which writes wait", daemons=2,
      redis={"appendfsync": "everysec"}, redis_by=start_with_power, answers=NONE,
      mostly=(REFUSED,))
def redis_killed_everysec(run):
    for is_slow in [False, True] * run.rounds(2):
        pause_flushers(run, True)
        run.load.wait_acked(run.random.randint(50, 300))
        before = lives(run)
        since = until_postponed(run) if is_slow else until_written(run)
        run.fault("SIGKILL of Redis" + ", and a sync is slow" * is_slow,
                  repair=run.redis.start)
        run.redis.kill9()
        killed = time.monotonic()
        run.power.slow(0)
        # What was still under way when the load was held may come later.
        run.lossy(stated(run, since, killed) if is_slow else since, killed)
        run.load.held.clear()
        run.mend()
        wait_raised(run, before)
        pause_flushers(run, False)


# ---- an older copy ----

@case("redis_rolled_back", "Redis starts with a copy that is older", daemons=2,
      answers=NONE, mostly=(REFUSED,))
def redis_rolled_back(run):
    for _ in range(run.rounds(3)):
        run.load.wait_acked(run.random.randint(1, 200))
        copy = run.bed.make_dir("copy")
        run.redis.stop()
        copied = time.monotonic()
        copy_data(run.redis, copy)
        run.redis.start()
        # Also where nothing of it was flushed.
        pause_flushers(run, run.random.random() < 0.5)
        run.load.wait_acked(run.random.randint(100, 400))
        before = lives(run)
        run.fault("SIGKILL of Redis, and an old copy", repair=run.redis.start)
        run.redis.kill9()
        killed = time.monotonic()
        put_back(run.redis, copy)
        run.mend()
        run.lossy(copied, killed)
        wait_raised(run, before)
        pause_flushers(run, False)


# ---- failovers ----

def make_replica(run):
    """One that follows the present Redis, and the link between the two."""
    through = Link(run.bed, run.redis.tcp_address(), seed=run.seed)
    run.links["replication", len(run.links)] = through
    return run.redis.replica(through=through), through


def fall_behind(run, replica, through):
    """Nothing reaches it any more: since when, at the earliest."""
    since = time.monotonic()
    run.redis.wait_replica(replica)
    through.mode("blackhole", direction="down")
    run.load.wait_acked(run.random.randint(50, 300))
    through.wait_fired()
    return since


def ask_role(redis):
    return redis.ask("INFO", "replication")["role"]


def point_to(run, redis, old="reset"):
    """The address of Redis is that of another one."""
    for n in range(len(run.daemons)):
        run.link("redis", n).target(redis, old)
    run.use_redis(redis)


@case("redis_failover", "the primary dies, and a replica that lags takes over",
      daemons=2, links="redis", answers=NONE, mostly=(REFUSED,))
def redis_failover(run):
    for _ in range(run.rounds(2)):
        replica, through = make_replica(run)
        pause_flushers(run, run.random.random() < 0.5)
        since, before = fall_behind(run, replica, through), lives(run)
        run.fault("the primary dies")
        run.redis.kill9()
        killed = time.monotonic()
        run.note(f"the replica is {killed - since:.2f} s behind")
        replica.promote()
        point_to(run, replica)
        run.lossy(since, killed)
        wait_raised(run, before)
        pause_flushers(run, False)
        run.load.wait_acked(100)


@case("redis_demoted", "a replica that lags takes over, and the old primary is"
      " written to until it is made a replica", daemons=2, links="redis",
      answers=NONE, mostly=(REFUSED,))
def redis_demoted(run):
    for _ in range(run.rounds(2)):
        old = run.redis
        replica, through = make_replica(run)
        since, before = fall_behind(run, replica, through), lives(run)
        run.fault("two primaries")
        replica.promote()
        run.load.wait_acked(run.random.randint(10, 100))
        point_to(run, replica, old="keep")
        # Who is connected still writes to the old one.
        run.load.wait_acked(run.random.randint(10, 100))
        old.follow(replica)
        demoted = time.monotonic()
        run.lossy(since, demoted)
        wait_raised(run, before)
        run.load.wait_acked(100)
        old.stop()


@case("redis_failover_planned", "the primary hands over to its replica"
      " (FAILOVER): nothing is lost", daemons=2, links="redis", answers=ALL,
      mostly=(REFUSED,))
def redis_failover_planned(run):
    for _ in range(run.rounds(2)):
        old = run.redis
        replica, _ = make_replica(run)
        run.load.wait_acked(run.random.randint(50, 200))
        before = lives(run)
        run.fault("FAILOVER")
        ask(run, "FAILOVER")
        run.until(lambda: ask_role(replica) == "master",
                  "the replica to be a primary")
        run.wait(0, 0.5)
        replica.primary = None
        point_to(run, replica, run.random.choice(["keep", "reset"]))
        wait_raised(run, before)
        run.load.wait_acked(100)
        old.stop()
