# SPDX-License-Identifier: MIT
"""The daemon and Redis are killed under load: nothing acked is lost, nothing
is doubled, and I1 holds in every snapshot meanwhile."""
import contextlib
import random
import time

import pytest

import harness
from edges import (FOLLOWS, LIKES, app_follows, app_likes, check_clean,
                   check_states)
from load import Load, assuming, copy_data, durable, put_back
from servers import wait_for

# Several claims for a batch, several calls for an ack, several batches.
SMALL = {"flush_interval_ms": 20, "flush_batch_rows": 20,
         "flush_claim_rows": 7, "flush_lease_ms": 500,
         "postgres_connections": 3}
SECONDS = 60

needs_faults = pytest.mark.skipif(
    not harness.build_has("LIKESYNCD_FAULTS"),
    reason="built without LIKESYNCD_FAULTS")

# One start of the daemon for each name: what the first leaves on record is
# what the next takes over.
CHAINS = ["claimed:1", "claimed:2", "claimed:5",
          "before_write:1", "before_write:3",
          "write_sent:1", "write_sent:2", "write_sent:4",
          "committed:1", "committed:3",
          "before_ack:1", "before_ack:4",
          "ack_part:1", "ack_part:2", "ack_part:5",
          "acked:1", "acked:3",
          "adopted:1",
          "orphans_committed:1",
          "claimed:3 taken_over:1 reloaded:1 before_write:1",
          "ack_part:1 taken_over:1 reloaded:2 ack_part:1",
          "committed:2 read_back:1 before_ack:1",
          "adopted:1 reloaded:1 adopted:1 committed:1",
          "orphans_committed:1 orphans_committed:1 reloaded:1"]
BOTH = pytest.mark.parametrize("edges", [LIKES, FOLLOWS],
                               ids=lambda edges: edges.name)
KILLS = [pytest.param(LIKES, chain, id=f"like-{chain}") for chain in CHAINS]
# Follows have no counters that could be moved without a row.
KILLS += [pytest.param(FOLLOWS, chain, id=f"follow-{chain}")
          for chain in CHAINS if "orphans" not in chain]


class Others:
    """An application that writes the keys itself, all four commands or only
    the counter's."""

    DELTA = 5

    def __init__(self, redis):
        self.keys = redis.client()
        self.pairs = {}
        self.unattributed = 0

    def write(self):
        user = 900000 + len(self.pairs)
        post = 900 + len(self.pairs) % 3
        app_likes(self.keys, user, post)
        self.pairs[user, post] = {1}
        self.keys.incrby("post_990_counter", self.DELTA)
        self.keys.sadd("post_set", 990)
        self.unattributed += self.DELTA


class OtherFollows(Others):
    """The same of follows: all five commands."""

    def write(self):
        user = 900000 + len(self.pairs)
        other = 900 + len(self.pairs) % 3
        app_follows(self.keys, user, other)
        self.pairs[user, other] = {1}


@needs_faults
@pytest.mark.parametrize("edges, chain", KILLS)
def test_killed_at(bed, redis, pg, edges, chain):
    daemon = bed.daemon(redis, pg, wait=None, **SMALL)
    daemon.kill9()
    others = (Others if edges is LIKES else OtherFollows)(redis)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=chain, edges=edges) as load:
        for fault in chain.split():
            others.write()
            daemon.start(fault, wait=None)
            daemon.wait_fault()
        daemon.start()
        load.wait_acked(200)
    durable(daemon, load, redis, pg, others.unattributed,
            {**load.may_be(), **others.pairs}, apps=True)


@needs_faults
def test_killed_after_a_dead_letter(bed, redis, pg):
    """There is one letter, and the rest of the batch is written."""
    pg.query("ALTER TABLE user_like_post ADD CHECK (user_id <> 13)")
    daemon = bed.daemon(redis, pg, **SMALL)
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    with daemon.client() as client:
        for user in range(30):
            assert client.execute_command("LIKE", user, 1) == 1
    daemon.kill9()
    with harness.I1Watcher(pg):
        for _ in range(3):
            daemon.start("dead_lettered", wait=None)
            daemon.wait_fault()
        daemon.start()
        daemon.drain()
    assert pg.query("SELECT owner_id, member_id, status, sqlstate"
                    " FROM sync_dead_letter") == [("1", "13", 1, "23514")]
    pg.query("DELETE FROM sync_dead_letter")
    check_clean(redis, pg)
    check_states(pg, {(user, 1): {int(user != 13)} for user in range(30)})


