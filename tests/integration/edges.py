# SPDX-License-Identifier: MIT
"""The two kinds of edges as tests look at them, and what must be true of both
when all is flushed."""
import collections
import contextlib
import dataclasses
import time

from harness import EXACT_SQL, FOLLOW_EXACT_SQL, Failed

# What Redis must not hold when all is clean.
DIRTY_KEYS = ("post_set", "post_user_like_set_*", "post_*_counter",
              "follow_set", "user_follow_set_*", "likesync:unsynced:*",
              "likesync:pass:*", "likesync:part:*", "likesync:again:*",
              "likesync:onrecord:*", "likesync:batches:*",
              "likesync:leases:*", "likesync:batch:*")
LIST = "likesync:list:"
COUNT = "likesync:count:like:"


@dataclasses.dataclass(frozen=True)
class Edges:
    """A pair is (user, post) or (user, other), as in the commands."""

    name: str
    verbs: tuple        # by the status that they ask for
    rows_sql: str
    hash: str           # of a pair
    sets: str           # what looks like a hash and is none

    def rows(self, pg):
        """{pair: status}."""
        return {(user, target): status
                for user, target, status in pg.query(self.rows_sql)}

    def hash_of(self, pair):
        return self.hash.format(*pair)

    def generation(self, keys):
        return int(keys.hget(f"likesync:state:{self.name}", "gen") or 0)


LIKES = Edges("like", ("UNLIKE", "LIKE"),
              "SELECT user_id, post_id, status FROM user_like_post",
              "post_user_like_{1}_{0}", "post_user_like_set_")
FOLLOWS = Edges("follow", ("UNFOLLOW", "FOLLOW"),
                "SELECT user_id, followee_id, status FROM user_follow",
                "user_follow_{0}_{1}", "user_follow_set_")


def app_likes(keys, user, post):
    """All that an application writes of a like, in the order of the recipe."""
    now = int(time.time())
    keys.sadd("post_set", post)
    keys.sadd(f"post_user_like_set_{post}", user)
    keys.hset(f"post_user_like_{post}_{user}", mapping={
        "status": 1, "post_id": post, "user_id": user,
        "ctime": now, "mtime": now})
    keys.incr(f"post_{post}_counter")


def app_follows(keys, user, other):
    """The same of a follow."""
    now = int(time.time())
    keys.sadd("follow_set", user)
    keys.sadd(f"user_follow_set_{user}", other)
    keys.hset(f"user_follow_{user}_{other}", mapping={
        "status": 1, "user_id": user, "followee_id": other,
        "ctime": now, "mtime": now})
    keys.zadd(f"{user}:follow", {other: now})
    keys.zadd(f"{other}:fans", {user: now})


def check_states(pg, may_be, edges=LIKES):
    """Every pair's row is what its last answers allow."""
    rows = edges.rows(pg)
    bad = [(pair, rows.get(pair), states) for pair, states in may_be.items()
           if rows.get(pair, 0) not in states]
    if bad:
        raise Failed(f"{len(bad)} of {len(may_be)} pairs are not what was "
                     f"answered (pair, row, may be): {bad[:8]}")


def check_clean(redis, pg, unattributed=0, apps=False):
    """Tables are exact, Redis agrees with them and holds nothing unsynced.
    `apps`: an application wrote to lists; those are not ours to expire."""
    for sql in (EXACT_SQL, FOLLOW_EXACT_SQL):
        wrong = pg.query(sql)
        if wrong:
            raise Failed(f"counted wrong, see harness.py: {wrong[:10]}")
    extra = pg.value("SELECT coalesce(sum(unattributed), 0) FROM post_like")
    if extra != unattributed:
        raise Failed(f"{extra} likes are unattributed, not {unattributed}")
    letters = pg.query("SELECT * FROM sync_dead_letter")
    if letters:
        raise Failed(f"dead letters: {letters[:3]}")
    with contextlib.closing(redis.client()) as keys:
        left = [key for pattern in DIRTY_KEYS
                for key in keys.scan_iter(pattern, count=10000)]
        if left:
            raise Failed(f"left in Redis: {describe(keys, left[:8])}")
        check_hashes(keys, pg, LIKES)
        check_hashes(keys, pg, FOLLOWS)
        check_counts(keys, pg)
        check_lists(keys, pg, apps)


def describe(keys, names):
    reads = {"string": keys.get, "hash": keys.hgetall, "set": keys.smembers,
             "zset": lambda key: keys.zrange(key, 0, -1, withscores=True)}
    return {name: reads[keys.type(name)](name) for name in names
            if keys.type(name) in reads}


def read_all(keys, names, *commands):
    """Per name, the replies to these commands."""
    pipe = keys.pipeline(transaction=False)
    for name in names:
        for command, *rest in commands:
            pipe.execute_command(command, name, *rest)
    replies = pipe.execute()
    return zip(*(replies[i::len(commands)] for i in range(len(commands))))


