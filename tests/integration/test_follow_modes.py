# SPDX-License-Identifier: MIT
"""Follows with PostgreSQL away, with limits, with lists that go in time, of an
application that writes the keys itself, and from two daemons at once."""
import contextlib
import itertools
import time

import pytest
import redis as redis_py

import harness
from edges import FOLLOWS, LIKES, check_answers, check_clean
from load import Load
from servers import wait_for
from test_modes import own, pg_gone  # noqa: F401
from wire import Wire, encode

LOOKUP_MS = 300
SLACK_MS = 5000         # for a machine that does other things, too
BASE = 1289241911
MARK = "likesync:list:"


def edges_of(pg):
    """{(user, followee): time in s} of what is followed."""
    return {(user, other): time for user, other, time in pg.query(
        "SELECT user_id, followee_id, extract(epoch FROM ctime)::float8"
        " FROM user_follow WHERE status = 1")}


def refused(ask, *request):
    with pytest.raises(redis_py.ResponseError) as caught:
        ask(*request)
    return str(caught.value)


@contextlib.contextmanager
def asking(daemon):
    with contextlib.closing(daemon.client()) as client:
        yield client.execute_command


@contextlib.contextmanager
def flusher_paused(daemon):
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
        yield
        admin.execute_command("FLUSHER", "RESUME")


def forget_edges(redis):
    """What Redis does to clean hashes in time."""
    keys = redis.client()
    for key in keys.scan_iter("user_follow_*", count=1000):
        if keys.ttl(key) > 0:
            keys.delete(key)


# ---- Redis loses all ----

def test_lists_loaded_before_what_redis_lost_is_written(bed, redis, pg):
    """A batch is on its way when Redis loses all, and lists are loaded without
    it. When it is written they are what the rows say."""
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    with asking(daemon) as ask:
        for other in (2, 3):
            assert ask("FOLLOW", 1, other) == 1
        daemon.drain()
        with flusher_paused(daemon):
            assert ask("UNFOLLOW", 1, 2) == ask("FOLLOW", 1, 4) == 1
            rival = pg.connect()
            rival.cursor().execute("BEGIN; LOCK TABLE user_follow"
                                   " IN SHARE MODE")
        wait_for(lambda: keys.keys("likesync:batch:*") and
                 not keys.exists("follow_set", "likesync:pass:follow"),
                 what="both to be claimed")
        keys.flushall()
        assert ask("FOLLOWING", 1) == ["3", "2"]
        assert [ask("FOLLOWERS", user) for user in (2, 4)] == [["1"], []]
        rival.close()
        wait_for(lambda: set(edges_of(pg)) == {(1, 3), (1, 4)},
                 what="them to be written")
        wait_for(lambda: ask("FOLLOWERS", 2) == [] and
                 ask("FOLLOWING", 1) == ["4", "3"], what="them to be acked")
        assert ask("RELATION", 1, 2, 3, 4) == [0, 1, 1]
        assert ask("FOLLOWCOUNT", 1, 2, 4) == [[2, 0], [0, 0], [0, 1]]
    check_answers(daemon, pg)
    check_clean(redis, pg)


# ---- PostgreSQL away ----