@BOTH
def test_killed_100_times_at_random(bed, pg, edges):
    seed = 20260101
    rnd = random.Random(seed)
    redis = bed.redis(appendfsync="always")
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=seed, edges=edges) as load:
        for _ in range(100):
            load.wait_acked(rnd.randint(1, 300))
            daemon.kill9()
            daemon.start(wait=None)
        load.wait_acked(200)
    durable(daemon, load, redis, pg)
    assert load.count("unknown") > 0, "no kill came between"


@BOTH
def test_killed_while_redis_has_not_read(bed, redis, pg, edges):
    """What a dead daemon sent is executed after its end: claims and acks that
    nobody gets an answer to."""
    seed = 7
    rnd = random.Random(seed)
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=seed, edges=edges) as load:
        for _ in range(12):
            load.wait_acked(rnd.randint(1, 100))
            redis.pause()
            time.sleep(rnd.uniform(0.01, 0.06))   # for it to send something
            daemon.kill9()
            redis.resume()
            daemon.start()
        load.wait_acked(200)
    durable(daemon, load, redis, pg)


@BOTH
def test_redis_killed(bed, pg, edges):
    """With appendfsync always it keeps what it acknowledged; its scripts are
    gone, and the generation goes up each time."""
    seed = 11
    rnd = random.Random(seed)
    redis = bed.redis(appendfsync="always")
    daemon = bed.daemon(redis, pg, **SMALL)
    rounds = 10
    with harness.I1Watcher(pg), \
            Load(daemon, seed=seed, evict=redis, edges=edges) as load:
        for n in range(rounds):
            load.wait_acked(rnd.randint(1, 150))
            redis.kill9()
            redis.start()
            wait_for(lambda: edges.generation(redis.client()) == n + 1, 30,
                     "the generation to go up")
        load.wait_acked(200)
    durable(daemon, load, redis, pg)
    assert edges.generation(redis.client()) == rounds


@BOTH
def test_redis_and_the_daemon_killed(bed, pg, edges):
    seed = 12
    rnd = random.Random(seed)
    redis = bed.redis(appendfsync="always")
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=seed, edges=edges) as load:
        for _ in range(8):
            load.wait_acked(rnd.randint(1, 150))
            first, second = rnd.sample([redis, daemon], 2)
            first.kill9()
            second.kill9()
            redis.start()
            daemon.start()
        load.wait_acked(200)
    durable(daemon, load, redis, pg)


@BOTH
def test_script_flush_is_not_seen(bed, redis, pg, edges):
    """The daemon loads its scripts again, and keeps the order of events."""
    seed = 13
    rnd = random.Random(seed)
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), \
            Load(daemon, seed=seed, evict=redis, edges=edges) as load, \
            redis.client() as keys:
        for _ in range(100):
            load.wait_acked(rnd.randint(1, 60))
            keys.script_flush()
        load.wait_acked(100)
    assert not load.refusals()
    assert load.count("unknown") == 0
    durable(daemon, load, redis, pg)


# ---- Redis rolled back ----

def flusher(daemon, what):
    with contextlib.closing(daemon.admin()) as admin:
        assert admin.execute_command("FLUSHER", what)


def raised(redis, above):
    """The generation of both kinds, which go up together."""
    def least():
        return min(LIKES.generation(keys), FOLLOWS.generation(keys))
    with contextlib.closing(redis.client()) as keys:
        return wait_for(lambda: least() > above and least(), 30,
                        "the generation to go up")


@BOTH
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_redis_rolled_back_under_load(bed, redis, pg, tmp_path, seed, edges):
    """The copy is taken in the middle of a flush. What was durable at the
    end stays, though the copy is older; only what was not is lost."""
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), \
            Load(daemon, seed=seed, evict=redis, edges=edges) as load:
        load.wait_acked(400)
        redis.stop()
        copy_data(redis, tmp_path)
        redis.start()
        gen = raised(redis, 0)
        load.wait_acked(600)
        load.hold()
        daemon.drain(SECONDS)
        kept = load.may_be()
        # Answered, but not durable: lost with this Redis.
        flusher(daemon, "PAUSE")
        load.release()
        load.wait_acked(200)
        load.hold()
        redis.stop()
        put_back(redis, tmp_path)
        redis.start()
        # The copy may hold a generation that is the same as the newer one's.
        raised(redis, gen - 1)
        flusher(daemon, "RESUME")
        durable(daemon, load, redis, pg, may_be=kept)
        for client in load.clients:
            client.may_be = {pair: kept[pair] for pair in client.pairs}
            client.again = []
        load.release()
        # All answers are checked: none comes from the old copy.
        load.wait_acked(600)
    durable(daemon, load, redis, pg)


