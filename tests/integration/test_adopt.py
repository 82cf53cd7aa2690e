# SPDX-License-Identifier: MIT
"""likesyncctl adopt: graphs that an app wrote into Redis itself become rows, in
whatever form they are, however often it is killed or run again."""
import contextlib
import os
import pty
import random
import re
import signal
import subprocess
import time

import pytest

import harness
from servers import wait_for

CTL = harness.BUILD / "likesyncctl"
OLD = 1600000000             # all times of an app's graph are near it
TEMPLATES = [("{user}:follow", "{user}:fans"), ("follow:{user}", "fans:{user}")]

FOLLOWS_EXACT = """
WITH ends AS (SELECT user_id AS id, 1 AS n, 0 AS m FROM user_follow
               WHERE status = 1
              UNION ALL SELECT followee_id, 0, 1 FROM user_follow
               WHERE status = 1),
     rows AS (SELECT id, sum(n) AS n, sum(m) AS m FROM ends GROUP BY id)
SELECT coalesce(id, user_id), following_count, n, follower_count, m
  FROM rows FULL JOIN user_follow_count c ON c.user_id = rows.id
 WHERE coalesce(following_count, 0) <> coalesce(n, 0)
    OR coalesce(follower_count, 0) <> coalesce(m, 0)"""

needs_faults = pytest.mark.skipif(
    not harness.build_has("LIKESYNCD_FAULTS"),
    reason="built without LIKESYNCD_FAULTS")


class FollowsWatcher(harness.I1Watcher):
    def watch(self, cursor):
        while not self.ended.is_set():
            cursor.execute(FOLLOWS_EXACT)
            self.violations += cursor.fetchall()
            self.checks += 1
            self.ended.wait(self.pause)


class App:
    """An app's graph of follows: edges and their times in seconds, and where
    they stand in Redis."""

    def __init__(self, redis, follow="{user}:follow", fans="{user}:fans"):
        self.keys = redis.client()
        self.templates = follow, fans

    def list_key(self, side, user):
        return self.templates[side].replace("{user}", str(user))

    def graph(self, n, users=200, seed=1):
        rnd = random.Random(seed)
        edges = {}
        while len(edges) < n:
            a, b = rnd.randrange(users), rnd.randrange(users)
            if a != b:
                edges[a, b] = OLD + rnd.randrange(10**6)
        return edges

    def write_lists(self, edges, sides=(0, 1), plain=lambda key: False):
        pipe = self.keys.pipeline(transaction=False)
        for (a, b), when in edges.items():
            for side in sides:
                key = self.list_key(side, (a, b)[side])
                member = (b, a)[side]
                if plain(key):
                    pipe.sadd(key, member)
                else:
                    pipe.zadd(key, {member: when})
        pipe.execute()

    def lists(self):
        """{(side, user): {member: score}} as the sorted sets have it."""
        found = {}
        for side in (0, 1):
            pattern = re.escape(self.templates[side]).replace(
                r"\{user\}", r"([^:]+)")
            for key in self.keys.scan_iter(
                    self.templates[side].replace("{user}", "*"), 1000):
                match = re.fullmatch(pattern, key)
                if match:
                    found[side, match[1]] = dict(
                        self.keys.zrange(key, 0, -1, withscores=True))
        return found


def lists_of(edges):
    lists = {}
    for (a, b), when in edges.items():
        lists.setdefault((0, str(a)), {})[str(b)] = when
        lists.setdefault((1, str(b)), {})[str(a)] = when
    return lists


def follows(pg):
    """{(user, followee): (status, ctime)} in seconds."""
    return {(a, b): (status, float(ctime)) for a, b, status, ctime in pg.query(
        "SELECT user_id, followee_id, status, extract(epoch FROM ctime)"
        " FROM user_follow")}


def likes(pg):
    return {(post, user): (status, float(mtime))
            for post, user, status, mtime in pg.query(
                "SELECT post_id, user_id, status, extract(epoch FROM mtime)"
                " FROM user_like_post")}


