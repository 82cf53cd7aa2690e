# SPDX-License-Identifier: MIT
"""Cases of a Redis that runs and refuses: scripts that are gone or in the way, no
memory, no disk, another eviction policy. Of one that dies: cases_redis_loss.py."""
import contextlib
import threading
import time

import redis as redis_py

import bed  # noqa: F401
import checker
from case import case
from checker import FULL
from harness import Failed
from judge import ALL, NONE
from record import REFUSED
from redis_run import ask, pause_flushers, refused, setting
from shims import Disk


# ---- scripts ----

@case("redis_scripts_flushed", "SCRIPT FLUSH at random", daemons=2,
      daemon={"redis_timeout_ms": 20000, "redis_connect_timeout_ms": 20000},
      answers=ALL)
def redis_scripts_flushed(run):
    """Redis is never away, however slow the machine is, and no read says so."""
    for _ in range(run.rounds(12)):
        run.load.wait_acked(run.random.randint(1, 150))
        before = refused(run, "NOSCRIPT")
        run.fault("SCRIPT FLUSH")
        ask(run, "SCRIPT", "FLUSH", run.random.choice(["SYNC", "ASYNC"]))
        run.until(lambda: refused(run, "NOSCRIPT") > before, "NOSCRIPT")
    for text, n in run.record.texts.items():
        if text.startswith("UNAVAILABLE Redis"):
            run.fail("answer", f"{n} reads: {text}")


# So many turns, 0 is for ever; "w": it writes first, and cannot be killed.
SLOW = """
if ARGV[2] == 'w' then
  redis.call('SET', KEYS[1], '1', 'EX', 600)
end
local turns, n = tonumber(ARGV[1]), 0
repeat
  n = n + 1
until n == turns
return 'to its end'
"""


def turns_of(run, seconds):
    """How many of its turns take so long here and now."""
    turns, begun = 100_000, time.monotonic()
    ask(run, "EVAL", SLOW, 1, "somebody", turns, "")
    return int(turns * seconds / (time.monotonic() - begun))


class Slow(threading.Thread):
    """Somebody's script that takes long."""

    def __init__(self, run, writes, seconds):
        """`seconds`: of one that writes; the other ends when it is killed."""
        super().__init__(daemon=True)
        self.redis = run.redis
        self.arguments = (turns_of(run, seconds), "w") if writes else (0, "")
        self.result = None

    def run(self):
        with contextlib.closing(self.redis.client(timeout=120)) as keys:
            try:
                self.result = keys.eval(SLOW, 1, "somebody", *self.arguments)
            except redis_py.RedisError as error:
                self.result = str(error)

    def end(self):
        self.join(150)
        if self.result is None:
            raise Failed("the slow script does not end")
        return self.result


def start_slow(run, writes):
    """One that Redis is found to be busy with. It may be over before somebody looks,
    where the machine stood still while its turns were measured, or now."""
    seconds = 2.0
    while True:
        script = Slow(run, writes, seconds)
        script.start()
        run.until(lambda: is_busy(run) or not script.is_alive(), "Redis to be busy")
        if script.is_alive():
            return script
        seconds *= 2


def is_busy(run):
    try:
        ask(run, "PING")
    except redis_py.RedisError as error:
        return "BUSY" in str(error)
    return False


def kill_script(run):
    """What Redis says to that."""
    try:
        return ask(run, "SCRIPT", "KILL")
    except redis_py.RedisError as error:
        return str(error)


@case("redis_busy", "somebody's script keeps Redis busy; some of them have"
      " written and cannot be killed", daemons=2,
      redis={"busy_reply_threshold": "50"}, answers=ALL, mostly=(REFUSED,))
