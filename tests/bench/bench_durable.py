# SPDX-License-Identifier: MIT
"""Acked and in PostgreSQL: through the daemon, directly, by a cron script, by COPY;
and what each leaves in the WAL."""
import contextlib
import os
import re
import subprocess
import time

import harness
from bench_redis import POSTS
from bench_stage import Slow, likebench, probe
from servers import SUPERUSER, pg_bin

CLIENTS = 16      # of pgbench
LAG_S = 5
STEPS = (0.95, 0.85, 0.7, 0.5, 0.3)     # of what was seen, tried as a fixed rate

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
UPSERT = """
INSERT INTO user_like_post (post_id, user_id, status, prev_status, ctime, mtime)
VALUES (%s, %s, %s, 0, to_timestamp(%s), to_timestamp(%s))
ON CONFLICT (post_id, user_id) DO UPDATE
  SET prev_status = user_like_post.status, status = excluded.status,
      mtime = excluded.mtime"""
COUNT = """
INSERT INTO post_like (post_id, like_count, mtime) VALUES (%s, %s, now())
ON CONFLICT (post_id) DO UPDATE
  SET like_count = post_like.like_count + excluded.like_count, mtime = now()"""


class Wal:
    """What a database writes from now on."""

    def __init__(self, pg):
        self.pg = pg
        self.since = self.here()

    def here(self):
        return self.pg.value("SELECT pg_current_wal_flush_lsn()")

    def bytes(self):
        return int(self.pg.value("SELECT pg_current_wal_lsn() - %s::pg_lsn",
                                 self.since))

    def commits(self):
        self.pg.query("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        return self.pg.value(
            "SELECT count(*) FROM pg_get_wal_records_info(%s, %s) WHERE"
            " resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%'",
            self.since, self.here())


# ---- directly ----

def direct(bench, key, post, options=""):
    database = bench.cluster.create_database()
    bench.cluster.psql("postgres", "-c", "CHECKPOINT")
    script = bench.bed.dir / "direct.sql"
    script.write_text(DIRECT.format(post=post))
    wal = Wal(database)
    done = subprocess.run(
        [pg_bin("pgbench"), "-n", "-M", "prepared", "-c", str(CLIENTS),
         "-j", "2", "-T", str(bench.options.seconds), "-f", str(script),
         "-h", str(bench.cluster.dir), "-U", SUPERUSER, database.name],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=900,
        env={**os.environ, "PGOPTIONS": options})
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
    bench.note(key, float(tps[1]))
    if key == "direct_spread":
        bench.note("wal_direct", wal.bytes() / ran)
    database.drop()


# ---- a cron script ----

def flush_post(keys, cursor, post):
    """As people write it: one round trip for each like."""
    n = 0
    while user := keys.spop(f"post_user_like_set_{post}"):
        like = keys.hgetall(f"post_user_like_{post}_{user}")
        cursor.execute(UPSERT, (post, user, like["status"], like["ctime"],
                                like["mtime"]))
        n += 1
    cursor.execute(COUNT, (post, keys.getdel(f"post_{post}_counter") or 0))
    return n


def cron(bench):
    """For as long as the loads, one transaction for each post."""
    redis, database = bench.make_redis(), bench.cluster.create_database()
    events = bench.options.events
    likebench(redis.socket, "four", events=events, others=POSTS)
    done, start = 0, time.monotonic()
    with contextlib.closing(database.connect()) as connection, \
            contextlib.closing(redis.client()) as keys:
        connection.autocommit = False
        while (took := time.monotonic() - start) < bench.options.seconds:
            post = keys.spop("post_set")
            if not post:
                break
            done += flush_post(keys, connection.cursor(), post)
            connection.commit()
    harness.check_exact(database)
    if database.value("SELECT count(*) FROM user_like_post") != done:
        raise harness.Failed("the cron script lost rows")
    bench.note("cron", done / took)
    redis.stop()
    database.drop()


# ---- through the daemon ----

def burst(bench, posts):
    """How many events a second are acked and durable, one after the other."""
    events = bench.options.events
    with bench.stage() as stage:
        start = time.monotonic()
        stage.load(events=events, others=posts)
        stage.daemon.drain(timeout=900)
        took = time.monotonic() - start
        stage.check(events, events)
    return events / took


def holds(bench, posts, rate):
    """Whether so many events a second leave a lag below LAG_S; and notes what they
    took, of processors and WAL."""
    seconds = 3 * bench.options.seconds
    with bench.stage() as stage:
        wal = Wal(stage.pg)
        result = stage.load(events=int(rate * seconds), others=posts, rate=rate)
        lag = stage.daemon.metrics()['likesyncd_sync_lag_seconds{kind="like"}']
        stage.daemon.drain(timeout=900)
        written = result["events"]
        stage.check(written, written)
        is_held = lag < LAG_S and result["seconds"] < seconds + LAG_S
        if is_held and posts != 1:
            bench.note("wal_like", wal.bytes() / written)
            bench.note("commits", written / wal.commits())
        return is_held


def sustained(bench, key, posts):
    """The highest of some rates that holds."""
    most = burst(bench, posts)
    for share in STEPS:
        if holds(bench, posts, most * share):
            bench.note(key, most * share)
            return
    raise harness.Failed(f"not even {STEPS[-1]} of {most:.0f} events/s are held")


def flush(bench):
    rows = bench.options.events * 3 // 2
    with bench.stage() as stage:
        stage.backlog(rows, POSTS)
        before = bench.cpu_of(redis=stage.redis, daemon=stage.daemon)
        bench.note("flush", rows / stage.flush())
        bench.note_cpu("flush", before, rows)
        stage.check(rows, rows)
        bench.note("copy", rows / copy(bench, stage.pg, rows))


def copy(bench, pg, rows):
    """Seconds that COPY takes for the table's rows, into a copy of it."""
    data = f"{bench.cluster.dir}/rows"
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


def longest(bench, key, posts):
    events = bench.options.events
    with bench.stage() as stage:
        stage.backlog(events, posts)
        slow = Slow(stage.redis)
        with probe(stage.daemon, "PING") as ping:
            stage.flush()
        bench.note(f"{key}_ping", ping["longest_ms"])
        slow.report(bench, key)
        stage.check(events, events)


def steps(bench):
    spread = f"random(1, {POSTS})"
    return (
        ("PostgreSQL directly, spread",
         lambda: direct(bench, "direct_spread", spread)),
        ("PostgreSQL directly, spread, synchronous_commit off",
         lambda: direct(bench, "direct_async", spread,
                        "-c synchronous_commit=off")),
        ("PostgreSQL directly, hot post",
         lambda: direct(bench, "direct_hot", 1)),
        ("a cron script", lambda: cron(bench)),
        ("acked and durable, spread",
         lambda: sustained(bench, "sustained_spread", POSTS)),
        ("acked and durable, hot post",
         lambda: sustained(bench, "sustained_hot", 1)),
        ("flush against COPY", lambda: flush(bench)),
        ("longest script and PING, many posts",
         lambda: longest(bench, "many", 0)),
        ("longest script and PING, one post",
         lambda: longest(bench, "one", 1)),
    )
