# SPDX-License-Identifier: MIT
"""Ways to run: without lookups, with a backend away or full, on a Redis or a
database that does not fit."""
import contextlib
import time

import pytest
import redis as redis_py

import harness
from harness import wait_for
from wire import Wire, encode

DEADLINE = 20       # s; requests have at most a few seconds by configuration


def rows(pg):
    return pg.query("SELECT post_id, user_id, status FROM user_like_post"
                    " ORDER BY 1, 2")


def counts(pg):
    return {post: (count, un) for post, count, un in pg.query(
        "SELECT post_id, like_count, unattributed FROM post_like")}


def call(daemon, *arguments):
    """The reply's text, within the deadline."""
    with Wire(daemon.socket, timeout=DEADLINE) as wire:
        return wire.call(*arguments).decode()


def wait_log(daemon, text, after=0):
    wait_for(lambda: text in daemon.log_text()[after:], 30, f"log: {text}")


def forget(redis):
    """What Redis does to clean states in time."""
    keys = redis.client()
    for key in keys.scan_iter("post_user_like_*", count=1000):
        if keys.ttl(key) > 0:
            keys.delete(key)


# ---- lookup = optimistic ----

def test_optimistic_replies_may_be_wrong_and_the_tables_never(bed, redis, pg):
    daemon = bed.daemon(redis, pg, like_lookup="optimistic")
    with daemon.client() as client:
        for user in range(1, 7):
            assert client.execute_command("LIKE", user, 42) == 1
        daemon.drain()
        forget(redis)
        with harness.I1Watcher(pg):
            # Already liked, which only PostgreSQL knows.
            assert client.execute_command("LIKE", 1, 42) == 1
            assert client.execute_command("LIKE", 1, 42) == 0
            # "Not liked" is assumed, and the event recorded all the same.
            assert client.execute_command("UNLIKE", 2, 42) == 0
            assert client.execute_command("UNLIKE", 3, 42) == 0
            assert client.execute_command("LIKE", 3, 42) == 1
            assert client.execute_command("LIKE", 4, 42) == 1
            assert client.execute_command("UNLIKE", 4, 42) == 1
            assert client.execute_command("UNLIKE", 7, 42) == 0
            assert client.execute_command("LIKE", 8, 42) == 1
            # An old client time neither changes what is there nor is lost
            # where nothing is.
            client.execute_command("UNLIKE", 5, 42, "AT", 1289192400)
            client.execute_command("LIKE", 9, 42, "AT", 1289192400)
            daemon.drain()
        liked = [1, 3, 5, 6, 8, 9]
        assert [user for _, user, status in rows(pg) if status] == liked
        assert counts(pg) == {42: (6, 0)}
        # Acked: not assumed any more.
        assert client.execute_command("LIKECOUNT", 42) == [6]
        for user in range(1, 10):
            assert client.execute_command("LIKED", user, 42) == \
                [int(user in liked)]
        for user in (1, 2, 3, 4, 7, 8):
            assert client.execute_command(
                "LIKE" if user in liked else "UNLIKE", user, 42) == 0
        assert client.execute_command("UNLIKE", 1, 42) == 1
        daemon.drain()
        assert counts(pg) == {42: (5, 0)}
    harness.check_exact(pg)
    assert not redis.client().exists("post_42_counter", "post_set")


def test_optimistic_asks_nobody(bed, redis, pg):
    daemon = bed.daemon(redis, pg, like_lookup="optimistic")
    with daemon.client() as client:
        for user in range(50):
            assert client.execute_command("LIKE", user, 42) == 1
    assert daemon.metrics()["likesyncd_lookup_queries_total"] == 0


