# SPDX-License-Identifier: MIT
"""Redis is killed and comes back as a copy of some time ago: totals and states
right after it are those of PostgreSQL and of what the copy has unsynced, the
newer of the two for each pair."""
import collections
import contextlib
import random

import pytest

import harness
from edges import LIKES, check_clean, check_states
from load import copy_data, put_back
from servers import process_state, wait_for

SMALL = {"flush_interval_ms": 20, "flush_batch_rows": 20,
         "flush_claim_rows": 7, "flush_lease_ms": 500,
         "postgres_connections": 3}
POSTS, USERS = range(1, 7), range(15)
CHECK_S = 2             # between two looks at what Redis is (recovery.c)


class Stack:
    """A daemon, and random events whose outcome is known."""

    def __init__(self, bed, redis, pg, seed, **options):
        print(f"seed {seed}")
        self.redis, self.pg = redis, pg
        self.random = random.Random(seed)
        self.daemon = bed.daemon(redis, pg, **{**SMALL, **options})

    def ask(self, *words):
        with contextlib.closing(self.daemon.client()) as client:
            return client.execute_command(*words)

    def flusher(self, word):
        with contextlib.closing(self.daemon.admin()) as admin:
            assert admin.execute_command("FLUSHER", word)

    def own_batches(self):
        with contextlib.closing(self.daemon.admin()) as admin:
            status = admin.execute_command("FLUSHER", "STATUS")
            return status[status.index("batches_own") + 1]

    def events(self, n):
        with contextlib.closing(self.daemon.client()) as client:
            for _ in range(n):
                client.execute_command(
                    self.random.choice(["LIKE", "LIKE", "UNLIKE"]),
                    self.random.choice(USERS), self.random.choice(POSTS))

    def totals(self):
        return self.ask("LIKECOUNT", *POSTS)

    def states(self):
        return {(user, post): state for user in USERS for post, state in
                zip(POSTS, self.ask("LIKED", user, *POSTS))}

    def copy(self, target):
        """As it is right now, in the middle of whatever is under way."""
        self.redis.stop()
        copy_data(self.redis, target)
        self.redis.start()
        wait_for(self.daemon.ready, what="the daemon to be back")

    def roll_back(self, source):
        self.redis.kill9()
        put_back(self.redis, source)
        self.redis.start()
        wait_for(self.daemon.ready, what="the daemon to be back")

    def merged(self):
        """{pair: state}: of row and unsynced hash the newer one."""
        newest = {(user, post): (float(mtime), status)
                  for user, post, status, mtime in self.pg.query(
                      "SELECT user_id, post_id, status,"
                      " extract(epoch FROM mtime) FROM user_like_post")}
        with contextlib.closing(self.redis.client()) as keys:
            for pair in [(user, post) for user in USERS for post in POSTS]:
                edge = keys.hgetall(LIKES.hash_of(pair))
                if edge:
                    newest[pair] = max(newest.get(pair, (0, 0)),
                                       (float(edge["mtime"]),
                                        int(edge["status"])))
        return {(user, post): newest.get((user, post), (0, 0))[1]
                for user in USERS for post in POSTS}

    def check(self):
        """What is answered is what is merged, cold and warm."""
        expected = self.merged()
        totals = collections.Counter()
        for (_, post), state in expected.items():
            totals[post] += state
        totals = [totals[post] for post in POSTS]
        assert self.totals() == totals
        assert self.states() == expected
        assert self.totals() == totals
        return expected


@pytest.mark.parametrize("seed", range(1, 7))
def test_totals_and_states_after_it(bed, redis, pg, tmp_path, seed):
    """The flusher stands still over it, so that nothing else mends it; all
    that was flushed since the copy stays, what only Redis had is gone."""
    stack = Stack(bed, redis, pg, seed)
    stack.events(60)
    stack.daemon.drain()
    stack.totals()                           # bases in the copy
    if seed % 2:
        stack.flusher("PAUSE")               # and pairs that are unsynced
    stack.events(40)
    stack.totals()
    if seed % 2 == 0:
        stack.daemon.drain()                 # nothing on record, for good
    stack.copy(tmp_path)
    stack.flusher("RESUME")
    stack.events(80)
    stack.daemon.drain()
    stack.totals()
    stack.flusher("PAUSE")
    stack.events(30)                         # lost with this Redis
    stack.roll_back(tmp_path)
    expected = stack.check()
    assert stack.daemon.metrics()["likesyncd_redis_failovers_total"] == 2
    assert stack.daemon.log_text().count("restarted or failed over") == 2
    # Events go on from there, and all of it becomes durable.
    for post in POSTS:
        user = stack.random.choice(USERS)
        state = expected[user, post]
        total = sum(expected[each, post] for each in USERS)
        assert stack.ask("UNLIKE" if state else "LIKE", user, post,
                         "WITHCOUNT") == [1, total + 1 - 2 * state]
        expected[user, post] = 1 - state
    assert stack.check() == expected
    stack.flusher("RESUME")
    stack.daemon.drain()
    assert stack.check() == expected
    check_states(pg, {pair: {state} for pair, state in expected.items()})
    check_clean(redis, pg)


