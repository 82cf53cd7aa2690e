# SPDX-License-Identifier: MIT
"""The second servers: a standby and a replica that follow, fall behind, and take
over."""
import contextlib

import harness
from proxy import Link
from servers import Spread, wait_for


def like(daemon, user, post):
    with contextlib.closing(daemon.client()) as client:
        return client.execute_command("LIKE", user, post)


def likes(pg):
    return pg.value("SELECT count(*) FROM user_like_post WHERE status = 1")


def test_standby_takes_over(bed, redis):
    primary = bed.postgres()
    pg = primary.create_database()
    standby = primary.standby()
    both = Spread(pg, standby, primary)
    daemon = bed.daemon(redis, both)    # the first of its hosts is read-only
    assert like(daemon, 7, 42) == 1
    daemon.drain()
    primary.wait_standby(standby)
    primary.stop("immediate")
    assert like(daemon, 8, 42) == 1
    standby.promote()
    both.moved(standby)
    daemon.drain()
    assert likes(both) == 2
    harness.check_exact(both)


def test_standby_behind(bed):
    """What does not reach it is lost when it takes over."""
    primary = bed.postgres()
    pg = primary.create_database(schema=False)
    pg.query("CREATE TABLE t (x int)")
    link = Link(bed, primary)
    standby = primary.standby(through=link)
    seen = Spread(pg, standby)
    seen.moved(standby)
    standby.pause_replay()
    pg.query("INSERT INTO t VALUES (1)")
    assert seen.query("SELECT x FROM t") == []
    standby.resume_replay()
    primary.wait_standby(standby)
    assert seen.query("SELECT x FROM t") == [(1,)]
    link.mode("blackhole")
    pg.query("INSERT INTO t VALUES (2)")
    link.wait_fired()
    primary.stop("immediate")
    standby.promote()
    assert seen.query("SELECT x FROM t") == [(1,)]


def test_replica_takes_over(bed, pg):
    """Behind one address, which moves on."""
    redis = bed.redis(appendfsync="always")
    replica = redis.replica()
    link = Link(bed, redis)
    daemon = bed.daemon(link, pg, flush_interval_ms=3_600_000)
    assert like(daemon, 7, 42) == 1
    redis.wait_replica(replica)
    redis.kill9()
    replica.promote()
    link.target(replica)
    wait_for(daemon.ready)
    assert like(daemon, 7, 42) == 0     # it knows
    daemon.drain()
    assert likes(pg) == 1


def test_replica_behind(bed):
    redis = bed.redis()
    through = Link(bed, redis.tcp_address())
    replica = redis.replica(through=through)
    redis.ask("SET", "a", 1)
    redis.wait_replica(replica)
    through.mode("blackhole", direction="down")
    redis.ask("SET", "a", 2)
    through.wait_fired()
    assert replica.ask("GET", "a") == "1"
    redis.kill9()
    replica.promote()
    through.mode("pass")
    assert replica.ask("GET", "a") == "1"
    # The old primary comes back, as a replica; so it does at each start.
    redis.primary = int(replica.tcp_address().rpartition(":")[2])
    redis.start()
    replica.wait_replica(redis)
    assert redis.ask("GET", "a") == "1"
    redis.promote()
    redis.restart()
    redis.ask("SET", "a", 3)
    replica.follow(redis)
    redis.wait_replica(replica)
    assert replica.ask("GET", "a") == "3"