def test_lookup_is_reloadable(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        daemon.drain()
        forget(redis)
        assert client.execute_command("LIKE", 7, 42) == 0
        daemon.drain()
        forget(redis)
        daemon.write_config(like_lookup="optimistic")
        daemon.sighup()
        wait_log(daemon, "reload")
        assert client.execute_command("LIKE", 7, 42) == 1
    daemon.drain()
    assert counts(pg) == {42: (1, 0)}


# ---- Redis' clock behind ----

def test_a_clock_that_is_set_back(bed, redis, pg):
    """The watermark is ahead of the clock then, and must not cover what comes
    after it. (As if: the last pass began a minute from now.)"""
    daemon = bed.daemon(redis, pg)
    keys = redis.client()

    def through():
        return pg.value("SELECT extract(epoch FROM max(synced_through))::float8"
                        " FROM sync_state") or 0

    with daemon.admin() as admin, daemon.client() as client, \
            contextlib.closing(pg.connect()) as rival:
        admin.execute_command("FLUSHER", "PAUSE")
        begun = time.time() + 60
        keys.hset("likesync:state:like", "pass_at", int(begun * 1000000))
        wait_for(lambda: through() > begun - 1, 10, "the watermark")
        rival.cursor().execute("BEGIN; LOCK TABLE post_like IN EXCLUSIVE MODE")
        admin.execute_command("FLUSHER", "RESUME")
        assert client.execute_command("LIKE", 7, 42) == 1
        assert float(keys.hget("post_user_like_42_7", "mtime")) > through()
        with pytest.raises(redis_py.ResponseError, match="TIMEOUT"):
            daemon.drain(1)
        rival.cursor().execute("ROLLBACK")
        daemon.drain()
        assert rows(pg) == [(42, 7, 1)]
        assert client.execute_command("UNLIKE", 7, 42) == 1
    daemon.drain()
    assert rows(pg) == [(42, 7, 0)]


def test_the_floor_is_asked_for_until_it_is_known(bed, redis, pg):
    """PostgreSQL holds later times than this Redis' clock has, and does not
    say so when Redis comes back empty."""
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=200)
    call(daemon, "LIKE", 7, 42)
    daemon.drain()
    pg.query("UPDATE user_like_post SET mtime = now() + interval '1 hour'")
    pg.query("UPDATE sync_state SET floor = now() + interval '1 hour'")
    with contextlib.closing(pg.connect()) as rival:
        rival.cursor().execute("BEGIN; LOCK TABLE sync_batch")
        redis.client().flushall()
        redis.restart()
        wait_for(lambda: redis.client().hexists("likesync:state:like",
                                                "run_id"), 30,
                 "it to be used without the floor")
    hour = (time.time() + 3000) * 1000000
    wait_for(lambda: int(redis.client().hget("likesync:state:like", "floor")
                         or 0) > hour, 30, "the floor")
    assert call(daemon, "UNLIKE", 7, 42) == ":1\r\n"
    daemon.drain()
    assert rows(pg) == [(42, 7, 0)]


# ---- PostgreSQL away ----

@pytest.fixture
def own(bed):
    """A cluster that may be stopped, with a database."""
    cluster = bed.postgres()
    return cluster, cluster.create_database()


def pg_gone(cluster, daemon):
    cluster.stop()
    wait_for(lambda: daemon.metrics()["likesyncd_postgres_up"] == 0, 30,
             "the daemon to see it")


def test_events_while_postgres_is_away(bed, redis, own):
    cluster, pg = own
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        for user in (1, 2, 3, 4):
            client.execute_command("LIKE", user, 42)
        client.execute_command("LIKE", 1, 43)
        daemon.drain()
        forget(redis)
        client.execute_command("LIKE", 4, 42)     # known to Redis again
        pg_gone(cluster, daemon)

        assert client.execute_command("LIKE", 1, 42) == 1      # assumed
        assert client.execute_command("UNLIKE", 2, 42) == 0    # assumed
        assert client.execute_command("UNLIKE", 2, 42) == 0
        assert client.execute_command("LIKE", 5, 42) == 1
        assert client.execute_command("LIKE", 5, 42) == 0
        assert client.execute_command("LIKE", 6, 42) == 1
        assert client.execute_command("UNLIKE", 6, 42) == 1
        assert client.execute_command("UNLIKE", 4, 42) == 1    # known
        assert client.execute_command("UNLIKE", 1, 43) == 0
        # The total is not known, the event is recorded all the same.
        assert client.execute_command("LIKE", 7, 42, "WITHCOUNT") == [1, None]
        assert client.execute_command("LIKE", 7, 42, "AT", 5) == 0
        dirty = redis.client().smembers("post_user_like_set_42")
        # A batch that was under way when it went has the others.
        assert {"1", "2", "5", "6", "7"} - dirty == set() or \
            redis.client().exists("likesync:batches:like")
        for key in redis.client().scan_iter("post_user_like_42_*"):
            assert redis.client().ttl(key) == -1 or key.endswith("_3")

        cluster.start()
        with harness.I1Watcher(pg):
            daemon.drain(60)
        assert rows(pg) == [(42, 1, 1), (42, 2, 0), (42, 3, 1), (42, 4, 0),
                            (42, 5, 1), (42, 6, 0), (42, 7, 1), (43, 1, 0)]
        assert counts(pg) == {42: (4, 0), 43: (0, 0)}
        assert client.execute_command("LIKECOUNT", 42, 43) == [4, 0]
        assert client.execute_command("LIKED", 2, 42, 43) == [0, 0]
    assert not redis.client().exists("post_42_counter", "post_43_counter",
                                     "post_set")
    harness.check_exact(pg)


