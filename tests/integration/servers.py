# SPDX-License-Identifier: MIT
"""Redis and PostgreSQL, started by the tests: see harness.py, which is what
tests import."""
import contextlib
import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import threading
import time

import psycopg2
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

try:
    from redis._parsers.base import BaseParser
except ImportError:  # before 5.0
    from redis.connection import BaseParser

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "sql" / "schema.sql"
ROLES = ROOT / "sql" / "roles.sql"
DAEMON_ROLE = "likesyncd"
SUPERUSER = "postgres"
# What systemd, libpq and the tests themselves tell a process by environment:
# none of it is meant for a server of the bed.
NOT_INHERITED = re.compile(
    r"NOTIFY_SOCKET|JOURNAL_STREAM|LISTEN_|PG|LIKESYNCD_")


class Failed(AssertionError):
    """The bed could not do what it was asked to."""


def wait_for(condition, timeout=30.0, what="a condition"):
    """Returns the first true value of condition(); fails after `timeout` s."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {timeout} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


# Newer ones take the code away from the text of this error.
BaseParser.EXCEPTION_CLASSES.pop("TRYAGAIN", None)


class UnixConnection(redis_py.UnixDomainSocketConnection):
    """redis-py 4.3 words a read error with the host and port of its
    connection, which one on a unix socket does not have."""

    host, port = "unix", 0


def resp_client(socket_path, timeout=30.0, decode=True):
    """A plain client that never sends anything twice by itself."""
    return redis_py.Redis(connection_pool=redis_py.ConnectionPool(
        connection_class=UnixConnection, path=str(socket_path),
        decode_responses=decode, socket_timeout=timeout,
        retry=Retry(NoBackoff(), 0)))


def unprivileged_user():
    """PostgreSQL refuses to run as root. None: run as we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Failed("run as root, but there is neither a user postgres nor nobody")


def wrapped(command, user=None, death_signal=None):
    """The command, run by setpriv as another user, and with a signal for when
    its parent ends."""
    wrapper = []
    if user:
        group = pwd.getpwnam(user).pw_gid
        wrapper += ["--reuid", user, "--regid", str(group), "--init-groups"]
    if death_signal:
        wrapper += ["--pdeathsig", death_signal]
    if wrapper:
        wrapper = ["setpriv", *wrapper, "--"]
    return [*wrapper, *map(str, command)]


def pg_bin(program):
    """Debian keeps the server's programs out of PATH, a directory for each
    version; the newest is taken."""
    found = glob.glob(f"/usr/lib/postgresql/*/bin/{program}")
    found.sort(key=lambda path: int(path.split("/")[4]))
    path = found[-1] if found else shutil.which(program)
    if not path:
        raise Failed(f"PostgreSQL's {program} is not installed")
    return path


def initdb(target, user):
    """A fresh data directory, which clusters may copy."""
    run(wrapped([pg_bin("initdb"), "-D", target, "-U", SUPERUSER, "-A",
                 "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
                 "--no-instructions"], user), cwd=target.parent)
    return target


def run_status(command, cwd=None):
    """Runs a short command: (exit status, output with stderr)."""
    done = subprocess.run([str(part) for part in command], cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    return done.returncode, done.stdout.decode(errors="replace")


def run(command, cwd=None):
    """Runs a short command that must succeed; returns its output."""
    status, output = run_status(command, cwd)
    if status != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit status {status}\n"
                     f"{output}")
    return output


class Server:
    """A process of the bed, its log, and the signals it is sent."""

    stop_signal = signal.SIGTERM
    death_signal = "KILL"

    def __init__(self, bed, kind):
        self.bed = bed
        self.dir = bed.make_dir(kind)
        self.log = self.dir / "log"
        self.process = None
        self.exit_seen = False  # a test has asked how it ended
        bed.servers.append(self)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.poll() is None

    def spawn(self, command, user=None, env=None, pass_fds=()):
        """Runs a command as this server's process; its output goes to log."""
        if threading.current_thread() is not threading.main_thread():
            raise Failed("servers are started from the main thread only")
        if self.running():
            raise Failed(f"{self.dir.name} runs already")
        death_signal = None if self.bed.keep else self.death_signal
        inherited = {name: value for name, value in os.environ.items()
                     if not NOT_INHERITED.match(name)}
        self.exit_seen = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                wrapped(command, user, death_signal),
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.dir,
                env={**inherited, **(env or {})}, pass_fds=pass_fds,
                start_new_session=True)

    def signal(self, number):
        if not self.running():
            raise Failed(f"{self.dir.name} does not run")
        self.process.send_signal(number)

    def wait_exit(self, timeout=30.0):
        """The exit status (negative: the signal that ended it)."""
        self.exit_seen = True
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.dir.name} (pid {self.pid}) still runs after "
                         f"{timeout} s") from None

    def wait_up(self, answers, timeout=30.0):
        """Waits until answers() is true, and fails at once if it exits."""
        def up():
            if not self.running():
                raise Failed(f"{self.dir.name} exited with "
                             f"{self.process.returncode} at its start:\n"
                             f"{self.log_tail(20)}")
            return answers()
        try:
            wait_for(up, timeout, f"{self.dir.name} to answer")
        except Failed as error:
            raise Failed(f"{error}\n{self.log_tail(20)}") from None

    def kill9(self):
        self.signal(signal.SIGKILL)
        self.wait_exit()

    def pause(self):
        """SIGSTOP, and waits until it has stopped."""
        self.signal(signal.SIGSTOP)
        wait_for(lambda: process_state(self.pid) == "T", 10, "SIGSTOP")

    def resume(self):
        self.signal(signal.SIGCONT)

    def stop(self):
        """Ends it as gently as it can be within a short time."""
        if not self.running():
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines=60):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) * 1024


