# SPDX-License-Identifier: MIT
"""States of pages of pairs (LIKED, RELATION): what they cost, and that what the
daemon remembers of PostgreSQL's answers is never seen in place of what was changed
since.

What is promised rests on the hash that each change leaves in Redis for cache.ttl. So
a hash that somebody deletes by hand within 30 s of a change may be missed by another
daemon for as long; the tests delete one only where Redis itself has lost it."""
import contextlib
import re

import pytest

import harness
from harness import STATE_KEYS, wait_for
from load import copy_data, put_back
from wire import Wire, encode

USERS, POSTS = 1000, range(101, 151)
STATE = "likesync:state:like"
# A statement of the daemon in the server's log; each is one line.
STATEMENT = re.compile(r"^<likesyncd> LOG:  execute .*?: (.*)$", re.M)


@pytest.fixture(scope="module")
def logging_cluster(session_bed):
    """A PostgreSQL whose log holds every statement, and who sent it."""
    with harness.Bed(template=session_bed.template) as bed:
        yield bed.postgres(log_statement="all", log_line_prefix="<%a> ")


@pytest.fixture
def pg(bed, logging_cluster):
    database = logging_cluster.create_database()
    bed.databases.append(database)
    return database


class Statements:
    """Those that read or write likes or follows, from now on (not the look at the
    schema of a new connection)."""

    def __init__(self, pg):
        self.log = pg.cluster.log
        self.at = self.log.stat().st_size

    def new(self):
        """Since the last call. The server logs before it executes."""
        with self.log.open(errors="replace") as file:
            file.seek(self.at)
            text = file.read()
            self.at = file.tell()
        return [sql for sql in STATEMENT.findall(text)
                if re.search("user_like_post|post_like|user_follow", sql)
                and "pg_class" not in sql]


@pytest.fixture
def statements(pg):
    return Statements(pg)


@pytest.fixture
def two(bed, redis, pg):
    """The one that reads, and another."""
    return [bed.daemon(redis, pg) for _ in range(2)]


def ask(daemon, *request):
    with contextlib.closing(daemon.client()) as client:
        return client.execute_command(*request)


