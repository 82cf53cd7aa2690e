# SPDX-License-Identifier: MIT
"""The part of bench.sh after the build: loads, checks, and the table.

Only ratios within one run mean something: all sides share the machine. Each
workload has a Redis and a database of its own, and ends with I1 and the number
of rows checked; one that fails ends the run without figures."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "bench")]
import bench_follows  # noqa: E402
import bench_hostile  # noqa: E402
import bench_likers  # noqa: E402
import harness  # noqa: E402
from bench_stage import (CONNECTIONS, PIPELINE, Slow, Stage,  # noqa: E402
                         cpu_s, likebench, probe)
from servers import SUPERUSER, pg_bin  # noqa: E402

POSTS = 100_000   # of the spread loads
NEVER = 99_999_999
CLIENTS = 16      # of pgbench

# One statement, so one transaction and one round trip: the least that a direct
# write can do and still be exact.
DIRECT = """\\set user random(1, 9000000000000)
\\set post {post}
WITH up AS (
  INSERT INTO user_like_post AS t
    (post_id, user_id, status, prev_status, ctime, mtime)
  VALUES (:post, :user, 1, 0, now(), now())
  ON CONFLICT (post_id, user_id) DO UPDATE
    SET prev_status = t.status, status = 1, mtime = excluded.mtime
    WHERE t.status <> 1
  RETURNING status - prev_status AS change)
INSERT INTO post_like AS p (post_id, like_count, mtime)
SELECT :post, change, now() FROM up
ON CONFLICT (post_id) DO UPDATE
  SET like_count = p.like_count + excluded.like_count, mtime = excluded.mtime;
