# SPDX-License-Identifier: MIT
"""PostgreSQL and Redis stop, hang, crash, refuse or are slow, under load."""
import contextlib
import os
import random
import signal
import threading
import time

import psycopg2
import pytest

import harness
from load import assuming, check_clean, check_states, durable
from servers import process_state, wait_for
from wire import Wire, encode

SMALL = {"flush_interval_ms": 20, "flush_batch_rows": 40,
         "flush_claim_rows": 15, "flush_lease_ms": 1000}
# So that a hang is over soon.
HASTY = {"postgres_connect_timeout_ms": 400, "postgres_lookup_timeout_ms": 200,
         "postgres_write_timeout_ms": 300, "postgres_lock_timeout_ms": 100,
         "redis_connect_timeout_ms": 400, "redis_timeout_ms": 400}
RETRIES = "likesyncd_batch_retries_total"


class Pinger(threading.Thread):
    """Sends PING all the while; it must always be answered."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.client = daemon.client()
        self.ended = threading.Event()
        self.answers = 0
        self.failure = None

    def run(self):
        try:
            while not self.ended.wait(0.01):
                assert self.client.ping()
                self.answers += 1
        except Exception as error:
            self.failure = error

    def wait_more(self, n=10):
        target = self.answers + n
        wait_for(lambda: self.failure or self.answers >= target, 30,
                 "answers to PING")
        assert not self.failure, self.failure

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        self.join(60)
        if kind is None:
            assert not self.failure, self.failure


@contextlib.contextmanager
def stopped(pids):
    """SIGSTOP, and SIGCONT on leaving."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            wait_for(lambda: process_state(pid) == "T", 10, "SIGSTOP")
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def backends(pg):
    return wait_for(lambda: pg.backends(), what="connections of the daemon")


# ---- PostgreSQL ----

def test_postgres_stopped_for_a_while(bed, redis):
    """Writes are taken meanwhile, and all of them are durable afterwards."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=21) as load, \
            Pinger(daemon) as pinger:
        for mode in ("fast", "immediate", "fast"):
            load.wait_acked(200)
            cluster.stop(mode)
            load.wait_acked(300)
            pinger.wait_more()
            cluster.start()
        load.wait_acked(200)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


def test_started_without_postgres(bed, redis):
    cluster = bed.postgres()
    pg = cluster.create_database()
    cluster.stop()
    daemon = bed.daemon(redis, pg, wait="answers", **SMALL)
    with assuming(redis, daemon, seed=22) as load:
        load.wait_acked(300)
        cluster.start()
        with harness.I1Watcher(pg):
            load.wait_acked(300)
    durable(daemon, load, redis, pg)


def test_postgres_crashes_in_commit(bed, redis):
    """A commit takes 50 ms here; the crash comes before, in and after it."""
    seed = 23
    rnd = random.Random(seed)
    cluster = bed.postgres(fsync="on", commit_delay=50000, commit_siblings=0)
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, **SMALL)
    in_commit = ("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'"
                 " AND usename = 'likesyncd' AND query ILIKE 'commit%'")
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=seed) as load:
        for _ in range(8):
            load.wait_acked(50)
            with contextlib.closing(pg.connect()) as connection:
                cursor = connection.cursor()

                def found():
                    cursor.execute(in_commit)
                    return cursor.fetchone()[0]
                wait_for(found, 30, "a COMMIT under way")
            time.sleep(rnd.uniform(0, 0.05))
            cluster.stop("immediate")
            cluster.start()
        load.wait_acked(200)
    durable(daemon, load, redis, pg)


def test_role_without_synchronous_commit(bed, redis):
    """What DRAIN called durable outlives a crash, though the role says that
    a commit need not."""
    cluster = bed.postgres(wal_writer_delay="10s")
    pg = cluster.create_database()
    pg.query("ALTER ROLE likesyncd SET synchronous_commit = off")
    daemon = bed.daemon(redis, pg, **SMALL)
    with assuming(redis, daemon, seed=24) as load:
        for _ in range(3):
            load.wait_acked(300)
            load.hold()
            daemon.drain()
            daemon.admin().execute_command("FLUSHER", "PAUSE")
            cluster.stop("immediate")
            cluster.start()
            load.check(redis, pg)
            daemon.admin().execute_command("FLUSHER", "RESUME")
            load.release()
    durable(daemon, load, redis, pg)


def test_backends_hang(bed, redis, pg):
    """All connections of the daemon at once: a deadline gives them up. Later
    they go on, and may commit what was written again since."""
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=25) as load, \
            Pinger(daemon) as pinger:
        for _ in range(4):
            load.wait_acked(100)
            old = backends(pg)
            with stopped(old):
                wait_for(lambda: set(backends(pg)) - set(old),
                         what="a new connection")
                pinger.wait_more()
                load.wait_acked(100)
        load.wait_acked(100)
    durable(daemon, load, redis, pg)


def test_a_backend_hangs_in_its_transaction(bed, redis, pg):
    """It holds row locks: the batch cannot be written until it goes on."""
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=26) as load:
        load.wait_acked(200)
        daemon.drain()
        with contextlib.closing(psycopg2.connect(pg.conninfo("postgres"))) \
                as rival:
            cursor = rival.cursor()
            cursor.execute("SELECT FROM post_like ORDER BY post_id FOR UPDATE")
            victims = wait_for(lambda: [pid for pid, in pg.query(
                "SELECT pid FROM pg_stat_activity WHERE usename = 'likesyncd'"
                " AND wait_event_type = 'Lock'")], what="a writer that waits")
            with contextlib.suppress(ProcessLookupError), stopped(victims):
                rival.rollback()
                before = daemon.metrics()[RETRIES]
                load.wait_acked(200)
                wait_for(lambda: daemon.metrics()[RETRIES] > before + 2,
                         what="the batch to be tried again")
        load.wait_acked(100)
    durable(daemon, load, redis, pg)


def test_postgres_hangs_as_a_whole(bed, redis):
    """No new connection is answered either: likes are taken all the same."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with assuming(redis, daemon, seed=27) as load, Pinger(daemon) as pinger:
        load.wait_acked(200)
        with stopped([cluster.pid, *backends(pg)]):
            for _ in range(3):
                pinger.wait_more()
                load.wait_acked(100)
        load.wait_acked(200)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


