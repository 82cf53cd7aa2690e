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
import socket
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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

    def __init__(self, bed, kind, preload=()):
        """`preload`: libraries that change what the process sees (shims.py of
        the campaign); each start of it has them."""
        self.bed = bed
        self.preload = tuple(preload)
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
                env={**inherited, **(env or {}), **self.preload_env()},
                pass_fds=pass_fds, start_new_session=True)

    def preload_env(self):
        if not self.preload:
            return {}
        env = {"LD_PRELOAD": ":".join(str(shim.library)
                                      for shim in self.preload)}
        for shim in self.preload:
            env.update(shim.env())
        return env

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
        for shim in self.preload:
            # For the loader that is only a line in the log.
            if not shim.loaded():
                raise Failed(f"{self.dir.name} runs without {shim.library}")

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

    def __init__(self, bed, preload=(), primary=None, **settings):
        """`primary`: the TCP port of the one that it is a replica of."""
        super().__init__(bed, "redis", preload)
        self.settings = {**self.DEFAULTS, **settings}
        self.primary = primary
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
        if self.primary:
            command += ["--replicaof", "127.0.0.1", self.primary]
        self.spawn(command)
        self.wait_up(self.answers)

    def answers(self):
        with contextlib.suppress(redis_py.RedisError):
            with contextlib.closing(self.client(timeout=5)) as client:
                return client.ping()
        return False

    def stop(self):
        """Asks again: it refuses while it writes its first AOF, as it does
        after it has become a replica."""
        for _ in range(10):
            if not self.running():
                return
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        super().stop()

    def restart(self):
        """Stops it as Debian would (what is in the AOF is written), starts it
        again: scripts and connections are gone, data is there."""
        self.stop()
        self.start()

    def client(self, timeout=30.0, decode=True):
        return resp_client(self.socket, timeout, decode)

    def ask(self, *command):
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def tcp_address(self):
        """Where it listens on TCP, from the first time that this is asked:
        replication knows nothing else."""
        if "port" not in self.settings:
            port = free_port()
            self.ask("CONFIG", "SET", "port", port)
            self.settings["port"] = port
        return f"tcp:127.0.0.1:{self.settings['port']}"

    def replica(self, through=None, preload=(), **settings):
        """A replica of it, with the same settings unless told otherwise, that
        has all its data; `through`: a link to tcp_address()."""
        own = self.tcp_address()
        port = through.port if through else int(own.rpartition(":")[2])
        # Else it waits for more replicas before it sends anything, for five
        # seconds, and when it ends for those that are behind, for ten.
        for name in ("repl-diskless-sync-delay", "shutdown-timeout"):
            self.ask("CONFIG", "SET", name, 0)
            self.settings[name] = 0
        settings = {**self.settings, "port": free_port(), **settings}
        replica = Redis(self.bed, preload, port, **settings)
        self.wait_replica(replica)
        return replica

    def wait_replica(self, replica, timeout=30.0):
        """Until a replica has all that this one has by now."""
        offset = self.ask("INFO", "replication")["master_repl_offset"]

        def has_it():
            info = replica.ask("INFO", "replication")
            return info.get("master_link_status") == "up" and \
                info["slave_repl_offset"] >= offset
        wait_for(has_it, timeout, f"{replica.dir.name} to follow")

    def promote(self):
        """A replica becomes a primary, with what it has."""
        self.primary = None
        self.ask("REPLICAOF", "NO", "ONE")

    def follow(self, primary, through=None):
        """It becomes a replica of another, and drops what that one lacks."""
        address = primary.tcp_address()
        self.primary = through.port if through \
            else int(address.rpartition(":")[2])
        self.ask("REPLICAOF", "127.0.0.1", self.primary)


class Postgres(Server):
    """A PostgreSQL cluster on a unix socket; without TCP, unless settings say
    otherwise."""

    stop_signal = signal.SIGINT
    # Ends at once and leaves no shared memory, unlike KILL.
    death_signal = "QUIT"
    STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT,
                    "immediate": signal.SIGQUIT}
    TEMPLATE = "likesync_template"

    def __init__(self, bed, template=None, preload=(), **settings):
        """`template`: a data directory to copy, instead of initdb. Settings
        are those of postgresql.conf."""
        super().__init__(bed, "pg", preload)
        self.user = unprivileged_user()
        self.port = settings.get("port", 5432)
        self.data = self.dir / "data"
        self.databases = 0
        self.has_template = False
        self.address = f"unix:{self.dir}/.s.PGSQL.{self.port}"
        if self.user:
            shutil.chown(self.dir, self.user)
        self.fill(template)
        self.configure(settings)
        self.start()

    def fill(self, template):
        if template is None:
            initdb(self.data, self.user)
        else:
            run(["cp", "-a", template, self.data])

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

    def standby(self, through=None, preload=(), **settings):
        return Standby(self, through, preload, **settings)

    def wait_standby(self, standby, timeout=30.0):
        """Until a standby has replayed all that this one has by now."""
        with contextlib.closing(self.connect("postgres")) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT pg_current_wal_lsn()")
            lsn = cursor.fetchone()[0]
        wait_for(lambda: standby.ask("SELECT pg_last_wal_replay_lsn()"
                                     f" >= '{lsn}'"),
                 timeout, f"{standby.dir.name} to follow")

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


class Standby(Postgres):
    """A streaming standby, and after promote() a primary: it has the primary's
    databases and settings."""

    def __init__(self, primary, through=None, preload=(), **settings):
        """`through`: a link to the primary, for replication only."""
        self.source = primary
        info = (through or primary).conninfo("postgres", SUPERUSER)
        super().__init__(primary.bed, preload=preload,
                         **{"port": primary.port, **settings,
                            "primary_conninfo": info.replace("'", "''")})
        primary.wait_standby(self)

    def fill(self, template):
        run(wrapped([pg_bin("pg_basebackup"), "-D", self.data, "-h",
                     self.source.dir, "-p", self.source.port, "-U", SUPERUSER,
                     "-c", "fast", "--no-sync"], self.user), cwd=self.dir)
        (self.data / "standby.signal").touch()

    def ask(self, sql):
        with contextlib.closing(self.connect("postgres")) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return cursor.fetchone()[0]

    def promote(self):
        """With what it has received."""
        if not self.ask("SELECT pg_promote(true, 60)"):
            raise Failed(f"{self.dir.name} was not promoted")

    def pause_replay(self):
        """What it receives is not to be seen yet; a promotion replays it."""
        self.ask("SELECT pg_wal_replay_pause()")

    def resume_replay(self):
        self.ask("SELECT pg_wal_replay_resume()")


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


class Spread(Database):
    """A database whose daemons know several clusters, and take the one that can
    be written to; what the test asks goes to `cluster`, which moves on with
    moved()."""

    def __init__(self, database, *clusters):
        super().__init__(database.cluster, database.name)
        self.clusters = clusters

    def conninfo(self, user=DAEMON_ROLE):
        if user != DAEMON_ROLE:
            return super().conninfo(user)
        hosts = ",".join(str(cluster.dir) for cluster in self.clusters)
        ports = ",".join(str(cluster.port) for cluster in self.clusters)
        return (f"host={hosts} port={ports} dbname={self.name} user={user}"
                " target_session_attrs=read-write")

    def moved(self, cluster):
        self.cluster = cluster
