# SPDX-License-Identifier: MIT
"""The commands of follows: every option and every error, against a graph that
the test keeps, from what is not synced yet, from what is, and after Redis lost
all of it."""
import contextlib
import itertools
import random
import re
import uuid

import pytest
import redis as redis_py

import harness
from wire import Wire, encode

BASE = 1700000000
STATES = ["unsynced", "synced", "forgotten"]


class Stack:
    """A daemon for the whole file; each test takes users of its own."""

    def __init__(self, bed, pg, **options):
        self.redis = bed.redis()
        self.pg = pg
        self.daemon = bed.daemon(self.redis, pg, **options)
        self.keys = self.redis.client()
        self.next_user = 1000

    def users(self, n):
        self.next_user += n
        return range(self.next_user - n, self.next_user)

    def wire(self):
        return Wire(self.daemon.socket)

    @contextlib.contextmanager
    def paused(self):
        """The flusher stands still."""
        self.daemon.drain()
        with self.daemon.admin() as admin:
            admin.execute_command("FLUSHER", "PAUSE")
            harness.wait_for(lambda: not self.keys.exists(
                "likesync:batches:follow", "likesync:again:follow"), 30,
                "rest")
            try:
                yield
            finally:
                admin.execute_command("FLUSHER", "RESUME")

    @contextlib.contextmanager
    def being(self, state):
        """Around reads: what was written before is in that state."""
        if state == "unsynced":
            yield
            return
        self.daemon.drain()
        if state == "forgotten":
            self.keys.flushall()
        yield


@pytest.fixture(scope="module")
def stack(session_bed, cluster):
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield Stack(bed, database)
    database.drop()


@pytest.fixture(scope="module")
def small(session_bed, cluster):
    """A daemon with other limits."""
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield Stack(bed, database, follow_page_max=5, follow_max_following=12,
                    postgres_lookup_timeout_ms=30000, server_max_args=2000,
                    server_max_arg_bytes=1024)
    database.drop()


@pytest.fixture
def ask(stack):
    """Sends a command and returns the reply."""
    with contextlib.closing(stack.daemon.client()) as client:
        yield client.execute_command


def error_of(ask, *arguments):
    with pytest.raises(redis_py.ResponseError) as caught:
        ask(*arguments)
    return str(caught.value)


def ints(ids):
    return [int(each) for each in ids]


def edge_of(stack, user, other):
    return stack.pg.query(
        "SELECT status, extract(epoch FROM ctime)::float8 FROM user_follow"
        " WHERE user_id = %s AND followee_id = %s", user, other)


def counts_are_exact(stack):
    """I1 for follows: fails unless the counts are the numbers of rows."""
    assert stack.pg.query("""
        SELECT id, sum(follows), sum(fans) FROM (
          SELECT user_id AS id, 1 AS follows, 0 AS fans FROM user_follow
           WHERE status = 1
          UNION ALL
          SELECT followee_id, 0, 1 FROM user_follow WHERE status = 1
          UNION ALL
          SELECT user_id, -following_count, -follower_count
            FROM user_follow_count) AS each
         GROUP BY id HAVING sum(follows) <> 0 OR sum(fans) <> 0""") == []


class Graph:
    """Who follows whom since when; a member with an equal time comes by its
    bytes, as in a sorted set."""

    def __init__(self):
        self.since = {}

    def follow(self, user, other, time):
        self.since.setdefault((user, other), time)

    def unfollow(self, user, other):
        self.since.pop((user, other), None)

    def listed(self, entries, oldest_first):
        return [each for _, _, each in sorted(
            ((time, str(each).encode(), each) for each, time in entries),
            reverse=not oldest_first)]

    def following(self, user, oldest_first=False):
        return self.listed([(v, time) for (u, v), time in self.since.items()
                            if u == user], oldest_first)

    def followers(self, user, oldest_first=False):
        return self.listed([(u, time) for (u, v), time in self.since.items()
                            if v == user], oldest_first)

    def mutuals(self, user, oldest_first=False):
        return [v for v in self.following(user, oldest_first)
                if (v, user) in self.since]

    def common(self, user, other, oldest_first=False):
        return [v for v in self.following(user, oldest_first)
                if (other, v) in self.since]

    def relation(self, user, other):
        if user == other:
            return 0
        return ((user, other) in self.since) + \
            2 * ((other, user) in self.since)


def random_graph(stack, users, events, seed):
    """Sent in one pipeline, at times of which many are equal, but not for one
    pair; every reply is as the graph has it."""
    rng = random.Random(seed)
    print("seed", seed)
    graph, requests, expected, last = Graph(), [], [], {}
    for number in range(events):
        user, other = rng.sample(users, 2)
        time = BASE + number // 7
        if last.get((user, other)) == time:
            continue
        last[user, other] = time
        was = (user, other) in graph.since
        if rng.random() < 0.75:
            requests.append(encode("FOLLOW", user, other, "AT", time))
            graph.follow(user, other, time)
        else:
            requests.append(encode("UNFOLLOW", user, other, "AT", time))
            graph.unfollow(user, other)
        expected.append(was != ((user, other) in graph.since))
    with stack.wire() as wire:
        wire.send(b"".join(requests))
        for request, changed in zip(requests, expected):
            assert wire.read() == b":%d\r\n" % changed, request
    return graph


# ---- FOLLOW, UNFOLLOW, RELATION, FOLLOWCOUNT ----

