# SPDX-License-Identifier: MIT
"""The keys that apps and scripts may read, after each step of a like's life,
and for each type of id."""
import contextlib
import random
import re
import time
import uuid

import pytest

import harness
from edges import check_counts, staying
from wire import Wire, encode

TTL = 1000
TIME = r"\d{10}\.\d{6}"
# All that may be in the key space, with bigint ids.
ALLOWED = re.compile(
    r"post_set|post_user_like_set_\d+|post_user_like_\d+_\d+"
    r"|post_\d+_counter|likesync:.+")
FIELDS = {"status", "post_id", "user_id", "ctime", "mtime", "synced",
          "claimed"}

needs_faults = pytest.mark.skipif(
    not harness.build_has("LIKESYNCD_FAULTS"), reason="no fault points")


class Life:
    """A daemon whose flusher stands still between the steps of a test."""

    def __init__(self, bed, redis, pg, **options):
        self.redis, self.pg = redis, pg
        self.daemon = bed.daemon(redis, pg, cache_ttl=TTL, **options)
        self.keys = redis.client()
        self.flusher("PAUSE")

    def flusher(self, word):
        with self.daemon.admin() as admin:
            admin.execute_command("FLUSHER", word)

    def call(self, *arguments):
        with self.daemon.client() as client:
            return client.execute_command(*arguments)

    def flush(self):
        self.flusher("RESUME")
        self.daemon.drain()
        self.flusher("PAUSE")

    def edge(self, post=42, user=7):
        return self.keys.hgetall(f"post_user_like_{post}_{user}")

    def ttl(self, post=42, user=7):
        return self.keys.ttl(f"post_user_like_{post}_{user}")

    def contract(self):
        """The dirty sets and the counters, with their content."""
        found = {}
        for key in self.keys.scan_iter(count=1000):
            if key.startswith("likesync:"):
                continue
            if self.keys.type(key) == "set":
                found[key] = self.keys.smembers(key)
                assert self.keys.ttl(key) == -1, key
            elif self.keys.type(key) == "string":
                found[key] = self.keys.get(key)
                assert self.keys.ttl(key) == -1, key
        return found

    def rest(self):
        """What is left of the daemon's own keys when nothing is under way."""
        check_counts(self.keys, self.pg)
        return staying(self.keys, "likesync:*")


@pytest.fixture
def life(bed, redis, pg):
    return Life(bed, redis, pg)


def dirty(counter, users=("7",)):
    return {"post_set": {"42"}, "post_user_like_set_42": set(users),
            "post_42_counter": counter}


def check_fields(edge, status, post="42", user="7"):
    assert set(edge) <= FIELDS
    assert edge["status"] == str(status)
    assert (edge["post_id"], edge["user_id"]) == (post, user)
    assert re.fullmatch(TIME, edge["ctime"]) and \
        re.fullmatch(TIME, edge["mtime"])
    assert re.fullmatch(r"[01] \d+( \d*)?( a)?", edge["synced"])
    now = time.time()
    assert now - 60 < float(edge["ctime"]) <= float(edge["mtime"]) < now + 5


def test_a_like_from_the_event_to_the_cache(life):
    assert life.call("LIKE", 7, 42) == 1
    assert life.contract() == dirty("1")
    first = life.edge()
    check_fields(first, 1)
    assert first["ctime"] == first["mtime"]
    assert life.ttl() == -1
    # The same again changes nothing.
    assert life.call("LIKE", 7, 42) == 0
    assert life.edge() == first and life.contract() == dirty("1")

    life.flush()
    assert life.contract() == {}
    assert life.rest() == harness.STATE_KEYS
    clean = life.edge()
    assert {**clean, "synced": ""} == {**first, "synced": ""}
    assert 0 < life.ttl() <= TTL
    assert life.call("LIKE", 7, 42) == 0
    assert life.contract() == {} and life.edge() == clean
    assert 0 < life.ttl() <= TTL


