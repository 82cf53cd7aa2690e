# SPDX-License-Identifier: MIT
"""What LIKERS and LIKEDPOSTS cost events and the flush, and how long a page
takes of a post that many like."""
import contextlib
import random
import statistics
import time

import harness
from bench_stage import ID_BASE, NEVER

POSTS = 100_000   # of the spread loads
LIKERS = 300_000
POST = ID_BASE    # likebench's only post with -o 1
PAGES = 300
UNSYNCED = 500    # of the post, while other pages are read
INDEXES = "user_like_post_likers", "user_like_post_likedposts"

# Heap order is not the order of time, as in a table that grew.
ROWS = """
INSERT INTO user_like_post (post_id, user_id, status, ctime, mtime)
SELECT {post}, i, 1, t, t
  FROM generate_series(1, {n}) i,
       to_timestamp(1500000000 + i * 7919::bigint % {n}) t;
INSERT INTO post_like VALUES ({post}, {n}, 0, now());
ANALYZE user_like_post;
CHECKPOINT;
"""


def events(bench):
    """Flusher paused, as without lists."""
    with bench.stage(lists=True) as stage:
        servers = {"redis": stage.redis, "daemon": stage.daemon}
        stage.flusher("PAUSE")
        timed = {"seconds": bench.options.seconds}
        first = bench.measured("likers_first", lambda: stage.load(
            events=NEVER, others=POSTS, **timed), **servers)
        n = first["events"]
        known = bench.measured("likers_known", lambda: stage.load(
            verb="UNLIKE", events=n, others=POSTS, **timed), **servers)
        back = known["events"]
        if (first["ones"], known["ones"]) != (n, back):
            raise harness.Failed("a reply was not what it must be")
        stage.flush()
        stage.check(n, n - back)


def used_memory(redis):
    return redis.client().info("memory")["used_memory"]


def flush(bench):
    """With the sets, with the indexes as well, and with neither."""
    memory = {}
    for key, lists, drop in (("likers_flush_none", False, ()),
                             ("likers_flush_sets", True, INDEXES),
                             ("likers_flush", True, ())):
        with bench.stage(lists=lists) as stage:
            for index in drop:
                stage.pg.query(f"DROP INDEX {index}")
            before = used_memory(stage.redis)
            stage.backlog(bench.options.events, POSTS)
            memory[key] = used_memory(stage.redis) - before
            bench.note(key, bench.options.events / stage.flush())
            stage.check(bench.options.events, bench.options.events)
    bench.note("likers_memory", (
        memory["likers_flush"] - memory["likers_flush_none"]) / bench.options.events)


def pages(client, rng):
    """Milliseconds of each page of 100, from anywhere in the list."""
    took = []
    for _ in range(PAGES):
        cursor = f"{1500000000 + rng.randrange(LIKERS // 2, LIKERS)}000000_1"
        start = time.monotonic()
        _, page = client.execute_command("LIKERS", POST, "CURSOR", cursor)
        took.append((time.monotonic() - start) * 1000)
        if len(page) != 100:
            raise harness.Failed(f"{len(page)} on a page of 100")
    return took


def long_post(bench):
    rng = random.Random(1)
    with bench.stage(lists=True) as stage, \
            contextlib.closing(stage.daemon.client()) as client:
        stage.pg.psql("-c", ROWS.format(post=POST, n=LIKERS))
        stage.flusher("PAUSE")
        pages(client, rng)          # what is read is in memory then
        for key in "likers_page", "likers_page_unsynced":
            took = pages(client, rng)
            bench.note(key, statistics.median(took))
            bench.note(f"{key}_longest", max(took))
            if key == "likers_page":
                stage.load(first=LIKERS, events=UNSYNCED, others=1)
        stage.flush()
        stage.check(LIKERS + UNSYNCED, LIKERS + UNSYNCED)


def steps(bench):
    return (
        ("LIKE with like.lists", lambda: events(bench)),
        ("flush with and without like.lists", lambda: flush(bench)),
        (f"pages of {LIKERS:,} likers", lambda: long_post(bench)),
    )