@pytest.mark.parametrize("proto", [2, 3])
def test_replies(stack, proto):
    u, v, w = stack.users(3)
    table = [
        (f"FOLLOW {u} {v}", b":1\r\n"),
        (f"FOLLOW {u} {v}", b":0\r\n"),
        (f"follow {u} 0{v}", b":0\r\n"),
        (f"UNFOLLOW {w} {v}", b":0\r\n"),
        (f"FOLLOW {v} {u} AT {BASE}.5", b":1\r\n"),
        (f"FOLLOW {w} {u} at {BASE}", b":1\r\n"),
        (f"RELATION {u} {v} {w} {u}", b"*3\r\n:3\r\n:2\r\n:0\r\n"),
        (f"RELATION {w} {u} {v} {u}", b"*3\r\n:1\r\n:0\r\n:1\r\n"),
        (f"FOLLOWCOUNT {u} {v} {w} 999999999",
         b"*4\r\n*2\r\n:1\r\n:2\r\n*2\r\n:1\r\n:1\r\n*2\r\n:1\r\n:0\r\n"
         b"*2\r\n:0\r\n:0\r\n"),
        (f"FOLLOWERS {u}", b"*2\r\n$4\r\n%d\r\n$4\r\n%d\r\n" % (v, w)),
        (f"FANS {u} ASC WITHTIMES VIEWER {v}",
         b"*2\r\n*3\r\n$4\r\n%d\r\n$10\r\n%d\r\n:0\r\n"
         b"*3\r\n$4\r\n%d\r\n$12\r\n%d.5\r\n:0\r\n" % (w, BASE, v, BASE)),
        (f"FANS {u} CURSOR 0",
         b"*2\r\n$1\r\n0\r\n*2\r\n$4\r\n%d\r\n$4\r\n%d\r\n" % (v, w)),
        (f"FANS {u} COUNT 1 VIEWER {w}", b"*1\r\n*2\r\n$4\r\n%d\r\n:0\r\n" % v),
        (f"MUTUALS {u}", b"*1\r\n$4\r\n%d\r\n" % v),
        (f"COMMON {w} {v}", b"*1\r\n$4\r\n%d\r\n" % u),
        ("FOLLOWING 999999999", b"*0\r\n"),
        ("FOLLOWERS 999999999 CURSOR 0", b"*2\r\n$1\r\n0\r\n*0\r\n"),
        ("MUTUALS 999999999 CURSOR 0", b"*2\r\n$1\r\n0\r\n*0\r\n"),
        (f"UNFOLLOW {v} {u}", b":1\r\n"),
        (f"UNFOLLOW {v} {u}", b":0\r\n"),
        (f"RELATION {u} {v}", b"*1\r\n:1\r\n"),
        (f"FOLLOWCOUNT {u}", b"*1\r\n*2\r\n:1\r\n:1\r\n"),
    ]
    with stack.wire() as wire:
        wire.call("HELLO", proto)
        for line, expected in table:
            assert wire.call(*line.split()) == expected, line
        for state in STATES[1:]:
            with stack.being(state):
                assert wire.call("RELATION", u, v, w) == b"*2\r\n:1\r\n:2\r\n"
                assert wire.call("FOLLOWCOUNT", u) == \
                    b"*1\r\n*2\r\n:1\r\n:1\r\n"
    assert edge_of(stack, u, v)[0][0] == 1
    assert edge_of(stack, v, u)[0][0] == 0
    assert edge_of(stack, w, u) == [(1, BASE)]
    counts_are_exact(stack)


@pytest.mark.parametrize("state", STATES)
def test_the_present_follow_s_first_time_is_kept(stack, ask, state):
    u, v = stack.users(2)

    def times():
        return [ask("FOLLOWING", u, "WITHTIMES"), ask("FANS", v, "WITHTIMES")]
    assert ask("FOLLOW", u, v, "AT", BASE) == 1
    with stack.being(state):
        assert ask("FOLLOW", u, v, "AT", BASE + 10) == 0
        assert times() == [[[str(v), str(BASE)]], [[str(u), str(BASE)]]]
    with stack.being(state):
        assert ask("UNFOLLOW", u, v, "AT", BASE + 20) == 1
        assert times() == [[], []]
    with stack.being(state):
        assert ask("FOLLOW", u, v, "AT", f"{BASE + 30}.25") == 1
        assert ask("UNFOLLOW", u, v, "AT", BASE + 30) == 0
        assert times() == [[[str(v), f"{BASE + 30}.25"]],
                           [[str(u), f"{BASE + 30}.25"]]]
    stack.daemon.drain()
    assert edge_of(stack, u, v) == [(1, BASE + 30.25)]