def test_a_base_from_before_is_not_served(bed, redis, pg, tmp_path):
    """The copy has a base of 1, and a batch on record whose row PostgreSQL
    has by now: neither is counted twice, nor the old base believed. Nobody
    has this batch: it is taken over when its lease is over."""
    stack = Stack(bed, redis, pg, 1)
    assert stack.ask("LIKE", 1, 1) == 1
    stack.daemon.drain()
    assert stack.ask("LIKECOUNT", 1) == [1]
    with pg.locked("post_like"):
        assert stack.ask("LIKE", 2, 1) == 1
        with contextlib.closing(redis.client()) as keys:
            wait_for(lambda: keys.exists("likesync:onrecord:like"),
                     what="a batch on record")
        redis.kill9()
        copy_data(redis, tmp_path)
        redis.start()
    wait_for(stack.daemon.ready, what="the daemon to be back")
    assert stack.ask("LIKE", 3, 1) == 1
    stack.daemon.drain()
    assert stack.ask("LIKECOUNT", 1) == [3]
    stack.roll_back(tmp_path)
    assert stack.ask("LIKECOUNT", 1) == [3]
    stack.daemon.drain()
    assert stack.ask("LIKECOUNT", 1) == [3]
    check_clean(redis, pg)


@pytest.mark.parametrize("cold", [False, True])
def test_a_batch_that_redis_has_lost(bed, redis, pg, cold):
    """Redis is emptied while a batch is being written, and its pair liked
    again before PostgreSQL has the row: it counts once all the same."""
    stack = Stack(bed, redis, pg, 3)
    with contextlib.closing(redis.client()) as keys:
        with pg.locked("post_like"):
            assert stack.ask("LIKE", 7, 1) == 1
            wait_for(lambda: keys.exists("likesync:onrecord:like"),
                     what="a batch on record")
            stack.flusher("PAUSE")
            keys.flushall()
            assert stack.ask("LIKE", 7, 1) == 1
            assert stack.ask("LIKECOUNT", 1) == [1]
        wait_for(lambda: stack.own_batches() == 0, what="the batch to be written")
        assert pg.value("SELECT like_count FROM post_like") == 1
        if cold:
            keys.delete("likesync:count:like:0:1")
        assert stack.ask("LIKECOUNT", 1) == [1]
    stack.flusher("RESUME")
    stack.daemon.drain()
    assert stack.ask("LIKECOUNT", 1) == [1]
    check_clean(redis, pg)


@pytest.mark.parametrize("lost", [False, True])
def test_an_ack_of_what_may_be_gone(bed, redis, pg, lost):
    """A batch that Redis has lost is written, and PostgreSQL has failed over by the
    time of its ack: with that commit or without it, of which the ack says nothing."""
    stack = Stack(bed, redis, pg, 4)
    with contextlib.closing(redis.client()) as keys:
        with pg.locked("post_like"):
            assert stack.ask("LIKE", 7, 1) == 1
            wait_for(lambda: keys.exists("likesync:onrecord:like"),
                     what="a batch on record")
            stack.flusher("PAUSE")
            keys.flushall()
            wait_for(lambda: keys.exists("likesync:state:like"),
                     what="the daemon to see it")
            keys.hset("likesync:state:like", "pg", "another")
            wait_for(lambda: keys.hget("likesync:state:like", "gen") == "1",
                     what="the failover of PostgreSQL to be seen")
            assert stack.ask("LIKE", 7, 1) == 1
            assert stack.ask("LIKECOUNT", 1) == [1]
        wait_for(lambda: stack.own_batches() == 0, what="the batch to be written")
    assert pg.value("SELECT like_count FROM post_like") == 1
    if lost:
        pg.query("DELETE FROM user_like_post")
        pg.query("DELETE FROM post_like")
    assert stack.ask("LIKECOUNT", 1) == [1]
    stack.flusher("RESUME")
    stack.daemon.drain()
    assert stack.ask("LIKECOUNT", 1) == [1]
    check_clean(redis, pg)