def test_an_unlike_of_what_is_not_flushed(life):
    life.call("LIKE", 7, 42)
    first = life.edge()
    assert life.call("UNLIKE", 7, 42) == 1
    assert life.contract() in (
        dirty("0"), {k: v for k, v in dirty("0").items()
                     if k != "post_42_counter"})
    edge = life.edge()
    check_fields(edge, 0)
    assert edge["ctime"] == first["ctime"]
    assert float(edge["mtime"]) > float(first["mtime"])
    assert life.ttl() == -1
    life.flush()
    assert life.contract() == {}
    assert life.edge()["status"] == "0" and 0 < life.ttl() <= TTL
    assert life.pg.query("SELECT status, prev_status FROM user_like_post") \
        == [(0, 0)]


def test_an_unlike_of_a_flushed_like_makes_a_negative_counter(life):
    life.call("LIKE", 7, 42)
    life.flush()
    assert life.ttl() > 0
    assert life.call("UNLIKE", 7, 42) == 1
    assert life.contract() == dirty("-1")
    assert life.ttl() == -1
    check_fields(life.edge(), 0)
    life.call("UNLIKE", 8, 42)
    assert life.contract() == dirty("-1")
    assert life.ttl(42, 8) > 0          # looked up, nothing changed
    life.call("LIKE", 9, 42)
    life.call("LIKE", 10, 42)
    assert life.contract() == dirty("1", ("7", "9", "10"))
    life.flush()
    assert life.contract() == {} and 0 < life.ttl() <= TTL
    assert life.pg.value("SELECT like_count FROM post_like") == 2


def test_a_like_that_returns_before_the_flush(life):
    """Back to what PostgreSQL holds: dirty, counter 0; gone when clean."""
    life.call("LIKE", 7, 42)
    life.flush()
    life.call("UNLIKE", 7, 42)
    assert life.call("LIKE", 7, 42) == 1
    found = life.contract()
    assert found.pop("post_42_counter", "0") == "0"
    assert found == {"post_set": {"42"}, "post_user_like_set_42": {"7"}}
    assert life.ttl() == -1
    life.flush()
    assert life.contract() == {} and life.ttl() > 0
    assert life.pg.value("SELECT like_count FROM post_like") == 1


def test_a_state_that_was_looked_up_is_cached_clean(life):
    life.call("LIKE", 7, 42)
    life.flush()
    life.keys.delete("post_user_like_42_7")
    assert life.call("LIKE", 7, 42) == 0
    assert life.contract() == {}
    check_fields(life.edge(), 1)
    assert 0 < life.ttl() <= TTL
    assert life.call("UNLIKE", 8, 43) == 0
    assert life.contract() == {}
    assert life.keys.hget("post_user_like_43_8", "status") == "0"
    assert 0 < life.ttl(43, 8) <= TTL


@pytest.mark.parametrize("how", ["plain", "client-time", "looked-up",
                                 "restarted", "assumed"])
def test_whatever_makes_it_dirty_takes_the_ttl(life, how):
    life.call("LIKE", 7, 42)
    life.flush()
    assert life.ttl() > 0
    request = ("UNLIKE", 7, 42)
    if how == "client-time":
        request += ("AT", f"{time.time() + 1:.6f}")
    elif how == "looked-up":
        life.keys.delete("post_user_like_42_7")
    elif how == "restarted":
        life.redis.restart()
        harness.wait_for(lambda: life.keys.hget(
            "likesync:state:like", "gen") == "1", 30, "a new generation")
        assert life.ttl() > 0
    elif how == "assumed":
        life.daemon.write_config(like_lookup="optimistic")
        life.daemon.sighup()
        harness.wait_for(lambda: life.call("LIKE", 7, 1) == 1, 30, "a reload")
        life.redis.restart()
        harness.wait_for(lambda: life.keys.hget(
            "likesync:state:like", "gen") == "1", 30, "a new generation")
    harness.wait_for(life.daemon.ready, 30, "the daemon")
    assert life.call(*request) == 1
    assert life.edge()["status"] == "0" and life.ttl() == -1
    assert life.keys.sismember("post_user_like_set_42", "7")
    life.flush()
    assert life.edge()["status"] == "0" and life.ttl() > 0
    assert life.pg.query("SELECT status FROM user_like_post"
                         " WHERE post_id = 42") == [(0,)]


