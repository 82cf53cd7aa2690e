# SPDX-License-Identifier: MIT
"""The test bed: Redis, PostgreSQL and likesyncd, started by the tests.

All that there is to know about starting them is here. A `Bed` is a temporary
directory with a short name (a unix socket's path has at most 107 bytes) and
the servers that live in it; closing it stops them, by pid, and removes it.

    with Bed() as bed:
        redis = bed.redis(appendfsync="always")
        pg = bed.postgres().create_database()
        daemon = bed.daemon(redis, pg, flush_interval_ms=50)
        daemon.client().execute_command("LIKE", 7, 42)
        daemon.drain()
        check_exact(pg)

Start servers from the main thread: each gets a signal when the thread that
started it ends, so that none outlives a test that was killed.
"""
import calendar
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import psycopg2
import redis as redis_py

from servers import (ROOT, Failed, Postgres, Redis, Server, free_port, initdb,
                     resp_client, run_status, unprivileged_user, wait_for)

BUILD = pathlib.Path(os.environ.get("LIKESYNCD_BUILD", ROOT / "build-test"))
# What a sanitizer writes when it has found something.
SANITIZER = re.compile(
    r"(Address|Leak|UndefinedBehavior|Thread|Memory)Sanitizer[: ]"
    r"|\.[ch]:\d+:\d+: runtime error: ")

# What is left of the daemon's own keys in Redis when nothing is under way.
STATE_KEYS = ["likesync:state:follow", "likesync:state:like"]
# Every row that I1 forbids: the counted likes of a post against its rows.
EXACT_SQL = """
SELECT post_id, coalesce(c.like_count - c.unattributed, 0) AS counted,
       coalesce(r.n, 0) AS liked
  FROM post_like c
  FULL JOIN (SELECT post_id, count(*) AS n FROM user_like_post
              WHERE status = 1 GROUP BY post_id) r USING (post_id)
 WHERE coalesce(c.like_count - c.unattributed, 0) <> coalesce(r.n, 0)"""
# The same of follows: a user's two counts against the rows of either end.
FOLLOW_EXACT_SQL = """
SELECT user_id, c.following_count, r.following, c.follower_count, r.followers
  FROM user_follow_count c
  FULL JOIN (SELECT user_id, sum(following) AS following,
                    sum(followers) AS followers
               FROM (SELECT user_id, 1 AS following, 0 AS followers
                       FROM user_follow WHERE status = 1
                      UNION ALL
                     SELECT followee_id, 0, 1
                       FROM user_follow WHERE status = 1) ends
              GROUP BY user_id) r USING (user_id)
 WHERE coalesce(c.following_count, 0) <> coalesce(r.following, 0)
    OR coalesce(c.follower_count, 0) <> coalesce(r.followers, 0)"""