def check_hashes(keys, pg, edges):
    """Every hash of this generation says what its row says. (One from before
    a restart that nobody asked for since is looked up before it is used.)"""
    rows = {edges.hash_of(pair): status
            for pair, status in edges.rows(pg).items()}
    now = edges.generation(keys)
    names = [name for name in keys.scan_iter(
                 edges.hash.partition("{")[0] + "*", count=10000)
             if not name.startswith(edges.sets)]
    answers = read_all(keys, names, ("HGETALL",), ("TTL",))
    for name, (edge, ttl) in zip(names, answers):
        if "synced" not in edge:
            raise Failed(f"{name} was never looked up: {edge}")
        synced = edge["synced"].split()
        if (int(synced[2]) if len(synced) > 2 else 0) != now:
            continue
        if rows.get(name, 0) != int(edge["status"]):
            raise Failed(f"{name}: {edge}, but its row is {rows.get(name)}")
        if ttl < 0:
            raise Failed(f"{name} is clean and has no TTL: {edge}")


def staying(keys, pattern="*"):
    """The keys without a TTL, sorted: what is clean expires."""
    names = list(keys.scan_iter(pattern, count=1000))
    return sorted(name for name, (ttl,) in
                  zip(names, read_all(keys, names, ("TTL",))) if ttl == -1)


def check_counts(keys, pg):
    """Every base of a total expires; those of this generation are what
    PostgreSQL counts."""
    counts = {str(post): count for post, count in pg.query(
        "SELECT post_id, like_count FROM post_like")}
    now = LIKES.generation(keys)
    names = list(keys.scan_iter(COUNT + "*", count=10000))
    for name, (base, ttl) in zip(
            names, read_all(keys, names, ("GET",), ("TTL",))):
        generation, _, post = name[len(COUNT):].partition(":")
        if ttl == -1:
            raise Failed(f"{name} has no TTL: {base}")
        if int(generation) == now and base is not None \
                and int(base) != counts.get(post, 0):
            raise Failed(f"{name} is {base}, but PostgreSQL counts "
                         f"{counts.get(post)}")


# ---- the lists of follows ----

def micros(seconds):
    return round(float(seconds) * 1e6)


def lists_of_rows(pg):
    """{key: {member: time in us}} as the rows have it."""
    lists = collections.defaultdict(dict)
    for user, other, us in pg.query(
            "SELECT user_id::text, followee_id::text,"
            " (extract(epoch FROM ctime) * 1000000)::bigint"
            " FROM user_follow WHERE status = 1"):
        lists[f"{user}:follow"][other] = us
        lists[f"{other}:fans"][user] = us
    return lists


def check_lists(keys, pg, apps):
    """What is loaded of a list is what the rows say, and it expires."""
    rows = lists_of_rows(pg)
    now = str(FOLLOWS.generation(keys))
    names = [mark[len(LIST):]
             for mark in keys.scan_iter(LIST + "*", count=10000)]
    marks = read_all(keys, [LIST + name for name in names],
                     ("HGETALL",), ("TTL",))
    lists = read_all(keys, names, ("ZRANGE", 0, -1, "WITHSCORES"), ("TTL",))
    for name, (mark, mark_ttl), (entries, ttl) in zip(names, marks, lists):
        if not (apps and mark["own"] == "0") and -1 in (mark_ttl, ttl):
            raise Failed(f"{name} is clean and has no TTL: {mark} {mark_ttl} "
                         f"{ttl}")
        there = {member: micros(score)
                 for member, score in zip(entries[::2], entries[1::2])}
        if mark["gen"] != now or 0 < int(mark["n"]) >= 2 * len(there):
            continue              # it is not believed
        check_list(name, mark["pos"], there, rows.get(name, {}))


def check_list(name, pos, there, rows):
    if pos in ("o", "s"):
        return
    above = -1 if pos == "end" else int(pos.split()[0])
    there, rows = ({(member, us) for member, us in each.items() if us > above}
                   for each in (there, rows))
    if there != rows:
        raise Failed(f"{name}, loaded to {pos}: {sorted(there - rows)[:5]} "
                     f"have no rows, {sorted(rows - there)[:5]} are missing")


def check_answers(daemon, pg):
    """Every list, its count and the relations, as the daemon has them, are
    those of the rows."""
    rows = lists_of_rows(pg)
    with contextlib.closing(daemon.client()) as client:
        for key, members in rows.items():
            user, _, side = key.partition(":")
            command = "FOLLOWING" if side == "follow" else "FOLLOWERS"
            newest = sorted(((us, member) for member, us in members.items()),
                            key=lambda each: (each[0], each[1].encode()),
                            reverse=True)
            got = [(micros(time), member) for member, time in
                   client.execute_command(command, user, "WITHTIMES")]
            if got != newest:
                raise Failed(f"{command} {user}: {got}, not {newest}")
            count = [len(rows.get(f"{user}:{each}", ()))
                     for each in ("follow", "fans")]
            if client.execute_command("FOLLOWCOUNT", user) != [count]:
                raise Failed(f"FOLLOWCOUNT {user} is not {count}")
