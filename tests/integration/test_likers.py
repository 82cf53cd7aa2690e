# SPDX-License-Identifier: MIT
"""LIKERS and LIKEDPOSTS against an oracle: what is durable and what is not yet,
through flushes, losses of Redis and the day on which they are switched on."""
import contextlib
import random
import re
import threading
import time
import uuid

import pytest
import redis as redis_py

import harness
from edges import LIKES, check_clean
from load import copy_data, put_back
from servers import ROOT, wait_for

FILE = ROOT / "sql" / "likers.sql"
BASE = 1600000000
NOT_YET = r"^TRYAGAIN .*still being written$"
INDEXES = "user_like_post_likers", "user_like_post_likedposts"
SETS = "likesync:unsynced:like:*"


def micros(seconds):
    return round(float(seconds) * 1e6)


def call(client, *arguments):
    return client.execute_command(*arguments)


def flusher(daemon, what):
    with contextlib.closing(daemon.admin()) as admin:
        assert call(admin, "FLUSHER", what)


def settled(client, *arguments):
    """The answer, once it is not refused as too early any more."""
    def answer():
        try:
            return [call(client, *arguments)]
        except redis_py.ResponseError as error:
            if re.search(NOT_YET, str(error)):
                return None
            raise
    return wait_for(answer, 30, "the sets to be complete")[0]


def refused(client, pattern, *arguments):
    with pytest.raises(redis_py.ResponseError, match=pattern):
        call(client, *arguments)


@pytest.fixture
def lists(bed, redis, pg):
    """A daemon with lists, and a client."""
    pg.psql("-f", FILE)
    daemon = bed.daemon(redis, pg, like_lists="yes", like_page_max=1000)
    with daemon.client() as client:
        assert settled(client, "LIKERS", 1) == []
        yield daemon, client


class Oracle:
    """Events with their times in microseconds, and the lists they make."""

    def __init__(self, users, posts, order):
        self.users, self.posts, self.order = users, posts, order
        self.pairs = {}         # (user, post) -> (status, time)

    def event(self, user, post, status, at):
        """What it answers."""
        was, last = self.pairs.get((user, post), (0, 0))
        if at <= last or status == was:
            return 0
        self.pairs[user, post] = status, at
        return 1

    def list(self, command, key):
        """[(time, id)], newest first."""
        mine = 1 if command == "LIKERS" else 0
        found = [(at, pair[1 - mine]) for pair, (status, at)
                 in self.pairs.items() if status and pair[mine] == key]
        return sorted(found, key=lambda each: (each[0], self.order(each[1])),
                      reverse=True)


def walk(client, command, key, size, *options):
    """All pages by cursor."""
    cursor, found = "0", []
    while True:
        count = size()
        cursor, page = call(client, command, key, "CURSOR", cursor, "COUNT",
                            count, "WITHTIMES", *options)
        assert len(page) == count or cursor == "0"
        found += page
        if cursor == "0":
            return [(micros(at), item) for item, at in found]


def sliced(found, start, stop):
    """As ZRANGE counts."""
    n = len(found)
    start = max(start + n, 0) if start < 0 else start
    stop = stop + n if stop < 0 else stop
    return found[start:max(stop + 1, 0)]


def check_list(client, oracle, command, key, rng):
    newest = oracle.list(command, key)
    for order, expected in (("DESC", newest), ("ASC", newest[::-1])):
        whole = call(client, command, key, order, "WITHTIMES")
        assert [(micros(at), item) for item, at in whole] == expected
        assert walk(client, command, key, lambda: rng.randint(1, 9),
                    order) == expected
        start, stop = rng.randint(-12, 12), rng.randint(-12, 12)
        assert call(client, command, key, "RANGE", start, stop, order) == \
            [item for _, item in sliced(expected, start, stop)], (start, stop)
        count = rng.randint(1, 9)
        assert call(client, command, key, "COUNT", count, order) == \
            [item for _, item in expected[:count]]


FORGET = """if redis.call('TTL', KEYS[1]) >= 0 then
  return redis.call('DEL', KEYS[1])
end"""