def redis_busy(run):
    for _ in range(run.rounds(2)):
        for writes in (False, True):
            run.load.wait_acked(run.random.randint(1, 200))
            before = refused(run, "BUSY")
            run.fault("a slow script" + " that writes" * writes)
            script = start_slow(run, writes)
            if not writes:
                run.wait(0.1, 0.9)
            said = kill_script(run)
            end = script.end()
            if writes and ("UNKILLABLE" not in said or end != "to its end"):
                run.fail("case", f"not to be killed: {said}, {end}")
            if not writes and "killed" not in end:
                run.fail("case", f"killed: {said}, {end}")
            # More than those of this case: the daemons met it.
            run.until(lambda: refused(run, "BUSY") > before + 1, "BUSY")


# ---- no memory ----

def drained(run):
    return not checker.dirty_keys(run.redis)


@case("redis_full", "Redis has no memory (noeviction); what it has is flushed"
      " all the same", daemons=2, errors=FULL, mostly=(REFUSED,))
def redis_full(run):
    for _ in range(run.rounds(3)):
        pause_flushers(run, True)
        run.load.wait_acked(run.random.randint(100, 400))
        if drained(run):
            raise Failed("there is no backlog")
        before = refused(run, "OOM")
        run.fault("maxmemory 1",
                  repair=lambda: setting(run, "maxmemory", "0"))
        setting(run, "maxmemory", "1")
        run.until(lambda: refused(run, "OOM") > before, "OOM")
        pause_flushers(run, False)
        daemon = run.random.choice(run.daemons)
        if run.random.random() < 0.7:
            run.fault(f"SIGKILL of {daemon.dir.name}")
            daemon.kill9()
            daemon.start(wait=None)
        run.until(lambda: drained(run), "the backlog to go")
        run.mend()


@contextlib.contextmanager
def no_dump(run):
    """No snapshot can be made: something is in its place."""
    dump = run.redis.dir / "dump.rdb"
    dump.unlink(missing_ok=True)
    dump.mkdir()
    try:
        yield
    finally:
        dump.rmdir()


def snapshot(run):
    """Makes one; returns whether that was done."""
    def state(name):
        return ask(run, "INFO", "persistence")[name]
    ask(run, "BGSAVE")
    run.until(lambda: state("rdb_bgsave_in_progress") == 0, "BGSAVE")
    return state("rdb_last_bgsave_status") == "ok"


@case("redis_no_snapshots", "a snapshot of Redis fails, and it refuses to write"
      " (MISCONF)", daemons=2, redis={"save": "3600 1000000"}, errors=FULL,
      mostly=(REFUSED,))
def redis_no_snapshots(run):
    for _ in range(run.rounds(3)):
        run.load.wait_acked(run.random.randint(1, 200))
        before = refused(run, "MISCONF")
        run.fault("a snapshot fails", repair=lambda: snapshot(run))
        with no_dump(run):
            if snapshot(run):
                raise Failed("a snapshot was made")
        run.until(lambda: refused(run, "MISCONF") > before, "MISCONF")
        run.wait(0, 1.5)
        if run.random.random() < 0.5:
            daemon = run.random.choice(run.daemons)
            run.fault(f"SIGKILL of {daemon.dir.name}")
            daemon.kill9()
            daemon.start(wait=None)
        run.mend()


def start_with_disk(run):
    run.disk = Disk(run.bed)
    return run.start_redis(preload=[run.disk])


@case("redis_disk_full", "the disk of Redis is full (MISCONF); AOF everysec",
      daemons=2, redis={"appendfsync": "everysec"}, redis_by=start_with_disk,
      answers=NONE, errors=FULL, mostly=(REFUSED,))
def redis_disk_full(run):
    for _ in range(run.rounds(3)):
        run.load.wait_acked(run.random.randint(1, 200))
        before, since = refused(run, "MISCONF"), time.monotonic()
        run.fault("the disk of Redis is full", repair=run.disk.free)
        run.disk.fill(run.redis.dir)
        run.until(lambda: refused(run, "MISCONF") > before, "MISCONF")
        run.wait(0, 1.0)
        if run.random.random() < 0.5:
            run.fault("SIGKILL of Redis", repair=run.redis.start)
            run.redis.kill9()
            # Acked before the first write failed is what it never wrote.
            run.lossy(since)
        run.disk.free()
        run.mend()


