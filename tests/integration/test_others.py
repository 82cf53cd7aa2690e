# SPDX-License-Identifier: MIT
"""Others who write the keys: an app by the same recipe, with plain Redis
commands, and whoever leaves something there that is none."""
import random
import time

import pytest

import harness
from edges import check_counts, staying
from servers import wait_for
from wire import Wire


class App:
    """The recipe, as an app without the daemon would write it: whole
    seconds, and a counter that it moves itself."""

    def __init__(self, redis):
        self.keys = redis.client()

    def write(self, user, post, status, mtime=None, parts="shc"):
        """parts: s the sets, h the hash, c the counter."""
        mtime = int(time.time()) if mtime is None else mtime
        edge = f"post_user_like_{post}_{user}"
        if "s" in parts:
            self.keys.sadd("post_set", post)
            self.keys.sadd(f"post_user_like_set_{post}", user)
        if "h" in parts:
            self.keys.hsetnx(edge, "ctime", mtime)
            self.keys.hset(edge, mapping={
                "status": status, "post_id": post, "user_id": user,
                "mtime": mtime})
        if "c" in parts:
            self.keys.incrby(f"post_{post}_counter", 1 if status else -1)

    def like(self, user, post, mtime=None):
        self.write(user, post, 1, mtime)

    def unlike(self, user, post, mtime=None):
        self.write(user, post, 0, mtime)

    def add(self, post, delta, registered=True):
        if registered:
            self.keys.sadd("post_set", post)
        self.keys.incrby(f"post_{post}_counter", delta)


@pytest.fixture
def app(redis):
    return App(redis)


@pytest.fixture
def paused(daemon):
    with daemon.admin() as admin:
        admin.execute_command("FLUSHER", "PAUSE")


def resume(daemon):
    with daemon.admin() as admin:
        admin.execute_command("FLUSHER", "RESUME")


def rows(pg):
    return pg.query("SELECT post_id, user_id, status FROM user_like_post"
                    " ORDER BY 1, 2")


def counts(pg):
    return {post: (count, un) for post, count, un in pg.query(
        "SELECT post_id, like_count, unattributed FROM post_like")}


def check_clean(pg, redis):
    """Everything was taken: nothing dirty, nothing counted twice."""
    harness.check_exact(pg)
    keys = redis.client()
    left = [key for key in staying(keys) if keys.type(key) != "hash"]
    assert left == [], left
    check_counts(keys, pg)


def letters(pg):
    return pg.query("SELECT owner_id, member_id, status, delta, sqlstate,"
                    " reason FROM sync_dead_letter ORDER BY id")


# ---- an app by the recipe ----

def test_rows_and_counts_of_an_app(daemon, client, app, redis, pg):
    for user in range(10):
        app.like(user, 42)
    app.like(1, 43)
    daemon.drain()
    assert rows(pg) == [(42, user, 1) for user in range(10)] + [(43, 1, 1)]
    assert counts(pg) == {42: (10, 0), 43: (1, 0)}
    assert client.execute_command("LIKECOUNT", 42, 43) == [10, 1]
    assert client.execute_command("LIKED", 1, 42, 43, 44) == [1, 1, 0]
    check_clean(pg, redis)
    # What an app wrote is cached like anything else.
    assert 0 < redis.client().ttl("post_user_like_42_1") <= 3600


def test_an_app_that_writes_again_and_again(daemon, client, app, redis, pg):
    """Flushes between, and writes that repeat what was flushed."""
    start = int(time.time()) - 100
    for turn in range(6):
        app.write(7, 42, (turn + 1) % 2, start + turn)
        daemon.drain()
        assert rows(pg) == [(42, 7, (turn + 1) % 2)]
        assert counts(pg) == {42: ((turn + 1) % 2, 0)}
        assert client.execute_command("LIKECOUNT", 42) == [(turn + 1) % 2]
    # The same state once more: marked dirty, nothing to change.
    app.write(7, 42, 0, start + 5, parts="sh")
    daemon.drain()
    assert rows(pg) == [(42, 7, 0)] and counts(pg) == {42: (0, 0)}
    check_clean(pg, redis)