def test_follows_while_postgres_is_away(bed, redis, own):  # noqa: F811
    """They are taken, the lists that Redis has are served and changed, and
    all is right afterwards, first times, too."""
    cluster, pg = own
    daemon = bed.daemon(redis, pg)
    with asking(daemon) as ask:
        for n, other in enumerate((2, 3, 4, 5)):
            assert ask("FOLLOW", 1, other, "AT", BASE + n) == 1
            assert ask("FOLLOW", other, 1, "AT", BASE + n) == 1
        daemon.drain()
        assert ask("FOLLOWING", 1) == ["5", "4", "3", "2"]
        assert ask("FOLLOWERS", 1) == ["5", "4", "3", "2"]
        forget_edges(redis)
        pg_gone(cluster, daemon)

        # Redis does not know these pairs any more.
        assert ask("FOLLOW", 1, 3) == 1           # a repeated one: assumed
        assert ask("FOLLOW", 1, 3) == 0
        assert ask("UNFOLLOW", 1, 2) == 0         # assumed: nothing to undo
        ask("UNFOLLOW", 1, 4)
        assert ask("FOLLOW", 1, 4) == 1           # begins anew
        assert ask("FOLLOW", 1, 6) == 1
        assert ask("FOLLOW", 7, 1) == 1
        assert sorted(ask("FOLLOWING", 1)) == ["3", "4", "5", "6"]
        assert ask("FOLLOWING", 1, "RANGE", 0, 0) == ["6"]
        assert sorted(ask("FOLLOWERS", 1)) == ["2", "3", "4", "5", "7"]
        assert ask("FOLLOWCOUNT", 1) == [[4, 5]]
        assert ask("RELATION", 1, 5, 6, 7) == [3, 1, 2]
        for request in (("FOLLOWERS", 2), ("FOLLOWING", 9),
                        ("FOLLOWERS", 5, "CURSOR", 0),
                        ("FOLLOWERS", 1, "VIEWER", 9)):
            start = time.monotonic()
            assert refused(ask, *request).startswith("UNAVAILABLE ")
            assert time.monotonic() - start < SLACK_MS / 1000
        again = redis.client().hget("user_follow_1_4", "ctime")

        cluster.start()
        with harness.I1Watcher(pg):
            daemon.drain(60)
        rows = edges_of(pg)
        assert set(rows) == {(1, 3), (1, 4), (1, 5), (1, 6), (2, 1), (3, 1),
                             (4, 1), (5, 1), (7, 1)}
        assert rows[1, 3] == BASE + 1 and rows[1, 5] == BASE + 3
        assert rows[1, 4] == float(again)
        assert ask("FOLLOWING", 1) == ["6", "4", "5", "3"]
        assert ask("FOLLOWING", 1, "RANGE", 3, 3, "WITHTIMES") == \
            [["3", str(BASE + 1)]]
    check_clean(redis, pg)
    check_answers(daemon, pg)


def test_a_cold_list_has_a_deadline(bed, redis, pg):
    """PostgreSQL is there, and does not answer."""
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=LOOKUP_MS)
    requests = [("FOLLOWERS", 6), ("FOLLOWING", 5, "CURSOR", 0),
                ("MUTUALS", 5), ("COMMON", 5, 7), ("FOLLOWCOUNT", 5),
                ("FOLLOWERS", 6, "COUNT", 1, "VIEWER", 5)]
    with asking(daemon) as ask:
        ask("FOLLOW", 5, 6)
        ask("FOLLOW", 7, 6)
        daemon.drain()
        assert ask("FOLLOWERS", 7) == []          # warm
        for request in requests:
            for key in redis.client().keys("*[56]*"):
                redis.client().delete(key)
            with contextlib.closing(pg.connect()) as rival:
                rival.cursor().execute("BEGIN; LOCK TABLE user_follow,"
                                       " user_follow_count")
                start = time.monotonic()
                text = refused(ask, *request)
                took_ms = (time.monotonic() - start) * 1000
                assert ask("FOLLOWERS", 7) == []
            assert text.startswith(("UNAVAILABLE ", "TRYAGAIN ")), request
            assert took_ms < LOOKUP_MS + SLACK_MS, (request, took_ms)
            wait_for(daemon.ready, what="PostgreSQL to be used again")
        wait_for(lambda: Wire(daemon.socket).call("FOLLOWERS", 6)[:2] == b"*2",
                 what="the list to be served")
    daemon.drain()
    check_answers(daemon, pg)


# ---- max_following ----

LIMIT = "not recorded: the user already follows 5 others"


@pytest.fixture
def limited(bed, redis, pg):
    return bed.daemon(redis, pg, follow_max_following=5)


def test_the_limit_holds_also_after_redis_lost_all(limited, redis, pg):
    with asking(limited) as ask:
        for other in range(2, 7):
            assert ask("FOLLOW", 1, other) == 1
        for _ in range(2):
            assert refused(ask, "FOLLOW", 1, 7).startswith(LIMIT)
            assert ask("FOLLOW", 1, 6) == 0       # is there already
            limited.drain()
            redis.client().flushall()
        assert ask("UNFOLLOW", 1, 3) == 1         # makes room
        assert ask("FOLLOW", 1, 7) == 1
        assert refused(ask, "FOLLOW", 1, 8).startswith(LIMIT)
        assert ask("FOLLOWERS", 8) == []
    limited.drain()
    assert {other for _, other in edges_of(pg)} == {2, 4, 5, 6, 7}
    check_clean(redis, pg)