@BOTH
@pytest.mark.parametrize("lookup", ["strict", "optimistic"])
def test_rolled_back_without_postgres(bed, redis, tmp_path, lookup, edges):
    """What the older Redis says cannot be looked up: events are taken on
    assumption, and the durable state is right afterwards all the same."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, like_lookup=lookup, follow_lookup=lookup,
                        **SMALL)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=lookup, edges=edges) as load:
        load.wait_acked(300)
        redis.stop()
        copy_data(redis, tmp_path)
        redis.start()
        for _ in range(3):
            load.wait_acked(400)
            load.hold()
            daemon.drain(SECONDS)
            cluster.stop()
            redis.stop()
            put_back(redis, tmp_path)
            redis.start()
            load.release()
            load.wait_acked(200)
            cluster.start()
            wait_for(daemon.ready, what="the daemon to be back")
    durable(daemon, load, redis, pg)


def test_an_older_redis_does_not_judge(bed, redis, pg, tmp_path):
    """Pairs that the copy has as liked and unsynced, or as clean, or does not
    have; all of them were changed and synced after the copy was made."""
    daemon = bed.daemon(redis, pg, **SMALL)

    def ask(*words):
        with contextlib.closing(daemon.client()) as client:
            return client.execute_command(*words)

    assert ask("LIKE", 2, 1) == 1                  # clean in the copy
    daemon.drain()
    flusher(daemon, "PAUSE")
    assert ask("LIKE", 1, 1) == 1                  # dirty in the copy
    assert ask("LIKE", 4, 1) == 1
    redis.stop()
    copy_data(redis, tmp_path)
    redis.start()
    raised(redis, 0)
    flusher(daemon, "RESUME")
    daemon.drain()
    assert ask("UNLIKE", 1, 1) == 1
    assert ask("UNLIKE", 2, 1) == 1
    assert ask("LIKE", 3, 1) == 1                  # not in the copy
    daemon.drain()
    redis.stop()
    put_back(redis, tmp_path)
    redis.start()
    wait_for(daemon.ready, what="the daemon to be back")
    assert raised(redis, 0) == 1
    assert ask("LIKED", 1, 1) == [0]
    assert ask("LIKED", 2, 1) == [0]
    assert ask("LIKED", 3, 1) == [1]
    assert ask("LIKED", 4, 1) == [1]
    assert ask("UNLIKE", 1, 1) == 0
    assert ask("LIKE", 1, 1) == 1
    assert ask("LIKE", 2, 1) == 1
    assert ask("LIKE", 3, 1) == 0
    assert ask("UNLIKE", 4, 1) == 1
    daemon.drain()
    check_states(pg, {(1, 1): {1}, (2, 1): {1}, (3, 1): {1}, (4, 1): {0}})
    check_clean(redis, pg)
    assert ask("LIKECOUNT", 1) == [3]


@pytest.mark.parametrize("interval_ms", [1, 1000])
def test_rolled_back_again_and_again(bed, redis, pg, tmp_path, interval_ms):
    """To one and the same copy, with batches and deltas without rows on
    record in it; what PostgreSQL has by then stays."""
    daemon = bed.daemon(redis, pg, **{**SMALL, "postgres_connections": 2,
                                      "flush_interval_ms": interval_ms})
    others = Others(redis)
    with harness.I1Watcher(pg), \
            Load(daemon, seed=interval_ms, evict=redis) as load:
        others.write()
        load.wait_acked(300)
        redis.kill9()
        copy_data(redis, tmp_path)
        redis.start()
        for _ in range(4):
            load.wait_acked(200)
            load.hold()
            daemon.drain(SECONDS)
            redis.stop()
            put_back(redis, tmp_path)
            redis.start()
            wait_for(daemon.ready, what="the daemon to be back")
            load.release()
        load.wait_acked(200)
    daemon.drain(SECONDS)
    load.check_clients()
    check_states(pg, {**load.may_be(), **others.pairs})
    harness.check_exact(pg)