def test_times_of_an_app_are_kept(daemon, app, pg):
    app.like(7, 42, mtime=1289192400)
    app.write(8, 42, 1, mtime="1289192400.5")
    daemon.drain()
    assert pg.query(
        "SELECT user_id, extract(epoch FROM mtime)::float8,"
        " extract(epoch FROM ctime)::float8 FROM user_like_post"
        " ORDER BY 1") == [(7, 1289192400, 1289192400),
                           (8, 1289192400.5, 1289192400.5)]


def test_a_hash_without_ctime(daemon, app, redis, pg):
    app.write(7, 42, 1, parts="sc")
    redis.client().hset("post_user_like_42_7", mapping={
        "status": 1, "mtime": 1289192400})
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)] and counts(pg) == {42: (1, 0)}
    assert pg.value("SELECT extract(epoch FROM ctime)::bigint"
                    " FROM user_like_post") == 1289192400
    check_clean(pg, redis)


@pytest.mark.parametrize("flushed_between", [False, True])
def test_like_and_unlike_within_one_second(daemon, app, redis, pg,
                                           flushed_between):
    """The times are the same whole second; the last state counts."""
    now = int(time.time())
    for user, states in ((1, (1, 0)), (2, (1, 0, 1)), (3, (1, 0, 1, 0))):
        for state in states:
            app.write(user, 42, state, now)
            if flushed_between:
                daemon.drain()
    daemon.drain()
    assert rows(pg) == [(42, 1, 0), (42, 2, 1), (42, 3, 0)]
    assert counts(pg) == {42: (1, 0)}
    check_clean(pg, redis)


@pytest.mark.parametrize("flushed_between", [False, True])
def test_app_and_daemon_within_one_second(daemon, client, app, redis, pg,
                                          flushed_between):
    """They take turns on one pair; each time the last one wins."""
    def turn(who, state):
        if who == "app":
            app.write(7, 42, state)
        else:
            assert client.execute_command(
                "LIKE" if state else "UNLIKE", 7, 42) == 1
        if flushed_between:
            daemon.drain()
            assert rows(pg) == [(42, 7, state)]

    for who, state in (("app", 1), ("daemon", 0), ("app", 1), ("daemon", 0),
                       ("daemon", 1), ("app", 0), ("app", 1)):
        turn(who, state)
        assert client.execute_command("LIKED", 7, 42) == [state]
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)] and counts(pg) == {42: (1, 0)}
    check_clean(pg, redis)


@pytest.mark.parametrize("pushed", [False, True])
def test_an_app_while_the_daemons_event_is_under_way(daemon, client, app,
                                                     redis, pg, pushed):
    """Its whole second is behind the time of an event that is claimed and
    not acked yet; it came later, so it wins. `pushed`: that event's own time
    is ahead of the clock, as it had to be above another write of the app."""
    keys = redis.client()

    def second():
        return int(float(keys.hget("post_user_like_42_7", "mtime")))

    if pushed:
        assert client.execute_command("UNLIKE", 7, 42) == 0
        assert client.execute_command("LIKE", 7, 42) == 1
        daemon.drain()
        ahead = second() + 5
        app.unlike(7, 42, ahead)
        daemon.drain()
        assert rows(pg) == [(42, 7, 0)]
    blocker = pg.connect()
    blocker.autocommit = False
    blocker.cursor().execute("LOCK TABLE post_like IN EXCLUSIVE MODE")
    assert client.execute_command("LIKE", 7, 42) == 1
    harness.wait_for(lambda: keys.hget("likesync:onrecord:like", 42) == "1",
                     30, "the claim of the daemon's event")
    if pushed:
        assert second() == ahead + 1
    app.unlike(7, 42, ahead if pushed else second())
    harness.wait_for(lambda: keys.hget("likesync:onrecord:like", 42) == "2",
                     30, "the claim of the app's write")
    blocker.rollback()
    blocker.close()
    daemon.drain()
    assert rows(pg) == [(42, 7, 0)] and counts(pg)[42] == (0, 0)
    assert client.execute_command("LIKED", 7, 42) == [0]
    check_clean(pg, redis)


