# SPDX-License-Identifier: MIT
"""likesyncctl verify: each thing that can differ is damaged on purpose, found, and
mended by --repair; a healthy system has nothing, however busy it is."""
import contextlib
import re
import subprocess
import uuid

import pytest

import harness
from edges import FOLLOWS
from load import Load
from servers import wait_for

CTL = harness.BUILD / "likesyncctl"
PARTS = {"counts in PostgreSQL": "counts", "counters of posts": "counters",
         "totals of posts": "totals", "hashes": "hashes",
         "lists of follows": "lists", "sets of unsynced": "unsynced"}


def verify(daemon, *arguments, expect):
    """{part: [looked at, different(, mended)]}, and the lines of what differs."""
    done = subprocess.run([CTL, "-s", daemon.admin_socket, "verify", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == expect, (done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if "looked at" in line)
    numbers = {}
    for line in lines[head + 1:]:
        match = re.fullmatch(r"(.*?) +(\d+(?: +\d+)+)", line)
        if match:
            numbers[PARTS[match[1]]] = [int(n) for n in match[2].split()]
    assert numbers.keys() == set(PARTS.values())
    return numbers, lines[:head]


def healthy(daemon):
    numbers, lines = verify(daemon, expect=0)
    assert lines == [] and all(n[1] == 0 for n in numbers.values())
    return {part: n[0] for part, n in numbers.items()}


def damaged(daemon, part, what, n=1, mended=None):
    """Finds just this, mends it, and then nothing is left to find."""
    mended = n if mended is None else mended
    for arguments in ((), ("--repair",)):
        numbers, lines = verify(daemon, *arguments, expect=1)
        assert {p: c[1] for p, c in numbers.items() if c[1]} == {part: n}, lines
        assert len(lines) == min(n, 20)
        assert all(re.search(what, line) for line in lines), lines
    assert numbers[part][2] == mended
    if mended == n:
        daemon.drain()
        healthy(daemon)


def flusher(daemon, word):
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", word)


class World:
    """A little of everything: likes, totals and whole lists, all synced."""

    def __init__(self, bed, redis, pg, ids=str, **options):
        self.redis, self.pg, self.id = redis, pg, ids
        self.daemon = bed.daemon(redis, pg, **options)
        self.keys = redis.client()
        self.client = self.daemon.client()
        for user in range(1, 9):
            for post in range(40, 44):
                self.send("LIKE", user, post)
            for other in range(1, 9):
                if other != user:
                    self.send("FOLLOW", user, other)
        self.send("UNLIKE", 8, 43)
        self.send("UNFOLLOW", 8, 1)
        self.daemon.drain()
        self.read()

    def send(self, verb, *ids):
        return self.client.execute_command(verb, *map(self.id, ids))

    def read(self):
        for post in range(40, 44):
            assert self.send("LIKECOUNT", post)[0] == (7 if post == 43 else 8)
        for user in range(1, 9):
            self.send("FOLLOWING", user)
            self.send("FANS", user)


@pytest.fixture
def world(bed, redis, pg):
    return World(bed, redis, pg)


def test_healthy(world):
    looked = healthy(world.daemon)
    assert looked["counts"] == 4 + 8
    assert looked["hashes"] == 4 * 8 + 8 * 7
    assert looked["totals"] == 4
    # Each member of 16 lists, and each of their rows.
    assert looked["lists"] == 2 * 2 * (8 * 7 - 1)


def test_nothing_at_all(daemon):
    assert set(healthy(daemon).values()) == {0}


@pytest.mark.parametrize("kind", ["uuid", "text"])
def test_other_ids(bed, redis, cluster, kind):
    def made(n):
        return str(uuid.UUID(int=n)) if kind == "uuid" else f"né:{n}_%"
    database = cluster.create_database(
        variables={"user_id_type": kind, "post_id_type": kind})
    bed.databases.append(database)
    world = World(bed, redis, database, made, ids_user=kind, ids_post=kind)
    assert healthy(world.daemon)["lists"] == 2 * 2 * (8 * 7 - 1)
    database.query("UPDATE post_like SET like_count = 99 WHERE post_id = %s",
                   made(42))
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    # A total that says what the rows say is no more wrong once they are counted.
    assert numbers["counts"][1:] == [1, 1] and len(lines) == 1
    healthy(world.daemon)


# ---- counts in PostgreSQL ----

def test_counts_of_likes(world):
    world.pg.query("UPDATE post_like SET like_count = 3 WHERE post_id = 42")
    world.pg.query("DELETE FROM post_like WHERE post_id = 40")
    world.pg.query("INSERT INTO post_like VALUES (77, 5, 1, now())")
    numbers, lines = verify(world.daemon, expect=1)
    assert numbers["counts"][1] == 3 and numbers["totals"][1] == 2
    assert "like_count without unattributed of 42 is 3, it has 8 rows" in lines
    # The bases of totals were right, and are when the counts are mended.
    damaged_counts, _ = verify(world.daemon, "--repair", expect=1)
    assert damaged_counts["counts"][1:] == [3, 3]
    assert damaged_counts["totals"][1:] == [0, 0]
    harness.check_exact(world.pg)
    assert world.pg.query("SELECT like_count, unattributed FROM post_like"
                          " WHERE post_id = 77") == [(1, 1)]
    healthy(world.daemon)


def test_counts_of_follows(world):
    world.pg.query("UPDATE user_follow_count SET follower_count = 0"
                   " WHERE user_id = 3")
    world.pg.query("DELETE FROM user_follow_count WHERE user_id = 4")
    world.pg.query("INSERT INTO user_follow_count VALUES (99, 1, 0, now())")
    damaged(world.daemon, "counts", "^follow(ing|er)_count of (3|4|99) is", n=3)
    harness.check_exact(world.pg)


def test_more_posts_than_one_step(daemon, pg):
    pg.query("INSERT INTO user_like_post SELECT p, u, 1, 0, now(), now()"
             " FROM generate_series(1, 777) p, generate_series(1, 3) u")
    pg.query("INSERT INTO post_like SELECT p, 3, 0, now()"
             " FROM generate_series(1, 700) p WHERE p % 100 <> 7")
    numbers, lines = verify(daemon, "--repair", expect=1)
    assert numbers["counts"] == [777, 84, 84] and len(lines) == 20
    harness.check_exact(pg)
    healthy(daemon)


# ---- counters ----

def test_counter_of_nothing(world):
    """It is somebody's: it becomes unattributed, and the total stays."""
    world.keys.set("post_42_counter", 5)
    assert world.send("LIKECOUNT", 42) == [13]
    damaged(world.daemon, "counters", "post_42_counter holds 5 more")
    assert world.pg.query("SELECT like_count, unattributed FROM post_like"
                          " WHERE post_id = 42") == [(13, 5)]
    assert world.send("LIKECOUNT", 42) == [13]


@pytest.mark.parametrize("verb, unverb, hash_, table", [
    ("LIKE", "UNLIKE", "post_user_like_42_50", "user_like_post"),
    ("FOLLOW", "UNFOLLOW", "user_follow_50_42", "user_follow")])
def test_hash_that_is_lost_and_looked_up_again(world, verb, unverb, hash_, table):
    """Its event is lost; no row is made of what the lookup did not find."""
    flusher(world.daemon, "PAUSE")
    assert world.send(verb, 50, 42) == 1
    assert world.keys.delete(hash_) == 1
    assert world.send(unverb, 50, 42) == 0
    assert world.keys.exists(hash_)
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    assert world.pg.value(f"SELECT count(*) FROM {table} WHERE user_id = 50") == 0
    harness.check_exact(world.pg)


def test_hash_without_a_ttl(world):
    """It has been synced, so it would stay for ever."""
    assert world.keys.persist("post_user_like_42_1")
    damaged(world.daemon, "hashes", "post_user_like_42_1 is synced, and has no TTL")
    assert world.keys.ttl("post_user_like_42_1") > 0


def test_counter_of_nothing_that_is_0(world):
    world.keys.set("post_42_counter", 0)
    damaged(world.daemon, "counters", "post_42_counter is 0")
    assert not world.keys.exists("post_42_counter")


@pytest.mark.parametrize("verb, registry, table", [
    ("LIKE", "post_set", "user_like_post"),
    ("FOLLOW", "follow_set", "user_follow")])
def test_owner_that_is_registered_nowhere(world, verb, registry, table):
    """What waits of it is flushed."""
    flusher(world.daemon, "PAUSE")
    assert world.send(verb, 50, 42) == 1
    assert world.keys.delete(registry) == 1
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["unsynced"][1:] == [1, 1] and len(lines) == 1
    assert "waits for a flush, and its owner is registered nowhere" in lines[0]
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    assert world.pg.value(f"SELECT count(*) FROM {table} WHERE user_id = 50") == 1
    healthy(world.daemon)


def test_counter_that_is_lost(world):
    flusher(world.daemon, "PAUSE")
    world.send("LIKE", 50, 42)
    world.send("LIKE", 51, 42)
    world.send("UNLIKE", 1, 42)
    healthy(world.daemon)
    world.keys.delete("post_42_counter")
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["counters"][1:] == [1, 1]
    assert "is missing: what is not synced is worth 1" in lines[0]
    healthy(world.daemon)
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    healthy(world.daemon)
    assert world.pg.value("SELECT sum(unattributed) FROM post_like") == 0
    assert world.send("LIKECOUNT", 42) == [9]


def test_counter_beside_likes(world):
    flusher(world.daemon, "PAUSE")
    world.send("LIKE", 50, 42)
    world.keys.incrby("post_42_counter", -3)
    numbers, lines = verify(world.daemon, expect=1)
    assert numbers["counters"][1] >= 1
    assert all("holds -3 more" in line for line in lines)
    flusher(world.daemon, "RESUME")


def test_counter_of_an_app_beside_likes(bed, redis, pg):
    """A delta without rows is an app's right, and waits for a flush as they
    do."""
    daemon = bed.daemon(redis, pg, flush_interval_ms=1500)
    keys = redis.client()
    with daemon.client() as client:
        client.execute_command("LIKE", 1, 42)
        daemon.drain()
        client.execute_command("LIKE", 2, 42)
    keys.sadd("post_set", 42)
    keys.incrby("post_42_counter", 5)
    verify(daemon, expect=0)


def test_counter_that_is_none(world):
    world.keys.set("post_42_counter", "x")
    damaged(world.daemon, "counters", "holds no integer", mended=0)


# ---- totals ----

def test_total(world):
    key, = [k for k in world.keys.scan_iter("likesync:count:*")
            if k.endswith(":42")]
    world.keys.incrby(key, 1)
    assert world.send("LIKECOUNT", 42) == [9]
    damaged(world.daemon, "totals", f"{key} is 9, PostgreSQL counts 8")
    assert world.send("LIKECOUNT", 42) == [8]


# ---- hashes ----

@pytest.mark.parametrize("change", [
    "status = 0, mtime = mtime + interval '1 second'",
    "mtime = mtime - interval '1 hour'"], ids=["newer", "older"])
def test_hash_of_a_like(world, change):
    world.pg.query(f"UPDATE user_like_post SET {change} WHERE post_id = 42"
                   " AND user_id = 7")
    world.pg.query("UPDATE post_like c SET like_count = (SELECT count(*) FROM"
                   " user_like_post t WHERE t.post_id = c.post_id"
                   " AND status = 1)")
    world.keys.delete(*world.keys.scan_iter("likesync:count:*"))
    damaged(world.daemon, "hashes", "^post_user_like_42_7 has status 1 of .*, "
                                    "PostgreSQL status")
    assert not world.keys.exists("post_user_like_42_7")
    assert world.send("LIKED", 7, 42) == [0 if "status" in change else 1]


def test_hash_without_a_row(world):
    world.pg.query("DELETE FROM user_like_post WHERE post_id = 42 AND user_id = 7")
    world.pg.query("UPDATE post_like SET like_count = 7 WHERE post_id = 42")
    world.keys.delete(*world.keys.scan_iter("likesync:count:*"))
    damaged(world.daemon, "hashes", "PostgreSQL no row")


def test_hash_that_lost_its_mark(world):
    """It was acked, so it goes to PostgreSQL."""
    flusher(world.daemon, "PAUSE")
    world.send("UNLIKE", 7, 42)
    world.send("FOLLOW", 8, 1)
    world.keys.delete("post_user_like_set_42", "user_follow_set_8")
    world.keys.srem("post_set", 42)
    world.keys.srem("follow_set", 8)
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["hashes"][1:] == [2, 2]
    assert all("marked nowhere" in line for line in lines if "user_" in line[:9]
               and "counter" not in line)
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    assert world.pg.value("SELECT status FROM user_like_post WHERE post_id = 42"
                          " AND user_id = 7") == 0
    assert world.pg.value("SELECT status FROM user_follow WHERE user_id = 8"
                          " AND followee_id = 1") == 1
    healthy(world.daemon)
    harness.check_exact(world.pg)


def test_hash_of_a_follow(world):
    """The lists were right by the hash: they are wrong with it."""
    world.pg.query("UPDATE user_follow SET ctime = ctime - interval '1 hour'"
                   " WHERE user_id = 2 AND followee_id = 3")
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["hashes"][1:] == [1, 1]
    assert numbers["lists"][1:] == [2, 2]
    healthy(world.daemon)


# ---- lists ----

@pytest.mark.parametrize("with_hash", [True, False], ids=["hash", "no-hash"])
@pytest.mark.parametrize("key, member, command", [
    ("2:follow", "3", "ZREM"), ("3:fans", "2", "ZREM"),
    ("2:follow", "3", "ZADD"), ("3:fans", "2", "ZADD"),
    ("8:follow", "1", "ZADD"), ("1:fans", "8", "ZADD"),
    ("8:follow", "77", "ZADD"), ("1:fans", "77", "ZADD")])
def test_list(world, with_hash, key, member, command):
    before = world.keys.zrange(key, 0, -1, withscores=True)
    if not with_hash:
        world.keys.delete(*world.keys.scan_iter("user_follow_*_*"))
    if command == "ZREM":
        world.keys.zrem(key, member)
    else:
        world.keys.zadd(key, {member: 1500000000})
    # A member counts as ours only while the list has no more than we know of.
    assert world.keys.hget("likesync:list:" + key, "own") == "1"
    numbers, lines = verify(world.daemon, expect=1)
    assert numbers["lists"][1] >= 1 and numbers["hashes"][1] == 0
    assert all(line.startswith(f"{key}: {member} has ") for line in lines)
    numbers, _ = verify(world.daemon, "--repair", expect=1)
    assert numbers["lists"][1] == numbers["lists"][2] >= 1
    healthy(world.daemon)
    assert world.keys.zrange(key, 0, -1, withscores=True) == before


def test_unsynced_that_is_synced(world):
    world.keys.sadd("likesync:unsynced:2:follow", 3)
    world.keys.sadd("likesync:unsynced:3:fans", 77)
    damaged(world.daemon, "unsynced", "^likesync:unsynced:.* has (3|77), which "
                                      "is synced", n=2)
    assert not list(world.keys.scan_iter("likesync:unsynced:*"))


def test_unsynced_that_is_missing(world):
    flusher(world.daemon, "PAUSE")
    world.send("FOLLOW", 8, 1)
    world.send("UNFOLLOW", 2, 3)
    healthy(world.daemon)
    world.keys.delete("likesync:unsynced:8:follow", "likesync:unsynced:3:fans")
    damaged_sets, lines = verify(world.daemon, "--repair", expect=1)
    assert damaged_sets["unsynced"][1] == damaged_sets["unsynced"][2] == 2
    assert sorted(lines) == ["likesync:unsynced:3:fans misses 2",
                             "likesync:unsynced:8:follow misses 1"]
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    healthy(world.daemon)


def test_unsynced_likes(bed, redis, pg):
    pg.psql("-f", harness.ROOT / "sql" / "likers.sql")
    world = World(bed, redis, pg, like_lists="yes")
    flusher(world.daemon, "PAUSE")
    world.send("LIKE", 9, 43)
    world.send("UNLIKE", 7, 42)
    healthy(world.daemon)
    world.keys.srem("likesync:unsynced:like:post:42", 7)
    world.keys.delete("likesync:unsynced:like:user:9")
    world.keys.sadd("likesync:unsynced:like:post:41", 3)
    world.keys.sadd("likesync:unsynced:like:user:99", 42)
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["unsynced"][1:] == [4, 4]
    assert sorted(lines) == [
        "likesync:unsynced:like:post:41 has 3, which is synced",
        "likesync:unsynced:like:post:42 misses 7",
        "likesync:unsynced:like:user:9 misses 43",
        "likesync:unsynced:like:user:99 has 42, which is synced"]
    healthy(world.daemon)
    flusher(world.daemon, "RESUME")
    world.daemon.drain()
    healthy(world.daemon)
    assert not list(world.keys.scan_iter("likesync:unsynced:*"))


# ---- the job ----

def test_could_not_run(world, bed):
    world.daemon.admin().execute_command("VERIFY", "START")
    wait_for(lambda: "running" not in str(
        world.daemon.admin().execute_command("VERIFY", "STATUS")), 30)
    world.pg.query("ALTER TABLE post_like RENAME TO away")
    code, text = world.daemon.ctl("verify")
    assert code == 2 and "post_like" in text
    world.pg.query("ALTER TABLE away RENAME TO post_like")
    code, text = world.daemon.ctl("--repair", "ping")
    assert code == 2 and "--repair is not for ping" in text
    world.daemon.term()
    assert world.daemon.ctl("verify")[0] == 2


def test_busy_and_stopped(world):
    """While PostgreSQL cannot be asked it waits; one at a time."""
    with contextlib.closing(world.pg.connect()) as connection, \
            contextlib.closing(world.daemon.admin()) as admin:
        connection.autocommit = False
        connection.cursor().execute("LOCK TABLE user_like_post")
        assert admin.execute_command("VERIFY", "START", "REPAIR") == "OK"
        code, text = world.daemon.ctl("verify")
        assert code == 2 and "running" in text
        admin.execute_command("VERIFY", "STOP")
        connection.rollback()
        wait_for(lambda: "stopped" in str(
            admin.execute_command("VERIFY", "STATUS")), 30)
    healthy(world.daemon)


def test_after_a_restart_of_redis(world):
    """What is from before it is not believed, so it is not compared."""
    world.keys.zadd("2:follow", {"3": 1500000000})
    world.redis.restart()
    wait_for(world.daemon.ready, 30, "the daemon to be back")
    world.keys = world.redis.client()
    wait_for(lambda: world.keys.hget("likesync:state:follow", "gen") == "1", 30)
    healthy(world.daemon)
    world.read()
    assert healthy(world.daemon)["lists"] > 0
    world.keys.zadd("2:follow", {"78": 1500000000})
    numbers, lines = verify(world.daemon, "--repair", expect=1)
    assert numbers["lists"][1:] == [1, 1] and "2:follow: 78 has" in lines[0]


def test_redis_goes_while_it_runs(world):
    """It begins the phase anew, and ends as if nothing had been."""
    with contextlib.closing(world.pg.connect()) as connection, \
            contextlib.closing(world.daemon.admin()) as admin:
        world.pg.query("UPDATE post_like SET like_count = 3 WHERE post_id = 42")
        connection.autocommit = False
        connection.cursor().execute("LOCK TABLE user_follow")
        admin.execute_command("VERIFY", "START")
        wait_for(lambda: "counts of follows" in str(
            admin.execute_command("VERIFY", "STATUS")), 30)
        world.redis.restart()
        connection.rollback()
    wait_for(world.daemon.ready, 30, "the daemon to be back")

    def status():
        with contextlib.closing(world.daemon.admin()) as admin:
            flat = admin.execute_command("VERIFY", "STATUS")
        return dict(zip(flat[::2], flat[1::2]))
    wait_for(lambda: status()["state"] != "running", 60, "the end")
    assert (status()["state"], status()["counts_different"]) == ("done", 1)


def read_all(client):
    """So that totals and lists are kept."""
    for thread in range(4):
        for user in range(thread * 1000, thread * 1000 + 12):
            for verb in ("FOLLOWING", "FANS"):
                client.execute_command(verb, user)
    client.execute_command("LIKECOUNT", *range(8))


@pytest.mark.parametrize("lookup, lists", [("strict", "yes"), ("optimistic", "no")])
def test_under_load(bed, redis, pg, lookup, lists):
    """Two daemons flush all the time what many clients change: nothing differs.
    What was damaged is found all the same."""
    pg.psql("-f", harness.ROOT / "sql" / "likers.sql")
    daemons = [bed.daemon(redis, pg, flush_interval_ms=10, like_lookup=lookup,
                          like_lists=lists, follow_lookup=lookup)
               for _ in range(2)]
    options = {"evict": redis, "answers": lookup == "strict", "threads": 2}
    looked = dict.fromkeys(PARTS.values(), 0)
    with Load(*daemons, seed=11, **options) as likes, \
            Load(*daemons, seed=12, edges=FOLLOWS, **options) as follows:
        for i in range(40):  # four times, and until each part was met
            likes.wait_acked(300)
            follows.wait_acked(300)
            with daemons[i % 2].client() as client:
                read_all(client)
            for part, n in healthy(daemons[i % 2]).items():
                looked[part] += n
            if i >= 3 and all(looked.values()):
                break
        assert all(looked.values()), looked
        pg.query("INSERT INTO post_like VALUES (5000, 1, 0, now())")
        redis.client().set("post_5001_counter", 2)
        numbers, _ = verify(daemons[0], "--repair", expect=1)
        assert {part: n[1:] for part, n in numbers.items() if n[1]} == {
            "counts": [1, 1], "counters": [1, 1]}
        likes.wait_acked(300)
    for daemon in daemons:
        daemon.drain()
    harness.check_exact(pg)
    healthy(daemons[0])