def test_reads_while_postgres_is_away(bed, redis, own):
    """Answered from Redis where it knows, refused where only PostgreSQL
    does."""
    cluster, pg = own
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        client.execute_command("LIKE", 1, 42)
        client.execute_command("LIKE", 2, 42)
        daemon.drain()
        redis.client().delete("post_user_like_42_2")
        pg_gone(cluster, daemon)
        assert client.execute_command("LIKED", 1, 42) == [1]
        client.execute_command("UNLIKE", 1, 42)
        assert client.execute_command("LIKED", 1, 42) == [0]
        client.execute_command("LIKE", 3, 42)      # assumed: PostgreSQL may
        for request in (("LIKED", 2, 42), ("LIKED", 1, 42, 43),  # be newer
                        ("LIKED", 3, 42), ("LIKECOUNT", 42)):
            reply = call(daemon, *request)
            assert reply.startswith("-UNAVAILABLE ") and \
                "PostgreSQL" in reply, request
        assert call(daemon, "PING") == "+PONG\r\n"
        cluster.start()
        daemon.drain(60)
        assert client.execute_command("LIKED", 2, 42, 43) == [1, 0]
        assert client.execute_command("LIKED", 3, 42) == [1]
        assert client.execute_command("LIKECOUNT", 42) == [2]
    harness.check_exact(pg)


# ---- Redis without the scripts ----

@pytest.mark.parametrize("words", [
    ("LIKED", 1, 42), ("LIKECOUNT", 42), ("LIKERS", 42), ("FOLLOWING", 1),
    ("FOLLOWCOUNT", 1), ("RELATION", 1, 2)], ids=lambda words: words[0])
def test_reads_when_the_scripts_are_flushed(bed, redis, pg, words):
    """They are to be tried again until the scripts are loaded: Redis is not
    away."""
    pg.psql("-f", harness.ROOT / "sql" / "likers.sql")
    daemon = bed.daemon(redis, pg, like_lists="yes", redis_timeout_ms=20000,
                        redis_connect_timeout_ms=20000)
    with Wire(daemon.socket, timeout=60) as wire, \
            contextlib.closing(redis.client()) as keys:
        assert wire.call("LIKE", 1, 42) == b":1\r\n"
        assert wire.call("FOLLOW", 1, 2) == b":1\r\n"
        daemon.drain()
        right = wire.call(*words)
        assert right.startswith(b"*"), right
        refusals = set()

        def is_refused():
            keys.script_flush()     # before the daemon itself calls one
            refusals.add(wire.call(*words))
            return refusals - {right}

        def is_right():
            refusals.add(wire.call(*words))
            return right in refusals
        wait_for(is_refused, 60, "a read without its script")
        refusals.discard(right)
        wait_for(is_right, 60, "the scripts to be loaded")
    refusals.discard(right)
    assert all(text.startswith(b"-TRYAGAIN Redis ") for text in refusals), \
        refusals


# ---- Redis away ----

REQUESTS = [("LIKE", 7, 42), ("UNLIKE", 7, 42), ("LIKE", 7, 42, "WITHCOUNT"),
            ("LIKED", 7, 42), ("LIKECOUNT", 42)]