def test_an_app_takes_back_what_only_postgres_knows(daemon, client, app,
                                                    redis, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    redis.client().delete("post_user_like_42_7")
    app.unlike(7, 42, mtime=int(time.time()) + 2)
    daemon.drain()
    assert rows(pg) == [(42, 7, 0)] and counts(pg) == {42: (0, 0)}
    check_clean(pg, redis)


def test_an_app_likes_what_is_liked(daemon, client, app, redis, pg):
    """It did not know, and counted it once more: that much is without a
    row."""
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    redis.client().delete("post_user_like_42_7")
    app.like(7, 42, mtime=int(time.time()) + 2)
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)]
    assert counts(pg) == {42: (2, 1)}
    assert client.execute_command("LIKECOUNT", 42) == [2]
    check_clean(pg, redis)


def test_an_older_write_of_an_app_changes_nothing(daemon, client, app, redis,
                                                  pg):
    client.execute_command("LIKE", 7, 42, "AT", 1289192400)
    daemon.drain()
    redis.client().delete("post_user_like_42_7")
    app.unlike(7, 42, mtime=1289192399)
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)] and counts(pg) == {42: (1, 0)}
    assert client.execute_command("LIKED", 7, 42) == [1]
    assert client.execute_command("LIKECOUNT", 42) == [1]
    check_clean(pg, redis)


def test_the_daemon_reads_what_an_app_wrote(daemon, client, paused, app):
    """Before the flush: state, count, and what an event changes."""
    app.like(7, 42)
    assert client.execute_command("LIKED", 7, 42) == [1]
    assert client.execute_command("LIKECOUNT", 42) == [1]
    assert client.execute_command("LIKE", 7, 42, "WITHCOUNT") == [0, 1]
    assert client.execute_command("LIKE", 8, 42, "WITHCOUNT") == [1, 2]
    assert client.execute_command("UNLIKE", 7, 42, "WITHCOUNT") == [1, 1]


def test_a_broken_key_at_a_second_look(daemon, app, redis, pg):
    """The hash has come, and the dirty set is no set any more: only that post
    is left alone."""
    keys = redis.client()
    for post in (42, 43):
        app.write(7, post, 1, parts="s")
    wait_for(lambda: keys.zcard("likesync:again:like") == 2, 10,
             "the second looks")
    with keys.pipeline() as all_at_once:
        all_at_once.set("post_user_like_set_42", "x")
        for post in (42, 43):
            all_at_once.hset(f"post_user_like_{post}_7", mapping={
                "status": 1, "mtime": 1289192400})
        all_at_once.execute()
    wait_for(lambda: rows(pg) == [(43, 7, 1)], 10, "the good one")
    wait_for(lambda: "post_id '42': no id, or its dirty set is no set" in
             daemon.log_text(), 10, "it to be told")


def test_commands_that_come_apart(daemon, app, redis, pg):
    """Between an app's commands there may be flushes; whatever is there when
    the last one has come is taken."""
    orders = ("s h c", "h s c", "c s h", "h c s", "s c h", "c h s")
    for post, order in enumerate(orders, 100):
        for part in order.split():
            app.write(7, post, 1, parts=part)
            passes_of(redis, 2)
    daemon.drain()
    expected = [(post, 7, 1) for post in range(100, 100 + len(orders))]
    assert rows(pg) == expected
    # A counter that was alone for longer than the grace is taken as one
    # without a row: the total is right, and the rows are counted.
    harness.check_exact(pg)
    check_clean(pg, redis)


def passes_of(redis, number):
    """Waits for some passes of the flusher over the registry."""
    keys = redis.client()
    start = keys.hget("likesync:state:like", "pass_at")
    seen = {start}
    harness.wait_for(lambda: seen.add(
        keys.hget("likesync:state:like", "pass_at")) or len(seen) > number,
        30, "passes")