def test_a_batch_that_comes_late(bed, redis, pg, tmp_path):
    """Redis has lost an unlike whose batch is on its way, and has the like before it
    again. That one is written first, and acked last: its ack is of what was."""
    stack = Stack(bed, redis, pg, 6, flush_lease_ms=60000)
    first = stack.daemon
    stack.flusher("PAUSE")
    assert stack.ask("LIKE", 7, 2) == 1
    stack.copy(tmp_path)
    assert stack.ask("UNLIKE", 7, 2) == stack.ask("LIKE", 8, 1) == 1
    with contextlib.closing(pg.connect()) as rival:
        rival.autocommit = False        # its row is before the other in the batch
        rival.cursor().execute("INSERT INTO user_like_post VALUES (1, 8, 1, 0,"
                               " now(), now())")
        stack.flusher("RESUME")
        wait_for(lambda: pg.value("SELECT count(*) FROM pg_locks"
                                  " WHERE NOT granted"), what="the write")
        stack.flusher("PAUSE")
        stack.roll_back(tmp_path)
        second = bed.daemon(redis, pg, wait=None, env={"LIKESYNCD_STOP": "before_ack"},
                            **{**SMALL, "flush_lease_ms": 60000})
        wait_for(lambda: process_state(second.pid) == "T", what="the batch of the like")
        assert pg.query("SELECT user_id, status FROM user_like_post") == [(7, 1)]
        rival.rollback()
    wait_for(lambda: stack.own_batches() == 0, what="the batch of the unlike")
    assert pg.value("SELECT status FROM user_like_post WHERE user_id = 7") == 0
    second.resume()
    stack.daemon = second
    wait_for(lambda: second.ready() and stack.own_batches() == 0, what="both acks")
    for daemon in (first, second):
        stack.daemon = daemon
        assert stack.ask("LIKED", 7, 2) == stack.ask("LIKECOUNT", 2) == [0]
    second.drain()
    check_clean(redis, pg)


def test_a_batch_of_before_does_not_wait_for_its_lease(bed, redis, pg):
    """Redis restarts while a living daemon writes a batch: it reads it again
    and acks it, so that the post has a total long before the lease is over."""
    daemon = bed.daemon(redis, pg, **{**SMALL, "flush_lease_ms": 60000})
    with contextlib.closing(redis.client()) as keys, \
            contextlib.closing(daemon.client()) as client:
        with pg.locked("post_like"):
            assert client.execute_command("LIKE", 7, 1) == 1
            wait_for(lambda: keys.exists("likesync:onrecord:like"),
                     what="a batch on record")
            redis.restart()
            wait_for(daemon.ready, what="the daemon to be back")
        assert client.execute_command("LIKECOUNT", 1) == [1]
    daemon.drain()
    check_clean(redis, pg)


def test_a_commit_that_nobody_acks(bed, redis, pg, tmp_path):
    """A daemon is killed whose batch is on its way in PostgreSQL, and Redis
    comes back as it was before: a total that is read before the commit is not
    believed for long."""
    stack = Stack(bed, redis, pg, 5)
    stack.copy(tmp_path)
    with pg.locked("post_like"):
        assert stack.ask("LIKE", 7, 1) == 1
        wait_for(lambda: pg.value("SELECT count(*) FROM pg_locks"
                                  " WHERE NOT granted"), what="the write")
        stack.daemon.kill9()
        redis.kill9()
        put_back(redis, tmp_path)
        redis.start()
        stack.daemon.start()
        assert stack.ask("LIKECOUNT", 1) == [0]
    wait_for(lambda: stack.ask("LIKED", 7, 1) == [1], what="the commit")
    wait_for(lambda: stack.ask("LIKECOUNT", 1) == [1], 10,
             "the total of it")
    check_clean(redis, pg)


def test_a_failover_that_keeps_the_connections(bed, redis, pg):
    """Another replication id on the same connection: seen at the next look,
    logged once, counted once."""
    stack = Stack(bed, redis, pg, 2)
    stack.events(20)
    stack.daemon.drain()
    name = "likesyncd_redis_failovers_total"
    assert stack.daemon.metrics()[name] == 0
    with contextlib.closing(redis.client()) as keys:
        keys.execute_command("REPLICAOF", "127.0.0.1", "1")
        keys.execute_command("REPLICAOF", "NO", "ONE")
    wait_for(lambda: stack.daemon.metrics()[name] == 1, CHECK_S + 1,
             "the failover to be seen")
    wait_for(stack.daemon.ready, what="the daemon to be back")
    stack.check()
    assert stack.daemon.log_text().count("restarted or failed over") == 1
    assert stack.daemon.metrics()[name] == 1
    stack.daemon.drain()
    harness.check_exact(pg)
    check_clean(redis, pg)