def test_every_request_is_answered_while_redis_is_away(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    assert call(daemon, "LIKE", 1, 42) == ":1\r\n"
    daemon.drain()
    redis.kill9()
    wait_for(lambda: daemon.metrics()["likesyncd_redis_up"] == 0, 30,
             "the daemon to see it")
    for _ in range(2):
        for request in REQUESTS:
            reply = call(daemon, *request)
            assert reply.startswith("-UNAVAILABLE ") and "Redis" in reply, \
                request
    with Wire(daemon.socket, timeout=DEADLINE) as wire:
        wire.send(b"".join(encode(*request) for request in REQUESTS * 50)
                  + encode("PING"))
        for _ in REQUESTS * 50:
            assert wire.read().startswith(b"-UNAVAILABLE ")
        assert wire.read() == b"+PONG\r\n"
    redis.start()
    wait_for(lambda: call(daemon, "LIKE", 8, 42) in (":1\r\n", ":0\r\n"), 30,
             "to heal")
    daemon.drain()
    # What was refused was not recorded.
    assert rows(pg) == [(42, 1, 1), (42, 8, 1)]


def test_started_without_redis(bed, redis, pg):
    """Ready for clients, and each gets a clear error until it is there."""
    redis.stop()
    daemon = bed.daemon(redis, pg, wait="answers")
    for request in REQUESTS:
        reply = call(daemon, *request)
        assert reply.startswith("-UNAVAILABLE "), request
    redis.start()
    wait_for(lambda: call(daemon, "LIKE", 7, 42) in (":1\r\n", ":0\r\n"), 30,
             "to heal")
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)]


def test_requests_when_redis_goes_are_answered(bed, redis, pg):
    """In the middle of a pipeline: each reply is a result or says that there
    is none; what was answered with 1 is there."""
    daemon = bed.daemon(redis, pg)
    with Wire(daemon.socket, timeout=DEADLINE) as wire:
        wire.send(b"".join(encode("LIKE", user, 42) for user in range(3000)))
        replies = [wire.read() for _ in range(200)]
        redis.kill9()
        replies += [wire.read() for _ in range(2800)]
    assert all(reply.startswith((b":1\r\n", b"-UNAVAILABLE ", b"-UNKNOWN "))
               for reply in replies)
    redis.start()
    wait_for(daemon.ready, 30, "to heal")
    daemon.drain()
    liked = {user for _, user, _ in rows(pg)}
    for user, reply in enumerate(replies):
        if reply == b":1\r\n":
            assert user in liked
        elif reply.startswith(b"-UNAVAILABLE"):
            assert user not in liked
    harness.check_exact(pg)


# ---- Redis full ----

def full(redis):
    """More is used already than it may have."""
    keys = redis.client()
    keys.config_set("maxmemory", "1mb")
    assert keys.info("memory")["used_memory"] > 0
    with pytest.raises(redis_py.ResponseError, match="OOM|maxmemory"):
        keys.set("filler", "x" * 2_000_000)
        keys.set("other", "x")


@pytest.fixture
def filled(redis):
    """A Redis that holds enough to be over a limit of 1 MiB."""
    redis.client().set("filler", "x" * 2_000_000)
    return redis


def test_a_full_redis_takes_nothing_and_drains(bed, filled, pg):
    daemon = bed.daemon(filled, pg)
    keys = filled.client()
    with contextlib.closing(daemon.admin()) as admin:
        assert call(daemon, "LIKE", 1, 42) == ":1\r\n"
        daemon.drain()
        admin.execute_command("FLUSHER", "PAUSE")
        for user in range(2, 302):
            assert call(daemon, "LIKE", user, 42) == ":1\r\n"
        # A row and a delta of an app are part of the backlog.
        keys.sadd("post_set", 43, 44)
        keys.sadd("post_user_like_set_43", 7)
        keys.hset("post_user_like_43_7", mapping={"status": 1,
                                                  "mtime": 1289192400})
        keys.incr("post_43_counter")
        keys.incrby("post_44_counter", 5)
        full(filled)
        before = {key: keys.dump(key) for key in keys.scan_iter(count=1000)}
        for request in (("LIKE", 999, 42), ("LIKE", 999, 45),
                        ("UNLIKE", 1, 42), ("UNLIKE", 5, 42),
                        ("LIKE", 999, 42, "WITHCOUNT"),
                        ("LIKE", 999, 42, "AT", 1289192400)):
            assert call(daemon, *request) == \
                "-OOM not recorded: Redis is at its maxmemory\r\n", request
        # What changes nothing needs no room.
        assert call(daemon, "LIKE", 1, 42) == ":0\r\n"
        assert call(daemon, "UNLIKE", 998, 42) == ":0\r\n"
        assert call(daemon, "LIKED", 5, 42) == "*1\r\n:1\r\n"
        assert call(daemon, "LIKECOUNT", 42) == "*1\r\n:301\r\n"
        assert {key: keys.dump(key)
                for key in keys.scan_iter(count=1000)} == before

        admin.execute_command("FLUSHER", "RESUME")
        daemon.drain()
    assert counts(pg) == {42: (301, 0), 43: (1, 0), 44: (5, 5)}
    harness.check_exact(pg)
    assert not keys.exists("post_set", "likesync:onrecord:like",
                           "post_42_counter", "post_44_counter")
    # Still full, and drained; then there is room again.
    assert call(daemon, "LIKE", 999, 42).startswith("-OOM ")
    keys.config_set("maxmemory", 0)
    assert call(daemon, "LIKE", 999, 42) == ":1\r\n"
    daemon.drain()
    assert counts(pg)[42] == (302, 0)