def test_a_pipeline_keeps_its_order_while_lists_are_loaded(limited, redis,
                                                           pg):
    """The first FOLLOW of each waits for a list; what comes behind for the
    same pair waits with it."""
    users = range(100, 140)
    with asking(limited) as ask:
        for user in users:
            for other in range(1, 5 + user % 2):
                ask("FOLLOW", user, other)
    limited.drain()
    redis.client().flushall()
    dialog = []
    for user in users:
        may = user % 2 == 0
        one = b":1\r\n" if may else b"-" + LIMIT.encode()
        dialog += [(("FOLLOW", user, 9), one),
                   (("UNFOLLOW", user, 9), b":%d\r\n" % may),
                   (("FOLLOW", user, 9), one),
                   (("UNFOLLOW", user, 9), b":%d\r\n" % may),
                   (("UNFOLLOW", user, 9), b":0\r\n"),
                   (("FOLLOW", user, 9), one),
                   (("RELATION", user, 9), b"*1\r\n:%d\r\n" % may)]
    with Wire(limited.socket) as wire:
        wire.send(b"".join(encode(*request) for request, _ in dialog))
        for request, reply in dialog:
            assert wire.read().replace(b"-ERR ", b"-").startswith(reply), \
                request
    limited.drain()
    assert set(edges_of(pg)) == {
        (user, other) for user in users
        for other in (1, 2, 3, 4, 5 if user % 2 else 9)}
    check_clean(redis, pg)


def test_no_limit_for_what_cannot_be_counted(bed, redis, own):  # noqa: F811
    """PostgreSQL is away, and the list is not there: the follow is taken."""
    cluster, pg = own
    daemon = bed.daemon(redis, pg, follow_max_following=2)
    with asking(daemon) as ask:
        ask("FOLLOW", 1, 2)
        ask("FOLLOW", 1, 3)
        ask("FOLLOW", 4, 2)
        ask("FOLLOW", 4, 3)
        assert len(ask("FOLLOWING", 4)) == 2
        daemon.drain()
        keys = redis.client()
        keys.delete("1:follow", MARK + "1:follow")
        pg_gone(cluster, daemon)
        assert ask("FOLLOW", 1, 5) == 1
        assert "already follows 2" in refused(ask, "FOLLOW", 4, 5)
        keys.delete("user_follow_4_2")
        assert ask("FOLLOW", 4, 2) == 1       # is in the list: none is more
        cluster.start()
        daemon.drain(60)
        assert "already follows 2" in refused(ask, "FOLLOW", 1, 6)
        assert len(ask("FOLLOWING", 1)) == 3
    check_clean(redis, pg)


@pytest.mark.parametrize("lookup", ["strict", "optimistic"])
def test_no_limit_after_redis_was_away(bed, redis, own, lookup):  # noqa: F811
    """The same where nothing had to be looked up, from a connection to Redis
    that is not the first: the event is not sent around for ever."""
    cluster, pg = own
    daemon = bed.daemon(redis, pg, follow_max_following=2,
                        follow_lookup=lookup)
    redis.restart()
    wait_for(lambda: FOLLOWS.generation(redis.client()) == 1, 30,
             "the generation to go up")
    wait_for(daemon.ready, what="the daemon to be back")
    with asking(daemon) as ask:
        for request in (("FOLLOW", 1, 2), ("FOLLOW", 1, 5),
                        ("UNFOLLOW", 1, 5)):
            assert ask(*request) == 1
        daemon.drain()
        redis.client().delete("1:follow", MARK + "1:follow")
        pg_gone(cluster, daemon)
        with Wire(daemon.socket) as wire:
            assert wire.call("FOLLOW", 1, 5) == b":1\r\n"
        cluster.start()
        daemon.drain(60)
    assert set(edges_of(pg)) == {(1, 2), (1, 5)}
    check_clean(redis, pg)


