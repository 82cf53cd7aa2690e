# SPDX-License-Identifier: MIT
"""The preloaded libraries: each does what it says to the servers it is for."""
import contextlib
import time

import psycopg2
import pytest
import redis as redis_py

import harness
from servers import wait_for
from shims import Clock, Disk, Nth, Power
from wire import Wire, encode

HOUR = 3600


def near(a, b):
    return abs(a - b) < HOUR / 4


def redis_time(redis):
    return redis.ask("TIME")[0]


@pytest.mark.parametrize("offset", [HOUR, -HOUR, 0.25])
def test_clock_of_redis(bed, offset):
    clock = Clock(bed)
    redis = bed.redis(preload=[clock])
    assert near(redis_time(redis), time.time())
    uptime = redis.ask("INFO", "server")["uptime_in_seconds"]
    clock.move(offset)
    # Its event loop has a clock that only goes forward: it keeps on.
    wait_for(lambda: redis.ask("INFO", "server")["uptime_in_seconds"]
             >= uptime + offset if offset >= HOUR else True)
    before = time.time()
    seconds, micros = redis.ask("TIME")
    assert before + offset - 1e-3 <= seconds + micros / 1e6 \
        <= time.time() + offset + 1e-3
    # What scripts see is the same.
    assert near(int(redis.ask("EVAL", "return redis.call('TIME')[1]", 0)),
                time.time() + offset)
    # It is moved for those that it starts, too, and for good.
    redis.restart()
    assert near(redis_time(redis), time.time() + offset)


def test_clock_of_the_daemon(bed, redis, pg):
    clock = Clock(bed)
    daemon = bed.daemon(redis, pg, preload=[clock])
    for n, offset in enumerate((HOUR, -HOUR, 0)):
        clock.move(offset)
        daemon.sighup()     # it says so
        wait_for(lambda at=offset: near(daemon.last_logged(), time.time() + at))
        # Timers are of another clock: it still flushes at once.
        with contextlib.closing(daemon.client()) as client:
            assert client.execute_command("LIKE", 7, n) == 1
        wait_for(lambda done=n + 1: daemon.metrics()[
            "likesyncd_rows_acked_total"] == done)


def test_two_clocks(bed, pg):
    """A Redis of another time than the daemon's."""
    clock = Clock(bed)
    redis = bed.redis(preload=[clock])
    daemon = bed.daemon(redis, pg)
    clock.move(-HOUR)
    with contextlib.closing(daemon.client()) as client:
        assert client.execute_command("LIKE", 7, 42) == 1
    daemon.drain()
    harness.check_exact(pg)
    assert pg.value("SELECT count(*) FROM user_like_post") == 1


@pytest.fixture
def nth(bed, redis, pg):
    nth = Nth(bed)
    nth.daemon = bed.daemon(redis, pg, preload=[nth])
    return nth


def test_nth_counts(nth):
    """Without a call to fail it only counts, from when it is armed."""
    nth.arm("write", 0)
    with contextlib.closing(nth.daemon.client()) as client:
        assert client.execute_command("LIKE", 7, 42) == 1
        nth.daemon.drain()
    assert nth.seen("alloc") > 0
    assert nth.seen("connect") == 0
    seen, failed = nth.disarm()
    assert seen >= 4 and failed == 0    # to Redis, PostgreSQL, and two clients


@pytest.mark.parametrize("error", ["EPIPE", "ECONNRESET"])
def test_nth_write_fails(nth, error):
    """All that its first client sends gets no answer; the daemon lives."""
    nth.arm("write", 1, error, times=1_000_000)
    with contextlib.closing(nth.daemon.client()) as client:
        with pytest.raises(redis_py.ConnectionError):
            client.ping()
    assert nth.disarm()[1] >= 1
    wait_for(nth.daemon.ready)


def test_nth_connect_fails(nth, redis):
    nth.arm("connect", 1, times=2)
    redis.restart()
    wait_for(lambda: nth.failed() == 2)
    wait_for(nth.daemon.ready)
    assert nth.disarm()[0] >= 3


def test_nth_alloc_fails(nth):
    """For which the daemon has no way out but to end, which it says."""
    nth.arm("alloc", 1)
    with contextlib.suppress(redis_py.RedisError), \
            contextlib.closing(nth.daemon.client()) as client:
        while True:
            client.execute_command("LIKE", 7, 42)
    status = nth.daemon.wait_exit()
    assert status != 0
    assert nth.disarm()[1] == 1
    assert "memory" in nth.daemon.log_tail(3)


def test_full_disk_of_redis(bed):
    """MISCONF, as from a real one; and back to work once there is space."""
    disk = Disk(bed)
    redis = bed.redis(preload=[disk])
    redis.ask("SET", "a", 1)
    disk.fill(redis.dir)

    def refused():
        try:
            redis.ask("SET", "a", 2)
        except redis_py.ResponseError as error:
            return "MISCONF" in str(error)
        return False
    wait_for(refused)
    assert disk.refused() > 0
    assert redis.ask("GET", "a")
    disk.free()
    wait_for(lambda: not refused())
    redis.restart()
    assert redis.ask("GET", "a") == "2"


def test_full_disk_of_postgres(bed):
    """53100, and nothing else is harmed."""
    disk = Disk(bed)
    cluster = bed.postgres(preload=[disk])
    pg = cluster.create_database(schema=False)
    pg.query("CREATE TABLE t (x text)")
    fill = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 100)"
    pg.query(fill)
    disk.fill(cluster.data / "base")
    with pytest.raises(psycopg2.errors.DiskFull):
        for _ in range(100):
            pg.query(fill)
    assert disk.refused() > 0
    # What need not grow goes on.
    assert pg.query("UPDATE t SET x = 'y' WHERE ctid = '(0,1)' RETURNING x")
    disk.free()
    pg.query(fill)
    cluster.restart("immediate")
    assert pg.value("SELECT count(*) FROM t") >= 200


@pytest.mark.parametrize("fsync", ["always", "no"])
def test_power_cut(bed, fsync):
    """What was synced is there, and only that."""
    power = Power(bed)
    redis = bed.redis(preload=[power], appendfsync=fsync)
    before = time.monotonic()
    redis.ask("SET", "a", 1)
    redis.kill9()
    [aof] = redis.dir.glob("appendonlydir/*.incr.aof")
    lost, since = power.cut(aof)
    if fsync == "always":
        assert lost == 0 and before <= since <= time.monotonic()
    else:
        assert lost > 0 and aof.stat().st_size == 0
    redis.start()
    assert redis.ask("GET", "a") == ("1" if fsync == "always" else None)


def test_how_long_syncs_take(bed):
    """Of the last one that ended, and of one that is under way."""
    power = Power(bed)
    redis = bed.redis(preload=[power], appendfsync="always")
    [aof] = redis.dir.glob("appendonlydir/*.incr.aof")
    power.slow(0.05)
    redis.ask("SET", "a", 1)
    _, since, took = power.synced(aof)
    assert took >= 0.05 and power.under_way() is None
    power.slow(60)
    with Wire(redis.socket) as wire:
        wire.send(encode("SET", "b", 1))
        wait_for(power.under_way, 30, "a sync to begin")
        redis.kill9()
    assert since + took <= power.under_way() <= time.monotonic()
    assert power.synced(aof)[1] == since


def test_a_shim_that_is_not_there(bed):
    """The loader only grumbles; the bed fails."""
    clock = Clock(bed)
    clock.library.unlink()
    with pytest.raises(harness.Failed):
        bed.redis(preload=[clock])