def test_a_claim_under_way(life):
    """Claimed: out of the dirty sets and on record, and still without a TTL;
    what comes meanwhile is dirty again, and outlives the ack."""
    blocker = life.pg.connect()
    blocker.autocommit = False
    blocker.cursor().execute("LOCK TABLE user_like_post IN EXCLUSIVE MODE")
    life.call("LIKE", 7, 42)
    life.call("LIKE", 8, 42)
    life.flusher("RESUME")
    harness.wait_for(lambda: life.keys.hlen("likesync:onrecord:like"), 30,
                     "the claim")
    life.flusher("PAUSE")
    assert life.contract() == {"post_42_counter": "2"}
    assert life.ttl() == -1 and life.ttl(42, 8) == -1
    assert life.keys.hgetall("likesync:onrecord:like") == {"42": "2"}
    batches = life.keys.zrange("likesync:batches:like", 0, -1)
    assert set(life.keys.hkeys(f"likesync:batch:{batches[0]}")) == \
        {"42 7", "42 8"}
    assert life.keys.ttl(f"likesync:batch:{batches[0]}") == -1

    # Lookups would wait for the lock, a known state does not.
    assert life.call("UNLIKE", 7, 42) == 1
    assert life.contract() == dirty("1")
    blocker.rollback()
    blocker.close()
    harness.wait_for(
        lambda: not life.keys.exists("likesync:onrecord:like"), 30, "ack")
    # 7 is in the tables as liked, so its unlike counts -1.
    assert life.contract() == dirty("-1")
    assert life.edge()["status"] == "0" and life.ttl() == -1
    assert life.ttl(42, 8) > 0
    assert life.pg.query("SELECT user_id, status FROM user_like_post"
                         " ORDER BY 1") == [(7, 1), (8, 1)]
    life.flush()
    assert life.contract() == {}
    assert life.rest() == harness.STATE_KEYS
    harness.check_exact(life.pg)


def die_with_a_like(bed, redis, pg, point):
    """A like that waits in Redis is what its first claim finds."""
    daemon = bed.daemon(redis, pg, flush_lease_ms=500)
    with daemon.admin() as admin, daemon.client() as client:
        admin.execute_command("FLUSHER", "PAUSE")
        assert client.execute_command("LIKE", 7, 42) == 1
    daemon.kill9()
    daemon.start(fault=point, wait=None)
    daemon.wait_fault()
    return daemon


@needs_faults
@pytest.mark.parametrize("point, in_tables", [
    ("claimed", 0), ("before_write", 0), ("committed", 1),
    ("before_ack", 1)])
def test_keys_where_a_daemon_died(bed, redis, pg, point, in_tables):
    """Nothing of a claimed row is lost or has a TTL, wherever it died."""
    daemon = die_with_a_like(bed, redis, pg, point)
    keys = redis.client()
    assert keys.get("post_42_counter") == "1"
    assert keys.hget("post_user_like_42_7", "status") == "1"
    assert keys.ttl("post_user_like_42_7") == -1
    assert keys.hgetall("likesync:onrecord:like") == {"42": "1"}
    assert not keys.exists("post_set", "post_user_like_set_42")
    assert pg.value("SELECT count(*) FROM user_like_post") == in_tables

    daemon.start()
    daemon.drain()
    assert not keys.exists("post_42_counter", "likesync:onrecord:like",
                           "likesync:batches:like", "likesync:leases:like")
    assert keys.ttl("post_user_like_42_7") > 0
    assert pg.query("SELECT like_count, unattributed FROM post_like") == \
        [(1, 0)]
    harness.check_exact(pg)


@needs_faults
def test_keys_where_a_daemon_died_behind_the_ack(bed, redis, pg):
    daemon = die_with_a_like(bed, redis, pg, "acked")
    keys = redis.client()
    assert set(keys.keys()) == {"post_user_like_42_7", *harness.STATE_KEYS}
    assert keys.ttl("post_user_like_42_7") > 0
    assert pg.value("SELECT like_count FROM post_like") == 1
    daemon.start()


def batches(keys):
    return list(keys.scan_iter("likesync:batch:*", count=500))