def test_more_lists_than_can_be_loaded(bed, redis, pg):
    """Where there is a limit, each of these has to be; what is refused says
    with its code that it may be sent again."""
    daemon = bed.daemon(redis, pg, follow_max_following=5,
                        follow_lookup="optimistic",
                        postgres_lookup_timeout_ms=LOOKUP_MS)
    users = range(1, 1201)
    with contextlib.closing(pg.connect()) as rival, \
            Wire(daemon.socket) as wire:
        rival.cursor().execute("BEGIN; LOCK TABLE user_follow")
        wire.send(b"".join(encode("FOLLOW", user, 5000) for user in users))
        replies = [wire.read() for _ in users]
    refusals = [reply for reply in replies if reply != b":1\r\n"]
    assert any(b"too many lists" in reply for reply in refusals)
    assert [reply for reply in refusals
            if not reply.startswith(b"-TRYAGAIN ")] == []
    daemon.drain(60)
    assert len(edges_of(pg)) == len(replies) - len(refusals)


# ---- idle_ttl ----

def ttls(redis, *lists):
    """Of each list and its mark."""
    keys = redis.client()
    return [keys.ttl(key) for name in lists for key in (name, MARK + name)]


def test_clean_lists_expire_and_come_again(bed, redis, pg):
    daemon = bed.daemon(redis, pg, follow_idle_ttl=100)
    lists = ("1:follow", "2:fans")
    keys = redis.client()
    with asking(daemon) as ask:
        with flusher_paused(daemon):
            ask("FOLLOW", 1, 2)
            assert ask("FOLLOWING", 1) == ["2"]
            assert ttls(redis, *lists) == [-1] * 4
        daemon.drain()
        assert all(90 < ttl <= 100 for ttl in ttls(redis, *lists))
        keys.expire("1:follow", 50)
        keys.expire(MARK + "1:follow", 50)
        assert ask("FOLLOWING", 1) == ["2"]       # a read renews it
        assert all(90 < ttl for ttl in ttls(redis, *lists))
        with flusher_paused(daemon):
            ask("FOLLOW", 1, 3)
            assert ttls(redis, "1:follow", "3:fans") == [-1] * 4
        daemon.drain()
        assert all(90 < ttl for ttl in ttls(redis, *lists, "3:fans"))
        # The list before its mark; and both.
        for gone in (["1:follow"], ["1:follow", MARK + "1:follow"]):
            for key in gone:
                keys.pexpire(key, 1)
            wait_for(lambda: not keys.exists(*gone), what="them to go")
            assert ask("FOLLOWING", 1) == ["3", "2"]
            assert all(90 < ttl for ttl in ttls(redis, "1:follow"))
        # Empty ones, too.
        assert ask("FOLLOWERS", 99) == []
        assert 90 < keys.ttl(MARK + "99:fans") <= 100
    check_clean(redis, pg)


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_lists_expire_that_were_empty(bed, redis, pg, read):
    """Who follows nobody any more, and then somebody again."""
    daemon = bed.daemon(redis, pg, follow_idle_ttl=100)
    with asking(daemon) as ask:
        for verb, other in (("FOLLOW", 2), ("UNFOLLOW", 2), ("FOLLOW", 2)):
            assert ask(verb, 1, other) == 1
            daemon.drain()
            if read:
                assert ask("FOLLOWING", 1) == ["2"] * (verb == "FOLLOW")
            assert 0 < redis.client().ttl(MARK + "1:follow") <= 100
        assert all(90 < ttl for ttl in ttls(redis, "1:follow", "2:fans"))
    check_clean(redis, pg)


@pytest.mark.parametrize("event", [False, True], ids=["read", "changed"])
def test_marks_that_were_evicted(bed, redis, pg, event):
    """With a volatile-* policy they may go before their lists, which expire
    all the same."""
    daemon = bed.daemon(redis, pg, follow_idle_ttl=100)
    keys = redis.client()
    with asking(daemon) as ask:
        for other in (2, 3, 4):
            ask("FOLLOW", 1, other)
        daemon.drain()
        assert ask("FOLLOWING", 1) == ["4", "3", "2"]
        keys.delete(MARK + "1:follow")
        if event:
            assert ask("UNFOLLOW", 1, 3) == ask("FOLLOW", 1, 3) == 1
            daemon.drain()
        keys.expire("1:follow", 50)
        assert ask("FOLLOWING", 1) == (["3", "4", "2"] if event else
                                       ["4", "3", "2"])
        assert all(90 < ttl for ttl in ttls(redis, "1:follow"))
    check_clean(redis, pg)