BAD = [
    ("FOLLOW 1", "wrong number of arguments for 'follow' command"),
    ("UNFOLLOW 1", "wrong number of arguments for 'unfollow' command"),
    ("RELATION 1", "wrong number of arguments for 'relation' command"),
    ("FOLLOWING", "wrong number of arguments for 'following' command"),
    ("FOLLOWERS", "wrong number of arguments for 'followers' command"),
    ("FANS", "wrong number of arguments for 'fans' command"),
    ("MUTUALS", "wrong number of arguments for 'mutuals' command"),
    ("COMMON 1", "wrong number of arguments for 'common' command"),
    ("FOLLOWCOUNT", "wrong number of arguments for 'followcount' command"),
    ("FOLLOW 1 1", "user and other are the same: nobody follows oneself$"),
    ("UNFOLLOW 1 01", "user and other are the same: nobody follows oneself$"),
    ("FOLLOW x 1", "invalid user id 'x': expected a decimal from 0 to"),
    ("FOLLOW 1 x", "invalid user id 'x': expected a decimal"),
    ("FOLLOW 1 2 WITHCOUNT",
     "unknown option 'WITHCOUNT': expected AT unix-time$"),
    ("FOLLOW 1 2 AT", "AT without a time: expected Unix seconds behind it$"),
    ("FOLLOW 1 2 AT noon", "invalid time 'noon': expected Unix seconds"),
    ("UNFOLLOW 1 2 AT 99999999999", "AT is more than 60 seconds in the fut"),
    ("RELATION x 1", "invalid user id 'x'"),
    ("RELATION 1 2 x", "invalid user id 'x'"),
    ("FOLLOWCOUNT 1 x", "invalid user id 'x'"),
    ("FOLLOWING x", "invalid user id 'x'"),
    ("COMMON 1 x", "invalid user id 'x'"),
    ("COMMON x 1", "invalid user id 'x'"),
    ("FANS 1 2", "unknown option '2': expected RANGE, CURSOR, COUNT, ASC, "
                 "DESC, WITHTIMES or VIEWER$"),
    ("MUTUALS 1 VIEWER 2", "unknown option 'VIEWER': expected RANGE, CURSOR, "
                           "COUNT, ASC, DESC or WITHTIMES$"),
    ("COMMON 1 2 VIEWER 2", "unknown option 'VIEWER'"),
    ("FANS 1 RANGE", "RANGE is not complete: expected start and stop behind"),
    ("FANS 1 RANGE 0", "RANGE is not complete: expected start and stop"),
    ("FANS 1 RANGE a 1", "invalid RANGE start 'a': expected a whole number$"),
    ("FANS 1 RANGE 0 1.5", "invalid RANGE stop '1.5': expected a whole num"),
    ("FANS 1 RANGE 0 99999999999999999999", "invalid RANGE stop '9999"),
    ("FANS 1 CURSOR", "CURSOR is not complete: expected 0, or the cursor of "
                      "the page before behind it$"),
    ("FANS 1 COUNT", "COUNT is not complete: expected a number behind it$"),
    ("FANS 1 COUNT 0", "invalid COUNT '0': expected a number from 1 to 10000 "
                       r"\(follow.page_max\)$"),
    ("FANS 1 COUNT 10001", "invalid COUNT '10001'"),
    ("FANS 1 COUNT -1", "invalid COUNT '-1'"),
    ("FANS 1 COUNT x", "invalid COUNT 'x'"),
    ("FANS 1 VIEWER", "VIEWER is not complete: expected a user behind it$"),
    ("FANS 1 VIEWER x", "invalid VIEWER id 'x': expected a decimal"),
    ("FANS 1 RANGE 0 1 CURSOR 0", "RANGE and CURSOR are given: expected one "
                                  "of them$"),
    ("FANS 1 CURSOR 0 RANGE 0 1", "CURSOR and RANGE are given"),
    ("FANS 1 ASC DESC", "ASC and DESC are given: expected one of them$"),
    ("FANS 1 DESC ASC", "DESC and ASC are given"),
    ("FANS 1 COUNT 1 COUNT 1", "COUNT is given twice$"),
    ("FANS 1 RANGE 0 1 RANGE 0 1", "RANGE is given twice$"),
    ("FANS 1 ASC asc", "ASC is given twice$"),
    ("FANS 1 WITHTIMES WITHTIMES", "WITHTIMES is given twice$"),
    ("FANS 1 VIEWER 1 VIEWER 1", "VIEWER is given twice$"),
] + [(["FANS", "1", "CURSOR", cursor], "invalid CURSOR '.*': expected 0, or "
                                       "the cursor of the page before$")
     for cursor in ("", "1", "00", "-1", "x", "_", "_1", "1700000000_",
                    "1700000000_x", "1700000000_01", "x_1", "1._1", ".5_1",
                    "1e_1", "1e+_1", "1e5_1", "nan_1", "infx_1", "+1_1",
                    "-_1", "1 _1", "0x1_1", "1_1_1", "1_-1",
                    "1" * 33 + "_1", "1_" + "1" * 400)]


def test_bad_input_is_explained(stack):
    with stack.wire() as wire:
        for line, expected in BAD:
            words = line if isinstance(line, list) else line.split()
            reply = wire.call(*words).decode()
            assert reply.startswith("-ERR ") and reply.count("\r\n") == 1, line
            assert re.search(expected, reply[:-2]), (line, reply)
        assert wire.call("PING") == b"+PONG\r\n"


@pytest.mark.parametrize("cursor", [
    "1700000000_1", "0_1", "-5_1", "-0.5_1", "1700000000.1234567_1",
    "1e+20_1", "-1.5e-07_1", "inf_1", "-inf_1"])
def test_times_that_a_cursor_may_have(stack, ask, cursor):
    u, = stack.users(1)
    for order in ("ASC", "DESC"):
        assert ask("FANS", u, "CURSOR", cursor, order) == ["0", []]


def test_command_docs_tell_the_group(stack):
    with stack.wire() as wire:
        for name, group in (("FOLLOW", b"follows"), ("FANS", b"follows"),
                            ("LIKE", b"likes"), ("PING", b"connection")):
            reply = wire.call("COMMAND", "DOCS", name)
            assert b"$5\r\ngroup\r\n$%d\r\n%s\r\n" % (
                len(group), group) in reply


def test_a_pipeline_reads_its_own_follows(stack):
    users = stack.users(6)
    rng = random.Random(1)
    graph = Graph()
    with stack.wire() as wire:
        for _ in range(60):
            requests, expected = [], []
            for _ in range(4):
                u, v = rng.sample(users, 2)
                was = (u, v) in graph.since
                if rng.random() < 0.6:
                    graph.follow(u, v, 0)
                    requests.append(encode("FOLLOW", u, v))
                else:
                    graph.unfollow(u, v)
                    requests.append(encode("UNFOLLOW", u, v))
                expected.append(b":%d\r\n" % (was != ((u, v) in graph.since)))
            for u in users:
                requests.append(encode("RELATION", u, *users))
                expected.append(b"*6\r\n" + b"".join(
                    b":%d\r\n" % graph.relation(u, v) for v in users))
            requests.append(encode("FOLLOWCOUNT", *users))
            expected.append(b"*6\r\n" + b"".join(
                b"*2\r\n:%d\r\n:%d\r\n" % (len(graph.following(u)),
                                           len(graph.followers(u)))
                for u in users))
            wire.send(b"".join(requests))
            assert [wire.read() for _ in expected] == expected