def forget_clean(keys, rng):
    """Caches may go at any time."""
    for name in keys.scan_iter("post_user_like_*"):
        if rng.random() < 0.5:
            keys.eval(FORGET, 1, name)


TEXTS = ["a", "a_b", "a%", "\u00e9", "{x}", "Z", "set", "b:c", "zz", "%5F"]


def make_ids(kind, rng, n):
    if kind == "bigint":
        return [str(rng.choice([rng.randrange(12), rng.randrange(1 << 63)]) +
                    i * 100) for i in range(n)]
    if kind == "uuid":
        return [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(n)]
    return TEXTS[:n]


ORDERS = {"bigint": int, "uuid": str, "text": str.encode}


@pytest.mark.parametrize("users,posts", [
    ("bigint", "bigint"), ("uuid", "text"), ("text", "uuid")])
@pytest.mark.parametrize("seed", [1, 2])
def test_oracle(bed, redis, cluster, users, posts, seed):
    """Likes and unlikes at times of which many are the same, in any state of
    the flush; caches go meanwhile."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    pg = cluster.create_database(variables={"user_id_type": users,
                                            "post_id_type": posts})
    bed.databases.append(pg)
    pg.apply_schema(user_id_type=users, post_id_type=posts)
    pg.psql("-f", FILE)
    daemon = bed.daemon(redis, pg, ids_user=users, ids_post=posts,
                        like_lists="yes", flush_interval_ms=20,
                        flush_claim_rows=7, flush_batch_rows=20)
    each = make_ids(users, rng, 10), make_ids(posts, rng, 5)
    oracles = {"LIKERS": Oracle(*each, ORDERS[users]),
               "LIKEDPOSTS": Oracle(*each, ORDERS[posts])}
    with daemon.client() as client, redis.client() as keys:
        settled(client, "LIKERS", each[1][0])
        for step in range(12):
            flusher(daemon, rng.choice(["PAUSE", "RESUME"]))
            if rng.random() < 0.3:
                flusher(daemon, "RESUME")
                daemon.drain()
                forget_clean(keys, rng)
            for _ in range(rng.randint(1, 60)):
                user, post = rng.choice(each[0]), rng.choice(each[1])
                status = int(rng.random() < 0.65)
                at = BASE + 10 * step + rng.randrange(20) + \
                    rng.choice([0, 0.25])
                done = {o.event(user, post, status, micros(at))
                        for o in oracles.values()}
                assert {call(client, LIKES.verbs[status], user, post, "AT",
                             at)} == done
            check_list(client, oracles["LIKERS"], "LIKERS",
                       rng.choice(each[1]), rng)
            check_list(client, oracles["LIKEDPOSTS"], "LIKEDPOSTS",
                       rng.choice(each[0]), rng)
        flusher(daemon, "RESUME")
        daemon.drain()
        for post in each[1]:
            check_list(client, oracles["LIKERS"], "LIKERS", post, rng)
        for user in each[0]:
            check_list(client, oracles["LIKEDPOSTS"], "LIKEDPOSTS", user, rng)
        assert list(keys.scan_iter(SETS)) == []


def test_by_the_second_and_by_the_server(lists):
    """Times that the server makes go up, and are what PostgreSQL gets."""
    daemon, client = lists
    for user in (5, 3, 9):
        call(client, "LIKE", user, 1)
    page = call(client, "LIKERS", 1, "WITHTIMES")
    assert [user for user, _ in page] == ["9", "3", "5"]
    assert all(abs(float(at) - time.time()) < 60 for _, at in page)
    daemon.drain()
    assert call(client, "LIKERS", 1, "WITHTIMES") == page
    assert call(client, "LIKE", 3, 1) == 0
    assert call(client, "LIKERS", 1, "WITHTIMES") == page


def test_again_is_in_front(lists):
    daemon, client = lists
    for user in (5, 3):
        call(client, "LIKE", user, 1)
    daemon.drain()
    flusher(daemon, "PAUSE")
    call(client, "UNLIKE", 5, 1)
    assert call(client, "LIKERS", 1) == ["3"]
    assert call(client, "LIKEDPOSTS", 5) == []
    call(client, "LIKE", 5, 1)
    assert call(client, "LIKERS", 1) == ["5", "3"]
    assert call(client, "LIKEDPOSTS", 5) == ["1"]


def test_in_one_pipeline(lists):
    """A client's reads come after its own writes."""
    _, client = lists
    pipe = client.pipeline(transaction=False)
    for user in range(30):
        pipe.execute_command("LIKE", user, 1)
        pipe.execute_command("LIKERS", 1, "COUNT", 1)
    assert pipe.execute()[1::2] == [[str(user)] for user in range(30)]