def test_a_restart_on_a_full_redis(bed, filled, pg):
    """Recovery works there, too."""
    daemon = bed.daemon(filled, pg)
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
        assert call(daemon, "LIKE", 1, 42) == ":1\r\n"
    daemon.kill9()
    full(filled)
    daemon.start()
    daemon.drain()
    assert rows(pg) == [(42, 1, 1)]


# ---- eviction and persistence ----

@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu",
                                    "allkeys-random"])
def test_no_start_on_a_redis_that_evicts_unsynced_keys(bed, pg, policy):
    redis = bed.redis(maxmemory_policy=policy)
    daemon = bed.daemon(redis, pg, wait=None)
    assert daemon.wait_exit() not in (0, None)
    text = daemon.log_text()
    assert f"maxmemory-policy {policy}" in text
    assert "noeviction or volatile-" in text
    assert redis.client().dbsize() == 0
    daemon.check_log()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru",
                                    "volatile-ttl"])
def test_other_policies_are_fine(bed, pg, policy):
    daemon = bed.daemon(bed.redis(maxmemory_policy=policy), pg)
    assert call(daemon, "LIKE", 7, 42) == ":1\r\n"
    assert "maxmemory-policy" not in daemon.log_text()


def test_a_policy_that_changes_at_run_time(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    assert call(daemon, "LIKE", 1, 42) == ":1\r\n"
    keys.config_set("maxmemory-policy", "allkeys-lru")
    wait_for(lambda: call(daemon, "LIKE", 2, 42).startswith("-UNAVAILABLE "),
             30, "the daemon to see it")
    assert "allkeys" in call(daemon, "LIKE", 3, 42)
    assert "maxmemory-policy allkeys-lru" in daemon.log_text()
    assert daemon.metrics()["likesyncd_redis_up"] == 0
    assert daemon.running()
    assert not keys.exists("post_user_like_42_3")
    keys.config_set("maxmemory-policy", "noeviction")
    wait_for(lambda: call(daemon, "LIKE", 3, 42) == ":1\r\n", 30, "to heal")
    assert "redis: it can be used again" in daemon.log_text()
    daemon.drain()
    assert (42, 3, 1) in rows(pg)
    harness.check_exact(pg)


def test_the_floor_of_one_kind_holds_for_all(bed, redis, pg):
    """One clock makes the times of all kinds, so what is known of one of them
    is known of it."""
    pg.query("INSERT INTO sync_state VALUES"
             " ('follow', now(), now() + interval '1 hour')")
    floor = pg.value("SELECT floor FROM sync_state WHERE kind = 'follow'")
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    for kind in ("like", "follow"):
        wait_for(lambda: float(keys.hget(f"likesync:state:{kind}", "floor")
                               or 0) >= floor.timestamp() * 1e6,
                 what="the floor")
    assert call(daemon, "LIKE", 7, 42) == ":1\r\n"
    daemon.drain()
    assert pg.value("SELECT mtime FROM user_like_post") > floor


def test_redis_is_used_when_all_kinds_have_been_recovered(bed, redis, pg):
    keys = redis.client()
    keys.set("likesync:state:follow", "not a hash")
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon, "recover failed: WRONGTYPE")
    assert keys.exists("likesync:state:like")
    assert call(daemon, "LIKE", 7, 42).startswith("-UNAVAILABLE")
    assert daemon.metrics()["likesyncd_redis_up"] == 0
    keys.delete("likesync:state:follow")
    wait_for(lambda: call(daemon, "LIKE", 7, 42) == ":1\r\n", what="to heal")
    daemon.drain()
    assert (42, 7, 1) in rows(pg)