def have_liked(pg, pairs):
    """As if they had been there always: rows without hashes."""
    with contextlib.closing(pg.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.executemany(
            "INSERT INTO user_like_post (post_id, user_id, status,"
            " prev_status, ctime, mtime) VALUES (%s, %s, 1, 0,"
            " '2020-01-01', '2020-01-01')", pairs)
        cursor.execute(
            "INSERT INTO post_like (post_id, like_count, mtime)"
            " SELECT post_id, count(*), '2020-01-01' FROM user_like_post"
            " GROUP BY post_id")
        cursor.execute("COMMIT")


def remember(daemon, statements, request, expected):
    """Asks twice; the second time it is remembered."""
    assert ask(daemon, *request) == expected
    statements.new()
    assert ask(daemon, *request) == expected
    assert statements.new() == []


# ---- what it costs ----

def test_a_page_is_one_query_cold_and_none_warm(bed, redis, pg, statements):
    liked = {(post, user) for user in range(1, USERS, 2) for post in POSTS
             if (user + post) % 7 == 0}
    have_liked(pg, sorted(liked))
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    before = set(keys.scan_iter())
    statements.new()

    def read(users):
        for user in users:
            assert client.execute_command("LIKED", user, *POSTS) == [
                int((post, user) in liked) for post in POSTS], user
        return len(statements.new())
    cold = 0
    with contextlib.closing(daemon.client()) as client:
        for first in range(0, USERS, 100):      # well within 30 s each
            users = range(first, first + 100)
            n = read(users)
            assert n > 0
            cold += n
            assert read(users) == 0
    assert cold <= USERS
    assert set(keys.scan_iter()) == before
    metrics = daemon.metrics()
    assert metrics["likesyncd_recall_hits_total"] == USERS * len(POSTS)
    assert metrics['likesyncd_recall_entries{kind="like"}'] == \
        USERS * len(POSTS)
    assert metrics['likesyncd_recall_entries{kind="follow"}'] == 0


def test_who_never_liked_leaves_nothing_in_redis(daemon, redis):
    with Wire(daemon.socket) as wire:
        wire.send(b"".join(encode("LIKED", user, *POSTS)
                           for user in range(1000)))
        nothing = b"*50\r\n" + b":0\r\n" * 50
        assert [wire.read() for _ in range(1000)] == [nothing] * 1000
    assert sorted(redis.client().scan_iter()) == STATE_KEYS


@pytest.mark.parametrize("posts, most", [(1, 1), (250, 1), (251, 1), (1000, 1),
                                         (2500, 4)])
def test_all_that_is_unknown_is_asked_at_once(bed, redis, pg, statements,
                                              posts, most):
    have_liked(pg, sorted({(1, 7), (posts, 7)}))
    daemon = bed.daemon(redis, pg, server_max_args=3000,
                        server_max_arg_bytes=1024)
    statements.new()
    page = range(1, posts + 1)
    answer = [int(post in (1, posts)) for post in page]
    assert ask(daemon, "LIKED", 7, *page) == answer
    assert 1 <= len(statements.new()) <= most
    assert ask(daemon, "LIKED", 7, *page) == answer
    assert statements.new() == []


def test_half_known(bed, redis, pg, statements):
    """One query for what is new; hashes, what is remembered and rows in one
    answer."""
    have_liked(pg, [(2, 7), (4, 7)])
    daemon = bed.daemon(redis, pg)
    assert ask(daemon, "LIKE", 7, 1) == 1
    daemon.drain()
    remember(daemon, statements, ("LIKED", 7, 1, 2, 3), [1, 1, 0])
    assert ask(daemon, "LIKED", 7, 1, 2, 3, 4, 5, 4) == [1, 1, 0, 1, 0, 1]
    assert len(statements.new()) == 1


def test_relations(two, statements):
    """The same of follows."""
    reader, other = two
    remember(reader, statements, ("RELATION", 7, 8, 9), [0, 0])
    assert ask(other, "FOLLOW", 8, 7) == 1
    assert ask(reader, "RELATION", 7, 8, 9) == [2, 0]
    assert ask(reader, "FOLLOW", 7, 8) == 1
    assert ask(reader, "RELATION", 7, 8, 9) == [3, 0]
    other.drain()
    reader.drain()
    assert ask(reader, "RELATION", 7, 8, 9) == [3, 0]
    assert ask(other, "UNFOLLOW", 7, 8) == 1
    assert ask(reader, "RELATION", 7, 8, 9) == [2, 0]


# ---- changed since ----

@pytest.mark.parametrize("by", [0, 1], ids=["itself", "the other"])
@pytest.mark.parametrize("verbs", [("LIKE", "UNLIKE"), ("UNLIKE", "LIKE")])
def test_changes_are_seen_at_once(two, pg, statements, by, verbs):
    reader, writer = two[0], two[by]
    was = int(verbs[0] == "UNLIKE")
    if was:
        have_liked(pg, [(42, 7)])
    page = ("LIKED", 7, 40, 42)
    remember(reader, statements, page, [0, was])
    for verb in verbs:
        want = int(verb == "LIKE")
        assert ask(writer, verb, 7, 42) == 1
        assert ask(reader, *page) == [0, want]
        writer.drain()
        assert ask(reader, *page) == [0, want]


def test_own_changes_need_no_hash(daemon, redis, statements):
    """More than is promised: the daemon forgets what it changed itself."""
    remember(daemon, statements, ("LIKED", 7, 42, 43), [0, 0])
    assert ask(daemon, "LIKE", 7, 42) == 1
    daemon.drain()
    assert redis.client().delete("post_user_like_42_7") == 1
    assert ask(daemon, "LIKED", 7, 42, 43) == [1, 0]


# ---- a Redis that may not have the hash ----

def generation(redis):
    with contextlib.closing(redis.client()) as keys:
        return int(keys.hget(STATE, "gen") or -1)


def like_meanwhile(two):
    reader, writer = two
    assert ask(writer, "LIKE", 7, 42) == 1
    writer.drain()


def test_redis_restarted(daemon, redis, statements):
    remember(daemon, statements, ("LIKED", 7, 42), [0])
    redis.restart()
    wait_for(lambda: generation(redis) == 1, 30, "a new generation")
    wait_for(daemon.ready, 30, "the daemon to be back")
    statements.new()
    assert ask(daemon, "LIKED", 7, 42) == [0]
    assert len(statements.new()) == 1
    remember(daemon, statements, ("LIKED", 7, 42), [0])


def test_redis_rolled_back(two, redis, statements, tmp_path):
    """To a copy of the same generation as was read last."""
    reader = two[0]
    redis.stop()
    copy_data(redis, tmp_path)
    redis.start()
    for daemon in two:
        wait_for(daemon.ready, 30, "the daemons to be back")
    remember(reader, statements, ("LIKED", 7, 42), [0])
    like_meanwhile(two)
    assert generation(redis) == 1
    redis.stop()
    put_back(redis, tmp_path)
    redis.start()
    wait_for(lambda: generation(redis) == 1, 30, "the same generation again")
    wait_for(reader.ready, 30, "the daemon to be back")
    assert not redis.client().exists("post_user_like_42_7")
    assert ask(reader, "LIKED", 7, 42) == [1]


def test_failover_that_kept_the_connection(two, redis, statements):
    """The other daemon may be the first to notice."""
    reader = two[0]
    remember(reader, statements, ("LIKED", 7, 42), [0])
    like_meanwhile(two)
    keys = redis.client()
    assert keys.delete("post_user_like_42_7") == 1      # not replicated
    keys.hset(STATE, "run_id", "another")
    wait_for(lambda: generation(redis) == 1, 30, "a new generation")
    assert ask(reader, "LIKED", 7, 42) == [1]


def test_redis_emptied(two, redis, statements):
    """At once, and also when the new state was made before the next read."""
    reader, other = two
    remember(reader, statements, ("LIKED", 7, 42), [0])
    remember(other, statements, ("LIKED", 8, 42), [0])
    like_meanwhile(two)
    assert ask(reader, "LIKE", 8, 42) == 1
    reader.drain()
    keys = redis.client()
    keys.flushall()
    assert ask(reader, "LIKED", 7, 42) == [1]
    wait_for(lambda: keys.hexists(STATE, "since"), 30, "a new state")
    assert ask(other, "LIKED", 8, 42) == [1]
    remember(reader, statements, ("LIKED", 7, 42, 43), [1, 0])


def test_row_of_a_record_that_redis_lost(two, redis, pg, statements):
    """Written after it was remembered, and without a hash."""
    reader, writer = two
    keys = redis.client()
    with contextlib.closing(pg.connect()) as blocker:
        blocker.autocommit = False
        blocker.cursor().execute("LOCK TABLE user_like_post IN EXCLUSIVE MODE")
        assert ask(writer, "LIKE", 7, 42) == 1
        wait_for(lambda: keys.zcard("likesync:batches:like"), 30, "a batch")
        keys.flushall()
        since = wait_for(lambda: keys.hget(STATE, "since"), 30, "a new state")
        assert ask(reader, "LIKED", 7, 42) == [0]
        hits = reader.metrics()["likesyncd_recall_hits_total"]
        assert ask(reader, "LIKED", 7, 42) == [0]
        assert reader.metrics()["likesyncd_recall_hits_total"] == hits + 1
        blocker.rollback()
    wait_for(lambda: keys.hget(STATE, "since") != since, 30, "the ack")
    assert not keys.exists("post_user_like_42_7")
    assert ask(reader, "LIKED", 7, 42) == [1]


def test_nothing_is_remembered_where_hashes_may_be_evicted(bed, pg,
                                                           statements):
    redis = bed.redis(maxmemory_policy="volatile-lru")
    two = [bed.daemon(redis, pg) for _ in range(2)]
    for _ in range(3):
        assert ask(two[0], "LIKED", 7, 42) == [0]
    assert len(statements.new()) == 3
    like_meanwhile(two)
    assert redis.client().delete("post_user_like_42_7") == 1    # evicted
    assert ask(two[0], "LIKED", 7, 42) == [1]


def test_what_was_remembered_before_hashes_were_evicted(bed, pg, redis):
    """A policy that is set while it runs, and set back."""
    two = [bed.daemon(redis, pg) for _ in range(2)]
    keys = redis.client()

    def set_policy(policy, may_evict):
        keys.config_set("maxmemory-policy", policy)
        wait_for(lambda: all(daemon.metrics()["likesyncd_redis_may_evict"] ==
                             may_evict for daemon in two), 30, "the check")
    assert ask(two[0], "LIKED", 7, 42) == [0]
    set_policy("volatile-lru", 1)
    like_meanwhile(two)
    since = keys.hget(STATE, "since")
    keys.config_set("maxmemory", 1)
    wait_for(lambda: not keys.exists("post_user_like_42_7"), 30, "eviction")
    keys.config_set("maxmemory", 0)
    wait_for(lambda: keys.hget(STATE, "since") != since, 30, "a new history")
    set_policy("noeviction", 0)
    assert ask(two[0], "LIKED", 7, 42) == [1]
