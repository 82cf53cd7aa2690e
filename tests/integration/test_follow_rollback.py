# SPDX-License-Identifier: MIT
"""A Redis that comes back older than PostgreSQL, as after a failover or a lost
append-only file: lists, counts and relations are those of the rows."""
import contextlib
import random
import shutil

import pytest

from edges import FOLLOWS, check_answers, check_clean
from load import copy_data, put_back
from servers import wait_for

USERS = 14


class Graph:
    """Whom everybody follows, and two daemons that must say the same."""

    def __init__(self, daemons, seed):
        print("seed", seed)
        self.random = random.Random(seed)
        self.clients = [daemon.client() for daemon in daemons]
        self.edges = set()

    def ask(self, *request):
        return self.random.choice(self.clients).execute_command(*request)

    def event(self):
        pair = tuple(self.random.sample(range(USERS), 2))
        follow = self.random.random() < .6
        changes = follow != (pair in self.edges)
        assert self.ask("FOLLOW" if follow else "UNFOLLOW", *pair) == changes
        (self.edges.add if follow else self.edges.discard)(pair)

    def read(self):
        user = self.random.randrange(USERS)
        followed = {str(b) for a, b in self.edges if a == user}
        followers = {str(a) for a, b in self.edges if b == user}
        assert set(self.ask("FOLLOWING", user)) == followed
        assert set(self.ask("FOLLOWERS", user)) == followers
        assert self.ask("FOLLOWCOUNT", user) == [[len(followed),
                                                  len(followers)]]

    def play(self, n):
        for _ in range(n):
            self.event()
            if self.random.random() < .3:
                self.read()


@pytest.mark.parametrize("seed", [1, 2])
def test_redis_comes_back_older(bed, pg, seed):
    redis = bed.redis(appendonly="no")
    daemons = [bed.daemon(redis, pg, flush_interval_ms=20,
                          follow_idle_ttl=100) for _ in range(2)]
    graph = Graph(daemons, seed)
    for generation in range(1, 5):
        graph.play(graph.random.randrange(5, 80))
        if generation % 2:
            daemons[0].drain()
        redis.client().save()
        shutil.copy(redis.dir / "dump.rdb", redis.dir / "older.rdb")
        graph.play(graph.random.randrange(5, 120))
        for daemon in daemons:
            daemon.drain()
        redis.kill9()
        shutil.copy(redis.dir / "older.rdb", redis.dir / "dump.rdb")
        redis.start()
        wait_for(lambda: FOLLOWS.generation(redis.client()) == generation, 30,
                 "the generation to go up")
        for daemon in daemons:
            wait_for(daemon.ready, what="the daemons to be back")
        if generation > 2:
            check_answers(daemons[0], pg)
    graph.play(30)
    for daemon in daemons:
        daemon.drain(60)
    assert {pair for pair, status in FOLLOWS.rows(pg).items() if status} == \
        graph.edges
    check_answers(daemons[1], pg)
    check_clean(redis, pg)


def test_lists_read_before_the_commit(bed, redis, pg, tmp_path):
    """Redis loses the record of a batch that is acked in several steps, and
    loads lists of all its members before PostgreSQL commits it."""
    daemon = bed.daemon(redis, pg, flush_interval_ms=20, flush_claim_rows=15)
    followed = range(100, 130)
    with contextlib.closing(daemon.client()) as client:
        for user in followed:
            assert client.execute_command("FOLLOW", 2, user) == 1
    daemon.drain()
    redis.stop()
    copy_data(redis, tmp_path)
    redis.start()
    wait_for(daemon.ready, what="the daemon to be back")
    with contextlib.closing(pg.connect()) as rival, \
            contextlib.closing(daemon.admin()) as admin, \
            contextlib.closing(daemon.client()) as client:
        rival.autocommit = False
        rival.cursor().execute(
            "LOCK TABLE user_follow_count IN EXCLUSIVE MODE")
        admin.execute_command("FLUSHER", "PAUSE")
        for user in followed:
            assert client.execute_command("FOLLOW", 1, user) == 1
        admin.execute_command("FLUSHER", "RESUME")
        wait_for(lambda: pg.value("SELECT count(*) FROM pg_locks"
                                  " WHERE NOT granted"), what="the write")
        redis.kill9()
        put_back(redis, tmp_path)
        redis.start()
        wait_for(daemon.ready, what="the daemon to be back")
        for user in followed:
            assert client.execute_command("FOLLOWERS", user) == ["2"]
        rival.rollback()
        for user in followed:
            wait_for(lambda user=user: client.execute_command(
                "FOLLOWERS", user) == ["1", "2"], 10, f"the lists of {user}")