# ---- counts ----

def forget_marks(stack):
    """No list counts as loaded any more."""
    marks = list(stack.keys.scan_iter("likesync:list:*", count=1000))
    if marks:
        stack.keys.delete(*marks)


def test_counts_of_lists_that_are_not_loaded(stack, ask):
    """Rows that are newer than the hash, or older, or not there."""
    users = stack.users(8)
    graph = random_graph(stack, users, 100, 11)
    with stack.paused():
        changed = Graph()
        changed.since = dict(graph.since)
        rng = random.Random(12)
        for number in range(20):
            u, v = rng.sample(users, 2)
            if rng.random() < 0.5:
                ask("FOLLOW", u, v)
                changed.follow(u, v, 0)
            else:
                ask("UNFOLLOW", u, v)
                changed.unfollow(u, v)
        forget_marks(stack)
        assert ask("FOLLOWCOUNT", *users) == [
            [len(changed.following(u)), len(changed.followers(u))]
            for u in users]
        assert not list(stack.keys.scan_iter("likesync:list:*", count=1000))
    stack.daemon.drain()
    counts_are_exact(stack)


def test_counts_where_too_much_is_not_synced(stack, ask):
    """More than the script reads: the list is loaded instead."""
    users = stack.users(302)
    with stack.paused(), stack.wire() as wire:
        hub, other, rest = users[0], users[1], users[2:]
        wire.send(b"".join(encode("FOLLOW", u, hub) + encode("FOLLOW", hub, u)
                           for u in rest))
        assert {wire.read() for _ in range(2 * len(rest))} == {b":1\r\n"}
        forget_marks(stack)
        assert ask("FOLLOWCOUNT", other, hub, rest[0]) == \
            [[0, 0], [300, 300], [1, 1]]
        assert stack.keys.hget(f"likesync:list:{hub}:follow", "pos") == "end"
        assert ask("FOLLOWCOUNT", hub) == [[300, 300]]
    stack.daemon.drain()


def test_counts_of_many_users(small):
    users = small.users(1024)
    with contextlib.closing(small.daemon.client()) as client:
        ask = client.execute_command
        ask("FOLLOW", users[0], users[1023])
        ask("FOLLOW", users[500], users[0])
        expected = [[0, 0] for _ in users]
        expected[0], expected[1023], expected[500] = [1, 1], [0, 1], [1, 0]
        for state in STATES:
            with small.being(state):
                assert ask("FOLLOWCOUNT", *users) == expected
        assert error_of(ask, "FOLLOWCOUNT", 1, *users) == \
            "too many users: expected at most 1024"


def test_counts_where_the_row_is_newer(stack, ask):
    """As it is when Redis came back older, or another daemon's clock is
    ahead: what PostgreSQL holds then stays."""
    u, v, w = stack.users(3)
    with stack.paused():
        for other in (v, w):
            assert ask("FOLLOW", u, other) == 1
        stack.pg.query(
            "INSERT INTO user_follow (user_id, followee_id, status,"
            " prev_status, ctime, mtime)"
            " VALUES (%s, %s, 0, 0, now(), now() + interval '1 hour')", u, v)
        forget_marks(stack)
        assert ask("FOLLOWCOUNT", u, v, w) == [[1, 0], [0, 0], [0, 1]]
    stack.daemon.drain()
    assert ask("FOLLOWCOUNT", u, v, w) == [[1, 0], [0, 0], [0, 1]]
    counts_are_exact(stack)