# ---- arguments, limits ----

def test_limits(lists):
    daemon, client = lists
    daemon.write_config(like_page_max=5)
    daemon.sighup()
    wait_for(lambda: "config: reloaded" in daemon.log_text(), 10, "reload")
    pipe = client.pipeline(transaction=False)
    for user in range(8):
        pipe.execute_command("LIKE", user, 1, "AT", BASE + user)
    pipe.execute()
    too_many = r"more than 5 entries \(like.page_max\): use CURSOR$"
    refused(client, too_many, "LIKERS", 1)
    refused(client, too_many, "LIKERS", 1, "RANGE", -2, -1)
    refused(client, too_many, "LIKERS", 1, "RANGE", 1, 6)
    assert call(client, "LIKERS", 1, "RANGE", 3, -1) == list("43210")
    assert call(client, "LIKERS", 1, "RANGE", 1, -1, "COUNT", 2) == ["6", "5"]
    refused(client, r"from 1 to 5 \(like.page_max\)", "LIKERS", 1, "COUNT", 6)
    refused(client, "more than 100000 entries to look through: use CURSOR",
            "LIKERS", 1, "RANGE", 100001, 100002)
    cursor, page = call(client, "LIKERS", 1, "CURSOR", "0")
    assert page == list("76543") and cursor == f"{BASE + 3}000000_3"
    assert call(client, "LIKERS", 1, "CURSOR", cursor) == ["0", list("210")]
    assert call(client, "LIKERS", 2, "CURSOR", "0") == ["0", []]
    assert call(client, "LIKERS", 1, "RANGE", 9, 12) == []
    assert call(client, "LIKERS", 1, "RANGE", 4, 2) == []
    for bad in ("x", "1.5_3", "inf_3", "9" * 19 + "_3", "5_x", "_3"):
        refused(client, "^invalid CURSOR", "LIKERS", 1, "CURSOR", bad)
    refused(client, "^unknown option 'VIEWER'", "LIKERS", 1, "VIEWER", 3)
    refused(client, "^invalid post id", "LIKERS", "x")
    refused(client, "^invalid user id", "LIKEDPOSTS", "x")
    assert client.ping()


def test_too_much_is_not_synced(lists, pg):
    """Of one post; of its users all the same."""
    daemon, client = lists
    flusher(daemon, "PAUSE")
    pipe = client.pipeline(transaction=False)
    for user in range(1001):
        pipe.execute_command("LIKE", user, 1)
    pipe.execute()
    refused(client, "^TRYAGAIN too much of it is not synced yet$", "LIKERS", 1)
    assert call(client, "LIKEDPOSTS", 1000) == ["1"]
    call(client, "LIKE", 1, 2)
    assert call(client, "LIKERS", 2) == ["1"]
    flusher(daemon, "RESUME")
    daemon.drain()
    # Which of a pipeline came first is known per pair only.
    newest = pg.query("SELECT user_id FROM user_like_post"
                      " WHERE post_id = 1 ORDER BY mtime DESC, user_id DESC"
                      " LIMIT 2")
    assert call(client, "LIKERS", 1, "COUNT", 2) == \
        [str(user) for user, in newest]


# ---- switched on ----

def test_not_switched_on(daemon, client):
    for command in ("LIKERS", "LIKEDPOSTS"):
        refused(client, rf"^{command} needs \[like\] lists = yes and two "
                r"indexes: set the one, apply sql/likers.sql \(psql -d DB -f "
                r"likers.sql\)$", command, 1)


