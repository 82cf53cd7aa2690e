# SPDX-License-Identifier: MIT
"""PostgreSQL, started by the tests: clusters, their standbys, databases."""
import contextlib
import glob
import shutil
import signal
import subprocess

import psycopg2

from processes import (ROOT, Failed, Server, run, unprivileged_user, wait_for,
                       wrapped)

SCHEMA = ROOT / "sql" / "schema.sql"
ROLES = ROOT / "sql" / "roles.sql"
DAEMON_ROLE = "likesyncd"
SUPERUSER = "postgres"


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

    @contextlib.contextmanager
    def locked(self, table):
        """Nobody can write to the table meanwhile; it can be read."""
        with contextlib.closing(self.connect()) as rival:
            rival.autocommit = False
            rival.cursor().execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            yield
            rival.rollback()

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
