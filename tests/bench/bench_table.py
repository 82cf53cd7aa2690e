# SPDX-License-Identifier: MIT
"""All figures of the benchmark, one row each, and how they are shown."""
import json
import os
import platform
import statistics

import bench_hostile
from bench_stage import CONNECTIONS, PIPELINE

# key, label, unit, digits
FIGURES = (
    ("four_spread", "straight Redis, four commands, spread", "events/s", 0),
    ("four_hot", "straight Redis, four commands, hot post", "events/s", 0),
    ("evalsha", "straight Redis, a script for each event", "events/s", 0),
    ("like_first", "LIKE, first likes, spread, strict", "events/s", 0),
    ("like_optimistic", "the same, optimistic", "events/s", 0),
    ("like_known", "UNLIKE of known pairs, spread", "events/s", 0),
    ("like_repeat", "the same again (answers 0)", "events/s", 0),
    ("like_churn", "LIKE, UNLIKE, LIKE, UNLIKE of new pairs", "events/s", 0),
    ("like_hot", "LIKE, first likes, hot post, strict", "events/s", 0),
    ("like_zipf", "LIKE, Zipf over a million posts", "events/s", 0),
    ("mix_warm", "1 like, 9 pages of 20: known to Redis", "events/s", 0),
    ("mix_cold", "the same, known to PostgreSQL only", "events/s", 0),
    ("five_spread", "straight Redis, five commands of a follow", "events/s", 0),
    ("follow_first", "FOLLOW, first follows, spread, strict", "events/s", 0),
    ("follow_known", "UNFOLLOW of known pairs, spread", "events/s", 0),
    ("direct_spread", "PostgreSQL directly, spread", "events/s", 0),
    ("direct_hot", "PostgreSQL directly, hot post", "events/s", 0),
    ("direct_async", "the same, spread, synchronous_commit off", "events/s", 0),
    ("cron", "a cron script after straight Redis, spread", "rows/s", 0),
    ("sustained_spread", "acked and durable, lag < 5 s, spread", "events/s", 0),
    ("sustained_hot", "acked and durable, lag < 5 s, hot post", "events/s", 0),
    ("flush", "flush of a backlog of fresh rows", "rows/s", 0),
    ("copy", "bare COPY of these rows", "rows/s", 0),
    ("wal_like", "WAL of a like", "bytes", 0),
    ("wal_direct", "WAL of a like written directly", "bytes", 0),
    ("commits", "likes of a commit", "likes", 0),
    ("rate", "fixed rate, half of the most", "events/s", 0),
    ("rate_p50", "at that rate, median", "ms", 2),
    ("rate_p99", "at that rate, 99 of 100", "ms", 2),
    ("rate_p999", "at that rate, 999 of 1000", "ms", 2),
    ("drain_p99", "and while a backlog drains, 99 of 100", "ms", 2),
    ("cpu_share", "processor time of the daemon : Redis, first", "", 2),
    ("cpu_share_known", "the same, known pairs", "", 2),
    ("rss_100", "memory of the daemon, 100 connections", "MiB", 1),
    ("rss_10000", "memory of the daemon, 10,000 connections", "MiB", 1),
    ("many_script", "many posts: longest script", "ms", 1),
    ("many_ping", "many posts: longest PING", "ms", 1),
    ("one_script", "one post: longest script", "ms", 1),
    ("one_ping", "one post: longest PING", "ms", 1),
    ("likers_first", "like.lists, first likes, spread", "events/s", 0),
    ("likers_known", "like.lists, UNLIKE, spread", "events/s", 0),
    ("likers_flush_none", "flush without lists", "rows/s", 0),
    ("likers_flush_sets", "flush with the sets of like.lists", "rows/s", 0),
    ("likers_flush", "flush with sets and indexes", "rows/s", 0),
    ("likers_memory", "memory of an unsynced like in sets", "bytes", 0),
    ("likers_page", "a page of 300,000 LIKERS", "ms", 2),
    ("likers_page_longest", "that, longest", "ms", 1),
    ("likers_page_unsynced", "the same, 500 not synced", "ms", 2),
    ("likers_page_unsynced_longest", "that, longest", "ms", 1),
    ("follow_flush", "flush of a backlog of fresh follows", "rows/s", 0),
    ("follow_flush_bare", "the same without the two indexes", "rows/s", 0),
    ("follow_script", "that flush: longest script", "ms", 1),
    ("follow_ping", "that flush: longest PING", "ms", 1),
    ("list_first", "a long list: its first page", "ms", 1),
    ("list_all", "a long list: all of it", "s", 1),
    ("list_rows", "a long list: rows", "rows/s", 0),
    ("list_rss", "a long list: memory of the daemon", "MiB", 1),
    ("list_member", "a long list: Redis' memory for a member", "bytes", 0),
    ("list_script", "meanwhile, longest script", "ms", 1),
    ("list_follow_p50", "meanwhile, FOLLOW, median", "ms", 2),
    ("list_follow_p99", "meanwhile, FOLLOW, 99 of 100", "ms", 2),
    ("list_follow_longest", "meanwhile, FOLLOW, longest", "ms", 1),
    ("list_relation_p50", "meanwhile, RELATION, median", "ms", 2),
    ("list_relation_p99", "meanwhile, RELATION, 99 of 100", "ms", 2),
    ("list_relation_longest", "meanwhile, RELATION, longest", "ms", 1),
    ("list_ping_p50", "meanwhile, PING, median", "ms", 2),
    ("list_ping_p99", "meanwhile, PING, 99 of 100", "ms", 2),
    ("list_ping_longest", "meanwhile, PING, longest", "ms", 1),
) + bench_hostile.FIGURES
# label, over, under, aim, whether that is the most
RATIOS = (
    ("first likes : straight Redis", "like_first", "four_spread", 1.0, False),
    ("optimistic : straight Redis", "like_optimistic", "four_spread", 1.2, False),
    ("known pairs : straight Redis", "like_known", "four_spread", 1.2, False),
    ("churn : straight Redis", "like_churn", "four_spread", None, False),
    ("hot post : straight Redis, hot", "like_hot", "four_hot", None, False),
    ("first likes : a script each", "like_first", "evalsha", None, False),
    ("follows : straight Redis", "follow_first", "five_spread", None, False),
    ("durable : directly, spread", "sustained_spread", "direct_spread", 15, False),
    ("durable : directly, hot post", "sustained_hot", "direct_hot", 100, False),
    ("durable : directly, async", "sustained_spread", "direct_async", None, False),
    ("durable : cron script", "sustained_spread", "cron", None, False),
    ("flush : COPY", "flush", "copy", 0.6, False),
    ("WAL : directly", "wal_like", "wal_direct", 0.6, True),
    ("99 of 100 : while a backlog drains", "drain_p99", "rate_p99", 2, True),
    ("like.lists, first likes : without", "likers_first", "like_first", None,
     False),
    ("like.lists, known pairs : without", "likers_known", "like_known", None,
     False),
    ("flush with sets : without", "likers_flush_sets", "likers_flush_none", None,
     False),
    ("flush with sets, indexes : without", "likers_flush", "likers_flush_none",
     None, False),
    ("follows, flush : likes, flush", "follow_flush", "flush", None, False),
    ("follows, flush with indexes : without", "follow_flush", "follow_flush_bare",
     None, False),
)
AT_LEAST = {"commits": 500}
AT_MOST = {
    "rate_p99": 3, "rate_p999": 10, "cpu_share": 0.35, "cpu_share_known": 0.35,
    "rss_100": 32, "rss_10000": 128,
    "likers_page": 10, "likers_page_unsynced": 10, "many_script": 10,
    "one_script": 10, "many_ping": 20, "one_ping": 20, "follow_script": 10,
    "follow_ping": 20, "list_script": 10, "list_rss": 128, "list_follow_p99": 5,
    "list_relation_p99": 5, "list_ping_longest": 20, **bench_hostile.AIMS}