def test_no_sets_when_switched_off(daemon, client, redis):
    flusher(daemon, "PAUSE")
    call(client, "LIKE", 1, 1)
    with redis.client() as keys:
        assert list(keys.scan_iter(SETS)) == []
        assert not keys.hexists("likesync:state:like", "lists_at")
        assert not keys.hexists("likesync:state:like", "lists_off")


def test_indexes(bed, redis, pg):
    """They are found at the connect, and when they are made later."""
    daemon = bed.daemon(redis, pg, like_lists="yes")
    missing = r"^LIKERS needs two indexes: apply sql/likers.sql \(psql"
    with daemon.client() as client:
        call(client, "LIKE", 1, 1)
        refused(client, missing, "LIKERS", 1)
        pg.psql("-f", FILE)
        pg.query(f"DROP INDEX {INDEXES[1]}")
        refused(client, missing, "LIKERS", 1)
        pg.psql("-f", FILE)
        pg.psql("-f", FILE)
        assert settled(client, "LIKERS", 1) == ["1"]
    # As a build that was broken off leaves it.
    pg.query("UPDATE pg_index SET indisvalid = false"
             f" WHERE indexrelid = '{INDEXES[0]}'::regclass")
    daemon.restart()
    with daemon.client() as client:
        refused(client, missing, "LIKERS", 1)
        pg.psql("-f", FILE)
        assert settled(client, "LIKERS", 1) == ["1"]


def test_switched_on_with_a_backlog(bed, redis, pg):
    """What was not synced then is in no set: refused until it is durable."""
    pg.psql("-f", FILE)
    old = bed.daemon(redis, pg)
    with old.client() as client:
        for user in (1, 2):
            call(client, "LIKE", user, 1)
        old.drain()
        flusher(old, "PAUSE")
        call(client, "LIKE", 3, 1)
        call(client, "UNLIKE", 1, 1)
    old.term()
    # Nothing gets into the tables while the rows are locked.
    with contextlib.closing(pg.connect()) as lock:
        lock.autocommit = False
        lock.cursor().execute("LOCK TABLE user_like_post IN SHARE MODE")
        daemon = bed.daemon(redis, pg, like_lists="yes",
                            postgres_lock_timeout_ms=60000)
        with daemon.client() as client, redis.client() as keys:
            wait_for(lambda: keys.hexists("likesync:state:like", "lists_at"),
                     10, "lists_at")
            wait_for(lambda: keys.zcard("likesync:batches:like"), 10, "claim")
            refused(client, NOT_YET, "LIKERS", 1)
            call(client, "LIKE", 4, 1)
            refused(client, NOT_YET, "LIKERS", 1)
    with daemon.client() as client:
        assert settled(client, "LIKERS", 1) == ["4", "3", "2"]
    daemon.drain()
    check_clean(redis, pg)


def test_switched_on_with_nothing_unsynced(bed, redis, pg):
    """There is nothing to wait for, even while the flusher is paused."""
    pg.psql("-f", FILE)
    old = bed.daemon(redis, pg)
    with old.client() as client:
        call(client, "LIKE", 1, 1)
    old.drain()
    old.term()
    with redis.client() as keys:
        daemon = bed.daemon(redis, pg, like_lists="yes",
                            flush_interval_ms=3600000)
        assert keys.hget("likesync:state:like", "lists_at") == "0"
    with daemon.client() as client:
        assert call(client, "LIKERS", 1) == ["1"]


def test_another_daemon_does_not_keep_the_sets(bed, redis, pg, lists):
    """It says so while it is there, and with each of its events."""
    daemon, client = lists
    other = bed.daemon(redis, pg)
    off = r"^another daemon has \[like\] lists = no"

    def is_refused():
        try:
            return not call(client, "LIKERS", 1) and False
        except redis_py.ResponseError as error:
            return re.search(off, str(error))
    wait_for(is_refused, 10, "the other daemon to be noticed")
    with other.client() as other_client:
        call(other_client, "LIKE", 7, 1)
    refused(client, off, "LIKERS", 1)
    other.term()

    def is_back():
        try:
            return call(client, "LIKERS", 1)
        except redis_py.ResponseError as error:
            assert re.search(f"{off}|{NOT_YET}", str(error))
            return None
    assert wait_for(is_back, 30, "the lists to be back") == ["7"]
    daemon.drain()
    check_clean(redis, pg)


