# SPDX-License-Identifier: MIT
"""Lists that are loaded again and again by two daemons while they change, and
while those who load them are killed."""
import contextlib
import itertools
import random
import threading

import pytest
import redis as redis_py

import harness
from edges import FOLLOWS, LIST
from load import Load, durable

TARGETS = [0, 1000, 1, 1001]    # whom the load follows, see Load.targets
STAYING = range(500000, 500250)  # several steps of a list
BASE = 1289241911
SMALL = {"flush_interval_ms": 20, "flush_batch_rows": 50,
         "flush_claim_rows": 20, "flush_lease_ms": 500,
         "postgres_connections": 3}


def staying_put(pg):
    """They follow every target from long ago, and are left alone."""
    pg.query("INSERT INTO user_follow (user_id, followee_id, status,"
             " prev_status, ctime, mtime)"
             " SELECT u, t, 1, 0, to_timestamp(%s + u / 3),"
             " to_timestamp(%s + u / 3) FROM generate_series(%s, %s) u,"
             " unnest(%s::bigint[]) t", BASE, BASE, STAYING[0], STAYING[-1],
             TARGETS)
    pg.query("INSERT INTO user_follow_count SELECT user_id, count(*), 0, now()"
             " FROM user_follow GROUP BY 1")
    pg.query("INSERT INTO user_follow_count SELECT t, 0, %s, now()"
             " FROM unnest(%s::bigint[]) t", len(STAYING), TARGETS)


class Reader(threading.Thread):
    """Takes lists away and reads them: those who stay are there, each once,
    and all are in order."""

    def __init__(self, daemon, redis, seed):
        super().__init__(daemon=True)
        self.daemon_read = daemon
        self.random = random.Random(seed)
        self.keys = redis.client()
        self.ended = threading.Event()
        self.reads = self.evicted = 0
        self.failure = None

    def run(self):
        try:
            while not self.ended.is_set():
                with contextlib.suppress(redis_py.ConnectionError,
                                         redis_py.TimeoutError), \
                        contextlib.closing(self.daemon_read.client()) as each:
                    while not self.ended.is_set():
                        self.turn(each.execute_command)
                self.ended.wait(0.01)     # until there is a listener
        except BaseException as error:    # reported by the main thread
            self.failure = error

    def turn(self, ask):
        target = self.random.choice(TARGETS)
        if self.random.random() < 0.5:
            self.evict(f"{target}:fans")
        try:
            self.random.choice((self.read, self.walk, self.relate))(ask,
                                                                    target)
            self.reads += 1
        except redis_py.ResponseError as error:
            # A daemon that has just started does not know its backends yet;
            # and the list may go each time that it is nearly loaded.
            if not str(error).startswith(("UNAVAILABLE", "TRYAGAIN")):
                raise

    def evict(self, key):
        gone = self.random.choice(((key,), (LIST + key,), (key, LIST + key)))
        self.evicted += self.keys.delete(*gone)

    def check(self, items):
        order = [(float(since), each.encode()) for each, since in items]
        assert order == sorted(order, reverse=True)
        there = [int(each) for each, _ in items if int(each) in STAYING]
        assert sorted(there) == list(STAYING)

    def read(self, ask, target):
        self.check(ask("FOLLOWERS", target, "WITHTIMES"))

    def walk(self, ask, target):
        """Who comes meanwhile is in front; who follows anew may be met twice.
        """
        items, cursor = [], "0"
        while True:
            cursor, more = ask("FOLLOWERS", target, "CURSOR", cursor, "COUNT",
                               70, "WITHTIMES")
            items += more
            if cursor == "0":
                break
        self.check(items)

    def relate(self, ask, target):
        some = self.random.sample(STAYING, 20)
        assert ask("RELATION", target, *some) == [2] * 20
        (_, fans), = ask("FOLLOWCOUNT", target)
        assert fans >= len(STAYING)

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure:
            raise self.failure


@pytest.mark.parametrize("kills", [0, 12], ids=["alive", "killed"])
def test_lists_that_are_loaded_while_they_change(bed, pg, kills):
    seed = 31 + kills
    rnd = random.Random(seed)
    redis = bed.redis(appendfsync="always")
    staying_put(pg)
    daemons = [bed.daemon(redis, pg, **SMALL) for _ in range(2)]
    readers = [Reader(daemon, redis, f"{seed}/{n}")
               for n, daemon in enumerate(daemons * 2)]
    with harness.I1Watcher(pg, pause=0.05), \
            Load(*daemons, seed=seed, edges=FOLLOWS, posts=len(TARGETS),
                 threads=2, users=60, answers=not kills) as load:
        assert load.targets() == TARGETS
        for reader in readers:
            reader.start()
        for _ in range(max(kills, 12)):
            load.wait_acked(rnd.randint(200, 600))
            if kills:
                daemon = rnd.choice(daemons)
                daemon.kill9()
                daemon.start(wait=None)
        load.wait_acked(200)
        for reader in readers:
            reader.end()
    print(sum(reader.reads for reader in readers), "reads,",
          sum(reader.evicted for reader in readers), "evicted")
    assert min(reader.reads for reader in readers) > 20
    may_be = {**load.may_be(),
              **dict.fromkeys(itertools.product(STAYING, TARGETS), {1})}
    # A list without its mark may be another's.
    durable(daemons[0], load, redis, pg, may_be=may_be, apps=True)