def line(label, values, unit, digits, verdict=""):
    middle = statistics.median(values)
    spread = f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
    print(f"{label:42}{middle:>10,.{digits}f} {unit:9}{spread:>20}{verdict}")


def judged(values, least=None, most=None):
    """The aim, and whether the median meets it."""
    middle = statistics.median(values)
    if least is not None:
        return f"  aim >= {least:g} {'met' if middle >= least else 'missed'}"
    if most is not None:
        return f"  aim <= {most:g} {'met' if middle <= most else 'missed'}"
    return ""


def ratio_values(figures, over, under):
    """By round: what disturbs one side is likely to disturb the other."""
    return [a / b for a, b in zip(figures.get(over, ()), figures.get(under, ()))
            if b]


def show(bench):
    print(f"\nmedians of {bench.options.rounds} rounds, and their range; "
          f"{CONNECTIONS} connections of {PIPELINE} events at a time\n"
          "Redis: append-only file, everysec; PostgreSQL: fsync on; "
          f"{os.cpu_count()} processors\n")
    for key, label, unit, digits in FIGURES:
        values = bench.figures.get(key)
        if values:          # all, but for --only and --long
            line(label, values, unit, digits,
                 judged(values, AT_LEAST.get(key), AT_MOST.get(key)))
    print()
    for label, over, under, aim, is_most in RATIOS:
        values = ratio_values(bench.figures, over, under)
        if values:
            line(label, values, "", 2, judged(values, None if is_most else aim,
                                              aim if is_most else None))
    for text in sorted(bench.not_measured):
        print(f"\nnot measured: {text}")
    print("\nprocessor time of an event, and time of the scripts of a drain "
          "above 1 ms")
    for key, values in sorted(bench.details.items()):
        name, _, unit = key.rpartition("_")
        line(name.replace(".", ", "), values, unit, 1)


def write_json(bench, path):
    ratios = {f"{over}/{under}": ratio_values(bench.figures, over, under)
              for _, over, under, *_ in RATIOS}
    with open(path, "w") as file:
        json.dump({"options": vars(bench.options), "machine": platform.machine(),
                   "processors": os.cpu_count(), "versions": bench.versions,
                   "figures": bench.figures, "ratios": ratios,
                   "details": bench.details,
                   "growth": {" ".join(key): by_rows for key, by_rows
                              in bench.growth.items()}}, file, indent=1)
        file.write("\n")