def test_nothing_else_is_ever_in_the_key_space(bed, redis, pg):
    """A stream of all kinds of events, the key space scanned all the while:
    names, types, fields, and TTLs."""
    daemon = bed.daemon(redis, pg, cache_ttl=TTL, flush_interval_ms=1,
                        flush_batch_rows=50, flush_claim_rows=20)
    seed = 20260701
    print("seed", seed)
    rnd = random.Random(seed)
    keys = redis.client()
    seen = set()
    with Wire(daemon.socket) as wire:
        for _ in range(60):
            requests = []
            for _ in range(50):
                verb = rnd.choice(["LIKE", "LIKE", "UNLIKE"])
                options = rnd.choice([(), (), ("WITHCOUNT",),
                                      ("AT", rnd.randrange(10 ** 9))])
                requests.append(encode(verb, rnd.randrange(30),
                                       rnd.randrange(12), *options))
            wire.send(b"".join(requests))
            seen.update(keys.scan_iter(count=500))
            for _ in requests:
                assert wire.read()[:1] in b":*"
        with contextlib.closing(pg.connect()) as rival:
            rival.autocommit = False        # its lock holds a batch on record
            rival.cursor().execute("LOCK TABLE post_like")
            wire.call("LIKE", 31, 1)
            seen.update(harness.wait_for(lambda: batches(keys),
                                         what="a batch on record"))
    daemon.drain()
    seen.update(keys.scan_iter(count=500))
    assert [key for key in seen if not ALLOWED.fullmatch(key)] == []
    # Not only at rest: keys of every kind were met.
    for pattern in ("post_set", r"post_user_like_set_\d+",
                    r"post_\d+_counter", "likesync:batch:.+"):
        assert any(re.fullmatch(pattern, key) for key in seen), pattern
    check_counts(keys, pg)
    assert staying(keys, "likesync:*") == harness.STATE_KEYS
    for key in keys.scan_iter(count=500):
        if key.startswith("likesync:"):
            continue
        assert re.fullmatch(r"post_user_like_\d+_\d+", key)
        assert set(keys.hkeys(key)) <= FIELDS
        assert 0 < keys.ttl(key) <= TTL
    assert dict(pg.query("SELECT post_id, like_count FROM post_like"
                         " WHERE like_count <> 0")) == \
        dict(pg.query("SELECT post_id, count(*) FROM user_like_post"
                      " WHERE status = 1 GROUP BY 1"))
    harness.check_exact(pg)


# ---- id types ----

TEXT_IDS = [
    "set", "SET", "_", "__", "%", "%%", "%5F", "%73et", "a", "b", "c", "a_b",
    "b_c", "a%5Fb", "a b", " a", "a ", " ", "{a}", "{", "set_a", "a_set",
    "1_counter", "user_like_a", "7", "07", "é", "e\u0301", "日本語", "😀",
    "x" * 128, "é" * 64, "\x01", "a\nb", "a\r\nb", "\x7f", "'", '"', "\\",
    "NULL", "{user}", "a,b", "likesync", "%6Cikesync", "likesync:state:like",
    ":", "a:b", "a%3Ab",
]


@pytest.fixture
def typed(bed, cluster, redis):
    """A daemon and a database with other types of ids."""
    def make(user, post):
        database = cluster.create_database(
            variables={"user_id_type": user, "post_id_type": post})
        bed.databases.append(database)
        return Life(bed, redis, database, ids_user=user, ids_post=post)
    return make


def like_all(life, pairs):
    with Wire(life.daemon.socket) as wire:
        wire.send(b"".join(encode("LIKE", user, post)
                           for post, user in pairs))
        assert [wire.read() for _ in pairs] == [b":1\r\n"] * len(pairs)


def check_reads(life, posts, users, pairs):
    with life.daemon.client() as client:
        for user in users:
            assert client.execute_command("LIKED", user, *posts) == \
                [int((post, user) in pairs) for post in posts], user
        assert client.execute_command("LIKECOUNT", *posts) == \
            [sum(p == post for p, _ in pairs) for post in posts]