@pytest.mark.parametrize("order", ["s h c", "h s c", "s c h", "h c s"])
def test_a_pause_shorter_than_the_grace_is_no_loss(bed, redis, pg, app,
                                                   order):
    """The commands of one event within a tenth of a second, with passes
    between: rows, and a count that is not unattributed."""
    daemon = bed.daemon(redis, pg, flush_interval_ms=1)
    for part in order.split():
        app.write(7, 42, 1, parts=part)
        time.sleep(0.03)
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)]
    harness.check_exact(pg)
    assert counts(pg)[42][0] - counts(pg)[42][1] == 1
    check_clean(pg, redis)


@pytest.mark.parametrize("first", [0, 1])
def test_a_hash_that_comes_behind_a_claim(daemon, client, app, redis, pg,
                                          first):
    """The sets of an event were claimed with the state before, which was
    known; the hash comes while that is being written."""
    client.execute_command("LIKE", 7, 42)
    if not first:
        client.execute_command("UNLIKE", 7, 42)
    daemon.drain()
    with pg.connect() as rival:
        rival.cursor().execute("LOCK TABLE user_like_post IN SHARE MODE")
        app.write(7, 42, 1 - first, parts="s")
        wait_for(lambda: app.keys.keys("likesync:batch:*"), what="the claim")
        app.write(7, 42, 1 - first, int(time.time()) + 1, parts="hc")
    daemon.drain()
    assert [row[:3] for row in rows(pg)] == [(42, 7, 1 - first)]
    assert counts(pg) == {42: (1 - first, 0)}
    assert client.execute_command("LIKECOUNT", 42) == [1 - first]
    check_clean(pg, redis)


def test_an_app_and_the_daemon_at_once(daemon, client, app, redis, pg):
    """A stream on the same pairs from both, flushed all the while; each
    knows the state before, as the recipe asks."""
    seed = 4242
    print("seed", seed)
    rnd = random.Random(seed)
    state = {}
    with harness.I1Watcher(pg):
        for _ in range(600):
            pair = user, post = rnd.randrange(8), rnd.randrange(4)
            want = 1 - state.get(pair, 0)
            if rnd.random() < .5:
                app.write(user, post, want)
            else:
                assert client.execute_command(
                    "LIKE" if want else "UNLIKE", user, post) == 1
            state[pair] = want
        daemon.drain()
    assert {(user, post): status for post, user, status in rows(pg)} == state
    for post, (count, _) in counts(pg).items():
        assert client.execute_command("LIKECOUNT", post) == [count]
    assert sum(un for _, un in counts(pg).values()) == 0
    check_clean(pg, redis)


# ---- counters without rows ----

def test_a_counter_without_rows(daemon, client, app, redis, pg):
    app.add(42, 5)
    daemon.drain()
    assert counts(pg) == {42: (5, 5)}
    assert rows(pg) == []
    app.add(42, -2)
    app.add(43, -3)
    daemon.drain()
    assert counts(pg) == {42: (3, 3), 43: (-3, -3)}
    assert client.execute_command("LIKECOUNT", 42, 43) == [3, -3]
    check_clean(pg, redis)


def test_a_counter_and_rows_of_one_post(daemon, client, app, redis, pg):
    client.execute_command("LIKE", 7, 42)
    app.add(42, 10)
    app.like(8, 42)
    daemon.drain()
    assert counts(pg) == {42: (12, 10)}
    assert client.execute_command("LIKECOUNT", 42) == [12]
    client.execute_command("UNLIKE", 7, 42)
    app.add(42, -10)
    daemon.drain()
    assert counts(pg) == {42: (1, 0)}
    check_clean(pg, redis)


def test_a_counter_that_nobody_registered(daemon, client, app, redis, pg):
    """It is counted at once, and durable with the next event of its post."""
    app.add(42, 5, registered=False)
    daemon.drain()
    assert counts(pg) == {}
    assert client.execute_command("LIKECOUNT", 42) == [5]
    assert client.execute_command("LIKE", 7, 42, "WITHCOUNT") == [1, 6]
    daemon.drain()
    assert counts(pg) == {42: (6, 5)}
    assert client.execute_command("LIKECOUNT", 42) == [6]
    check_clean(pg, redis)


