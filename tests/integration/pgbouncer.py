# SPDX-License-Identifier: MIT
"""A PgBouncer between the daemons and a PostgreSQL of the tests.

    pool = PgBouncer(bed, cluster)
    daemon = bed.daemon(redis, pool.database(pg))

What pool.database() returns is the same database, which daemons reach through
the pooler; whatever the test itself asks of it goes straight to PostgreSQL."""
import contextlib

import psycopg2
import pytest

from servers import DAEMON_ROLE, Database, Server, unprivileged_user

PORT = 6432
ADMIN = "pooler"


class PgBouncer(Server):
    """Transaction mode, on a unix socket. Settings are those of its section
    [pgbouncer]."""

    # Fewer connections than two daemons have, so that they share them.
    DEFAULTS = {"pool_mode": "transaction", "default_pool_size": 3,
                # Of a PostgreSQL that is away, clients hear soon.
                "server_login_retry": 0.2, "auth_type": "trust"}

    def __init__(self, bed, cluster, password="", **settings):
        super().__init__(bed, "pgbouncer")
        # It refuses to run as root.
        self.user = unprivileged_user()
        self.config = self.dir / "pgbouncer.ini"
        users = self.dir / "users"
        users.write_text(f'"{DAEMON_ROLE}" "{password}"\n'
                         f'"{ADMIN}" "{ADMIN}"\n')
        settings = {"listen_addr": "", "listen_port": PORT,
                    "unix_socket_dir": self.dir, "auth_file": users,
                    "admin_users": ADMIN, **self.DEFAULTS, **settings}
        self.config.write_text("\n".join(
            ["[databases]", f"* = host={cluster.dir}", "[pgbouncer]"]
            + [f"{name} = {value}" for name, value in settings.items()]) + "\n")
        # For its socket.
        self.dir.chmod(0o777)
        self.start()

    def start(self):
        # Not what a killed predecessor left: it refuses to start then.
        (self.dir / f".s.PGSQL.{PORT}").unlink(missing_ok=True)
        self.spawn(["pgbouncer", self.config], user=self.user)
        self.wait_up(self.answers)

    def answers(self):
        with contextlib.suppress(psycopg2.OperationalError):
            return self.ask("SHOW VERSION")
        return False

    def ask(self, command):
        """All rows of a command of its console."""
        with contextlib.closing(psycopg2.connect(
                host=str(self.dir), port=PORT, user=ADMIN,
                password=ADMIN, dbname="pgbouncer", connect_timeout=10)) as console:
            console.autocommit = True
            cursor = console.cursor()
            cursor.execute(command)
            return cursor.fetchall() if cursor.description else []

    def transactions(self):
        """How many it has passed on since its start."""
        return sum(row[1] for row in self.ask("SHOW STATS_TOTALS")
                   if row[0] != "pgbouncer")

    def restart(self):
        self.stop()
        self.start()

    def database(self, database):
        return Pooled(database, self)


class Pooled(Database):
    """A database whose daemons go through a pooler."""

    def __init__(self, database, pool):
        super().__init__(database.cluster, database.name)
        self.pool = pool

    def conninfo(self, user=DAEMON_ROLE):
        if user != DAEMON_ROLE:
            return super().conninfo(user)
        return f"host={self.pool.dir} port={PORT} dbname={self.name} user={user}"


def pooled(cluster, pool):
    """All databases that the cluster makes are reached through the pool."""
    create = cluster.create_database
    cluster.pool = pool
    cluster.create_database = lambda *arguments, **options: \
        pool.database(create(*arguments, **options))
    return cluster


@pytest.fixture
def bed(bed):
    """Each cluster that it makes has a pooler of its own in front."""
    make = bed.postgres

    def postgres(**settings):
        cluster = make(**settings)
        return pooled(cluster, PgBouncer(bed, cluster))
    bed.postgres = postgres
    yield bed
    for pool in [s for s in bed.servers if isinstance(s, PgBouncer)]:
        assert pool.transactions() > 0, "nothing went through it"


@pytest.fixture
def pool(bed, cluster, request):
    """In front of the session's cluster; its settings may be the test's
    (indirect) parameter."""
    return PgBouncer(bed, cluster, **getattr(request, "param", {}))


@pytest.fixture
def pg(pg, pool):
    return pool.database(pg)