def test_a_redis_without_aof_is_told(bed, pg):
    daemon = bed.daemon(bed.redis(appendonly="no"), pg)
    assert "no append-only file" in daemon.log_text()
    assert " warn " in [line for line in daemon.log_text().splitlines()
                        if "no append-only file" in line][0]
    assert call(daemon, "LIKE", 7, 42) == ":1\r\n"
    with_aof = bed.daemon(bed.redis(), pg)
    assert "append-only" not in with_aof.log_text()


# ---- databases that do not fit ----

@pytest.fixture
def bare(bed, cluster):
    """A database without the schema, in a cluster that has the roles."""
    cluster.make_template()
    database = cluster.create_database(schema=False)
    bed.databases.append(database)
    return database


def check_heals(daemon, pg, mend):
    """Taken meanwhile, not written; durable once it is mended."""
    assert call(daemon, "LIKE", 7, 42) == ":1\r\n"
    assert daemon.metrics()["likesyncd_postgres_up"] == 0
    mend()
    wait_for(lambda: daemon.metrics()["likesyncd_postgres_up"] == 1, 60,
             "to heal")
    daemon.drain(60)
    assert pg.query("SELECT post_id, user_id, status"
                    " FROM user_like_post") == [(42, 7, 1)]


def test_a_database_without_the_schema(bed, redis, bare):
    daemon = bed.daemon(redis, bare, wait="answers")
    wait_log(daemon, "the tables are not there: apply sql/schema.sql")
    check_heals(daemon, bare, bare.apply_schema)


@pytest.mark.parametrize("version", ["0", "99"])
def test_another_version_of_the_schema(bed, redis, pg, version):
    comment = "COMMENT ON TABLE sync_state IS 'likesyncd schema version {}'"
    pg.query(comment.format(version))
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon, f'the database has "likesyncd schema version {version}"')
    wait_log(daemon, "apply sql/schema.sql")
    check_heals(daemon, pg, pg.apply_schema)


def test_a_database_of_version_1(bed, redis, pg):
    """It had no tables for follows; what it holds of likes stays."""
    pg.query("DROP TABLE user_follow, user_follow_count")
    pg.query("COMMENT ON TABLE sync_state IS 'likesyncd schema version 1'")
    pg.query("INSERT INTO user_like_post VALUES (42, 8, 1, 0, now(), now())")
    pg.query("INSERT INTO post_like VALUES (42, 1, 0, now())")
    pg.query("INSERT INTO sync_state VALUES ('like', now(), now())")
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon, 'the database has "likesyncd schema version 1", expected'
             ' "likesyncd schema version 2": apply sql/schema.sql')
    assert call(daemon, "LIKE", 7, 42) == ":1\r\n"
    pg.apply_schema()
    wait_for(lambda: daemon.metrics()["likesyncd_postgres_up"] == 1, 60,
             "to heal")
    daemon.drain(60)
    assert rows(pg) == [(42, 7, 1), (42, 8, 1)]
    assert counts(pg) == {42: (2, 0)}
    assert pg.query("SELECT kind FROM sync_state ORDER BY 1") == \
        [("follow",), ("like",)]
    pg.apply_schema()
    assert pg.value("SELECT obj_description('sync_state'::regclass)") == \
        "likesyncd schema version 2"


def test_ids_of_another_type(bed, cluster, redis):
    pg = cluster.create_database(variables={"post_id_type": "uuid"})
    bed.databases.append(pg)
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon, "user_like_post.post_id is not bigint, as ids.post says")

    def mend():
        pg.query("DROP TABLE user_like_post, post_like")
        pg.apply_schema()
    check_heals(daemon, pg, mend)


def test_a_column_that_is_missing(bed, redis, pg):
    pg.query("ALTER TABLE post_like RENAME unattributed TO other")
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon, "post_like.unattributed is not there")
    check_heals(daemon, pg, lambda: pg.query(
        "ALTER TABLE post_like RENAME other TO unattributed"))


def test_a_role_without_rights(bed, redis, pg):
    pg.query("REVOKE UPDATE ON post_like FROM likesyncd")
    daemon = bed.daemon(redis, pg, wait="answers")
    wait_log(daemon,
             "no right to read and write post_like: apply sql/roles.sql")
    check_heals(daemon, pg, pg.apply_schema)