def test_a_delta_is_added_once(daemon, client, app, redis, pg):
    """Many flushes, also one after a kill: the total stays."""
    app.add(42, 5)
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    daemon.drain()
    daemon.kill9()
    daemon.start()
    daemon.drain()
    assert counts(pg) == {42: (6, 5)}
    check_clean(pg, redis)


def test_deltas_while_one_batch_is_claimed(bed, redis, pg, app):
    """A post gets second looks again and again while a long batch is being
    claimed: each of its deltas is added."""
    daemon = bed.daemon(redis, pg, flush_batch_rows=20000, flush_claim_rows=1)
    with daemon.admin() as admin:
        admin.execute_command("FLUSHER", "PAUSE")
    with daemon.client() as client:
        likes = client.pipeline(transaction=False)
        for post in range(1000, 15000):
            likes.execute_command("LIKE", 7, post)
        likes.execute()
    added = 1
    app.add(42, 1, registered=False)
    redis.client().zadd("likesync:again:like", {42: 1})  # due at once
    resume(daemon)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        app.add(42, 1, registered=False)
        added += 1
        time.sleep(0.002)
    # What came after the last look at an empty counter waits to be announced.
    app.add(42, 1)
    daemon.drain()
    assert counts(pg)[42] == (added + 1, added + 1)
    check_clean(pg, redis)


@pytest.mark.skipif(not harness.build_has("LIKESYNCD_FAULTS"),
                    reason="no fault points")
@pytest.mark.parametrize("point", ["claimed", "orphans_committed",
                                   "before_ack"])
def test_a_delta_is_added_once_wherever_the_daemon_dies(bed, redis, pg, app,
                                                        point):
    daemon = bed.daemon(redis, pg, flush_lease_ms=500)
    daemon.kill9()
    app.add(42, 5)
    app.add(43, -2)
    daemon.start(fault=point, wait=None)
    daemon.wait_fault()
    daemon.start()
    daemon.drain()
    assert counts(pg) == {42: (5, 5), 43: (-2, -2)}
    check_clean(pg, redis)


# ---- what is none of it ----

def good_ones(client, users=range(50)):
    for user in users:
        assert client.execute_command("LIKE", user, 1) == 1
    assert client.execute_command("LIKE", 1, 42) == 1


def check_good_ones(daemon, client, pg, users=50):
    daemon.drain()
    assert pg.value("SELECT count(*) FROM user_like_post"
                    " WHERE post_id = 1 AND status = 1") == users
    assert counts(pg)[1] == (users, 0)
    assert client.execute_command("LIKECOUNT", 1) == [users]
    harness.check_exact(pg)


@pytest.mark.parametrize("fields", [
    {"status": 7, "mtime": 1289192400}, {"status": 1, "mtime": "abc"},
    {"status": "", "mtime": 1289192400}, {"status": 1, "mtime": -5},
    {"status": 1}, {"mtime": 1289192400}, {"status": 1, "mtime": "1e9"},
    {"status": "01", "mtime": 1}, {"status": 1, "mtime": "inf"},
    {"status": 1, "mtime": "99999999999999"},
], ids=str)
def test_a_malformed_hash(daemon, client, paused, app, redis, pg, fields):
    """It, and only it, is a dead letter; nothing else waits for it."""
    good_ones(client)
    app.write(7, 42, 1, parts="s")
    redis.client().hset("post_user_like_42_7", mapping=fields)
    resume(daemon)
    check_good_ones(daemon, client, pg)
    assert [letter[:5] for letter in letters(pg)] == \
        [("42", "7", None, None, None)]
    assert "malformed" in letters(pg)[0][5]
    assert counts(pg)[42] == (1, 0)
    assert not redis.client().exists("post_user_like_set_42", "post_set")
    # An event on it says so, too, and is not recorded.
    before = redis.client().hgetall("post_user_like_42_7")
    with Wire(daemon.socket) as wire:
        reply = wire.call("LIKE", 7, 42)
        assert reply.startswith(b"-ERR not recorded: ")
        assert b"post_user_like_42_7" in reply
    assert redis.client().hgetall("post_user_like_42_7") == before
    assert not redis.client().exists("post_user_like_set_42", "post_set")


