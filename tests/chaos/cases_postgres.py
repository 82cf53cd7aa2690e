# SPDX-License-Identifier: MIT
"""Cases of PostgreSQL: it dies, fails over, or takes nothing for a time. What
happens to a batch on its way is in cases_batches.py."""
import contextlib
import os
import signal
import time

import psycopg2

import bed  # noqa: F401
from case import case
from harness import wait_for
from judge import NONE
from pglog import LOGGED, Sign, refused
from proxy import Link
from record import Window
from servers import DAEMON_ROLE, SUPERUSER, Spread
from shims import Disk


def serve(run, n=30):
    """Degraded, not down: clients are served meanwhile."""
    run.load.wait_acked(n)


# ---- it dies ----

@case("pg_killed", "PostgreSQL crashes, for a short time and for a longer one",
      daemons=2)
def pg_killed(run):
    for _ in range(run.rounds(5)):
        run.load.wait_acked(run.random.randint(1, 300))
        run.fault("PostgreSQL crashes", repair=run.cluster.start)
        run.cluster.stop("immediate")
        run.wait(0.1, 0.8)
        run.mend()


def end_backend(run, how):
    """One of the daemons', while it waits for a lock in the middle of a batch."""
    with contextlib.closing(psycopg2.connect(run.pg.conninfo(SUPERUSER))) as session:
        session.cursor().execute("LOCK TABLE user_like_post, user_follow"
                                 " IN SHARE ROW EXCLUSIVE MODE")
        pid, = run.until(lambda: run.pg.query(
            "SELECT pid FROM pg_stat_activity WHERE usename = %s"
            " AND wait_event_type = 'Lock'", DAEMON_ROLE), "a batch to wait")[0]
        if how == "KILL":
            os.kill(pid, signal.SIGKILL)
        else:
            run.pg.query(f"SELECT pg_{how}_backend({pid})")


def end_all(run):
    run.pg.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                 " WHERE usename = %s", DAEMON_ROLE)


@case("pg_backends", "its processes are killed, ended, and what they do is cancelled",
      daemons=2, pg=LOGGED)
def pg_backends(run):
    signs = {"cancel": refused(run, "57014"), "terminate": refused(run, "57P01"),
             "KILL": Sign(run, "was terminated by signal 9")}
    for how in sorted(signs) * run.rounds(2):
        run.load.wait_acked(run.random.randint(1, 100))
        run.fault(f"a process of PostgreSQL: {how}")

        def seen():
            with contextlib.suppress(psycopg2.OperationalError):
                end_backend(run, how)
            return signs[how].count() > signs[how].before
        run.until(seen, f"{how} to be seen")
        signs[how].wait()


# With 0 for wal_writer_flush_after, PostgreSQL 17 wakes its WAL writer at each
# asynchronous commit.
ASYNC = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB",
         "bgwriter_lru_maxpages": "0", "autovacuum": "off"}


def is_lost_when_async(run):
    """The role's commits are lost in a crash, when nothing else comes behind."""
    for daemon in run.daemons:
        daemon.pause()
    with contextlib.closing(psycopg2.connect(run.pg.conninfo())) as session:
        with session, session.cursor() as cursor:
            cursor.execute("INSERT INTO probe SELECT 1")
    run.cluster.restart("immediate")
    for daemon in run.daemons:
        daemon.resume()
    return run.pg.value("SELECT count(*) FROM probe") == 0


@case("pg_async_role", "the role has synchronous_commit = off, and PostgreSQL crashes",
      daemons=2, pg=ASYNC)
def pg_async_role(run):
    run.pg.query(f"ALTER ROLE {DAEMON_ROLE} SET synchronous_commit = off")
    run.pg.query("CREATE TABLE probe (x integer)")
    run.pg.query(f"GRANT INSERT ON probe TO {DAEMON_ROLE}")
    run.fault("PostgreSQL crashes while nothing but a probe is written")
    run.until(lambda: is_lost_when_async(run), "an asynchronous commit to be lost")
    for _ in range(run.rounds(6)):
        run.load.wait_acked(run.random.randint(50, 300))
        run.fault("PostgreSQL crashes", repair=run.cluster.start)
        run.cluster.stop("immediate")
        run.mend()