def build_has(option):
    """Whether the daemon under test was built with a CMake option, such as
    LIKESYNCD_SANITIZE."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    return re.search(rf"^{option}:\w+=(ON|TRUE|1)$", cache, re.M) is not None


class Daemon(Server):
    """A likesyncd. Options are written `section_name=value`; with `tcp` it
    also listens on 127.0.0.1, at `port`; `nofile` is its RLIMIT_NOFILE; `env`
    is for its environment at each start, and `preload` as Server has it; `plain`:
    it is not one with sanitizers."""

    # Short, so that tests do not wait.
    DEFAULTS = {"flush_interval_ms": 50, "log_level": "info"}

    def __init__(self, bed, redis, pg, *, fault=None, wait="ready", tcp=False,
                 nofile=None, env=None, preload=(), plain=False, **options):
        super().__init__(bed, "daemon", preload)
        self.plain = plain or any(shim.plain for shim in self.preload) or \
            not build_has("LIKESYNCD_SANITIZE")
        self.nofile = nofile
        self.env = env or {}
        self.socket = self.dir / "s"
        self.address = f"unix:{self.socket}"
        self.admin_socket = self.dir / "admin"
        self.config = self.dir / "likesyncd.conf"
        self.port = free_port() if tcp else None
        tcp_listen = f" tcp:127.0.0.1:{self.port}" if tcp else ""
        self.options = {
            "server_listen": f"unix:{self.socket}{tcp_listen}",
            "server_admin_listen": f"unix:{self.admin_socket}",
            "redis_address": redis.address,
            "postgres_conninfo": pg.conninfo(),
            "metrics_listen": f"127.0.0.1:{free_port()}",
            **self.DEFAULTS, **options}
        self.write_config()
        self.start(fault, wait)

    def write_config(self, **changes):
        """Writes the file again; None takes an option out."""
        self.options.update(changes)
        lines, section = [], None
        for key, value in sorted(self.options.items()):
            if value is None:
                continue
            # Sections have no underscore in their names.
            section_of_key, _, name = key.partition("_")
            if section_of_key != section:
                section = section_of_key
                lines.append(f"[{section}]")
            lines.append(f"{name} = {value}")
        self.config.write_text("\n".join(lines) + "\n")

    def start(self, fault=None, wait="ready", env=None):
        """`fault` names the point at which it kills itself; `env` is for this
        start only. Waits until it is "ready", or only "answers" PING (when a
        backend is away), or not at all (None)."""
        env = {**self.env, **(env or {}),
               # It would come first of all that is preloaded.
               "ASAN_OPTIONS": "exitcode=99:quarantine_size_mb=16:"
                               "verify_asan_link_order=0:"
                               + os.environ.get("ASAN_OPTIONS", ""),
               "UBSAN_OPTIONS": "print_stacktrace=1:"
                                + os.environ.get("UBSAN_OPTIONS", "")}
        if fault:
            env["LIKESYNCD_FAULT"] = fault
        command = [self.program(), "-c", self.config]
        if self.nofile:
            command = ["prlimit", f"--nofile={self.nofile}", *command]
        self.spawn(command, env=env)
        if wait:
            self.wait_up(getattr(self, wait))

    def program(self):
        plain = self.plain and build_has("LIKESYNCD_SANITIZE")
        if plain and "LIKESYNCD_PLAIN_BUILD" not in os.environ:
            raise Failed("set LIKESYNCD_PLAIN_BUILD: sanitizers have an"
                         " allocator of their own")
        build = pathlib.Path(os.environ["LIKESYNCD_PLAIN_BUILD"]) if plain \
            else BUILD
        if not (build / "likesyncd").exists():
            raise Failed(f"{build}/likesyncd is not built: see tests/run.sh,"
                         " or set LIKESYNCD_BUILD")
        return build / "likesyncd"

    def restart(self, fault=None):
        self.term()
        self.start(fault)

    def answers(self):
        with contextlib.suppress(redis_py.RedisError):
            with contextlib.closing(self.client(timeout=5)) as client:
                try:
                    return client.ping()
                except redis_py.AuthenticationError:
                    return True  # it wants a password
        return False

    def ready(self):
        """Answers, and has reached both backends (without metrics: answers)."""
        if not self.answers():
            return False
        if not self.options["metrics_listen"]:
            return True
        status, text = self.http("/metrics")
        up = parse_metrics(text) if status == 200 else {}
        return up.get("likesyncd_redis_up") == 1 and \
            up.get("likesyncd_postgres_up") == 1

    def client(self, timeout=30.0, decode=True):
        return resp_client(self.socket, timeout, decode)

    def admin(self, timeout=30.0):
        return resp_client(self.admin_socket, timeout)

    def raw(self):
        """A plain connected socket, for bytes that no client would send."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        connection.connect(str(self.socket))
        return connection

    def ctl(self, *arguments):
        """Runs likesyncctl: (exit status, what it printed)."""
        return run_status([BUILD / "likesyncctl", "-s", self.admin_socket,
                           *arguments])

    def drain(self, timeout=30.0):
        """Returns once all that was answered before is durable."""
        with contextlib.closing(self.admin(timeout + 10)) as admin:
            return admin.execute_command("FLUSHER", "DRAIN",
                                         int(timeout * 1000))

    def term(self, timeout=10.0):
        """SIGTERM; it must exit with 0 in time, and say nothing bad."""
        self.signal(signal.SIGTERM)
        status = self.wait_exit(timeout)
        if status != 0:
            raise Failed(f"SIGTERM: exit status {status}\n{self.log_tail()}")
        self.check_log()

    def sighup(self):
        self.signal(signal.SIGHUP)

    def wait_fault(self, timeout=30.0):
        """Waits until a named point has killed it."""
        status = self.wait_exit(timeout)
        if status != -signal.SIGKILL:
            raise Failed(f"exit status {status}, not killed by its fault point"
                         f"\n{self.log_tail()}")

    def last_logged(self):
        """The time of its last line, by its own clock."""
        dates = re.findall(r"^\S*(\d{4}-\d\d-\d\dT[\d:]{8})", self.log_text(),
                           re.M)
        return calendar.timegm(time.strptime(dates[-1], "%Y-%m-%dT%H:%M:%S"))

    def check_log(self):
        """Fails when a sanitizer reported something."""
        text = self.log_text()
        found = SANITIZER.search(text)
        if found:
            raise Failed(f"{self.dir.name}: a sanitizer's report:\n"
                         f"{text[max(0, found.start() - 200):][:8000]}")

    def check_end(self):
        """Ends it as systemd does, if it still runs; fails when that, or an
        end that no test asked about, was not a clean one."""
        if self.running():
            self.resume()
            self.term()
        elif self.process and not self.exit_seen:
            raise Failed(f"{self.dir.name} ended by itself: "
                         f"{self.process.returncode}\n{self.log_tail()}")
        self.check_log()

    def http(self, path):
        """Status and body of a page; (0, reason) when nothing answers."""
        url = f"http://{self.options['metrics_listen']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metrics(self):
        """{'name{labels}': value} as /metrics has them."""
        status, text = self.http("/metrics")
        if status != 200:
            raise Failed(f"/metrics: {status} {text}")
        return parse_metrics(text)