def test_an_event_that_keeps_no_sets(lists, bed, redis, pg):
    """The other daemon has not had its turn to say so since."""
    daemon, client = lists
    other = bed.daemon(redis, pg)
    flusher(daemon, "PAUSE")
    flusher(other, "PAUSE")
    with redis.client() as keys, other.client() as other_client:
        wait_for(lambda: not keys.hexists("likesync:state:like", "lists_at"),
                 10, "it to be noticed")
        keys.hset("likesync:state:like", "lists_at", "0")
        keys.hdel("likesync:state:like", "lists_off")
        call(other_client, "LIKE", 7, 1)
        assert not keys.hexists("likesync:state:like", "lists_at")
    refused(client, "^another daemon", "LIKERS", 1)


def test_switched_off_with_a_backlog(lists, bed, redis, pg):
    """The sets go with what is in them."""
    daemon, client = lists
    flusher(daemon, "PAUSE")
    for user in range(5):
        call(client, "LIKE", user, 1)
    with redis.client() as keys:
        assert len(list(keys.scan_iter(SETS))) == 6
    client.close()
    daemon.term()
    other = bed.daemon(redis, pg)
    other.drain()
    check_clean(redis, pg)


# ---- others ----

def test_an_app_that_writes_the_keys(lists, redis, pg):
    """Its pairs are in the lists from the moment when they are claimed."""
    daemon, client = lists
    for user in (1, 2):
        call(client, "LIKE", user, 1)
    daemon.drain()
    now = int(time.time()) + 5
    with contextlib.closing(pg.connect()) as lock, redis.client() as keys:
        lock.autocommit = False
        lock.cursor().execute("LOCK TABLE post_like IN SHARE MODE")
        for user, status in ((3, 1), (1, 0)):
            keys.hset(f"post_user_like_1_{user}", mapping={
                "status": status, "post_id": 1, "user_id": user,
                "mtime": now, "ctime": now})
            keys.persist(f"post_user_like_1_{user}")
            keys.incrby("post_1_counter", 1 if status else -1)
            keys.sadd("post_user_like_set_1", user)
            keys.sadd("post_set", 1)
        wait_for(lambda: call(client, "LIKERS", 1) == ["3", "2"], 20,
                 "the pairs to be claimed")
        assert call(client, "LIKEDPOSTS", 1) == []
        assert call(client, "LIKEDPOSTS", 3) == ["1"]
        assert pg.value("SELECT count(*) FROM user_like_post") == 2
    daemon.drain()
    assert call(client, "LIKERS", 1) == ["3", "2"]
    check_clean(redis, pg)


def test_adopted_likes(lists, redis, pg):
    """From the moment when they are taken over."""
    daemon, client = lists
    old = int(time.time()) - 1000
    with contextlib.closing(pg.connect()) as lock, redis.client() as keys:
        lock.autocommit = False
        lock.cursor().execute("LOCK TABLE user_like_post IN SHARE MODE")
        for user in (1, 2):
            keys.hset(f"post_user_like_1_{user}", mapping={
                "status": 1, "post_id": 1, "user_id": user,
                "mtime": old + user, "ctime": old + user})
        assert call(client, "LIKERS", 1) == []
        status, out = daemon.ctl("adopt", "likes")
        assert status == 0, out
        assert call(client, "LIKERS", 1) == ["2", "1"]
        assert call(client, "LIKEDPOSTS", 2) == ["1"]
    daemon.drain()
    assert call(client, "LIKERS", 1) == ["2", "1"]
    check_clean(redis, pg)