# ---- it fails over ----

def with_standby(run, through=False):
    run.cluster = run.bed.postgres(**run.case.pg)
    database = run.cluster.create_database()
    if through:
        through = run.links["replication", 0] = \
            Link(run.bed, run.cluster, seed=run.seed)
    run.standby = run.cluster.standby(through=through)
    return Spread(database, run.standby, run.cluster)


def with_synchronous_standby(run):
    database = with_standby(run)
    run.cluster.psql("postgres", "-c", "ALTER SYSTEM SET"
                     " synchronous_standby_names = '*'",
                     "-c", "SELECT pg_reload_conf()")
    wait_for(lambda: database.query("SELECT sync_state FROM pg_stat_replication")
             == [("sync",)], what="the standby to be synchronous")
    return database


def fail_over(run):
    """Clients are answered while there is no primary. Returns a time: what was
    sent behind it was not in the old one."""
    run.cluster.stop("immediate")
    crashed = time.monotonic()
    serve(run)
    run.wait(0, 0.5)
    run.standby.promote()
    run.pg.moved(run.standby)
    run.use_pg(run.pg)
    return crashed


@case("pg_failover", "PostgreSQL fails over to its synchronous standby", daemons=2,
      postgres=with_synchronous_standby, answers=NONE)
def pg_failover(run):
    run.load.wait_acked(run.random.randint(200, 500))
    run.fault("PostgreSQL crashes, and its standby takes over")
    fail_over(run)
    run.load.wait_acked(200)
    wait_seen(run)


def with_late_standby(run):
    return with_standby(run, through=True)


def fall_behind(run):
    """Returns a time: what was acked before it, the standby has."""
    since = time.monotonic()
    for daemon in run.daemons:
        daemon.drain()
    run.cluster.wait_standby(run.standby)
    run.link("replication").mode("blackhole")
    return since


def wait_seen(run):
    """Every daemon has the generation that the failover began, of either kind."""
    for daemon in run.daemons:
        run.until(daemon.ready, f"{daemon.dir.name} to be ready")
    run.until(lambda: all(daemon.metrics()["likesyncd_generation"] == 1
                          for daemon in run.daemons),
              "the daemons to see that PostgreSQL has another history")
    seen = sum(daemon.metrics()["likesyncd_postgres_failovers_total"]
               for daemon in run.daemons)
    if not seen:
        run.fail("case", "no daemon says that PostgreSQL failed over")


class Relied(Window):
    """Answered 0: nothing was to be written, as the commit that is lost said."""

    def has(self, request):
        return request.answer == 0 and super().has(request)


@case("pg_failover_behind", "PostgreSQL fails over to a standby that is behind: what"
      " was acked before the crash may be lost, and a 0 until it is seen", daemons=2,
      postgres=with_late_standby, answers=NONE)
def pg_failover_behind(run):
    run.load.wait_acked(run.random.randint(200, 500))
    run.fault("the standby falls behind")
    since = fall_behind(run)
    run.load.wait_acked(run.random.randint(100, 300))
    run.link("replication").wait_fired()
    if run.random.random() < 0.5:
        daemon = run.random.choice(run.daemons)
        run.fault(f"{daemon.dir.name} is killed",
                  repair=lambda: daemon.start(wait=None))
        daemon.kill9()
    run.fault("PostgreSQL crashes, and its standby takes over")
    crashed = fail_over(run)
    run.mend()
    wait_seen(run)
    run.lossy(since, crashed)
    run.record.windows.append(Relied(since, time.monotonic()))
    run.load.wait_acked(200)


# ---- it takes nothing ----