def test_a_mark_that_was_evicted_before_an_unfollow(bed, redis, pg):
    """Of somebody whom the list, gone before, does not hold: it is ours still."""
    daemon = bed.daemon(redis, pg, follow_idle_ttl=100)
    keys = redis.client()
    with asking(daemon) as ask:
        for other in (2, 3):
            ask("FOLLOW", 1, other)
        daemon.drain()
        keys.delete("1:follow", MARK + "1:follow")
        ask("FOLLOW", 1, 4)
        daemon.drain()
        keys.delete(MARK + "1:follow")
        assert ask("UNFOLLOW", 1, 2) == ask("FOLLOW", 1, 5) == 1
        daemon.drain()
        assert all(ttl > 0 for ttl in ttls(redis, "1:follow"))
        assert ask("FOLLOWING", 1) == ["5", "4", "3"]
    check_clean(redis, pg)


def test_lists_that_stay(bed, redis, pg):
    daemon = bed.daemon(redis, pg, follow_idle_ttl=0)
    with asking(daemon) as ask:
        ask("FOLLOW", 1, 2)
        daemon.drain()
        assert ttls(redis, "1:follow", "2:fans") == [-1] * 4
        assert ask("FOLLOWING", 1) == ["2"]
        assert ttls(redis, "1:follow", "2:fans") == [-1] * 4
        start = len(daemon.log_text())
        daemon.write_config(follow_idle_ttl=100)
        daemon.sighup()
        wait_for(lambda: "reload" in daemon.log_text()[start:], 30, "reload")
        assert ask("FOLLOWING", 1) == ["2"]
        assert all(90 < ttl for ttl in ttls(redis, "1:follow"))
        start = len(daemon.log_text())
        daemon.write_config(follow_idle_ttl=0)
        daemon.sighup()
        wait_for(lambda: "reload" in daemon.log_text()[start:], 30, "reload")
        assert ask("FOLLOWING", 1) == ["2"]
        assert ttls(redis, "1:follow") == [-1, -1]


# ---- an application that writes the keys itself ----

class App:
    """Writes by the recipe, in whole seconds."""

    def __init__(self, redis):
        self.keys = redis.client()
        self.now = int(time.time()) - 1000

    def write(self, user, other, status):
        self.now += 1
        self.keys.sadd("follow_set", user)
        self.keys.sadd(f"user_follow_set_{user}", other)
        self.keys.hset(f"user_follow_{user}_{other}", mapping={
            "status": status, "user_id": user, "followee_id": other,
            "mtime": self.now, **({"ctime": self.now} if status else {})})
        for key, member in ((f"{user}:follow", other), (f"{other}:fans",
                                                        user)):
            if status:
                self.keys.zadd(key, {member: self.now})
            else:
                self.keys.zrem(key, member)
        return self.now


def test_lists_of_an_app_that_keeps_to_the_recipe(bed, redis, pg):
    app = App(redis)
    times = {other: app.write(1, other, 1) for other in (2, 3, 4)}
    app.write(5, 1, 1)
    daemon = bed.daemon(redis, pg)
    with asking(daemon) as ask:
        daemon.drain()
        assert edges_of(pg) == {(5, 1): app.now, **{
            (1, other): time for other, time in times.items()}}
        assert ask("FOLLOWING", 1, "WITHTIMES") == [
            [str(other), str(times[other])] for other in (4, 3, 2)]
        assert ask("FOLLOWERS", 1) == ["5"]
        assert ask("FOLLOWCOUNT", 1, 2) == [[3, 1], [0, 1]]
        assert ask("FOLLOW", 1, 3) == 0           # the app's time stays
        assert ask("UNFOLLOW", 1, 4) == 1
        app.write(1, 2, 0)
        assert ask("FOLLOWING", 1, "WITHTIMES") == [["3", str(times[3])]]
        app.now += 2000                # newer than the daemon's UNFOLLOW
        again = app.write(1, 4, 1)
        daemon.drain()
        assert ask("FOLLOWING", 1) == ["4", "3"]
        assert edges_of(pg)[1, 4] == again
        assert ask("FOLLOWCOUNT", 1) == [[2, 1]]
        daemon.drain()
        redis.client().flushall()
        assert ask("FOLLOWING", 1, "WITHTIMES") == [["4", str(again)],
                                                   ["3", str(times[3])]]
    check_clean(redis, pg)