@case("redis_disk_full_always", "the disk of Redis is full, and it ends by"
      " itself; AOF always", daemons=2, redis_by=start_with_disk, answers=ALL,
      errors=FULL, mostly=(REFUSED,))
def redis_disk_full_always(run):
    for _ in range(run.rounds(3)):
        run.load.wait_acked(run.random.randint(1, 200))
        run.fault("the disk of Redis is full", repair=run.redis.start)
        run.disk.fill(run.redis.dir)
        run.until(lambda: not run.redis.running(), "Redis to end")
        run.wait(0, 0.5)
        run.disk.free()
        run.mend()


# ---- eviction ----

def evicted(run):
    return ask(run, "INFO", "stats")["evicted_keys"]


def memory_now(run):
    return ask(run, "INFO", "memory")["used_memory"]


def make_full(run, policy):
    """The policy, and that memory is used up."""
    setting(run, "maxmemory-policy", policy)
    setting(run, "maxmemory", memory_now(run))


def make_room(run):
    setting(run, "maxmemory", "0")
    setting(run, "maxmemory-policy", "noeviction")


@case("redis_evicts_synced", "Redis throws away what has a TTL (volatile-*,"
      " set while it runs): nothing is lost", daemons=1, answers=ALL, errors=FULL,
      mostly=(REFUSED,))
def redis_evicts_synced(run):
    """One daemon: with two a reply may be wrong, as the README has it."""
    policies = ["volatile-lru", "volatile-lfu", "volatile-random",
                "volatile-ttl"]
    run.random.shuffle(policies)
    for policy in policies * run.rounds(1):
        run.load.wait_acked(run.random.randint(100, 300))
        before = evicted(run)
        run.fault(f"memory is full, {policy}",
                  repair=lambda: make_room(run))
        make_full(run, policy)
        run.until(lambda: evicted(run) > before + 50, "evicted keys")
        run.mend()


def synced_through(run):
    """Up to when all that was acked is in PostgreSQL, by its own word."""
    through = min(checker.read_through(run.pg).values()) / 1e6
    return time.monotonic() - (time.time() - through)


def forget_lists(run):
    """They come again from PostgreSQL."""
    with contextlib.closing(run.redis.client()) as keys:
        for pattern in ("likesync:list:*", "*:follow", "*:fans"):
            for name in keys.scan_iter(pattern, count=10000):
                if not name.startswith("likesync:unsynced:"):
                    keys.unlink(name)


def repair_keys(run):
    """As the README has it, once all is as it was."""
    for words in (["adopt", "follows"], ["verify", "--repair"]):
        status, text = run.daemons[0].ctl(*words)
        run.note(f"{words}: {text.strip().splitlines()[-1]}")
        if status not in (0, 1):
            raise Failed(f"{words}: {status}\n{text}")
        forget_lists(run)       # of what is lost, too


@case("redis_evicts_all", "Redis throws anything away (allkeys-*, set while it"
      " runs), also what is unsynced: that is lost, and no more", daemons=2,
      answers=NONE, errors=FULL, mostly=(REFUSED,))
def redis_evicts_all(run):
    policies = ["allkeys-lru", "allkeys-lfu", "allkeys-random"]
    run.random.shuffle(policies)
    for policy in policies * run.rounds(1):
        run.load.wait_acked(run.random.randint(100, 300))
        before, since = evicted(run), synced_through(run)
        run.fault(f"memory is full, {policy}",
                  repair=lambda: make_room(run))
        make_full(run, policy)
        run.until(lambda: evicted(run) > before, "evicted keys")
        for daemon in run.daemons:
            run.until(lambda: f"maxmemory-policy {policy}" in daemon.log_text(),
                      f"{daemon.dir.name} to say so")
            run.until(lambda: daemon.metrics()["likesyncd_redis_up"] == 0,
                      f"{daemon.dir.name} to refuse it")
        run.mend()
        run.lossy(since)
    repair_keys(run)
    # What is left in the counter of a post whose hash is gone; and a list without
    # mark and TTL may be an app's.
    run.record.unattributed, run.apps = None, True