def test_a_pair_that_is_none(lists, redis, pg):
    """It is shown nowhere, and leaves the sets with its dead letter."""
    daemon, client = lists
    flusher(daemon, "PAUSE")
    call(client, "LIKE", 1, 1)
    with redis.client() as keys:
        keys.hset("post_user_like_1_x", mapping={
            "status": 1, "post_id": 1, "user_id": "x", "mtime": BASE})
        keys.sadd("post_user_like_set_1", "x")
        flusher(daemon, "RESUME")
        daemon.drain()
        assert pg.query("SELECT member_id FROM sync_dead_letter") == [("x",)]
        assert call(client, "LIKERS", 1) == ["1"]
        assert list(keys.scan_iter(SETS)) == []


def test_a_hash_that_is_gone(lists, redis, pg):
    """Its row counts, and the sets do not keep it for ever."""
    daemon, client = lists
    call(client, "LIKE", 1, 1)
    daemon.drain()
    flusher(daemon, "PAUSE")
    call(client, "UNLIKE", 1, 1)
    call(client, "LIKE", 2, 1)
    with redis.client() as keys:
        keys.delete("post_user_like_1_1", "post_user_like_1_2")
        assert call(client, "LIKERS", 1) == ["1"]
        flusher(daemon, "RESUME")
        wait_for(lambda: not list(keys.scan_iter(SETS)), 20, "the sets to go")


# ---- Redis is lost ----

def test_flushall(lists, redis):
    """From PostgreSQL alone; what was not synced is gone."""
    daemon, client = lists
    for user in range(20):
        call(client, "LIKE", user, 1, "AT", BASE + user)
    daemon.drain()
    flusher(daemon, "PAUSE")
    call(client, "LIKE", 30, 1)
    with redis.client() as keys:
        keys.flushall()
    newest = [str(user) for user in reversed(range(20))]
    assert settled(client, "LIKERS", 1) == newest
    call(client, "UNLIKE", 19, 1)
    call(client, "LIKE", 31, 1)
    assert call(client, "LIKERS", 1) == ["31", *newest[1:]]


def test_flushall_and_events_at_once(lists, redis):
    """Events that came before the daemon noticed are there, too."""
    daemon, client = lists
    with redis.client() as keys:
        for round_ in range(3):
            keys.flushall()
            call(client, "LIKE", round_, 1)
            assert settled(client, "LIKERS", 1) == \
                [str(user) for user in range(round_, -1, -1)]
            daemon.drain()


def test_redis_rolled_back(lists, redis, pg, tmp_path):
    """To a copy with pairs that were not synced then: of each, what is newer in
    it or in PostgreSQL counts."""
    daemon, client = lists
    for user in (1, 2, 3):
        call(client, "LIKE", user, 1, "AT", BASE + user)
    daemon.drain()
    flusher(daemon, "PAUSE")
    call(client, "LIKE", 4, 1, "AT", BASE + 14)
    call(client, "UNLIKE", 1, 1, "AT", BASE + 11)
    call(client, "UNLIKE", 2, 1, "AT", BASE + 12)
    redis.stop()
    copy_data(redis, tmp_path)
    redis.start()
    wait_for(daemon.ready, what="the daemon to be back")
    # Durable, and unknown to the copy.
    flusher(daemon, "RESUME")
    call(client, "LIKE", 2, 1, "AT", BASE + 22)
    call(client, "UNLIKE", 4, 1, "AT", BASE + 24)
    call(client, "LIKE", 5, 1, "AT", BASE + 25)
    daemon.drain()
    flusher(daemon, "PAUSE")
    redis.stop()
    put_back(redis, tmp_path)
    redis.start()
    wait_for(daemon.ready, what="the daemon to be back")
    with daemon.client() as again:
        assert settled(again, "LIKERS", 1) == ["5", "2", "3"]
        assert call(again, "LIKEDPOSTS", 4) == []
        flusher(daemon, "RESUME")
        daemon.drain()
        assert call(again, "LIKERS", 1) == ["5", "2", "3"]
    check_clean(redis, pg)