def test_tables_that_go_while_it_runs(bed, redis, pg):
    """Flushing stops with an alarm, events are taken, and all of them are
    there once the table is back."""
    daemon = bed.daemon(redis, pg)
    assert call(daemon, "LIKE", 1, 42) == ":1\r\n"
    daemon.drain()
    pg.query("ALTER TABLE post_like RENAME TO post_like_away")
    start = len(daemon.log_text())
    assert call(daemon, "LIKE", 2, 42) == ":1\r\n"
    wait_log(daemon, "post_like", after=start)
    assert call(daemon, "LIKE", 3, 42) == ":1\r\n"
    assert rows(pg) == [(42, 1, 1)]
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 0
    pg.query("ALTER TABLE post_like_away RENAME TO post_like")
    daemon.drain(60)
    assert rows(pg) == [(42, user, 1) for user in (1, 2, 3)]
    assert counts(pg) == {42: (3, 0)}
    harness.check_exact(pg)


# ---- rights ----

def test_the_least_rights_are_enough(bed, redis, pg):
    """All that the daemon ever does, by a role that may do nothing else."""
    granted = set(pg.query(
        "SELECT table_name::text, privilege_type::text"
        " FROM information_schema.role_table_grants"
        " WHERE grantee = 'likesyncd'"))
    tables = ("user_like_post", "post_like", "user_follow",
              "user_follow_count", "sync_batch", "sync_dead_letter",
              "sync_state")
    assert granted == {(table, right) for table in tables
                       for right in ("SELECT", "INSERT", "UPDATE")} | {
                           ("sync_batch", "DELETE")}
    assert pg.query(
        "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication,"
        " rolbypassrls, pg_has_role('likesyncd', 'pg_write_all_data',"
        " 'MEMBER') FROM pg_roles WHERE rolname = 'likesyncd'") == \
        [(False,) * 6]
    assert pg.value("SELECT has_schema_privilege('likesyncd', 'public',"
                    " 'CREATE')") is False

    pg.query("ALTER TABLE user_like_post ADD CHECK (user_id <> 13)")
    # A row of the ledger that is old enough to be pruned.
    pg.query("INSERT INTO sync_batch VALUES ('old', 'i', 'like', 1,"
             " now() - interval '3 days', now() - interval '3 days')")
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    assert len(pg.backends()) == 2
    for user in (7, 8, 13):
        assert call(daemon, "LIKE", user, 42) == ":1\r\n"
    keys.sadd("post_set", 43, 44, 45)
    keys.incrby("post_43_counter", 3)                        # a delta
    keys.sadd("post_user_like_set_44", 7)                    # an app's row
    keys.hset("post_user_like_44_7", mapping={"status": 1, "mtime": 5})
    keys.incr("post_44_counter")
    keys.sadd("post_user_like_set_45", 7)                    # malformed
    keys.hset("post_user_like_45_7", "status", "x")
    daemon.drain()
    forget(redis)
    assert call(daemon, "UNLIKE", 7, 42) == ":1\r\n"         # a lookup
    assert call(daemon, "LIKED", 8, 42) == "*1\r\n:1\r\n"
    assert call(daemon, "LIKECOUNT", 42) == "*1\r\n:1\r\n"
    daemon.drain()
    assert counts(pg) == {42: (1, 0), 43: (3, 3), 44: (1, 0)}
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 2
    assert pg.value("SELECT count(*) FROM sync_state") == 2
    daemon.term()
    assert "denied" not in daemon.log_text()


def test_the_read_role_may_read_only(pg):
    granted = pg.query(
        "SELECT DISTINCT privilege_type::text, count(*)"
        " FROM information_schema.role_table_grants"
        " WHERE grantee = 'likesync_read' GROUP BY 1")
    assert granted == [("SELECT", 7)]


def test_roles_can_be_applied_again(pg):
    before = pg.query("SELECT relname, relacl::text FROM pg_class"
                      " WHERE relnamespace = 'public'::regnamespace"
                      " ORDER BY 1")
    pg.apply_schema()
    assert pg.query("SELECT relname, relacl::text FROM pg_class"
                    " WHERE relnamespace = 'public'::regnamespace"
                    " ORDER BY 1") == before
