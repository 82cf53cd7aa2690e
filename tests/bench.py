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
sys.path.insert(0, str(TESTS / "integration"))
import harness  # noqa: E402
from servers import SUPERUSER, pg_bin  # noqa: E402

LIKEBENCH = harness.BUILD / "likebench"
CONNECTIONS = 16
PIPELINE = 64
POSTS = 100_000   # of the spread loads
NEVER = 99_999_999
CLIENTS = 16      # of pgbench
HZ = os.sysconf("SC_CLK_TCK")

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
)
# label, over, under, aim
RATIOS = (
    ("first likes : straight Redis", "like_first", "four_spread", 0.8),
    ("known pairs : straight Redis", "like_known", "four_spread", 0.8),
    ("hot post : straight Redis, hot", "like_hot", "four_hot", 0.8),
    ("durable : directly, spread", "sustained_spread", "direct_spread", 8),
    ("durable : directly, hot post", "sustained_hot", "direct_hot", 50),
    ("flush : COPY", "flush", "copy", None),
)
AIMS = {"many_script": 10, "one_script": 10, "many_ping": 20, "one_ping": 20}


def read_pairs(output):
    return {name: float(value) for name, _, value in
            (word.partition("=") for word in output.decode().split())}


def likebench(socket, *arguments):
    """Runs the load generator: {key: number} of what it prints."""
    done = subprocess.run(
        [str(part) for part in (LIKEBENCH, "-s", socket, "-c", CONNECTIONS,
                                "-p", PIPELINE, *arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=900)
    if done.returncode != 0:
        raise harness.Failed(done.stderr.decode())
    result = read_pairs(done.stdout)
    if result["errors"]:
        raise harness.Failed(f"{result['errors']:.0f} errors: "
                             f"{done.stderr.decode().strip()}")
    return result


def cpu_s(server):
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text()
    fields = fields.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def script_of(command):
    """Which script a SLOWLOG entry is about, by its arguments."""
    words = command.split(b" ")
    if len(words) < 4 or words[0].upper() != b"EVALSHA":
        return None
    if words[3].startswith(b"like-"):
        return "claim" if len(words) == 8 else "ack"
    return "event" if len(words) > 7 else "other"


@contextlib.contextmanager
def pings(daemon):
    """PING on a connection of its own, all the while; yields a dictionary
    that holds the longest in ms afterwards."""
    result = {}
    process = subprocess.Popen(
        [str(LIKEBENCH), "-s", str(daemon.socket), "-m", "ping"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield result
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=70)
    result.update(read_pairs(output))


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


class Stage:
    """A Redis, a database and a daemon of a workload's own."""

    def __init__(self, bench):
        self.redis = bench.make_redis()
        self.pg = bench.cluster.create_database()
        self.daemon = bench.bed.daemon(self.redis, self.pg,
                                       flush_interval_ms=None)
        self.admin = self.daemon.admin(timeout=900)
        bench.cluster.psql("postgres", "-c", "CHECKPOINT")

    def flusher(self, verb):
        self.admin.execute_command("FLUSHER", verb)

    def load(self, *arguments):
        return likebench(self.daemon.socket, "-m", "like", *arguments)

    def backlog(self, rows, posts):
        """Rows that wait for the flusher."""
        self.flusher("PAUSE")
        result = self.load("-n", rows, "-o", posts)
        if result["ones"] != rows:
            raise harness.Failed(f"{result['ones']:.0f} of {rows} were new")

    def flush(self):
        """Seconds that it takes."""
        start = time.monotonic()
        self.flusher("RESUME")
        self.daemon.drain(timeout=900)
        return time.monotonic() - start

    def check(self, rows, liked):
        harness.check_exact(self.pg)
        got = self.pg.query("SELECT count(*), coalesce(sum(status), 0)"
                            "  FROM user_like_post")[0]
        counted = self.pg.value(
            "SELECT coalesce(sum(like_count), 0) FROM post_like")
        if got != (rows, liked) or counted != liked:
            raise harness.Failed(
                f"the tables hold {got[0]} rows, {got[1]} liked, {counted} "
                f"counted; expected {rows:.0f}, {liked:.0f}")

    def close(self):
        self.admin.close()
        self.daemon.term(timeout=60)
        self.redis.stop()
        self.pg.drop()


class Bench:
    def __init__(self, bed, rounds, seconds, events):
        self.bed = bed
        self.rounds = rounds
        self.seconds = seconds
        self.events = events
        self.figures = {}
        self.details = {}
        self.progress = Progress(rounds * 9)
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
    def stage(self):
        stage = Stage(self)
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
            keys = stage.redis.client(decode=False)
            keys.config_set("slowlog-log-slower-than", 1000)
            keys.slowlog_reset()
            with pings(stage.daemon) as result:
                stage.flush()
            self.note(f"{key}_ping", result["longest_ms"])
            took = {}
            for entry in keys.slowlog_get(100000):
                script = script_of(entry["command"])
                if script:
                    took.setdefault(script, []).append(
                        entry["duration"] / 1000)
            for script, ms in took.items():
                self.detail(f"{key}.longest {script}_ms", max(ms))
                self.detail(f"{key}.median {script}_ms",
                            statistics.median(ms))
            self.note(f"{key}_script",
                      max((max(ms) for ms in took.values()), default=1.0))
            stage.check(self.events, self.events)

    def round(self, number):
        def step(text):
            self.progress.step(f"round {number} of {self.rounds}: {text}")

        step("straight Redis")
        self.straight()
        step("LIKE")
        self.like()
        step("PostgreSQL directly, spread")
        self.direct("direct_spread", f"random(1, {POSTS})")
        step("PostgreSQL directly, hot post")
        self.direct("direct_hot", 1)
        step("acked and durable, spread")
        self.sustained("sustained_spread", POSTS)
        step("acked and durable, hot post")
        self.sustained("sustained_hot", 1)
        step("flush against COPY")
        self.flush()
        step("longest script and PING, many posts")
        self.longest("many", 0)
        step("longest script and PING, one post")
        self.longest("one", 1)


# ---- the table ----

def line(label, values, unit, digits, verdict=""):
    middle = statistics.median(values)
    spread = f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
    print(f"{label:42}{middle:>10,.{digits}f} {unit:9}{spread:>20}{verdict}")


def verdict(aim, met):
    return "" if aim is None else f"  aim {aim:g} {'met' if met else 'missed'}"


def ratio_values(bench, over, under):
    """By round: what disturbs one side is likely to disturb the other."""
    return [a / b for a, b in zip(bench.figures[over], bench.figures[under])]


def report(bench):
    print(f"\nmedians of {bench.rounds} rounds, and their range; {CONNECTIONS}"
          f" connections of {PIPELINE} events at a time\nRedis: append-only "
          f"file, everysec; PostgreSQL: fsync on; pgbench: {CLIENTS} clients; "
          f"{os.cpu_count()} processors\n")
    for key, label, unit, digits in FIGURES:
        values = bench.figures[key]
        aim = AIMS.get(key)
        met = aim is not None and statistics.median(values) <= aim
        line(label, values, unit, digits, verdict(aim, met))
    print()
    for label, over, under, aim in RATIOS:
        values = ratio_values(bench, over, under)
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
                   "events": bench.events, "figures": bench.figures,
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
    parser.add_argument("--json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop_on_signal)
    bed = harness.Bed()
    try:
        bench = Bench(bed, options.rounds, options.seconds, options.events)
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