def parse_metrics(text):
    pairs = (line.rpartition(" ") for line in text.splitlines()
             if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def check_exact(pg):
    """I1: fails unless every count of a post or a user is the number of its
    rows."""
    wrong = pg.query(EXACT_SQL)
    if wrong:
        raise Failed(f"{len(wrong)} posts are counted wrong (post, counted, "
                     f"rows): {wrong[:10]}")
    wrong = pg.query(FOLLOW_EXACT_SQL)
    if wrong:
        raise Failed(f"{len(wrong)} users are counted wrong (user, following, "
                     f"rows, followers, rows): {wrong[:10]}")


def server_away(error):
    """No SQLSTATE, or that of a shutdown or a lost connection."""
    if isinstance(error, psycopg2.InterfaceError):
        return True
    return isinstance(error, psycopg2.DatabaseError) and \
        (error.pgcode or "08")[:2] in ("08", "57")


class I1Watcher(threading.Thread):
    """Checks I1 in a loop, likes and follows in a snapshot each, while a test
    does its work.

        with I1Watcher(pg) as watcher:
            ...
        # fails on leaving if any check found a wrong count, or none was made

    A server that is away is tried again."""

    def __init__(self, pg, pause=0.01):
        super().__init__(daemon=True)
        self.pg = pg
        self.pause = pause
        self.checks = 0
        self.violations = []
        self.failure = None
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            try:
                with contextlib.closing(self.pg.connect()) as connection:
                    self.watch(connection.cursor())
            except Exception as error:
                # A broken watcher must not look like a good result.
                if not server_away(error):
                    self.failure = error
                    return
                self.ended.wait(0.1)

    def watch(self, cursor):
        while not self.ended.is_set():
            for sql in (EXACT_SQL, FOLLOW_EXACT_SQL):
                cursor.execute(sql)
                self.violations += cursor.fetchall()
            self.checks += 1
            self.ended.wait(self.pause)

    def __enter__(self):
        self.start()
        wait_for(lambda: self.checks or self.failure, 30, "the first check")
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        self.join(60)
        if kind is not None:
            return
        if self.failure or self.is_alive():
            raise Failed(f"the watcher broke: {self.failure}")
        if self.violations:
            raise Failed(f"I1 was broken in {len(self.violations)} rows of "
                         f"{self.checks} checks (post, counted, rows; or user, "
                         f"following, rows, followers, rows): "
                         f"{self.violations[:10]}")


class Bed:
    """A temporary directory and the servers that live in it."""

    def __init__(self, template=None, keep=False):
        """`template`: a PostgreSQL data directory for clusters to copy;
        `keep`: the servers may outlive this process."""
        self.keep = keep
        self.template = template
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lsd-", dir="/tmp"))
        # PostgreSQL runs as another user when we are root.
        self.dir.chmod(0o711)
        self.servers = []
        self.names = {}

    def make_dir(self, kind):
        self.names[kind] = self.names.get(kind, 0) + 1
        path = self.dir / f"{kind}{self.names[kind]}"
        path.mkdir()
        return path

    def redis(self, **settings):
        return Redis(self, **settings)

    def postgres(self, **settings):
        return Postgres(self, self.template, **settings)

    def daemon(self, redis, pg, **options):
        return Daemon(self, redis, pg, **options)

    def logs(self, lines=60):
        """[(server, end of its log)] in the order of starting."""
        return [(server.dir.name, server.log_tail(lines))
                for server in self.servers]

    def daemons(self):
        return [s for s in self.servers if isinstance(s, Daemon)]

    def close(self, check=True, remove=True):
        """Stops all, last started first, and removes the directory; fails if
        a daemon did not end well or a sanitizer reported something."""
        try:
            if check:
                for daemon in self.daemons():
                    daemon.check_end()
        finally:
            for server in reversed(self.servers):
                server.stop()
            if remove:
                self.remove()

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            for name, text in self.logs():
                print(f"--- {name}\n{text}", file=sys.stderr)
        self.close(check=kind is None)


def make_pg_template(bed):
    """A fresh data directory in `bed` that clusters copy: initdb takes a
    second, a copy of it none."""
    directory = bed.make_dir("template")
    user = unprivileged_user()
    if user:
        shutil.chown(directory, user)
    return initdb(directory / "data", user)