def ctl(daemon, *arguments, expect=0):
    """What it printed on stdout; all must go well unless told otherwise."""
    done = subprocess.run([str(a) for a in (CTL, "-s", daemon.admin_socket,
                                            *arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120)
    assert done.returncode == expect, (done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


def adopt(daemon, what, expect=0):
    """The numbers of its summary, by the first word."""
    out, _ = ctl(daemon, "adopt", what, expect=expect)
    numbers = {line.split()[0]: int(line.split()[-1])
               for line in out.splitlines()[:5]}
    return (*(numbers[name] for name in ("edges", "taken", "already",
                                         "refused")),)


def status(daemon):
    flat = daemon.admin().execute_command("ADOPT", "STATUS")
    return dict(zip(flat[::2], flat[1::2]))


def wait_not_running(daemon):
    return wait_for(lambda: (s := status(daemon))["state"] != "running" and s,
                    60, "the job to end")


def check_follows(daemon, pg, app, edges):
    """Rows, counts and lists are the graph, and nothing is left over."""
    daemon.drain()
    assert follows(pg) == {pair: (1, when) for pair, when in edges.items()}
    assert pg.query(FOLLOWS_EXACT) == []
    assert app.lists() == lists_of(edges)
    left = set(app.keys.scan_iter("likesync:*", 1000))
    assert not [key for key in left
                if key.startswith(("likesync:adopt:", "likesync:unsynced:"))]
    assert not app.keys.exists("follow_set")


def like_hash(keys, post, user, state, when, dirty=False, **more):
    keys.hset(f"post_user_like_{post}_{user}", mapping={
        "status": state, "post_id": post, "user_id": user, "ctime": when,
        "mtime": when, **more})
    if dirty:
        keys.sadd(f"post_user_like_set_{post}", user)
        keys.incrby(f"post_{post}_counter", 1 if state else -1)
        keys.sadd("post_set", post)


# ---- follows ----

@pytest.mark.parametrize("templates", TEMPLATES, ids=["default", "prefixed"])
@pytest.mark.parametrize("sides", [(0, 1), (0,), (1,)],
                         ids=["both", "follow", "fans"])
def test_sorted_sets(bed, redis, pg, templates, sides):
    app = App(redis, *templates)
    edges = app.graph(1500)
    app.write_lists(edges, sides)
    daemon = bed.daemon(redis, pg, keys_follow=templates[0],
                        keys_fans=templates[1])
    with FollowsWatcher(pg):
        _, taken, _, refused = adopt(daemon, "follows")
        assert (taken, refused) == (1500, 0)
        check_follows(daemon, pg, app, edges)
    # Once more: nothing changes, and lists that are ours are not gone through.
    batches = pg.value("SELECT count(*) FROM sync_batch")
    assert adopt(daemon, "follows")[1] == 0
    check_follows(daemon, pg, app, edges)
    assert pg.value("SELECT count(*) FROM sync_batch") == batches
    user = next(iter(edges))[0]
    assert app.keys.hget("likesync:list:" + app.list_key(0, user), "own") \
        == "1"


def test_fractions_of_seconds(daemon, redis, pg):
    app = App(redis)
    app.write_lists({(7, 8): OLD + .25, (7, 9): OLD + .123456})
    assert adopt(daemon, "follows")[1] == 2
    daemon.drain()
    assert follows(pg) == {(7, 8): (1, OLD + .25), (7, 9): (1, OLD + .123456)}


@pytest.mark.parametrize("sides", [(0, 1), (0,), (1,)],
                         ids=["both", "follow", "fans"])
def test_plain_sets(daemon, redis, pg, sides):
    """Sets hold no times: it is that of the adoption."""
    app = App(redis)
    edges = app.graph(1500)
    app.write_lists(edges, sides, plain=lambda key: True)
    before = time.time()
    with FollowsWatcher(pg):
        assert adopt(daemon, "follows")[1] == 1500
        daemon.drain()
    rows = follows(pg)
    assert rows.keys() == edges.keys()
    assert all(state == 1 and before - 1 < when < time.time() + 1
               for state, when in rows.values())
    check_follows(daemon, pg, app, {pair: when
                                    for pair, (_, when) in rows.items()})
    assert adopt(daemon, "follows")[1] == 0


def test_sets_and_sorted_sets(daemon, redis, pg):
    """A time that one end knows is not lost if the other was taken first: the
    edges are there all the same."""
    app = App(redis)
    edges = app.graph(800)
    app.write_lists(edges, plain=lambda key: key.endswith("fans"))
    assert adopt(daemon, "follows")[1] == 800
    daemon.drain()
    assert follows(pg).keys() == edges.keys()
    assert pg.query(FOLLOWS_EXACT) == []
    assert {key: set(members) for key, members in app.lists().items()} \
        == {key: set(members) for key, members in lists_of(edges).items()}


def test_text_ids(bed, redis, cluster):
    database = cluster.create_database(variables={"user_id_type": "text",
                                                  "post_id_type": "text"})
    bed.databases.append(database)
    daemon = bed.daemon(redis, database, ids_user="text", ids_post="text")
    keys = redis.client()
    keys.zadd("a%5Fb:follow", {"c": OLD, "%73et": OLD + 1, "a_b": OLD})
    keys.hset("post_user_like_p_a%5Fb", mapping={
        "status": 1, "post_id": "p", "user_id": "a_b", "ctime": OLD,
        "mtime": OLD})
    assert adopt(daemon, "follows", 0) == (3, 2, 0, 1)
    assert adopt(daemon, "likes", 0)[1] == 1
    daemon.drain()
    assert follows(database) == {("a_b", "c"): (1, OLD),
                                 ("a_b", "set"): (1, OLD + 1)}
    assert likes(database) == {("p", "a_b"): (1, OLD)}


def test_hashes_beside_lists(daemon, redis, pg):
    """What an app's own flusher left: edges with a hash, synced or not by its
    lights, and ones that were taken back."""
    app = App(redis)
    edges = app.graph(300)
    app.write_lists(edges)
    pairs = list(edges)
    for i, (a, b) in enumerate(pairs[:90]):
        app.keys.hset(f"user_follow_{a}_{b}", mapping={
            "status": 1, "user_id": a, "followee_id": b,
            "ctime": edges[a, b], "mtime": edges[a, b] + 5})
        if i % 3 == 0:
            app.keys.sadd(f"user_follow_set_{a}", b)
        if i % 6 == 0:              # else its entry in the registry is lost
            app.keys.sadd("follow_set", a)
    gone = pairs[90:120]
    for a, b in gone:
        app.keys.hset(f"user_follow_{a}_{b}", mapping={
            "status": 0, "user_id": a, "followee_id": b,
            "ctime": edges[a, b], "mtime": edges[a, b] + 5})
    _, taken, _, refused = adopt(daemon, "follows")
    assert (taken, refused) == (180 + 60 + 30, 0)
    daemon.drain()
    rows = follows(pg)
    assert {pair for pair, (state, _) in rows.items() if state} \
        == set(edges) - set(gone)
    check = {pair: when for pair, when in edges.items() if pair not in gone}
    assert app.lists() == lists_of(check)
    assert pg.query(FOLLOWS_EXACT) == []
    assert not app.keys.exists("follow_set")


def test_newer_rows_in_postgresql_win(daemon, redis, pg):
    app = App(redis)
    edges = app.graph(200)
    pairs = list(edges)
    app.write_lists(edges)
    cases = [(1, -100), (0, -100), (1, 100), (0, 100)]
    want = {pair: (1, when) for pair, when in edges.items()}
    for i, pair in enumerate(pairs[:80]):
        state, later = cases[i % 4]
        when = edges[pair] + later
        pg.query("INSERT INTO user_follow VALUES (%s, %s, %s, 0,"
                 " to_timestamp(%s), to_timestamp(%s))", *pair, state,
                 when - 10, when)
        if later > 0:
            want[pair] = state, when - 10
    pg.query("INSERT INTO user_follow_count SELECT id, sum(n), sum(m), now()"
             " FROM (SELECT user_id AS id, 1 AS n, 0 AS m FROM user_follow"
             " WHERE status = 1 UNION ALL SELECT followee_id, 0, 1"
             " FROM user_follow WHERE status = 1) e GROUP BY id")
    with FollowsWatcher(pg):
        assert adopt(daemon, "follows")[1] == 200
        daemon.drain()
    assert follows(pg) == want
    assert app.lists() == lists_of({pair: when for pair, (state, when)
                                    in want.items() if state})


def test_what_is_refused_stays(daemon, redis, pg):
    keys = redis.client()
    keys.zadd("7:follow", {"8": OLD, "9": 1731000000000, "10": -5, "11": 0,
                           "12": time.time() + 90, "7": OLD, "x": OLD})
    keys.zadd("abc:follow", {"8": OLD})
    keys.sadd("20:follow", "21", "no")
    keys.hset("user_follow_30_31", mapping={"status": 5, "mtime": OLD})
    keys.hset("user_follow_30", mapping={"status": 1, "mtime": OLD})
    keys.zadd("40:follow", {"41": OLD})
    keys.set("41:fans", "something else")
    out, _ = ctl(daemon, "adopt", "follows")
    assert re.search(r"^taken over +2$", out, re.M)
    assert re.search(r"^refused +11$", out, re.M)
    assert re.search(r"^for example: user_follow_30\S*: ", out, re.M)
    daemon.drain()
    assert follows(pg).keys() == {(7, 8), (20, 21)}
    assert keys.zcard("7:follow") == 7
    staged, = keys.scan_iter("likesync:adopt:*")
    assert staged.endswith(":20:follow") and keys.smembers(staged) == {"no"}
    # It is not ours as a whole, so it is gone through again.
    assert keys.hget("likesync:list:7:follow", "own") != "1"
    for key in ("user_follow_30", "user_follow_30_31", "41:fans"):
        keys.delete(key)
    out, _ = ctl(daemon, "adopt", "follows")
    assert re.search(r"^taken over +1$", out, re.M)
    keys.delete(staged, "abc:follow")
    for bad, text in ((1731000000000, "1731000000000"), (-5, "-5")):
        keys.delete("7:follow")
        keys.zadd("7:follow", {"9": bad})
        out, _ = ctl(daemon, "adopt", "follows")
        assert f"for example: 7:follow: {text} is no Unix time in seconds\n" \
            in out


def test_a_user_who_left_before_the_adoption(daemon, client, redis, pg):
    """The daemon answered that there is no such follow: so it is."""
    app = App(redis)
    app.write_lists({(7, 8): OLD, (7, 9): OLD})
    assert client.execute_command("UNFOLLOW", 7, 8) == 0
    assert client.execute_command("FOLLOW", 7, 9) == 1
    assert adopt(daemon, "follows") == (4, 0, 4, 0)
    daemon.drain()
    assert follows(pg).keys() == {(7, 9)}
    assert app.lists().keys() == {(0, "7"), (1, "9")}


@pytest.mark.parametrize("cached", [False, True])
def test_a_user_who_left_what_only_a_list_has(daemon, client, redis, pg, cached):
    """PostgreSQL has an older end, so the daemon answers 0: and then the edge
    that an app put into a list since must not come again."""
    pg.query("INSERT INTO user_follow VALUES (7, 8, 0, 1, to_timestamp(%s),"
             " to_timestamp(%s))", OLD - 100, OLD - 50)
    if cached:
        assert client.execute_command("UNFOLLOW", 7, 8) == 0
    app = App(redis)
    app.write_lists({(7, 8): OLD, (7, 9): OLD})
    assert client.execute_command("UNFOLLOW", 7, 8) == 0
    assert client.execute_command("FOLLOWING", 7) == ["9"]
    assert client.execute_command("FOLLOWERS", 8) == []
    assert adopt(daemon, "follows")[1] == 1
    daemon.drain()
    assert {pair: state for pair, (state, _) in follows(pg).items()} == \
        {(7, 8): 0, (7, 9): 1}


def test_a_user_who_came_back_by_the_app(daemon, client, redis, pg):
    """An app that knows of lists only follows again whom the daemon let go, of
    which Redis still has the hash: what was later is true."""
    assert client.execute_command("FOLLOW", 7, 8) == 1
    assert client.execute_command("FOLLOW", 7, 9) == 1
    assert client.execute_command("UNFOLLOW", 7, 8) == 1
    assert client.execute_command("UNFOLLOW", 7, 9) == 1
    daemon.drain()
    later = int(time.time()) + 2
    app = App(redis)
    app.write_lists({(7, 8): later, (7, 9): OLD})
    assert adopt(daemon, "follows")[1] == 1
    daemon.drain()
    rows = follows(pg)
    assert rows[7, 8] == (1, later) and rows[7, 9][0] == 0
    assert client.execute_command("FOLLOWING", 7) == ["8"]
    assert client.execute_command("RELATION", 7, 8, 9) == [1, 0]
    assert client.execute_command("FOLLOWCOUNT", 7, 8) == [[1, 0], [0, 1]]


def test_a_list_that_grew_after_it_was_ours(daemon, client, redis, pg):
    """Read when it was empty, so ours; then an app put members into it."""
    assert client.execute_command("FOLLOWING", 7) == []
    app = App(redis)
    app.write_lists({(7, 8): OLD, (7, 9): OLD}, (0,))
    assert adopt(daemon, "follows")[1] == 2
    daemon.drain()
    assert follows(pg).keys() == {(7, 8), (7, 9)}
    assert sorted(client.execute_command("FOLLOWING", 7)) == ["8", "9"]


def test_events_go_on_meanwhile(daemon, client, redis, pg):
    """Follows and unfollows of the same users, while the job runs."""
    app = App(redis)
    edges = app.graph(4000, users=300)
    app.write_lists(edges)
    rnd = random.Random(5)
    want = {pair: 1 for pair in edges}
    daemon.admin().execute_command("ADOPT", "START", "follows")
    with FollowsWatcher(pg):
        while status(daemon)["state"] == "running":
            pairs = rnd.sample(list(edges), 20)
            for a, b in pairs:
                want[a, b] = rnd.randrange(2)
                client.execute_command("FOLLOW" if want[a, b] else "UNFOLLOW",
                                       a, b)
        daemon.drain()
    assert status(daemon)["state"] == "done"
    rows = follows(pg)
    assert {pair for pair, (state, _) in rows.items() if state} \
        == {pair for pair, state in want.items() if state}
    assert pg.query(FOLLOWS_EXACT) == []
    assert {key: set(members) for key, members in app.lists().items()} \
        == {key: set(members) for key, members in lists_of(
            {pair: 1 for pair, state in want.items() if state}).items()}


# ---- likes ----

def write_likes(keys, pg):
    """All that a hash of an app may be; returns what must be in PostgreSQL."""
    want = {}
    for user in range(400):
        post, when = user % 7, OLD + user
        case = user % 8
        if case == 0:           # flushed by the app, into tables of its own
            like_hash(keys, post, user, 1, when)
            want[post, user] = 1, when
        elif case == 1:         # taken back and flushed
            like_hash(keys, post, user, 0, when)
            want[post, user] = 0, when
        elif case == 2:         # not flushed yet
            like_hash(keys, post, user, 1, when, dirty=True)
            want[post, user] = 1, when
        elif case in (3, 4, 5, 6):
            like_hash(keys, post, user, 1, when)
            state, later = [(1, 0), (1, 50), (0, 50), (0, -50)][case - 3]
            pg.query("INSERT INTO user_like_post VALUES (%s, %s, %s, 0,"
                     " to_timestamp(%s), to_timestamp(%s))", post, user, state,
                     when + later, when + later)
            want[post, user] = (state, when + later) if later >= 0 \
                else (1, when)
        else:                   # its entry in the registry is lost
            like_hash(keys, post, user, 1, when, dirty=True)
            keys.srem("post_set", post)
            want[post, user] = 1, when
    pg.query("INSERT INTO post_like SELECT post_id, count(*), 0, now()"
             " FROM user_like_post WHERE status = 1 GROUP BY post_id")
    return want


def check_likes(daemon, keys, pg, want):
    daemon.drain()
    assert likes(pg) == want
    harness.check_exact(pg)
    assert pg.value("SELECT coalesce(sum(unattributed), 0) FROM post_like") \
        == 0
    assert list(keys.scan_iter("post_*_counter")) == []
    assert not keys.exists("post_set")
    assert not [key for key in keys.scan_iter("post_user_like_*", 1000)
                if keys.ttl(key) < 0]


def test_likes(bed, redis, pg):
    keys = redis.client()
    want = write_likes(keys, pg)
    daemon = bed.daemon(redis, pg)
    with harness.I1Watcher(pg):
        _, taken, known, refused = adopt(daemon, "likes")
        assert (taken + known, refused) == (400, 0)
        check_likes(daemon, keys, pg, want)
    assert adopt(daemon, "likes")[1] == 0
    check_likes(daemon, keys, pg, want)
    # The daemon goes on from there.
    client = daemon.client()
    assert client.execute_command("UNLIKE", 0, 0) == 1
    assert client.execute_command("LIKE", 1, 1) == 1
    counts = client.execute_command("LIKECOUNT", *range(7))
    daemon.drain()
    assert counts == [pg.value("SELECT like_count FROM post_like"
                               f" WHERE post_id = {post}") for post in range(7)]


def test_likes_before_they_are_flushed(bed, redis, pg):
    """Counters hold what PostgreSQL does not have, to the like, and what it has
    newer is not written to it again."""
    keys = redis.client()
    want = write_likes(keys, pg)
    daemon = bed.daemon(redis, pg, flush_interval_ms=3600000)
    adopt(daemon, "likes")
    for post in range(7):
        rows = {user: state for (p, user), (state, _) in likes(pg).items()
                if p == post}
        total = sum(state for (p, _), (state, _) in want.items() if p == post)
        assert int(keys.get(f"post_{post}_counter") or 0) \
            == total - sum(rows.values())
        dirty = {int(u) for u in keys.smembers(f"post_user_like_set_{post}")}
        assert dirty == {user for (p, user), row in want.items() if p == post
                         and likes(pg).get((post, user)) != row}
    check_likes(daemon, keys, pg, want)


def test_likes_that_are_on_record(bed, redis, pg):
    """Claimed, and in no set any more: their counter holds them all the same,
    also where the time is like ours, which leaves no trace in the hash."""
    keys = redis.client()
    daemon = bed.daemon(redis, pg)
    with contextlib.closing(pg.connect()) as connection:
        connection.autocommit = False
        connection.cursor().execute(
            "LOCK TABLE user_like_post IN ACCESS EXCLUSIVE MODE")
        for user in range(5):
            like_hash(keys, 42, user, 1, f"{OLD}.{user:06}", dirty=True)
        wait_for(lambda: not keys.exists("post_user_like_set_42", "post_set"),
                 what="the claim")
        assert adopt(daemon, "likes") == (5, 0, 5, 0)
        connection.rollback()
    check_likes(daemon, keys, pg, {(42, user): (1, round(OLD + user / 1e6, 6))
                                   for user in range(5)})


def test_a_like_that_is_just_being_written(bed, redis, pg):
    """The hash is there, its other commands are on their way: it is not taken
    for one that is synced, which would have been looked up."""
    keys = redis.client()
    daemon = bed.daemon(redis, pg, flush_interval_ms=3600000)
    like_hash(keys, 42, 7, 1, int(time.time()))
    daemon.admin().execute_command("ADOPT", "START", "likes")
    wait_for(lambda: status(daemon)["keys"] == 1, what="the hash to be found")
    assert status(daemon)["state"] == "running"
    keys.sadd("post_user_like_set_42", 7)
    keys.incr("post_42_counter")
    keys.sadd("post_set", 42)
    found = wait_not_running(daemon)
    assert (found["state"], found["known"]) == ("done", 1)
    assert daemon.metrics()["likesyncd_lookup_pairs_total"] == 0
    daemon.drain()
    assert pg.query("SELECT post_id, like_count, unattributed FROM post_like") \
        == [(42, 1, 0)]


def test_likes_that_are_refused(daemon, redis, pg):
    keys = redis.client()
    like_hash(keys, 42, 7, 1, 1731000000000)
    like_hash(keys, 42, 8, 1, int(time.time()) + 90)
    like_hash(keys, "x", 8, 1, OLD)
    like_hash(keys, 43, 8, 1, OLD)
    keys.set("post_43_counter", "many")
    like_hash(keys, 44, 8, 1, OLD)
    keys.set("post_user_like_set_44", "no set")
    before = {key: keys.hgetall(key)
              for key in keys.scan_iter("post_user_like_4*_*", _type="HASH")}
    assert adopt(daemon, "likes") == (5, 0, 0, 5)
    daemon.drain()
    assert likes(pg) == {}
    assert {key: keys.hgetall(key) for key in before} == before


# ---- interruptions ----

@needs_faults
@pytest.mark.parametrize("fault", ["adopt_list:1", "adopt_list:4",
                                   "adopt_list:15", "adopt_hashes:1",
                                   "adopt_hashes:2"])
@pytest.mark.parametrize("plain", [False, True], ids=["sorted", "plain"])
def test_killed_and_run_again(bed, redis, pg, fault, plain):
    app = App(redis)
    edges = app.graph(3000, users=60)
    app.write_lists(edges, plain=lambda key: plain)
    for a, b in list(edges)[:500]:
        app.keys.hset(f"user_follow_{a}_{b}", mapping={
            "status": 1, "user_id": a, "followee_id": b,
            "ctime": edges[a, b], "mtime": edges[a, b]})
    daemon = bed.daemon(redis, pg, fault=fault, flush_lease_ms=500)
    with FollowsWatcher(pg):
        ctl(daemon, "adopt", "follows", expect=1)
        daemon.wait_fault()
        daemon.start()
        assert adopt(daemon, "follows")[3] == 0
        daemon.drain()
    rows = follows(pg)
    if not plain:
        assert rows == {pair: (1, when) for pair, when in edges.items()}
    assert rows.keys() == edges.keys()
    check_follows(daemon, pg, app, {pair: when
                                    for pair, (_, when) in rows.items()})


@needs_faults
@pytest.mark.parametrize("fault", ["adopt_hashes:1", "adopt_hashes:3",
                                   "claimed:1", "committed:1", "adopted:1"])
def test_likes_killed_and_run_again(bed, redis, pg, fault):
    keys = redis.client()
    want = write_likes(keys, pg)
    daemon = bed.daemon(redis, pg, flush_lease_ms=500, flush_batch_rows=100,
                        flush_claim_rows=50)
    daemon.admin().execute_command("FLUSHER", "DRAIN")
    daemon.restart(fault)
    with harness.I1Watcher(pg):
        daemon.admin().execute_command("ADOPT", "START", "likes")
        daemon.wait_fault()
        daemon.start()
        assert adopt(daemon, "likes")[3] == 0
        check_likes(daemon, keys, pg, want)


def test_killed_at_any_time_and_run_again(bed, redis, pg):
    app = App(redis)
    edges = app.graph(3000, users=100)
    app.write_lists(edges)
    daemon = bed.daemon(redis, pg, flush_lease_ms=500)
    rnd = random.Random(11)
    with FollowsWatcher(pg):
        for _ in range(6):
            daemon.admin().execute_command("ADOPT", "START", "follows")
            time.sleep(rnd.random() / 10)
            daemon.kill9()
            daemon.start()
        assert adopt(daemon, "follows")[3] == 0
        check_follows(daemon, pg, app, edges)


def test_redis_restarts_in_the_middle(bed, redis, pg):
    """Its cursors are of no use to the next process."""
    app, edges = slow_graph(redis, users=8000)
    daemon = bed.daemon(redis, pg)
    daemon.admin().execute_command("ADOPT", "START", "follows")
    wait_for(lambda: status(daemon)["adopted"] > 0, what="some to be taken")
    redis.restart()
    assert wait_not_running(daemon)["state"] == "done"
    check_follows(daemon, pg, app, edges)


def test_waits_for_postgresql(bed, redis):
    cluster = bed.postgres()
    pg = cluster.create_database()
    keys = redis.client()
    for user in range(600):
        like_hash(keys, user % 5, user, 1, OLD + user)
    daemon = bed.daemon(redis, pg)
    cluster.stop()
    daemon.admin().execute_command("ADOPT", "START", "likes")
    wait_for(lambda: "PostgreSQL" in status(daemon)["why"], what="the reason")
    assert status(daemon)["state"] == "running"
    cluster.start()
    assert wait_not_running(daemon)["state"] == "done"
    check_likes(daemon, keys, pg, {(user % 5, user): (1, OLD + user)
                                   for user in range(600)})


def test_a_full_redis_is_waited_for(bed, redis, pg):
    app = App(redis)
    edges = app.graph(500)
    app.write_lists(edges)
    daemon = bed.daemon(redis, pg)
    app.keys.config_set("maxmemory", "1mb")
    daemon.admin().execute_command("ADOPT", "START", "follows")
    wait_for(lambda: "OOM" in status(daemon)["why"], what="the reason")
    app.keys.config_set("maxmemory", "0")
    assert wait_not_running(daemon)["state"] == "done"
    check_follows(daemon, pg, app, edges)


def test_what_redis_refuses_ends_the_job(daemon, redis):
    app = App(redis)
    app.write_lists({(7, 8): OLD})
    app.keys.set("follow_set", "no set")
    _, err = ctl(daemon, "adopt", "follows", expect=1)
    assert err == ("likesyncctl: failed: WRONGTYPE follow_set is not a set: "
                   "run it again to go on\n")
    app.keys.delete("follow_set")
    assert adopt(daemon, "follows")[1] == 1


# ---- steps ----

def test_steps_are_bounded(bed, pg):
    """100 000 edges, half of them with one user, in both encodings of Redis."""
    redis = bed.redis(appendonly="no")
    app = App(redis)
    rnd = random.Random(3)
    edges = {(7, 1000 + i): OLD + i for i in range(50000)}
    while len(edges) < 100000:
        a, b = rnd.randrange(1000), rnd.randrange(1000, 60000)
        edges.setdefault((a, b), OLD + len(edges))
    for start in range(0, 100000, 10000):
        app.write_lists(dict(list(edges.items())[start:start + 10000]), (0,))
    daemon = bed.daemon(redis, pg)
    client = daemon.client()
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    app.keys.config_set("slowlog-max-len", 10000)
    app.keys.config_set("slowlog-log-slower-than", 500)
    app.keys.config_resetstat()
    daemon.admin().execute_command("ADOPT", "START", "follows")
    answered = 0
    while status(daemon)["state"] == "running":
        assert client.execute_command("LIKE", answered, 1) == 1
        answered += 1
    assert status(daemon)["adopted"] == 100000
    assert answered > 20
    stats = app.keys.info("commandstats")
    assert stats["cmdstat_zscan"]["calls"] >= 100000 / 250
    assert stats["cmdstat_scan"]["calls"] >= 6 * 1000 / 200
    assert stats["cmdstat_evalsha"]["calls"] >= 100000 / 100
    for command in ("keys", "smembers", "hgetall", "sort"):
        assert f"cmdstat_{command}" not in stats
    sizes = []
    for entry in app.keys.slowlog_get(10000):
        command = entry["command"].decode()
        more = re.search(r"\((\d+) more arguments\)", command)
        if command.startswith("EVALSHA"):
            # It shows 31 of them; three go before those of the script.
            sizes.append(28 + int(more[1]) if more else 0)
        else:
            assert not more, command
    # Three for the script, and three for each edge.
    assert max(sizes) == 3 + 100 * 3
    daemon.admin().execute_command("FLUSHER", "RESUME")
    daemon.drain(120)
    assert pg.value("SELECT count(*) FROM user_follow WHERE status = 1") \
        == 100000
    assert pg.query(FOLLOWS_EXACT) == []
    assert app.keys.zcard("7:follow") == sum(a == 7 for a, _ in edges)


# ---- likesyncctl and the command ----

def slow_graph(redis, n=20000, users=2000):
    """Takes long enough to be met while it runs."""
    app = App(redis)
    edges = app.graph(n, users)
    app.write_lists(edges, (0,))
    return app, edges


def test_the_summary(daemon, redis):
    App(redis).write_lists({(7, 8): OLD, (7, 9): OLD, (8, 7): OLD}, (0,))
    out, err = ctl(daemon, "adopt", "follows")
    assert out == ("keys looked at  5\n"
                   "edges found     3\n"
                   "taken over      3\n"
                   "already known   0\n"
                   "refused         0\n")
    assert err == ""
    found = status(daemon)
    assert (found["state"], found["kind"]) == ("done", "follows")
    assert found["scanned"] == found["total"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_job(bed, redis, pg, number):
    app, edges = slow_graph(redis)
    daemon = bed.daemon(redis, pg)
    process = subprocess.Popen([CTL, "-s", daemon.admin_socket, "adopt",
                                "follows"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: status(daemon)["adopted"] > 0, what="some to be taken")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"taken over" in out
    assert err.decode() == "likesyncctl: stopped: run it again to go on\n"
    assert status(daemon)["state"] == "stopped"
    assert 0 < status(daemon)["adopted"] < 20000
    assert adopt(daemon, "follows")[3] == 0
    check_follows(daemon, pg, app, edges)


def test_a_bar_on_a_terminal(bed, redis, pg):
    slow_graph(redis)
    daemon = bed.daemon(redis, pg)
    fd, slave = pty.openpty()
    process = subprocess.Popen([CTL, "-s", daemon.admin_socket, "adopt",
                                "follows"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):      # EIO: it has ended
        while data := os.read(fd, 65536):
            text += data
    os.close(fd)
    assert process.wait(30) == 0
    bars = re.findall(r"\radopting \[(#*) *\] ([a-z ]*): (\d+) taken over, "
                      r"(\d+) known\x1b\[K", text.decode())
    assert len(bars) > 2
    lengths = [len(bar[0]) for bar in bars]
    assert lengths == sorted(lengths) and lengths[-1] == 30
    assert bars[-1][1:3] == ("lists of fans", "20000")


def test_one_job_at_a_time(bed, redis, pg):
    slow_graph(redis)
    daemon = bed.daemon(redis, pg)
    admin = daemon.admin()
    assert admin.execute_command("ADOPT", "START", "follows") in ("OK", True)
    _, err = ctl(daemon, "adopt", "likes", expect=1)
    assert err == ("likesyncctl: ERR an adoption of follows is running: see "
                   "ADOPT STATUS, or ADOPT STOP\n")
    admin.execute_command("ADOPT", "STOP")
    assert wait_not_running(daemon)["state"] == "stopped"
    assert adopt(daemon, "likes") == (0, 0, 0, 0)


def test_a_lost_terminal_is_no_end(bed, redis, pg):
    """The job goes on without likesyncctl, and the next one shows it."""
    slow_graph(redis)
    daemon = bed.daemon(redis, pg)
    first = subprocess.Popen([CTL, "-s", daemon.admin_socket, "adopt",
                              "follows"])
    wait_for(lambda: status(daemon)["adopted"] > 0, 30, "the first edges")
    first.kill()
    first.wait()
    assert status(daemon)["state"] == "running"
    edges, taken, _, refused = adopt(daemon, "follows")
    assert edges >= taken == 20000 and refused == 0
    daemon.drain(60)
    assert len(follows(pg)) == 20000


def test_a_daemon_that_ends_while_it_runs(bed, redis, pg):
    slow_graph(redis)
    daemon = bed.daemon(redis, pg)
    daemon.admin().execute_command("ADOPT", "START", "follows")
    wait_for(lambda: status(daemon)["adopted"] > 0, what="some to be taken")
    daemon.term()


@pytest.mark.parametrize("arguments, text", [
    (["adopt"], "adopt: expected follows|likes"),
    (["adopt", "follows", "likes"], "adopt: expected follows|likes"),
    (["ping", "follows"], "expected one verb")])
def test_wrong_usage(daemon, arguments, text):
    out, err = ctl(daemon, *arguments, expect=2)
    assert (out, err) == ("", f"likesyncctl: {text}\n"
                              "likesyncctl --help says more\n")


def test_an_unknown_graph(daemon):
    _, err = ctl(daemon, "adopt", "bookmarks", expect=1)
    assert err == ("likesyncctl: ERR unknown graph 'bookmarks': expected "
                   "follows or likes\n")


def test_help_tells_of_totals(daemon):
    out, _ = ctl(daemon, "adopt", "--help")
    assert "totals must be deleted first" in out


def test_the_command_is_for_the_admin(daemon, client):
    with pytest.raises(Exception, match="it is for the admin listener only"):
        client.execute_command("ADOPT", "STATUS")
    admin = daemon.admin()
    assert status(daemon)["state"] == "idle"
    for arguments, error in (
            (["START"], "wrong number of arguments for 'adopt.start'"),
            (["STATUS", "x"], "wrong number of arguments for 'adopt.status'"),
            (["GO"], "unknown subcommand 'GO'. Try ADOPT HELP")):
        with pytest.raises(Exception, match=error):
            admin.execute_command("ADOPT", *arguments)
    admin.execute_command("ADOPT", "STOP")      # nothing to stop
    assert status(daemon)["state"] == "idle"