def test_it_stops_while_the_floor_is_asked_for(bed, redis):
    """Redis came back while PostgreSQL hangs: the last answer, that there
    is none, must not be sent on to a Redis that has gone."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=30000)
    with stopped(backends(pg)):
        redis.restart()
        wait_for(lambda: daemon.log_text().count("redis: connected to") == 2,
                 what="Redis to be connected again")
        daemon.term()


def test_reads_that_wait_are_answered_when_it_stops(bed, redis):
    """For a PostgreSQL that hangs, and for each other."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=30000)
    with Wire(daemon.socket) as wire, stopped(backends(pg)):
        wire.send(encode("LIKECOUNT", 42) * 1000)
        wait_for(lambda: daemon.metrics()["likesyncd_reads_waiting"] > 100,
                 what="reads to wait")
        daemon.term()


def test_backends_are_terminated(bed, redis, pg):
    seed = 28
    rnd = random.Random(seed)
    daemon = bed.daemon(redis, pg, **SMALL)
    ended = 0
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=seed) as load:
        while ended < 40:
            load.wait_acked(rnd.randint(1, 60))
            for pid in backends(pg):
                if rnd.random() < 0.7:
                    ended += pg.value("SELECT pg_terminate_backend(%s)", pid)
        load.wait_acked(100)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


def test_a_row_is_locked_for_long(bed, redis, pg):
    """Longer than lock_timeout, so often that the batch is halved."""
    daemon = bed.daemon(redis, pg, **SMALL, postgres_lock_timeout_ms=20)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=29) as load:
        load.wait_acked(200)
        daemon.drain()
        with contextlib.closing(psycopg2.connect(pg.conninfo("postgres"))) \
                as rival:
            rival.cursor().execute(
                "SELECT FROM post_like WHERE post_id = 3 FOR UPDATE")
            before = daemon.metrics()[RETRIES]
            load.wait_acked(200)
            wait_for(lambda: daemon.metrics()[RETRIES] > before + 8,
                     what="retries")
        load.wait_acked(100)
    durable(daemon, load, redis, pg)