"""

# key, label, unit, digits
FIGURES = (
    ("four_spread", "straight Redis, four commands, spread", "events/s", 0),
    ("four_hot", "straight Redis, four commands, hot post", "events/s", 0),
    ("like_first", "LIKE, first likes, spread, strict", "events/s", 0),
    ("like_known", "UNLIKE of known pairs, spread", "events/s", 0),
    ("like_repeat", "the same again (answers 0)", "events/s", 0),
    ("like_hot", "LIKE, first likes, hot post, strict", "events/s", 0),
    ("direct_spread", "PostgreSQL directly, spread", "events/s", 0),
    ("direct_hot", "PostgreSQL directly, hot post", "events/s", 0),
    ("sustained_spread", "acked and durable, spread", "events/s", 0),
    ("sustained_hot", "acked and durable, hot post", "events/s", 0),
    ("flush", "flush of a backlog of fresh rows", "rows/s", 0),
    ("copy", "bare COPY of these rows", "rows/s", 0),
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
    ("follow_first", "FOLLOW, first follows, spread, strict", "events/s", 0),
    ("follow_known", "UNFOLLOW of known pairs, spread", "events/s", 0),
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
# label, over, under, aim
RATIOS = (
    ("first likes : straight Redis", "like_first", "four_spread", 0.8),
    ("known pairs : straight Redis", "like_known", "four_spread", 0.8),
    ("hot post : straight Redis, hot", "like_hot", "four_hot", 0.8),
    ("durable : directly, spread", "sustained_spread", "direct_spread", 8),
    ("durable : directly, hot post", "sustained_hot", "direct_hot", 50),
    ("flush : COPY", "flush", "copy", None),
    ("like.lists, first likes : without", "likers_first", "like_first", None),
    ("like.lists, known pairs : without", "likers_known", "like_known", None),
    ("flush with sets : without", "likers_flush_sets", "likers_flush_none",
     None),
    ("flush with sets, indexes : without", "likers_flush",
     "likers_flush_none", None),
    ("follows, flush : likes, flush", "follow_flush", "flush", None),
    ("follows, flush with indexes : without", "follow_flush",
     "follow_flush_bare", None),
)
AIMS = {"likers_page": 10, "likers_page_unsynced": 10,
        "many_script": 10, "one_script": 10, "many_ping": 20, "one_ping": 20,
        "follow_script": 10, "follow_ping": 20, "list_script": 10,
        "list_rss": 128, "list_follow_p99": 5, "list_relation_p99": 5,
        "list_ping_longest": 20, **bench_hostile.AIMS}


class Progress:
    """What is being measured: drawn over on a terminal, else a line each."""

    def __init__(self, total):
        self.total = total
        self.done = 0
        self.tty = sys.stderr.isatty()

    def step(self, text):
        if self.tty:
            full = 24 * self.done // self.total
            print(f"\r\033[K  [{'#' * full}{'-' * (24 - full)}] {text}",
                  end="", file=sys.stderr, flush=True)
        else:
            print(f"  {self.done + 1}/{self.total} {text}", file=sys.stderr,
                  flush=True)
        self.done += 1

    def end(self):
        if self.tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, bed, options):
        self.bed = bed
        self.rounds = options.rounds
        self.seconds = options.seconds
        self.events = options.events
        self.followers = options.followers
        self.only = options.only
        self.figures = {}
        self.details = {}
        self.progress = Progress(self.rounds * len(self.steps()))
        self.cluster = bed.postgres(fsync="on", shared_buffers="128MB")

    def make_redis(self):
        # A rewrite of the file would hit one workload and spare another.
        return self.bed.redis(auto_aof_rewrite_percentage="0",
                              slowlog_max_len="100000")

    def note(self, key, value):
        self.figures.setdefault(key, []).append(value)

    def detail(self, key, value):
        self.details.setdefault(key, []).append(value)

    def measured(self, key, run, **servers):
        """Notes the rate of a load, and what it took of the processors."""
        before = {name: cpu_s(server) for name, server in servers.items()}
        result = run()
        self.note(key, result["events"] / result["seconds"])
        for name, server in servers.items():
            used = (cpu_s(server) - before[name]) * 1e6
            self.detail(f"{key}.{name}_us", used / result["events"])
        return result

    @contextlib.contextmanager
    def stage(self, **options):
        stage = Stage(self, **options)
        yield stage
        stage.close()

    # ---- workloads ----

    def straight(self):
        for key, posts in (("four_spread", POSTS), ("four_hot", 1)):
            redis = self.make_redis()
            result = self.measured(key, lambda: likebench(
                redis.socket, "-m", "four", "-n", NEVER, "-t", self.seconds,
                "-o", posts), redis=redis)
            got = redis.client().scard("post_user_like_set_1000000000")
            if posts == 1 and got != result["events"]:
                raise harness.Failed(f"{got} members in the hot post's set")
            redis.stop()

    def like(self):
        """Flusher paused, as nothing flushes what goes straight to Redis."""
        with self.stage() as stage:
            servers = {"redis": stage.redis, "daemon": stage.daemon}
            stage.flusher("PAUSE")
            timed = "-t", self.seconds
            first = self.measured("like_first", lambda: stage.load(
                "-n", NEVER, "-o", POSTS, *timed), **servers)
            n = int(first["events"])
            known = self.measured("like_known", lambda: stage.load(
                "-v", "UNLIKE", "-n", n, "-o", POSTS, *timed), **servers)
            back = int(known["events"])
            again = self.measured("like_repeat", lambda: stage.load(
                "-v", "UNLIKE", "-n", back, "-o", POSTS, *timed), **servers)
            hot = self.measured("like_hot", lambda: stage.load(
                "-f", n, "-n", NEVER - n, "-o", 1, *timed), **servers)
            if (first["ones"], known["ones"], again["ones"], hot["ones"]) != \
                    (n, back, 0, hot["events"]):
                raise harness.Failed("a reply was not what it must be")
            stage.flush()
            stage.check(n + hot["events"], n - back + hot["events"])

    def direct(self, key, post):
        database = self.cluster.create_database()
        self.cluster.psql("postgres", "-c", "CHECKPOINT")
        script = self.bed.dir / "direct.sql"
        script.write_text(DIRECT.format(post=post))
        done = subprocess.run(
            [pg_bin("pgbench"), "-n", "-M", "prepared", "-c", str(CLIENTS),
             "-j", "2", "-T", str(self.seconds), "-f", str(script),
             "-h", str(self.cluster.dir), "-U", SUPERUSER, database.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=900)
        output = done.stdout.decode()
        tps = re.search(r"^tps = ([0-9.]+) \(without", output, re.M)
        if done.returncode != 0 or not tps:
            raise harness.Failed(output)
        harness.check_exact(database)
        ran = int(re.search(r"actually processed: (\d+)", output)[1])
        rows = database.value("SELECT count(*) FROM user_like_post")
        # Users are drawn at random: a few pairs may come twice.
        if not 0.999 * ran - 1 <= rows <= ran:
            raise harness.Failed(f"{rows} rows of {ran} transactions")
        self.note(key, float(tps[1]))
        database.drop()

    def sustained(self, key, posts):
        with self.stage() as stage:
            start = time.monotonic()
            stage.load("-n", self.events, "-o", posts)
            stage.daemon.drain(timeout=900)
            self.note(key, self.events / (time.monotonic() - start))
            stage.check(self.events, self.events)

    def flush(self):
        rows = self.events * 3 // 2
        with self.stage() as stage:
            stage.backlog(rows, POSTS)
            self.note("flush", rows / stage.flush())
            stage.check(rows, rows)
            self.note("copy", rows / self.copy(stage.pg, rows))

    def copy(self, pg, rows):
        """Seconds that COPY takes for the table's rows, into a copy of it."""
        data = f"{self.cluster.dir}/rows"
        pg.query(f"COPY user_like_post TO '{data}'")
        pg.query("CREATE TABLE bare (LIKE user_like_post INCLUDING ALL)"
                 " WITH (fillfactor = 90)")
        pg.query("CHECKPOINT")
        start = time.monotonic()
        pg.query(f"COPY bare FROM '{data}'")
        took = time.monotonic() - start
        if pg.value("SELECT count(*) FROM bare") != rows:
            raise harness.Failed("COPY did not write all rows")
        os.unlink(data)
        return took

    def longest(self, key, posts):
        with self.stage() as stage:
            stage.backlog(self.events, posts)
            slow = Slow(stage.redis)
            with probe(stage.daemon, "PING") as ping:
                stage.flush()
            self.note(f"{key}_ping", ping["longest_ms"])
            slow.report(self, key)
            stage.check(self.events, self.events)

    def steps(self):
        """[(what it measures, how)]"""
        return [(text, run) for text, run in self.all_steps()
                if self.only in text]

    def all_steps(self):
        return (
            ("straight Redis", self.straight),
            ("LIKE", self.like),
            ("PostgreSQL directly, spread",
             lambda: self.direct("direct_spread", f"random(1, {POSTS})")),
            ("PostgreSQL directly, hot post",
             lambda: self.direct("direct_hot", 1)),
            ("acked and durable, spread",
             lambda: self.sustained("sustained_spread", POSTS)),
            ("acked and durable, hot post",
             lambda: self.sustained("sustained_hot", 1)),
            ("flush against COPY", self.flush),
            ("longest script and PING, many posts",
             lambda: self.longest("many", 0)),
            ("longest script and PING, one post",
             lambda: self.longest("one", 1)),
            ("LIKE with like.lists", lambda: bench_likers.events(self)),
            ("flush with and without like.lists",
             lambda: bench_likers.flush(self)),
            (f"pages of {bench_likers.LIKERS:,} likers",
             lambda: bench_likers.long_post(self)),
            ("FOLLOW", lambda: bench_follows.events(self)),
            ("flush of follows, with and without indexes",
             lambda: bench_follows.flush(self)),
            (f"a list of {self.followers:,} followers",
             lambda: bench_follows.long_list(self)),
        ) + bench_hostile.steps(self)

    def round(self, number):
        for text, run in self.steps():
            self.progress.step(f"round {number} of {self.rounds}: {text}")
            run()