def check_id_type(life, posts, users):
    """Every second pair is liked: keys, rows and reads tell them apart."""
    pairs = {(post, user) for i, post in enumerate(posts)
             for j, user in enumerate(users) if (i + j) % 2}
    like_all(life, sorted(pairs))
    hashes = [life.keys.hgetall(key)
              for key in life.keys.scan_iter("post_user_like_*", count=500)
              if life.keys.type(key) == "hash"]
    assert sorted((h["post_id"], h["user_id"]) for h in hashes) == \
        sorted(pairs)
    assert life.keys.scard("post_set") == len({p for p, _ in pairs})
    for post in life.keys.smembers("post_set"):
        users_of = life.keys.scard(f"post_user_like_set_{post}")
        assert life.keys.get(f"post_{post}_counter") == str(users_of)
    check_reads(life, posts, users, pairs)
    life.flush()
    assert {(str(p), str(u)) for p, u in life.pg.query(
        "SELECT post_id, user_id FROM user_like_post WHERE status = 1")} == \
        pairs
    assert life.pg.value("SELECT count(*) FROM sync_dead_letter") == 0
    assert life.contract() == {}
    check_reads(life, posts, users, pairs)
    harness.check_exact(life.pg)

    # PostgreSQL alone tells them apart, too.
    life.keys.delete(*life.keys.scan_iter("post_user_like_*", count=500))
    check_reads(life, posts, users, pairs)
    for post, user in sorted(pairs)[::7]:
        assert life.call("LIKE", user, post) == 0
        assert life.call("UNLIKE", user, post) == 1
        pairs.remove((post, user))
    life.flush()
    check_reads(life, posts, users, pairs)
    harness.check_exact(life.pg)


def test_text_ids(typed):
    check_id_type(typed("text", "text"), TEXT_IDS, TEXT_IDS)


def test_uuid_ids(typed):
    rnd = random.Random(7)
    ids = [str(uuid.UUID(int=rnd.getrandbits(128))) for _ in range(12)]
    ids += [str(uuid.UUID(int=0)), str(uuid.UUID(int=2 ** 128 - 1))]
    check_id_type(typed("uuid", "uuid"), ids, ids)


@pytest.mark.parametrize("user, post, users, posts", [
    ("text", "bigint", TEXT_IDS, ["1", "7", str(2 ** 63 - 1)]),
    ("bigint", "text", ["0", "1", "7"], TEXT_IDS),
    ("uuid", "text", [str(uuid.UUID(int=n)) for n in (1, 2)], TEXT_IDS[:12]),
])
def test_mixed_id_types(typed, user, post, users, posts):
    check_id_type(typed(user, post), posts, users)


def test_one_spelling_of_a_uuid(typed):
    life = typed("uuid", "uuid")
    user, post = str(uuid.UUID(int=0xabcdef << 96)), str(uuid.UUID(int=1))
    assert life.call("LIKE", user, post) == 1
    for spelling in (user.upper(), user.replace("-", ""),
                     user.replace("-", "").upper()):
        assert life.call("LIKE", spelling, post) == 0
        assert life.call("LIKED", spelling, post.upper()) == [1]
    assert life.keys.smembers("post_set") == {post}
    assert life.keys.exists(f"post_user_like_{post}_{user}")


@pytest.mark.parametrize("kind, bad", [
    ("text", ["", "x" * 129, b"\xff", b"a\x00b", b"\xc0\xaf",
              b"\xed\xa0\x80", b"\xe2\x82"]),
    ("uuid", ["", "7", "0" * 31, "0" * 33, "g" * 32,
              "00000000-0000-0000-0000-00000000000",
              "0000000-00000-0000-0000-000000000000",
              "{00000000-0000-0000-0000-000000000000}"]),
])
def test_bad_ids_of_other_types(typed, kind, bad):
    life = typed(kind, kind)
    before = life.keys.dbsize()
    good = str(uuid.UUID(int=3))
    with Wire(life.daemon.socket) as wire:
        for value in bad:
            for arguments in (("LIKE", value, good), ("LIKE", good, value),
                              ("LIKED", good, value), ("LIKECOUNT", value)):
                reply = wire.call(*arguments)
                assert re.match(rb"-ERR invalid (user|post) id '.*': "
                                rb"expected ", reply), (value, reply)
    assert life.keys.dbsize() == before