def test_keys_of_the_wrong_type(daemon, client, paused, app, redis, pg):
    """A string for a hash, a list for a set, a hash for a counter: told, and
    left alone."""
    keys = redis.client()
    good_ones(client)
    app.write(7, 42, 1, parts="s")
    keys.set("post_user_like_42_7", "hello")
    keys.rpush("post_user_like_set_50", "a", "b")
    keys.sadd("post_set", 50)
    keys.hset("post_51_counter", "a", 1)
    app.write(7, 51, 1, parts="sh")
    resume(daemon)
    check_good_ones(daemon, client, pg)
    assert [letter[:2] for letter in letters(pg)] == [("42", "7")]
    assert (51, 7, 1) in rows(pg)
    assert "post_id '50': no id, or its dirty set is no set" in \
        daemon.log_text()
    assert keys.get("post_user_like_42_7") == "hello"
    assert keys.lrange("post_user_like_set_50", 0, -1) == ["a", "b"]
    assert keys.hgetall("post_51_counter") == {"a": "1"}


@pytest.mark.parametrize("key, make, arguments", [
    ("post_user_like_42_7", lambda keys, key: keys.set(key, "x"), (7, 42)),
    ("post_user_like_set_42", lambda keys, key: keys.set(key, "x"), (7, 42)),
    ("post_42_counter", lambda keys, key: keys.set(key, "x"), (7, 42)),
    ("post_42_counter", lambda keys, key: keys.rpush(key, "x"), (7, 42)),
    ("post_42_counter", lambda keys, key: keys.set(key, 2 ** 63 - 1),
     (7, 42)),
    ("post_set", lambda keys, key: keys.set(key, "x"), (7, 42)),
], ids=["hash", "set", "text", "list", "overflow", "registry"])
def test_an_event_on_a_broken_key_is_refused_whole(daemon, client, paused,
                                                   redis, pg, key, make,
                                                   arguments):
    """-ERR says what is wrong, nothing of the event stays, others go on; once
    it is mended, so does the pair."""
    keys = redis.client()
    make(keys, key)
    before = {name: keys.dump(name) for name in keys.scan_iter()}
    with Wire(daemon.socket) as wire:
        for _ in range(2):
            reply = wire.call("LIKE", *arguments)
            assert reply.startswith(b"-ERR not recorded: "), reply
        after = {name: keys.dump(name) for name in keys.scan_iter()}
        assert after == before
        if key != "post_set":
            assert wire.call("LIKE", 7, 43) == b":1\r\n"
        keys.delete(key)
        resume(daemon)
        assert wire.call("LIKE", *arguments) == b":1\r\n"
    daemon.drain()
    assert counts(pg)[42] == (1, 0)
    check_clean(pg, redis)


@pytest.mark.parametrize("value", [
    "abc", "1.5", "", " 1", "007", "-0", "99999999999999999999",
    "-9223372036854775808", "9223372036854775807"])
def test_a_counter_that_is_no_number(daemon, client, app, redis, pg, value):
    """Left alone, and told; the drain ends and others go on."""
    keys = redis.client()
    keys.set("post_42_counter", value)
    keys.sadd("post_set", 42)
    good_ones_users = range(20)
    for user in good_ones_users:
        assert client.execute_command("LIKE", user, 1) == 1
    daemon.drain()
    assert counts(pg)[1] == (20, 0)
    harness.check_exact(pg)
    assert set(counts(pg)) == {1}
    assert keys.get("post_42_counter") == value
    assert "post_id '42': no id, or its dirty set is no set, or its counter" \
        in daemon.log_text()
    assert not keys.exists("likesync:batches:like", "likesync:onrecord:like")


@pytest.mark.parametrize("counter", ["abc", "1.5", ""])
def test_rows_of_a_post_whose_counter_is_no_number(daemon, app, redis, pg,
                                                   counter):
    """The rows are written, and counted in the tables."""
    redis.client().set("post_42_counter", counter)
    app.write(7, 42, 1, parts="sh")
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)] and counts(pg) == {42: (1, 0)}
    assert redis.client().get("post_42_counter") == counter


