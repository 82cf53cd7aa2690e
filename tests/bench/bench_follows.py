# SPDX-License-Identifier: MIT
"""The workloads of follows: events, the flush, and one long list that Redis
does not have."""
import contextlib
import time

import harness
from bench_stage import FOLLOWS, ID_BASE, NEVER, Slow, probe

STARS = 100_000   # users who are followed, in the spread loads
BEHIND = {"first": STARS, "others": STARS}  # nobody follows himself
STAR = ID_BASE    # likebench's only other user with -o 1
PROBES = "PING", "FOLLOW", "RELATION"
LOAD_LIMIT_S = 600
INDEXES = "user_follow_following", "user_follow_followers"

# Heap order is not the order of time, as in a table that grew.
FOLLOWERS = """
INSERT INTO user_follow (user_id, followee_id, status, ctime, mtime)
SELECT {star} + i, {star}, 1, t, t
  FROM generate_series(1, {n}) i,
       to_timestamp(1500000000 + i * 7919::bigint % {n}) t;
INSERT INTO user_follow_count (user_id, following_count, follower_count, mtime)
SELECT {star} + i, (i > 0)::int, CASE i WHEN 0 THEN {n} ELSE 0 END, now()
  FROM generate_series(0, {n}) i;
ANALYZE user_follow;
CHECKPOINT;
"""


def events(bench):
    """Flusher paused, as for likes."""
    with bench.stage() as stage:
        servers = {"redis": stage.redis, "daemon": stage.daemon}
        stage.flusher("PAUSE")
        timed = {"seconds": bench.options.seconds}
        first = bench.measured("follow_first", lambda: stage.load(
            verb="FOLLOW", **BEHIND, events=NEVER, **timed), **servers)
        n = first["events"]
        back = bench.measured("follow_known", lambda: stage.load(
            verb="UNFOLLOW", **BEHIND, events=n, **timed), **servers)
        if (first["ones"], back["ones"]) != (n, back["events"]):
            raise harness.Failed("a reply was not what it must be")
        stage.flush()
        stage.check(n, n - back["events"], FOLLOWS)


def flush(bench):
    """Also what the two indexes cost, which lists are loaded by."""
    for key, drop in (("follow_flush", ()), ("follow_flush_bare", INDEXES)):
        with bench.stage() as stage:
            stage.backlog(bench.options.events, STARS, verb="FOLLOW", first=STARS)
            for index in drop:
                stage.pg.query(f"DROP INDEX {index}")
            slow = Slow(stage.redis)
            with probe(stage.daemon, "PING") as ping:
                bench.note(key, bench.options.events / stage.flush())
            if not drop:
                bench.note("follow_ping", ping["longest_ms"])
                slow.report(bench, "follow")
            stage.check(bench.options.events, bench.options.events, FOLLOWS)


def is_loaded(keys):
    return keys.hget(f"likesync:list:{STAR}:fans", "pos") == "end"


def load_list(stage):
    """Has the list loaded; seconds until its first page, and until its end."""
    keys = stage.redis.client()
    start = time.monotonic()
    with contextlib.closing(stage.daemon.client()) as client:
        page = client.execute_command("FOLLOWERS", STAR, "COUNT", 10)
    first_s = time.monotonic() - start
    if len(page) != 10 or is_loaded(keys):
        raise harness.Failed(f"{len(page)} on the first page of the list, "
                             "which is loaded already")
    harness.wait_for(lambda: is_loaded(keys), LOAD_LIMIT_S, "the load's end")
    return first_s, time.monotonic() - start


def long_list(bench):
    """FOLLOW of the user whose followers are being loaded, by users who are
    new; RELATION of some to that user; PING."""
    n = bench.options.followers
    with bench.stage() as stage:
        stage.pg.psql("-c", FOLLOWERS.format(star=STAR, n=n))
        slow = Slow(stage.redis)
        probes = {}
        with contextlib.ExitStack() as stack:
            for verb in PROBES:
                first = 1 if verb == "RELATION" else 2 * n
                probes[verb] = stack.enter_context(
                    probe(stage.daemon, verb, first=first, others=1))
            first_s, all_s = load_list(stage)
        slow.report(bench, "list")
        bench.note("list_first", first_s * 1000)
        bench.note("list_all", all_s)
        bench.note("list_rows", n / all_s)
        bench.note("list_rss", stage.daemon.rss_bytes() / 1024 / 1024)
        for verb, took in probes.items():
            for what in ("p50", "p99", "longest"):
                bench.note(f"list_{verb.lower()}_{what}", took[f"{what}_ms"])
        new = check_replies(probes)
        stage.daemon.drain(timeout=900)
        keys = stage.redis.client()
        there = keys.zcard(f"{STAR}:fans")
        held = keys.memory_usage(f"{STAR}:fans", samples=1000)
        bench.note("list_member", held / there)
        if there != n + new:
            raise harness.Failed(f"{there} in the list, expected {n + new}")
        stage.check(n + new, n + new, FOLLOWS)


def check_replies(probes):
    """How many new followers the list has."""
    if probes["FOLLOW"]["ones"] != probes["FOLLOW"]["events"]:
        raise harness.Failed("a reply to FOLLOW was not 1")
    return probes["FOLLOW"]["ones"]


def steps(bench):
    return (
        ("FOLLOW", lambda: events(bench)),
        ("flush of follows, with and without indexes", lambda: flush(bench)),
        (f"a list of {bench.options.followers:,} followers",
         lambda: long_list(bench)),
    )