def test_without_postgres(bed, redis):
    cluster = bed.postgres()
    pg = cluster.create_database()
    pg.psql("-f", FILE)
    daemon = bed.daemon(redis, pg, like_lists="yes")
    with daemon.client() as client:
        call(client, "LIKE", 1, 1)
        cluster.stop()
        refused(client, "^UNAVAILABLE ", "LIKERS", 1)
        cluster.start()
        wait_for(daemon.ready, what="PostgreSQL to be back")
        assert settled(client, "LIKERS", 1) == ["1"]
        redis.stop()
        refused(client, "^UNAVAILABLE ", "LIKERS", 1)


# ---- big ones ----

POST, FIRST = 7, 1000


def likers_put(pg, n):
    """Three at a time like the post."""
    pg.query("INSERT INTO user_like_post (post_id, user_id, status, ctime,"
             " mtime) SELECT %s, %s + i, 1, t, t FROM generate_series(0, %s) i,"
             " to_timestamp(%s + i / 3) t", POST, FIRST, n - 1, BASE)
    pg.query("INSERT INTO post_like VALUES (%s, %s, 0, now())", POST, n)
    pg.query("ANALYZE user_like_post")


class Events(threading.Thread):
    """New likes, and likes taken back of every hundredth user."""

    def __init__(self, daemon, n):
        super().__init__()
        self.client = daemon.client()
        self.n = n
        self.ended = False
        self.done = 0
        self.failed = None

    def run(self):
        try:
            while not self.ended:
                old = FIRST + (self.done * 7919 % self.n) // 100 * 100
                call(self.client, "LIKE", 10 ** 9 + self.done, POST)
                call(self.client, "UNLIKE", old, POST)
                if self.done % 2:
                    call(self.client, "LIKE", old, POST)
                self.done += 1
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error