# ---- the table ----

def line(label, values, unit, digits, verdict=""):
    middle = statistics.median(values)
    spread = f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
    print(f"{label:42}{middle:>10,.{digits}f} {unit:9}{spread:>20}{verdict}")


def verdict(aim, met):
    return "" if aim is None else f"  aim {aim:g} {'met' if met else 'missed'}"


def ratio_values(bench, over, under):
    """By round: what disturbs one side is likely to disturb the other."""
    return [a / b for a, b in zip(bench.figures.get(over, ()),
                                  bench.figures.get(under, ()))]


def report(bench):
    print(f"\nmedians of {bench.rounds} rounds, and their range; {CONNECTIONS}"
          f" connections of {PIPELINE} events at a time\nRedis: append-only "
          f"file, everysec; PostgreSQL: fsync on; pgbench: {CLIENTS} clients; "
          f"{os.cpu_count()} processors;\na long list: {bench.followers:,} "
          "followers, none of them in Redis\n")
    for key, label, unit, digits in FIGURES:
        values = bench.figures.get(key)
        if not values:      # --only
            continue
        aim = AIMS.get(key)
        met = aim is not None and statistics.median(values) <= aim
        line(label, values, unit, digits, verdict(aim, met))
    print()
    for label, over, under, aim in RATIOS:
        values = ratio_values(bench, over, under)
        if not values:
            continue
        met = aim is not None and statistics.median(values) >= aim
        line(label, values, "", 2, verdict(aim, met))
    print("\nprocessor time of an event, and time of the scripts of a drain "
          "above 1 ms")
    for key, values in sorted(bench.details.items()):
        name, _, unit = key.rpartition("_")
        line(name.replace(".", ", "), values, unit, 1)


def write_json(bench, path):
    ratios = {f"{over}/{under}": ratio_values(bench, over, under)
              for _, over, under, _ in RATIOS}
    with open(path, "w") as file:
        json.dump({"rounds": bench.rounds, "seconds": bench.seconds,
                   "events": bench.events, "followers": bench.followers,
                   "figures": bench.figures,
                   "ratios": ratios, "details": bench.details}, file, indent=1)
        file.write("\n")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def stop_on_signal(number, frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(prog="bench.sh")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=positive, default=3)
    parser.add_argument("--events", type=positive, default=200_000)
    parser.add_argument("--followers", type=positive, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop_on_signal)
    bed = harness.Bed()
    try:
        bench = Bench(bed, options)
        if not bench.steps():
            raise harness.Failed(f"no workload is like '{options.only}'")
        for number in range(1, options.rounds + 1):
            bench.round(number)
        bench.progress.end()
        bed.close()
        report(bench)
        if options.json:
            write_json(bench, options.json)
        return 0
    except KeyboardInterrupt:
        bed.close(check=False)
        print("\ninterrupted", file=sys.stderr)
        return 130
    except Exception as error:
        bed.close(check=False)
        print(f"\nerror: {error}\nno figures: this run is not a good one",
              file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