BAD_IDS = ["x", "-1", "007", "9223372036854775808", "1 2", " ", "1_2",
           "é", "\x01", "x" * 2000, "%20"]


def test_members_that_are_no_ids(daemon, client, paused, app, redis, pg):
    good_ones(client)
    keys = redis.client()
    for member in BAD_IDS:
        app.write(member, 42, 1, parts="sh")
    resume(daemon)
    check_good_ones(daemon, client, pg)
    found = letters(pg)
    assert len(found) == len(BAD_IDS)
    assert {letter[0] for letter in found} == {"42"}
    assert {letter[1] for letter in found} == {
        "x", "-1", "007", "9223372036854775808", "1\\x202", "\\x20", "1_2",
        "\\xc3\\xa9", "\\x01", "x" * 1000, "%20"}
    assert counts(pg)[42] == (1, 0)
    assert not keys.exists("post_user_like_set_42", "post_set",
                           "likesync:onrecord:like")


def test_posts_that_are_no_ids(daemon, client, paused, app, redis, pg):
    """In the registry: with members, or with a counter only. Dead letters,
    or an error and left alone where a record could not hold them."""
    good_ones(client)
    keys = redis.client()
    for owner in BAD_IDS:
        app.write(7, owner, 1, parts="sh")
    for owner in ("y", "-2", "1.5", "a b", ""):
        app.add(owner, 3)
    resume(daemon)
    check_good_ones(daemon, client, pg)
    assert not keys.exists("post_set", "likesync:onrecord:like",
                           "likesync:batches:like", "likesync:again:like")
    assert set(counts(pg)) == {1, 42}
    found = letters(pg)
    assert len([letter for letter in found if letter[1] == "7"]) == \
        len([owner for owner in BAD_IDS if " " not in owner])
    assert {letter[0]: letter[3] for letter in found
            if letter[1] is None} == {"y": 3, "-2": 3, "1.5": 3}
    for owner in ("1 2", " ", "a b", ""):
        assert f"post_id '{owner}': no id" in daemon.log_text()
    assert keys.get("post_a b_counter") == "3"
    assert keys.smembers("post_user_like_set_1 2") == {"7"}
    assert not keys.exists("post_y_counter")


@pytest.mark.parametrize("size, low, high", [(1000, 1, 255), (20000, 97, 122)],
                         ids=["bytes", "text"])
def test_long_ids_that_are_none(daemon, client, paused, redis, pg, size, low,
                                high):
    """Longer than an index entry of PostgreSQL may be, and longer than what
    the daemon sets aside for ids: one dead letter each for the row and for
    what is left in the counter."""
    good_ones(client)
    rnd = random.Random(1)
    keys = redis.client(decode=False)
    owner, member = (bytes(rnd.randint(low, high) for _ in range(size))
                     .replace(b" ", b"_") for _ in range(2))
    keys.sadd("post_set", owner)
    keys.sadd(b"post_user_like_set_" + owner, member)
    keys.hset(b"post_user_like_" + owner + b"_" + member,
              mapping={"status": 1, "mtime": 1289192400})
    keys.incr(b"post_" + owner + b"_counter")
    resume(daemon)
    check_good_ones(daemon, client, pg)
    assert len(letters(pg)) == 2
    assert staying(redis.client(), "likesync:*") == harness.STATE_KEYS


def test_a_member_without_a_hash(daemon, client, paused, app, redis, pg):
    """Nothing to write: it is looked at once more, and forgotten."""
    good_ones(client)
    app.write(7, 42, 1, parts="s")
    resume(daemon)
    check_good_ones(daemon, client, pg)
    assert letters(pg) == []
    assert counts(pg)[42] == (1, 0)
    check_clean(pg, redis)


def test_a_foreign_synced_field(daemon, app, redis, pg):
    """Not ours to believe: as if it were not there."""
    app.like(7, 42)
    redis.client().hset("post_user_like_42_7", "synced", "yes")
    daemon.drain()
    assert rows(pg) == [(42, 7, 1)] and counts(pg) == {42: (1, 0)}
    check_clean(pg, redis)