@pytest.mark.parametrize("idle_ttl", [100, 0])
@pytest.mark.parametrize("first", ["written", "read"])
def test_members_that_nobody_adopted_stay(bed, redis, pg, first, idle_ttl):
    """An app's own list, of which PostgreSQL knows nothing: it is neither
    dropped nor does it expire, also when it was empty when it was read first,
    and when Redis restarted."""
    keys = redis.client()
    daemon = bed.daemon(redis, pg, follow_idle_ttl=idle_ttl)
    with asking(daemon) as ask:
        if first == "read":
            assert ask("FOLLOWING", 1) == []
        keys.zadd("1:follow", {"2": BASE, "3": BASE + 5})
        for _ in range(2):
            assert ask("FOLLOWING", 1) == ["3", "2"]
        assert ask("FOLLOW", 1, 4) == 1
        daemon.drain()
        assert keys.ttl("1:follow") == -1
        redis.restart()
        wait_for(lambda: FOLLOWS.generation(redis.client()) == 1, 30,
                 "the generation to go up")
        wait_for(daemon.ready, what="the daemon to be back")
        assert ask("FOLLOWING", 1) == ["4", "3", "2"]
    assert redis.client().ttl("1:follow") == -1
    assert set(edges_of(pg)) == {(1, 4)}


@pytest.mark.parametrize("known", [False, True], ids=["cold", "known"])
def test_hashes_of_an_app_whose_lists_are_plain_sets(bed, redis, pg, known):
    """They are flushed, what is beside them too, and the sets stay."""
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    with asking(daemon) as ask:
        if known:
            assert ask("FOLLOW", 1, 2) == 1
            daemon.drain()
            keys.delete("1:follow", "2:fans")
        keys.sadd("1:follow", 2, 3)
        keys.sadd("2:fans", 1)
        with flusher_paused(daemon):
            assert ask("FOLLOW", 7, 6) == 1
            now = int(time.time()) + 1
            keys.hset("user_follow_1_2", mapping={
                "status": 0, "user_id": 1, "followee_id": 2, "mtime": now})
            keys.sadd("user_follow_set_1", 2)
            keys.sadd("follow_set", 1)
        daemon.drain()
        assert FOLLOWS.rows(pg) == {(1, 2): 0, (7, 6): 1}
        assert keys.smembers("1:follow") == {"2", "3"}
        assert ttls(redis, "1:follow", "2:fans")[::2] == [-1, -1]
        assert ask("FOLLOWCOUNT", 7, 6) == [[1, 0], [0, 1]]
    harness.check_exact(pg)
    assert not keys.keys("likesync:unsynced:*")


# ---- two daemons ----

HASTY = {"flush_interval_ms": 1, "flush_batch_rows": 30,
         "flush_claim_rows": 7, "postgres_connections": 3}


@pytest.mark.parametrize("seed", [1, 2])
def test_likes_and_follows_of_few_users_do_not_deadlock(bed, redis, pg, seed):
    """Eight users follow each other, and like a few posts: every batch of
    either daemon writes the counts of all of them."""
    daemons = [bed.daemon(redis, pg, **HASTY) for _ in range(2)]
    with harness.I1Watcher(pg) as watcher, \
            Load(*daemons, seed=seed, evict=redis, edges=FOLLOWS, posts=8,
                 users=2, pause=0) as follows, \
            Load(*daemons, seed=seed, evict=redis, edges=LIKES, posts=3,
                 users=6, pause=0) as likes:
        for _ in range(10):
            follows.wait_acked(400)
            likes.wait_acked(100)
    print(watcher.checks, "checks of I1,", follows.count(), "follows,",
          likes.count(), "likes")
    for daemon in daemons:
        daemon.drain(60)
    assert not follows.refusals() and not likes.refusals()
    likes.check(redis, pg)
    follows.check(redis, pg)
    check_answers(daemons[0], pg)
    batches = pg.query("SELECT kind, count(DISTINCT instance)"
                       " FROM sync_batch GROUP BY 1 ORDER BY 1")
    assert batches == [("follow", 2), ("like", 2)]
    for daemon in daemons:
        daemon.term()                # a backend tells of deadlocks as it ends
        assert "40P01" not in daemon.log_text()
        assert "deadlock" not in daemon.log_text()
    assert pg.value("SELECT deadlocks FROM pg_stat_database"
                    " WHERE datname = %s", pg.name) == 0
