# SPDX-License-Identifier: MIT
"""PostgreSQL comes back without what it had committed: what Redis took for written is
asked for again. (A standby that was behind: pg_failover_behind of the fault
campaign.)"""
import contextlib

import harness
from edges import check_answers, check_clean
from servers import wait_for

FAILOVERS = "likesyncd_postgres_failovers_total"


def asker(daemon):
    def ask(*words):
        with contextlib.closing(daemon.client()) as client:
            return client.execute_command(*words)
    return ask


def admin(cluster, *statements):
    with contextlib.closing(cluster.connect("postgres")) as connection:
        for sql in statements:
            connection.cursor().execute(sql)


def seen(daemon):
    return daemon.metrics()[FAILOVERS]


def test_restored(bed, redis):
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg)
    ask = asker(daemon)
    assert ask("LIKE", 1, 9) == ask("FOLLOW", 1, 2) == 1
    daemon.drain()
    daemon.term()                       # nobody may be connected
    admin(cluster, f"CREATE DATABASE backup TEMPLATE {pg.name}")
    daemon.start()
    assert ask("LIKE", 2, 9) == ask("UNLIKE", 1, 9) == ask("LIKE", 3, 9) == 1
    assert ask("FOLLOW", 3, 2) == ask("UNFOLLOW", 1, 2) == 1
    daemon.drain()
    assert ask("LIKECOUNT", 9) == [2]
    assert ask("FOLLOWERS", 2) == ["3"]
    assert seen(daemon) == 0
    admin(cluster, f"DROP DATABASE {pg.name} WITH (FORCE)",
          f"ALTER DATABASE backup RENAME TO {pg.name}")
    wait_for(lambda: seen(daemon) == 1, what="the daemon to see it")
    assert [ask("LIKED", user, 9) for user in (1, 2, 3)] == [[1], [0], [0]]
    assert ask("LIKECOUNT", 9) == [1]
    assert ask("FOLLOWERS", 2) == ["1"]
    assert ask("RELATION", 2, 1, 3) == [2, 0]
    check_answers(daemon, pg)
    # What was answered once is so, and is written again.
    assert ask("LIKE", 2, 9) == ask("UNFOLLOW", 1, 2) == 0
    assert ask("LIKECOUNT", 9) == [2]
    daemon.drain()
    assert pg.query("SELECT user_id FROM user_like_post WHERE status = 1"
                    " ORDER BY user_id") == [(1,), (2,)]
    assert pg.query("SELECT * FROM user_follow WHERE status = 1") == []
    check_clean(redis, pg)
    check_answers(daemon, pg)
    assert seen(daemon) == 1


def test_behind_a_pooler(bed, redis, pg):
    """No connection ends; it is seen all the same."""
    daemon = bed.daemon(redis, pg)
    reconnects = daemon.metrics()["likesyncd_postgres_reconnects_total"]
    noted = redis.client().hget("likesync:state:like", "pg")
    for kind in ("like", "follow"):
        redis.client().hset(f"likesync:state:{kind}", "pg", "another")
    wait_for(lambda: seen(daemon) == 1, what="the daemon to see it")
    metrics = daemon.metrics()
    assert metrics["likesyncd_postgres_reconnects_total"] == reconnects
    assert metrics["likesyncd_generation"] == 1
    assert redis.client().hget("likesync:state:like", "pg") == noted


def test_restarted(bed, redis):
    """A crash is no failover."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg)
    cluster.restart("immediate")
    wait_for(daemon.ready, what="the daemon to be back")
    daemon.restart()
    metrics = daemon.metrics()
    assert metrics[FAILOVERS] == metrics["likesyncd_generation"] == 0


def test_not_allowed_to_ask(bed, redis):
    cluster = bed.postgres()
    pg = cluster.create_database()
    pg.query("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    daemon = bed.daemon(redis, pg)
    ask = asker(daemon)
    wait_for(lambda: "a failover would not be seen: permission denied"
             in daemon.log_text(), what="the daemon to say so")
    assert ask("LIKE", 1, 9) == 1
    daemon.drain()
    harness.check_exact(pg)