@pytest.mark.parametrize("order", ["DESC", "ASC"])
def test_walk_while_likes_go_on(bed, redis, pg, order):
    """Whoever liked all the time comes exactly once, and in order."""
    n = 300_000
    pg.psql("-f", FILE)
    likers_put(pg, n)
    daemon = bed.daemon(redis, pg, like_lists="yes")
    with daemon.client() as client:
        settled(client, "LIKERS", 1)
        events = Events(daemon, n)
        events.start()
        cursor, seen, longest = "0", [], 0
        start = time.monotonic()
        while True:
            began = time.monotonic()
            cursor, page = call(client, "LIKERS", POST, "CURSOR", cursor,
                                "COUNT", 1000, order)
            longest = max(longest, time.monotonic() - began)
            seen += [int(user) for user in page]
            if cursor == "0":
                break
        events.ended = True
        events.join()
        print(f"walked in {time.monotonic() - start:.1f} s, a page in at most "
              f"{longest * 1000:.0f} ms, beside {events.done} rounds")
    assert events.failed is None and events.done > 10
    stayed = [user for user in seen if user < 10 ** 9 and user % 100]
    expected = [FIRST + i for i in sorted(
        range(n), key=lambda i: (i // 3, i), reverse=order == "DESC")
        if (FIRST + i) % 100]
    assert stayed == expected
    daemon.drain()
    check_clean(redis, pg)


def plans(cluster, since):
    """The plans of LIKERS and LIKEDPOSTS that were logged."""
    return [plan for plan in cluster.log_text()[since:].split("LOG:  duration")
            if "unnest" in plan and "<> ALL" in plan]


def test_a_page_reads_only_its_own_rows(bed, redis):
    """By the plans that PostgreSQL logs, with the rows that each step had."""
    cluster = bed.postgres(session_preload_libraries="auto_explain",
                           **{"auto_explain.log_min_duration": 0,
                              "auto_explain.log_analyze": "on",
                              "auto_explain.log_timing": "off"})
    pg = cluster.create_database()
    pg.psql("-f", FILE)
    likers_put(pg, 100_000)
    pg.query("INSERT INTO user_like_post (post_id, user_id, status, ctime,"
             " mtime) SELECT 100 + i, 5, 1, t, t FROM generate_series(1, 5000)"
             " i, to_timestamp(%s + i) t", BASE)
    pg.query("INSERT INTO post_like SELECT 100 + i, 1, 0, now()"
             " FROM generate_series(1, 5000) i")
    pg.query("ANALYZE user_like_post")
    daemon = bed.daemon(redis, pg, like_lists="yes")
    with daemon.client() as client:
        settled(client, "LIKERS", 1)
        flusher(daemon, "PAUSE")
        for user in range(30):
            call(client, "LIKE", user, POST)       # in front of the rows
        for user in range(3):
            call(client, "UNLIKE", FIRST + 50_000 + user, POST)
        middle = f"{BASE + 16_670}000000_1"
        for key, index, command in (
                ("post_id", INDEXES[0], ("LIKERS", POST, "CURSOR", middle)),
                ("post_id", INDEXES[0], ("LIKERS", POST, "CURSOR", "0")),
                ("post_id", INDEXES[0], ("LIKERS", POST, "COUNT", 20, "ASC")),
                ("user_id", INDEXES[1], ("LIKEDPOSTS", 5, "CURSOR", "0"))):
            since = len(cluster.log_text())
            got = call(client, *command, *([] if "COUNT" in command else
                                           ["COUNT", 20]))
            assert len(got[1] if "CURSOR" in command else got) == 20
            plan, = wait_for(lambda at=since: plans(cluster, at), 10, "a plan")
            node = re.search(rf"Index (?:Only )?Scan (?:Backward )?using {index}"
                             r".*?rows=(\d+) loops=1\)(?:(?!->).)*", plan,
                             re.S)
            assert node, plan
            condition = re.search(r"Index Cond: (.*)", node[0])[1]
            assert key in condition and "ROW(mtime" in condition, plan
            removed = re.search(r"Rows Removed by Filter: (\d+)", node[0])
            read = int(re.search(r"actual rows=(\d+)", node[0])[1]) + \
                int(removed[1] if removed else 0)
            assert read <= 20 + 1 + 3, plan
            assert "Seq Scan" not in plan and "Sort" not in plan, plan


# ---- all at once ----

class Own(threading.Thread):
    """Likes and unlikes as one user, and looks for itself after each. It forgets
    its own clean hashes: what nobody has under way may go so early."""

    def __init__(self, daemons, redis, user, seed, rounds):
        super().__init__()
        self.keys = redis.client()
        self.clients = [daemon.client() for daemon in daemons]
        self.user, self.rounds = str(user), rounds
        self.rng = random.Random(f"{seed} {user}")
        self.liked = set()
        self.failed = None

    def look(self, client, post):
        users = call(client, "LIKERS", post)
        assert (self.user in users) == (post in self.liked), (post, users)
        assert len(users) == len(set(users)), users
        posts = call(client, "LIKEDPOSTS", self.user)
        assert sorted(posts) == sorted(self.liked), (posts, self.liked)

    def run(self):
        try:
            for _ in range(self.rounds):
                post = str(self.rng.randrange(4))
                status = self.rng.randrange(2)
                call(self.rng.choice(self.clients), LIKES.verbs[status],
                     self.user, post)
                (self.liked.add if status else self.liked.discard)(post)
                self.look(self.rng.choice(self.clients), post)
                if self.rng.random() < 0.5:
                    self.keys.eval(FORGET, 1,
                                   f"post_user_like_{post}_{self.user}")
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error
        finally:
            for client in (*self.clients, self.keys):
                client.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_answered_is_seen(bed, redis, pg, seed):
    """Through any of two daemons, while both flush as fast as they can and clean
    caches go."""
    print(f"seed {seed}")
    pg.psql("-f", FILE)
    fast = {"like_lists": "yes", "flush_interval_ms": 5,
            "flush_claim_rows": 3, "flush_batch_rows": 6}
    daemons = [bed.daemon(redis, pg, **fast) for _ in range(2)]
    with daemons[0].client() as client:
        settled(client, "LIKERS", 1)
    threads = [Own(daemons, redis, user, seed, 150) for user in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        assert thread.failed is None, thread.failed
    for daemon in daemons:
        daemon.drain()
    check_clean(redis, pg)