def process_state(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


class Redis(Server):
    """A Redis on a unix socket. Settings are those of redis.conf, with `_`
    for `-`; without any: append-only file, everysec, no snapshots."""

    DEFAULTS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}

    def __init__(self, bed, **settings):
        super().__init__(bed, "redis")
        self.settings = {**self.DEFAULTS, **settings}
        self.socket = self.dir / "s"
        self.address = f"unix:{self.socket}"
        self.start()

    def start(self):
        # Not what a killed predecessor left: it would look like an answer.
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket,
                   "--dir", self.dir, "--daemonize", "no"]
        for name, value in self.settings.items():
            command += ["--" + name.replace("_", "-"), value]
        self.spawn(command)
        self.wait_up(self.answers)

    def answers(self):
        with contextlib.suppress(redis_py.RedisError):
            with contextlib.closing(self.client(timeout=5)) as client:
                return client.ping()
        return False

    def restart(self):
        """Stops it as Debian would (what is in the AOF is written), starts it
        again: scripts and connections are gone, data is there."""
        self.stop()
        self.start()

    def client(self, timeout=30.0, decode=True):
        return resp_client(self.socket, timeout, decode)


class Postgres(Server):
    """A PostgreSQL cluster on a unix socket; without TCP, unless settings say
    otherwise."""

    stop_signal = signal.SIGINT
    # Ends at once and leaves no shared memory, unlike KILL.
    death_signal = "QUIT"
    STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT,
                    "immediate": signal.SIGQUIT}
    TEMPLATE = "likesync_template"

    def __init__(self, bed, template=None, **settings):
        """`template`: a data directory to copy, instead of initdb. Settings
        are those of postgresql.conf."""
        super().__init__(bed, "pg")
        self.user = unprivileged_user()
        self.port = settings.get("port", 5432)
        self.data = self.dir / "data"
        self.databases = 0
        self.has_template = False
        self.address = f"unix:{self.dir}/.s.PGSQL.{self.port}"
        if self.user:
            shutil.chown(self.dir, self.user)
        if template is None:
            initdb(self.data, self.user)
        else:
            run(["cp", "-a", template, self.data])
        self.configure(settings)
        self.start()

    def configure(self, settings):
        # fsync is for power cuts, which no test makes; a killed server keeps
        # what it wrote either way.
        settings = {"listen_addresses": "", "fsync": "off",
                    "unix_socket_directories": self.dir,
                    "shared_buffers": "64MB", "max_connections": "100",
                    **settings}
        with (self.data / "postgresql.conf").open("a") as conf:
            for name, value in settings.items():
                conf.write(f"{name} = '{value}'\n")

    def start(self):
        self.spawn([pg_bin("postgres"), "-D", self.data], user=self.user)
        self.wait_up(self.answers)

    def answers(self):
        with contextlib.suppress(psycopg2.OperationalError):
            self.connect("postgres").close()
            return True
        return False

    def stop(self, mode="fast"):
        """smart waits for clients, fast ends them, immediate is a crash."""
        if not self.running():
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(self.STOP_SIGNALS[mode])
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def conninfo(self, database, user=DAEMON_ROLE):
        return f"host={self.dir} port={self.port} dbname={database} user={user}"

    def connect(self, database):
        """A connection as superuser that commits each statement."""
        connection = psycopg2.connect(
            self.conninfo(database, SUPERUSER), connect_timeout=10)
        connection.autocommit = True
        return connection

    def psql(self, database, *arguments):
        """Runs psql as superuser; returns what it printed."""
        return run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h",
                    self.dir, "-p", self.port, "-U", SUPERUSER, "-d", database,
                    *arguments])

    def create_database(self, name=None, schema=True, variables=None):
        """A Database of its own; with the schema it is a copy of one to which
        it was applied once, unless `variables` (psql's) ask for another."""
        self.databases += 1
        name = name or f"db{self.databases}"
        template = "template0"
        if schema and not variables:
            template = self.TEMPLATE
            self.make_template()
        with contextlib.closing(self.connect("postgres")) as connection:
            connection.cursor().execute(
                f"CREATE DATABASE {name} TEMPLATE {template}")
        database = Database(self, name)
        if schema and variables:
            database.apply_schema(**variables)
        return database

    def make_template(self):
        if self.has_template:
            return
        database = self.create_database(self.TEMPLATE, schema=False)
        database.apply_schema()
        self.has_template = True


class Database:
    """One database of a cluster: what a daemon writes to."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name

    def apply_schema(self, **variables):
        """schema.sql and roles.sql, with psql variables."""
        options = [part for name, value in variables.items()
                   for part in ("-v", f"{name}={value}")]
        for file in (SCHEMA, ROLES):
            self.psql(*options, "-f", file)

    def psql(self, *arguments):
        return self.cluster.psql(self.name, *arguments)

    def conninfo(self, user=DAEMON_ROLE):
        return self.cluster.conninfo(self.name, user)

    def connect(self):
        return self.cluster.connect(self.name)

    def query(self, sql, *arguments):
        """All rows of one statement, on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql, arguments or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql, *arguments):
        return self.query(sql, *arguments)[0][0]

    def backends(self, user=DAEMON_ROLE):
        """The pids of the server processes that a role's connections have."""
        return [pid for pid, in self.query(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = %s AND usename = %s", self.name, user)]

    def drop(self):
        self.cluster.psql("postgres", "-c",
                          f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