def test_deadlocks_with_a_rival(bed, redis):
    """Somebody takes the counters in the other order."""
    cluster = bed.postgres(deadlock_timeout="10ms")
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, **SMALL)
    deadlocks = ("SELECT deadlocks FROM pg_stat_database"
                 " WHERE datname = current_database()")
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=30, pause=0) as load, \
            contextlib.closing(psycopg2.connect(pg.conninfo("postgres"))) \
            as rival:
        load.wait_acked(400)
        cursor = rival.cursor()
        # The rival waits long, so that the daemon is the one who is refused.
        cursor.execute("SET deadlock_timeout = '10s'")
        rival.commit()

        def provoke():
            with contextlib.suppress(psycopg2.errors.DeadlockDetected):
                cursor.execute("UPDATE post_like SET mtime = mtime"
                               " WHERE post_id = 7")
                load.wait_acked(20)
                for post in range(6, -1, -1):
                    cursor.execute("UPDATE post_like SET mtime = mtime"
                                   " WHERE post_id = %s", (post,))
            rival.rollback()
            return pg.value(deadlocks) >= 3
        wait_for(provoke, 60, "deadlocks")
        load.wait_acked(100)
    durable(daemon, load, redis, pg)


@pytest.mark.parametrize("expired", [False, True])
def test_others_in_the_second_of_an_event_under_way(bed, redis, pg, expired):
    """An application's time in whole seconds is below that of our own event
    of the same second, which is on its way to PostgreSQL and not acked."""
    daemon = bed.daemon(redis, pg, flush_interval_ms=20)
    edge = "post_user_like_42_7"
    with contextlib.closing(redis.client()) as keys, \
            contextlib.closing(daemon.client()) as client, \
            contextlib.closing(psycopg2.connect(pg.conninfo("postgres"))) \
            as rival:
        def app(status, mtime):
            keys.sadd("post_set", 42)
            keys.sadd("post_user_like_set_42", 7)
            keys.hset(edge, mapping={"status": status, "post_id": 42,
                                     "user_id": 7, "ctime": mtime,
                                     "mtime": mtime})
            keys.incrby("post_42_counter", 1 if status else -1)

        app(1, int(time.time()) - 10)
        daemon.drain()
        if expired:
            keys.delete(edge)
        rival.cursor().execute("LOCK TABLE user_like_post IN EXCLUSIVE MODE")
        assert client.execute_command("UNLIKE", 7, 42) == 1
        wait_for(lambda: keys.zcard("likesync:batches:like") == 1,
                 what="a batch of our own")
        app(1, int(float(keys.hget(edge, "mtime"))))
        wait_for(lambda: keys.zcard("likesync:batches:like") == 2,
                 what="a batch of theirs")
        rival.rollback()
        daemon.drain()
        assert client.execute_command("LIKED", 7, 42) == [1]
        assert client.execute_command("LIKECOUNT", 42) == [1]
    check_states(pg, {(7, 42): {1}})
    check_clean(redis, pg)


# ---- Redis ----

def test_redis_hangs(bed, redis, pg):
    """Every request is answered within its deadline, PING at once."""
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=31) as load, \
            Pinger(daemon) as pinger:
        for _ in range(3):
            load.wait_acked(100)
            redis.pause()
            for _ in range(3):
                refused = load.count("refused") + load.count("unknown")
                wait_for(lambda: load.count("refused") + load.count("unknown")
                         > refused, 15, "an answer from the daemon alone")
                pinger.wait_more()
            redis.resume()
        load.wait_acked(200)
    assert {text.split()[0] for text in load.refusals()} == \
        {"UNKNOWN", "UNAVAILABLE"}
    durable(daemon, load, redis, pg)


@pytest.mark.parametrize("verb", ["LIKE", "LIKED", "LIKECOUNT"])
def test_the_deadline_of_a_request(bed, redis, pg, verb):
    """Not longer than redis.timeout_ms and what events are held for, with
    much room for a slow machine; the deadline of another kind is 30 s."""
    daemon = bed.daemon(redis, pg, **HASTY)
    words = (verb, 42) if verb == "LIKECOUNT" else (verb, 7, 42)
    with contextlib.closing(daemon.client()) as client:
        client.execute_command(*words)
        redis.pause()
        try:
            for _ in range(4):
                start = time.monotonic()
                with pytest.raises(Exception) as error:
                    client.execute_command(*words)
                assert str(error.value).split()[0] in \
                    ("UNKNOWN", "UNAVAILABLE")
                assert time.monotonic() - start < 10
                assert client.ping()
        finally:
            redis.resume()
        wait_for(daemon.ready, what="the daemon to be back")
        assert client.execute_command("LIKE", 9, 42) == 1
