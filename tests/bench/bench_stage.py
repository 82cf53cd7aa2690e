# SPDX-License-Identifier: MIT
"""What bench.py's workloads run on, and how they load it and look at it."""
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import time

import harness

LIKEBENCH = harness.BUILD / "likebench"
CONNECTIONS = 16
PIPELINE = 64
PROBES_S = 500    # of a probe
NEVER = 90_000_000
HZ = os.sysconf("SC_CLK_TCK")
ID_BASE = 1_000_000_000  # of likebench: event i is of user ID_BASE + i

# table, query of what is counted
LIKES = "user_like_post", "SELECT sum(like_count) FROM post_like"
FOLLOWS = "user_follow", ("SELECT (sum(following_count) + sum(follower_count))"
                          " / 2 FROM user_follow_count")


def arguments(socket, workload, options):
    """Of likebench: `first=5` is --first 5; what is None is left out."""
    words = [LIKEBENCH, "--socket", socket, "--workload", workload]
    for name, value in options.items():
        if value is not None:
            words += ["--" + name, value]
    return [str(word) for word in words]


def read_result(output, error):
    """What likebench prints; errors of the server fail."""
    if not output:
        raise harness.Failed(error.decode().strip() or "likebench was killed")
    result = json.loads(output)
    if result["errors"]:
        raise harness.Failed(f"{result['errors']} errors, the first: "
                             f"{result['first_error']}")
    return result


def likebench(socket, workload, **options):
    """Runs the load generator until it ends."""
    done = subprocess.run(
        arguments(socket, workload, {"connections": CONNECTIONS,
                                     "pipeline": PIPELINE, **options}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=900)
    return read_result(done.stdout, done.stderr)


@contextlib.contextmanager
def likebench_until(socket, workload, **options):
    """Runs it meanwhile; yields a dictionary that holds its result afterwards."""
    result = {}
    process = subprocess.Popen(
        arguments(socket, workload, {"events": NEVER, **options}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    try:
        yield result
    finally:
        process.send_signal(signal.SIGTERM)
        output, error = process.communicate(timeout=70)
    result.update(read_result(output, error))


@contextlib.contextmanager
def probe(daemon, verb, **options):
    """A command every 2 ms on a connection of its own, all the while; yields a
    dictionary that holds how long it took afterwards, in ms from when it was due."""
    workload = "ping" if verb == "PING" else "event"
    with likebench_until(daemon.socket, workload, verb=verb, connections=1,
                         rate=PROBES_S, **options) as result:
        yield result
    took = result["latency_us"]
    result.update(p50_ms=took["p50"] / 1000, p99_ms=took["p99"] / 1000,
                  longest_ms=took["max"] / 1000)


def cpu_s(server):
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text()
    fields = fields.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def script_of(command):
    """Which script a SLOWLOG entry is about, by its arguments."""
    words = command.split(b" ")
    if len(words) < 4 or words[0].upper() != b"EVALSHA":
        return None
    if re.match(rb"(like|follow)-", words[3]):
        return "claim" if len(words) == 8 else "ack"
    if words[3] in (b"0", b"1"):  # a side of a list
        return "page" if words[6] in (b"a", b"d") else "list"
    return "event" if len(words) > 7 else "other"


class Slow:
    """The scripts of a Redis that take more than 1 ms, from now on."""

    def __init__(self, redis):
        self.keys = redis.client(decode=False)
        self.keys.config_set("slowlog-log-slower-than", 1000)
        self.keys.slowlog_reset()

    def scripts(self):
        """{script: [ms]}"""
        took = {}
        for entry in self.keys.slowlog_get(100000):
            script = script_of(entry["command"])
            if script:
                took.setdefault(script, []).append(entry["duration"] / 1000)
        return took

    def report(self, bench, key):
        took = self.scripts()
        for script, ms in took.items():
            bench.detail(f"{key}.longest {script}_ms", max(ms))
            bench.detail(f"{key}.median {script}_ms", statistics.median(ms))
        bench.note(f"{key}_script",
                   max((max(ms) for ms in took.values()), default=1.0))


class Stage:
    """A Redis, a database and a daemon of a workload's own; `lists`: with all
    that LIKERS needs; `options`: of the daemon."""

    def __init__(self, bench, lists=False, **options):
        self.redis = bench.make_redis()
        self.pg = bench.cluster.create_database()
        if lists:
            self.pg.psql("-f", harness.ROOT / "sql" / "likers.sql")
        self.daemon = bench.bed.daemon(self.redis, self.pg,
                                       flush_interval_ms=None,
                                       like_lists="yes" if lists else "no",
                                       **options)
        self.admin = self.daemon.admin(timeout=900)
        bench.cluster.psql("postgres", "-c", "CHECKPOINT")

    def flusher(self, verb):
        self.admin.execute_command("FLUSHER", verb)

    def run(self, workload, **options):
        return likebench(self.daemon.socket, workload, **options)

    def load(self, **options):
        return self.run("event", **options)

    def backlog(self, rows, others, **options):
        """Rows that wait for the flusher."""
        self.flusher("PAUSE")
        result = self.load(events=rows, others=others, **options)
        if result["ones"] != rows:
            raise harness.Failed(f"{result['ones']:.0f} of {rows} were new")

    def flush(self):
        """Seconds that it takes."""
        start = time.monotonic()
        self.flusher("RESUME")
        self.daemon.drain(timeout=900)
        return time.monotonic() - start

    def check(self, rows, on, kind=LIKES):
        """That there are so many rows, so many of them with status 1."""
        table, counted = kind
        harness.check_exact(self.pg)
        got = self.pg.query("SELECT count(*), coalesce(sum(status), 0)"
                            f"  FROM {table}")[0]
        counted = self.pg.value(counted) or 0
        if got != (rows, on) or counted != on:
            raise harness.Failed(
                f"the tables hold {got[0]} rows, {got[1]} with status 1, "
                f"{counted} counted; expected {rows:.0f}, {on:.0f}")

    def close(self):
        self.admin.close()
        self.daemon.term(timeout=60)
        self.redis.stop()
        self.pg.drop()