@case("pg_read_only", "PostgreSQL is read-only: all of it, or for the role",
      daemons=2, pg=LOGGED)
def pg_read_only(run):
    sign = refused(run, "25006")
    setting = "default_transaction_read_only"

    def all_of_it(value):
        run.pg.query(f"ALTER SYSTEM SET {setting} = {value}")
        run.pg.query("SELECT pg_reload_conf()")

    def the_role(value):
        run.pg.query(f"ALTER ROLE {DAEMON_ROLE} SET {setting} = {value}")
        end_all(run)

    run.pg.query(f"ALTER ROLE {SUPERUSER} SET {setting} = off")
    for switch in (all_of_it, the_role) * run.rounds(1):
        run.load.wait_acked(run.random.randint(1, 200))
        run.fault(f"read-only: {switch.__name__}", repair=lambda: switch("off"))
        switch("on")
        sign.wait(2)
        serve(run)
        run.wait(0, 0.5)
        run.mend()


def with_disk(run):
    run.disk = Disk(run.bed)
    run.cluster = run.bed.postgres(preload=[run.disk], **run.case.pg)
    return run.cluster.create_database()


def has_no_space(run, before):
    """Also asks for a file that has to grow."""
    with contextlib.suppress(psycopg2.Error):
        run.pg.query("SELECT pg_switch_wal()")
    return run.disk.refused() > before


def free_disk(run):
    """A server without a place for its log dies, and cannot come up again; it
    may be about to, yet."""
    run.disk.free()

    def is_up():
        if not run.cluster.running():
            run.cluster.start()
        return run.cluster.answers()
    run.until(is_up, "PostgreSQL to be up")


@case("pg_disk_full", "its disk is full: that of the tables, that of the log",
      daemons=2, pg=LOGGED, postgres=with_disk)
def pg_disk_full(run):
    signs = {"base": refused(run, "53100"), "pg_wal": Sign(run, "PANIC")}
    for place in sorted(signs) * run.rounds(1):
        run.load.wait_acked(run.random.randint(1, 200))
        run.fault(f"no space in {place}", repair=lambda: free_disk(run))
        before = run.disk.refused()
        run.disk.fill(run.cluster.data / place)
        run.until(lambda: place == "base" or has_no_space(run, before),
                  "a write that finds no space")
        signs[place].wait()
        serve(run)
        run.mend()


class Hogs:
    """Connections of others, as many as there may be."""

    def __init__(self, run):
        self.run, self.sessions = run, []

    def take(self):
        """Whether all are taken, and the daemons have none."""
        end_all(self.run)
        with contextlib.suppress(psycopg2.OperationalError):
            while True:
                self.sessions.append(psycopg2.connect(
                    self.run.pg.conninfo("hog")))
        return not self.run.pg.backends()

    def leave(self):
        while self.sessions:
            self.sessions.pop().close()


@case("pg_connections", "there are too many connections: of all, and of the role",
      daemons=2, pg={"max_connections": "14"})
def pg_connections(run):
    hogs = Hogs(run)
    run.pg.query("CREATE ROLE hog LOGIN")

    def limit(n):
        run.pg.query(f"ALTER ROLE {DAEMON_ROLE} CONNECTION LIMIT {n}")
        end_all(run)

    def said(text):
        return sum(daemon.log_text().count(text) for daemon in run.daemons)

    for n in (None, 0, 1) * run.rounds(1):
        text = "connection slots" if n is None else "connections for role"
        run.load.wait_acked(run.random.randint(1, 200))
        before = said(text)
        if n is None:
            run.fault("no connection is left", repair=hogs.leave)
            run.until(hogs.take, "all connections to be taken")
        else:
            run.fault(f"the role may have {n}", repair=lambda: limit(-1))
            limit(n)
        run.until(lambda: said(text) > before, text)
        serve(run)
        run.wait(0, 0.5)
        run.mend()