def test_counts_while_a_batch_comes_in_between(small):
    """Between the reading of Redis and that of PostgreSQL, the user follows
    one and leaves another, and only the second is flushed."""
    u, a, b = small.users(3)
    with small.wire() as wire, small.wire() as other, \
            contextlib.closing(small.pg.connect()) as connection:
        assert wire.call("FOLLOW", u, a) == b":1\r\n"
        with small.paused():
            forget_marks(small)
            connection.autocommit = False
            cursor = connection.cursor()
            cursor.execute("LOCK TABLE user_follow_count")
            wire.send(encode("FOLLOWCOUNT", u))
            harness.wait_for(lambda: small.pg.value(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"), 30,
                "the query")
            assert other.call("FOLLOW", u, b) == b":1\r\n"
            assert other.call("UNFOLLOW", u, a) == b":1\r\n"
            cursor.execute("UPDATE user_follow SET status = 0, mtime = now()"
                           f" WHERE user_id = {u} AND followee_id = {a}")
            cursor.execute("UPDATE user_follow_count SET following_count = 0"
                           f" WHERE user_id = {u}")
            cursor.execute("UPDATE user_follow_count SET follower_count = 0"
                           f" WHERE user_id = {a}")
            small.keys.hincrby("likesync:state:follow", "epoch", 1)
            connection.commit()
            assert wire.read() == b"*1\r\n*2\r\n:1\r\n:0\r\n"
    small.daemon.drain()
    counts_are_exact(small)


# ---- lists ----

@pytest.mark.parametrize("state", STATES)
def test_lists_are_as_the_graph_has_them(stack, ask, state):
    users = stack.users(12)
    graph = random_graph(stack, users, 300, 21)
    with stack.being(state):
        for u, order in itertools.product(users, ("", "ASC", "desc")):
            asc, words = order == "ASC", [order] if order else []
            assert ints(ask("FOLLOWING", u, *words)) == \
                graph.following(u, asc)
            assert ints(ask("FOLLOWERS", u, *words)) == \
                graph.followers(u, asc)
            assert ints(ask("MUTUALS", u, *words)) == graph.mutuals(u, asc)
            for v in users[:4]:
                assert ints(ask("COMMON", u, v, *words)) == \
                    graph.common(u, v, asc)
        assert ask("FOLLOWCOUNT", *users) == [
            [len(graph.following(u)), len(graph.followers(u))] for u in users]
        for u in users:
            assert ask("RELATION", u, *users) == [
                graph.relation(u, v) for v in users]


@pytest.mark.parametrize("state", STATES)
def test_times_and_relations_to_a_viewer(stack, ask, state):
    users = stack.users(10)
    graph = random_graph(stack, users, 200, 31)
    with stack.being(state):
        for u, viewer in itertools.product(users, (users[0], users[3])):
            entries = graph.following(u)
            assert ask("FOLLOWING", u, "VIEWER", viewer) == [
                [str(v), graph.relation(viewer, v)] for v in entries]
            assert ask("FOLLOWING", u, "VIEWER", viewer, "WITHTIMES",
                       "COUNT", 3) == [
                [str(v), str(graph.since[u, v]), graph.relation(viewer, v)]
                for v in entries[:3]]
            assert ask("FANS", u, "WITHTIMES", "VIEWER", u, "CURSOR", 0) == [
                "0", [[str(v), str(graph.since[v, u]), graph.relation(u, v)]
                      for v in graph.followers(u)]]
            assert ask("MUTUALS", u, "WITHTIMES") == [
                [str(v), str(graph.since[u, v])] for v in graph.mutuals(u)]


def test_server_times_are_the_same_after_redis_lost_them(stack, ask):
    users = stack.users(40)
    with stack.wire() as wire:
        wire.send(b"".join(encode("FOLLOW", u, users[0]) for u in users[1:]))
        assert {wire.read() for _ in users[1:]} == {b":1\r\n"}
    before = ask("FANS", users[0], "WITHTIMES")
    assert len(before) == 39
    for _, time in before:
        assert re.fullmatch(r"\d{10}(\.\d{0,5}[1-9])?", time)
    cursor = ask("FANS", users[0], "CURSOR", 0, "COUNT", 20)[0]
    stack.daemon.drain()
    stack.keys.flushall()
    assert ask("FANS", users[0], "WITHTIMES") == before
    assert ask("FANS", users[0], "CURSOR", cursor, "WITHTIMES") == \
        ["0", before[20:]]


def as_range(entries, start, stop, count):
    """As ZRANGE counts."""
    n = len(entries)
    start = max(start + n, 0) if start < 0 else start
    stop = stop + n if stop < 0 else stop
    found = entries[start:max(stop + 1, 0)]
    return found[:count] if count else found


RANKS = [-2 ** 63, -14, -12, -11, -7, -2, -1, 0, 1, 4, 10, 11, 12, 14,
         2 ** 63 - 1]


@pytest.mark.parametrize("command", ["FOLLOWING", "FANS", "MUTUALS",
                                     "COMMON"])
def test_ranges(stack, command):
    """Of twelve entries with equal times, every start and stop; also of a
    list that has to be loaded for it."""
    users = stack.users(30)
    hub, other, rest = users[0], users[1], users[2:14]
    with stack.wire() as wire:
        for number, v in enumerate(users[2:]):
            at = ("AT", BASE + number // 3)
            wire.call("FOLLOW", hub, v, *at)
            if v in rest:
                wire.call("FOLLOW", v, hub, *at)
                wire.call("FOLLOW", other, v, *at)
        graph = Graph()
        for number, v in enumerate(users[2:]):
            if v in rest:
                graph.follow(hub, v, BASE + number // 3)
        if command == "FOLLOWING":
            for v in users[14:]:
                wire.call("UNFOLLOW", hub, v)
        head = (command, hub, other) if command == "COMMON" else (command, hub)
        stack.daemon.drain()
        requests, expected = [], []
        for start, stop, count, order in itertools.product(
                RANKS, RANKS, (0, 1, 5), ("ASC", "DESC")):
            entries = graph.following(hub, order == "ASC")
            options = ("COUNT", count) if count else ()
            requests.append(encode(*head, "RANGE", start, stop, order,
                                   *options))
            expected.append(as_range(entries, start, stop, count))
        for at in range(0, len(requests), 50):
            wire.send(b"".join(requests[at:at + 50]))
            for request, ids in zip(requests[at:at + 50],
                                    expected[at:at + 50]):
                reply = wire.read()
                assert reply == b"*%d\r\n" % len(ids) + b"".join(
                    b"$4\r\n%d\r\n" % each for each in ids), request


@pytest.mark.parametrize("state", STATES)
def test_first_pages_of_a_long_list(stack, ask, state):
    """Longer than a step: pages from both ends and over the step's border."""
    users = stack.users(1300)
    hub, rest = users[0], list(users[1:])
    with stack.wire() as wire:
        wire.send(b"".join(encode("FOLLOW", u, hub, "AT", BASE + n // 3)
                           for n, u in enumerate(rest)))
        assert {wire.read() for _ in rest} == {b":1\r\n"}
    graph = Graph()
    for n, u in enumerate(rest):
        graph.follow(u, hub, BASE + n // 3)
    newest, oldest = graph.followers(hub), graph.followers(hub, True)
    with stack.being(state):
        assert ints(ask("FANS", hub, "COUNT", 10)) == newest[:10]
        cursor, items = ask("FANS", hub, "CURSOR", 0, "COUNT", 700)
        assert ints(items) == newest[:700]
        assert ints(ask("FANS", hub, "CURSOR", cursor, "COUNT", 600)[1]) == \
            newest[700:]
        assert ints(ask("FANS", hub, "RANGE", 400, 1100)) == newest[400:1101]
        assert ints(ask("FANS", hub)) == newest
        assert ints(ask("FANS", hub, "ASC")) == oldest
        assert ints(ask("FANS", hub, "RANGE", -501, -1)) == newest[-501:]
        assert ask("FANS", hub, "VIEWER", hub, "ASC") == [
            [str(u), 2] for u in oldest]
        assert ask("FOLLOWCOUNT", hub) == [[0, 1299]]


# ---- cursors ----

def walk(ask, *request, count=None):
    """All items, page by page; the number of pages."""
    items, cursor, pages = [], "0", 0
    while True:
        options = ("COUNT", count) if count else ()
        cursor, more = ask(*request, "CURSOR", cursor, *options)
        items += more
        pages += 1
        if cursor == "0":
            return items, pages


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("count", [1, 4, 7])
def test_cursor_walks(stack, ask, state, count):
    users = stack.users(25)
    graph = random_graph(stack, users, 500, 41)
    with stack.being(state):
        for u, order in itertools.product(users[:5], ("ASC", "DESC")):
            asc = order == "ASC"
            items, pages = walk(ask, "FOLLOWING", u, order, count=count)
            assert ints(items) == graph.following(u, asc)
            assert pages == max(1, -(-len(items) // count))
            items, pages = walk(ask, "FANS", u, order, count=count)
            assert ints(items) == graph.followers(u, asc)
            assert ints(walk(ask, "MUTUALS", u, order, count=count)[0]) == \
                graph.mutuals(u, asc)
            assert ints(walk(ask, "COMMON", u, users[6], order,
                             count=count)[0]) == \
                graph.common(u, users[6], asc)


def test_a_cursor_page_has_100_entries(stack, ask):
    users = stack.users(250)
    with stack.wire() as wire:
        wire.send(b"".join(encode("FOLLOW", users[0], u) +
                           encode("FOLLOW", u, users[0]) for u in users[1:]))
        for _ in range(2 * 249):
            wire.read()
    for command in ("FOLLOWING", "MUTUALS"):
        cursor, items = ask(command, users[0], "CURSOR", 0)
        assert len(items) == 100 and cursor != "0"
        assert walk(ask, command, users[0])[1] == 3


@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_a_walk_while_others_come_and_go(stack, ask, order):
    """Who was there all along is met exactly once, also among equal times,
    and when the entry that the cursor names has gone."""
    seed = 51
    print("seed", seed)
    rng = random.Random(seed)
    users = stack.users(400)
    hub, there, others = users[0], users[1:200], list(users[200:])
    with stack.wire() as wire:
        for u in users[1:]:
            wire.send(encode("FOLLOW", u, hub, "AT", BASE + rng.randrange(9)))
        for _ in users[1:]:
            wire.read()
        clock = itertools.count(BASE + 10)
        seen, cursor = [], "0"
        while True:
            cursor, items = ask("FANS", hub, order, "CURSOR", cursor,
                                "COUNT", 10)
            seen += ints(items)
            if cursor == "0":
                break
            last = int(items[-1])
            for u in rng.sample(others, 12) + [last] * (last in others):
                verb = rng.choice(("FOLLOW", "UNFOLLOW"))
                wire.call(verb, u, hub, "AT", next(clock))
    stayed = [u for u in seen if u in there]
    assert sorted(stayed) == sorted(there)
    stack.daemon.drain()


# ---- bounds ----

def test_more_than_page_max(small):
    users = small.users(13)
    with contextlib.closing(small.daemon.client()) as client:
        ask = client.execute_command
        for v in users[1:11]:
            ask("FOLLOW", users[0], v)
            ask("FOLLOW", v, users[0])
        newest = ints(ask("FOLLOWING", users[0], "RANGE", 0, 4)) + \
            ints(ask("FOLLOWING", users[0], "RANGE", -5, -1))
        assert newest == list(reversed(users[1:11]))
        for options in ((), ("RANGE", 0, 9), ("RANGE", -10, -1), ("ASC",)):
            assert error_of(ask, "FOLLOWING", users[0], *options) == \
                "the range has 10 entries, more than follow.page_max (5): " \
                "use CURSOR"
        for options in ((), ("RANGE", 0, -1), ("RANGE", 0, 5), ("ASC",),
                        ("RANGE", -3, -1)):
            assert error_of(ask, "MUTUALS", users[0], *options) == \
                "the range has more than 5 entries (follow.page_max): " \
                "use CURSOR"
        assert "from 1 to 5 (follow.page_max)" in \
            error_of(ask, "FANS", users[0], "COUNT", 6)
        for command in ("FOLLOWING", "MUTUALS"):
            assert ints(ask(command, users[0], "COUNT", 5)) == newest[:5]
            assert ints(ask(command, users[0], "RANGE", 2, -1, "COUNT", 5)) \
                == newest[2:7]
            assert ints(ask(command, users[0], "RANGE", 5, -1)) == newest[5:]
            assert ints(walk(ask, command, users[0], count=5)[0]) == newest
            cursor, items = ask(command, users[0], "CURSOR", 0)
            assert ints(items) == newest[:5] and cursor != "0"


def test_more_than_max_following(small):
    users = small.users(15)
    with contextlib.closing(small.daemon.client()) as client:
        ask = client.execute_command
        for v in users[1:13]:
            assert ask("FOLLOW", users[0], v) == 1
        for state in STATES:
            with small.being(state):
                assert error_of(ask, "FOLLOW", users[0], users[13]) == \
                    "not recorded: the user already follows 12 others or " \
                    "more (follow.max_following)"
                assert ask("FOLLOW", users[0], users[1]) == 0
                assert ask("FOLLOW", users[13], users[0]) == \
                    (state == "unsynced")
        assert ask("UNFOLLOW", users[0], users[1]) == 1
        assert ask("FOLLOW", users[0], users[13]) == 1


def insert_follows(pg, user, first, n):
    """The user follows n others from `first` on, a second after each other,
    the first one last."""
    pg.query("INSERT INTO user_follow (user_id, followee_id, status,"
             " prev_status, ctime, mtime) SELECT %s, %s + i, 1, 0,"
             " to_timestamp(%s - i), to_timestamp(%s - i)"
             " FROM generate_series(0, %s) i", user, first, BASE, BASE, n - 1)
    pg.query("INSERT INTO user_follow_count (user_id, following_count,"
             " follower_count, mtime) VALUES (%s, %s, 0, now())", user, n)


def test_filters_look_through_so_many_entries(small):
    """None of them is mutual but one far behind."""
    user, near = small.users(2)
    first = 10 ** 9
    insert_follows(small.pg, user, first, 100300)
    with contextlib.closing(small.daemon.client(timeout=120)) as client:
        ask = client.execute_command
        ask("FOLLOW", first + 10010, user)
        ask("FOLLOW", near, first + 10010)
        for request in (("MUTUALS", user), ("COMMON", user, near)):
            cursor, items = ask(*request, "CURSOR", 0, "COUNT", 5)
            assert items == [] and cursor.endswith(f"_{first + 9999}")
            cursor, items = ask(*request, "CURSOR", cursor, "COUNT", 1)
            assert items == [str(first + 10010)]
            assert cursor.endswith(f"_{first + 10010}")
            assert ask(*request, "RANGE", 0, 0) == [str(first + 10010)]
        assert error_of(ask, "MUTUALS", user) == \
            "more than 100000 entries to look through: use CURSOR"
        assert ask("FOLLOWCOUNT", user) == [[100300, 1]]


# ---- keys that hold something else ----

def test_a_list_that_is_a_plain_set(stack, ask):
    u, v = stack.users(2)
    stack.keys.sadd(f"{u}:follow", v)
    words = f"{u}:follow is not a sorted set: run likesyncctl adopt " \
            "follows"
    for request in (("FOLLOWING", u), ("FOLLOWING", u, "CURSOR", 0),
                    ("MUTUALS", u), ("COMMON", u, v),
                    ("FOLLOWING", u, "VIEWER", v)):
        assert error_of(ask, *request) == words
    assert ask("RELATION", u, v) == [0]
    assert ask("FOLLOWCOUNT", u) == [[0, 0]]
    assert ask("FANS", u) == []
    stack.keys.delete(f"{u}:follow")


def test_what_is_no_id_is_left_out(stack, ask):
    users = stack.users(12)
    hub, rest = users[0], users[1:11]
    for n, u in enumerate(rest):
        ask("FOLLOW", u, hub, "AT", BASE + 2 * n)
    assert len(ask("FANS", hub)) == 10
    stack.keys.zadd(f"{hub}:fans", {f"no id {n}": BASE + 2 * n + 1
                                    for n in range(10)})
    newest = list(reversed(rest))
    assert ints(ask("FANS", hub)) == newest
    assert ints(ask("FANS", hub, "RANGE", 0, 3)) == newest[:2]
    assert ask("FANS", hub, "VIEWER", hub) == [[str(u), 2] for u in newest]
    assert ask("FANS", hub, "CURSOR", 0, "COUNT", 20) == \
        ["0", [str(u) for u in newest]]
    for count in (1, 3, 10):
        assert ints(walk(ask, "FANS", hub, count=count)[0]) == newest
    stack.keys.delete(f"{hub}:fans")


def test_scores_that_are_no_times(stack, ask):
    users = stack.users(6)
    hub, rest = users[0], users[1:]
    scores = ["-inf", "-1.5", "1e+20", "inf", "0.25"]
    for u in rest:
        ask("FOLLOW", u, hub)
    assert len(ask("FANS", hub)) == 5
    stack.keys.zadd(f"{hub}:fans", dict(zip(map(str, rest), scores)))
    items = ask("FANS", hub, "WITHTIMES")
    assert [time for _, time in items] == \
        ["inf", "1e+20", "0.25", "-1.5", "-inf"]
    for order, expected in (("DESC", items), ("ASC", items[::-1])):
        assert walk(ask, "FANS", hub, order, "WITHTIMES", count=1)[0] == \
            expected
    stack.keys.delete(f"{hub}:fans")


# ---- ids of other types ----

TEXTS = ["a", "ä", "set", "likesync", "a:b", "a_b", "a%5Fb", "{a}", "a b",
         "0", "x" * 128, "\x7f", "1_1", "1700000000"]


@pytest.mark.parametrize("kind", ["text", "uuid"])
def test_ids_of_other_types(bed, redis, cluster, kind):
    pg = cluster.create_database(variables={"user_id_type": kind})
    bed.databases.append(pg)
    daemon = bed.daemon(redis, pg, ids_user=kind)
    names = TEXTS if kind == "text" else [
        str(uuid.UUID(int=(n * 7919) << 90)) for n in range(14)]
    hub, rest = names[0], names[1:]
    with contextlib.closing(daemon.client()) as client:
        ask = client.execute_command
        for n, name in enumerate(rest):
            spelled = name.upper() if kind == "uuid" else name
            assert ask("FOLLOW", spelled, hub, "AT", BASE + n // 4) == 1
            assert ask("FOLLOW", hub, name, "AT", BASE + n) == 1
        for state in STATES:
            if state != "unsynced":
                daemon.drain()
            if state == "forgotten":
                redis.client().flushall()
            assert ask("FOLLOWING", hub) == rest[::-1]
            assert sorted(ask("FANS", hub)) == sorted(rest)
            for order, count in itertools.product(("ASC", "DESC"), (1, 3)):
                assert walk(ask, "FANS", hub, order, count=count)[0] == \
                    ask("FANS", hub, order)
                assert walk(ask, "MUTUALS", hub, order, count=count)[0] == \
                    ask("FOLLOWING", hub, order)
            assert ask("RELATION", hub, *names) == [0] + [3] * 13
            assert ask("FOLLOWCOUNT", *names) == [[13, 13]] + [[1, 1]] * 13
            assert ask("FANS", rest[0], "VIEWER", rest[1], "WITHTIMES") == \
                [[hub, str(BASE), 3]]
        assert error_of(ask, "FOLLOW", hub, hub).startswith("user and other")


# ---- backends that are away ----

def test_postgres_away(bed, redis):
    pg = bed.postgres()
    database = pg.create_database()
    daemon = bed.daemon(redis, database)
    with contextlib.closing(daemon.client()) as client:
        ask = client.execute_command
        for v in range(2, 8):
            ask("FOLLOW", 1, v)
        ask("FOLLOW", 5, 6)
        daemon.drain()
        warm = ask("FOLLOWING", 1)
        assert len(warm) == 6
        pg.stop()
        harness.wait_for(lambda: daemon.metrics()["likesyncd_postgres_up"]
                         == 0, 30, "to notice")
        assert ask("FOLLOWING", 1) == warm
        for request in (("FANS", 6), ("FOLLOWING", 99), ("FOLLOWCOUNT", 99),
                        ("RELATION", 99, 98), ("MUTUALS", 99),
                        ("FANS", 6, "CURSOR", 0, "COUNT", 1)):
            with pytest.raises(redis_py.RedisError) as caught:
                ask(*request)
            assert str(caught.value).startswith("UNAVAILABLE "), request


def test_redis_away(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with Wire(daemon.socket) as wire:
        assert wire.call("FOLLOW", 1, 2) == b":1\r\n"
        redis.stop()
        harness.wait_for(lambda: daemon.metrics()["likesyncd_redis_up"] == 0,
                         30, "to notice")
        for request in ("FOLLOW 1 3", "FANS 2", "RELATION 1 2",
                        "FOLLOWCOUNT 1", "MUTUALS 1", "COMMON 1 2",
                        "FOLLOWING 1 VIEWER 2"):
            reply = wire.call(*request.split())
            assert reply.startswith(b"-UNAVAILABLE "), (request, reply)


@contextlib.contextmanager
def rows_locked(pg):
    """Nobody can read or write user_follow."""
    connection = pg.connect()
    connection.autocommit = False
    connection.cursor().execute("LOCK TABLE user_follow")
    try:
        yield
    finally:
        connection.rollback()
        connection.close()


COLD = ["FANS 6", "FOLLOWING 99 CURSOR 0", "FOLLOWCOUNT 99 98",
        "RELATION 99 98", "MUTUALS 97", "COMMON 96 6",
        "FANS 95 RANGE 0 -1 VIEWER 6"]


def test_what_is_not_read_in_time(bed, redis, pg):
    """Each request ends within its deadline, and is served later."""
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=300)
    with Wire(daemon.socket) as wire:
        for request in ("FOLLOW 5 6", "FOLLOW 99 6"):
            assert wire.call(*request.split()) == b":1\r\n"
        daemon.drain()
        redis.client().flushall()
        with rows_locked(pg):
            for request in COLD:
                wire.send(encode(*request.split()))
            for request in COLD:
                assert re.match(b"-(UNAVAILABLE|TRYAGAIN) ", wire.read()), \
                    request
        harness.wait_for(lambda: wire.call("FANS", 6) ==
                         b"*2\r\n$2\r\n99\r\n$1\r\n5\r\n", 30, "the list")
        harness.wait_for(lambda: wire.call("FOLLOWCOUNT", 6) ==
                         b"*1\r\n*2\r\n:0\r\n:2\r\n", 30, "the count")
    assert daemon.metrics()["likesyncd_reads_waiting"] == 0


def test_stop_while_reads_wait(bed, redis, pg):
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=30000)
    with rows_locked(pg), Wire(daemon.socket) as wire:
        for request in COLD:
            wire.send(encode(*request.split()))
        harness.wait_for(
            lambda: daemon.metrics()["likesyncd_lists_loading"] > 0, 30,
            "a load")
        daemon.term(timeout=30)
    daemon.start()
    with Wire(daemon.socket) as wire:
        assert wire.call("FANS", 6) == b"*0\r\n"


def test_clients_that_leave_before_the_answer(stack, ask):
    users = stack.users(600)
    assert ask("PING")
    before = stack.daemon.metrics()["likesyncd_clients"]
    with stack.wire() as wire:
        wire.send(b"".join(encode("FOLLOW", u, users[0]) for u in users[1:]))
        for _ in users[1:]:
            wire.read()
    stack.daemon.drain()
    stack.keys.flushall()
    for request in (f"FANS {users[0]}", f"FANS {users[0]} VIEWER {users[1]}",
                    f"MUTUALS {users[1]}", f"FOLLOWCOUNT {users[0]}",
                    f"RELATION {users[0]} {users[1]}"):
        with stack.wire() as wire:
            wire.send(20 * encode(*request.split()))
    assert len(ask("FANS", users[0])) == 599
    harness.wait_for(
        lambda: stack.daemon.metrics()["likesyncd_clients"] <= before, 30,
        "the others to be gone")
