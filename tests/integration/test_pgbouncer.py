# SPDX-License-Identifier: MIT
"""PgBouncer in transaction mode between the daemons and PostgreSQL: it goes
away under load, or what is behind it does. See test_pgbouncer_all.py and
test_pgbouncer_crash.py for the tests of other files that run through it."""
import contextlib
import re

import psycopg2
import pytest

import harness
from edges import FOLLOWS, LIKES
from load import assuming, durable
from pgbouncer import bed, pg, pool
from servers import wait_for
from test_backends import HASTY, SMALL, Pinger

BOTH = pytest.mark.parametrize("edges", [LIKES, FOLLOWS],
                               ids=lambda edges: edges.name)
ONE = pytest.mark.parametrize("pool", [{"default_pool_size": 1}],
                              indirect=True, ids=["one"])
SETTINGS = ["synchronous_commit", "lock_timeout", "statement_timeout",
            "search_path", "transaction_isolation", "TimeZone"]


def logged(daemon, text):
    wait_for(lambda: re.search(text, daemon.log_text()),
             what=f"{text!r} in the log")


# ---- what goes away ----

def test_the_pooler_goes_away(bed, redis):
    """By each of its ends: likes are taken meanwhile, and every one of them
    is in the tables afterwards, once."""
    pg = bed.postgres().create_database()
    pool = pg.pool
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=61) as load, \
            Pinger(daemon) as pinger:
        for go, come in ((pool.stop, pool.start), (pool.kill9, pool.start),
                         (pool.pause, pool.resume)) * 2:
            load.wait_acked(100)
            go()
            wait_for(lambda: daemon.metrics()["likesyncd_postgres_up"] == 0,
                     what="the daemon to notice")
            load.wait_acked(200)
            pinger.wait_more()
            come()
            wait_for(daemon.ready, what="PostgreSQL to be reached again")
        load.wait_acked(100)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


@BOTH
def test_the_pooler_is_killed_again_and_again(bed, redis, pg, pool, edges):
    """In the middle of transactions: what is asked of a connection that is
    gone has an unknown outcome."""
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), \
            assuming(redis, daemon, seed=62, edges=edges) as load:
        for _ in range(15):
            load.wait_acked(40)
            pool.kill9()
            pool.start()
            wait_for(daemon.ready, what="PostgreSQL to be reached again")
        load.wait_acked(100)
    durable(daemon, load, redis, pg)


def test_console(bed, redis, pg, pool):
    """What an administrator does at work: clients wait, or are moved to new
    connections, and none of them is refused anything."""
    daemon = bed.daemon(redis, pg, **SMALL)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=63) as load:
        for _ in range(3):
            for command, undo in (("PAUSE", "RESUME"), ("RECONNECT", None),
                                  ("RELOAD", None),
                                  (f"DISABLE {pg.name}", f"ENABLE {pg.name}"),
                                  (f"KILL {pg.name}", f"RESUME {pg.name}")):
                load.wait_acked(100)
                pool.ask(command)
                load.wait_acked(100)
                if undo:
                    pool.ask(undo)
        load.wait_acked(100)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


def test_a_long_pause(bed, redis, pg, pool):
    """Longer than any deadline: the connection is given up and made anew; the
    rows that waited are written after it."""
    daemon = bed.daemon(redis, pg, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=64) as load:
        load.wait_acked(100)
        pool.ask("PAUSE")
        logged(daemon, "no answer within 400 ms")
        load.wait_acked(300)
        pool.ask("RESUME")
        wait_for(daemon.ready, what="PostgreSQL to be reached again")
        load.wait_acked(100)
    assert not load.refusals()
    durable(daemon, load, redis, pg)


# ---- what transactions share ----

def through(pool, pg, *statements):
    """The last one's rows, by the pooler's connection for daemons."""
    with contextlib.closing(psycopg2.connect(pg.conninfo())) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


@ONE
def test_one_server_connection_for_all(bed, redis, pg, pool):
    """Two daemons with four connections each, lookups beside batches."""
    options = {**SMALL, "postgres_connections": 4}
    daemons = [bed.daemon(redis, pg, **options) for _ in range(2)]
    with harness.I1Watcher(pg), assuming(redis, *daemons, seed=65) as load:
        for _ in range(10):
            load.wait_acked(50)
            assert len(pg.backends()) <= 1
    assert len(pool.ask("SHOW CLIENTS")) >= 8
    durable(daemons[0], load, redis, pg)


@ONE
def test_nothing_stays_in_the_session(bed, redis, pg, pool):
    """Whoever has the connection next finds it as the role has it."""
    query = "SELECT " + ", ".join(f"current_setting('{name}')"
                                  for name in SETTINGS)
    fresh = through(pool, pg, query)
    before = through(pool, pg, "SELECT pg_backend_pid()")
    daemon = bed.daemon(redis, pg, **SMALL)
    with assuming(redis, daemon, seed=66) as load:
        load.wait_acked(300)
    durable(daemon, load, redis, pg)
    assert through(pool, pg, "SELECT pg_backend_pid()") == before
    assert through(pool, pg, query) == fresh
    assert through(pool, pg, "SELECT count(*) FROM pg_prepared_statements") \
        == [(0,)]
    assert through(pool, pg, "SELECT count(*) FROM pg_locks"
                   " WHERE locktype = 'advisory'") == [(0,)]


@ONE
def test_what_others_left_in_the_session(bed, redis, pg, pool):
    """A client of the same role and pool sets what it likes, for good: the
    daemon's transactions say themselves what matters to them."""
    assert through(pool, pg, "SET synchronous_commit = off",
                   "SET lock_timeout = 1", "SET DateStyle = 'SQL, DMY'",
                   "SET TimeZone = 'Asia/Tokyo'", "SET bytea_output = escape",
                   "SHOW synchronous_commit") == [("off",)]
    daemon = bed.daemon(redis, pg, **SMALL)
    statements = ("SELECT current_setting('synchronous_commit'),"
                  " current_setting('lock_timeout')")
    pg.query("CREATE TABLE seen (a text, b text);"
             f"CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql"
             f" SECURITY DEFINER AS $$ BEGIN INSERT INTO seen {statements};"
             " RETURN NULL; END $$;"
             "CREATE TRIGGER see AFTER INSERT ON user_like_post"
             " EXECUTE FUNCTION see()")
    with assuming(redis, daemon, seed=67) as load:
        load.wait_acked(300)
    durable(daemon, load, redis, pg)
    assert pg.query("SELECT DISTINCT a, b FROM seen") == [("on", "5s")]


# ---- connecting ----

def test_options_are_refused(bed, redis, pg, pool):
    """The pooler does not take them; the log says so, in its words."""
    with_options = f"{pg.conninfo()} options='-c search_path=public'"
    daemon = bed.daemon(redis, pg, wait="answers",
                        postgres_conninfo=f'"{with_options}"')
    logged(daemon, "pg: cannot connect: .*unsupported startup parameter")
    daemon.write_config(postgres_conninfo=pg.conninfo())
    daemon.restart()


@pytest.mark.parametrize("pool", [
    {"password": "right", "auth_type": "scram-sha-256"}], indirect=True,
    ids=["scram"])
def test_password(bed, redis, pg):
    daemon = bed.daemon(redis, pg, wait="answers", postgres_conninfo=(
        f"{pg.conninfo()} password=wrong"))
    logged(daemon, "pg: (cannot connect|refused): .*authentication failed")
    assert "wrong" not in daemon.log_text()
    daemon.write_config(postgres_conninfo=f"{pg.conninfo()} password=right")
    daemon.restart()
    assert daemon.client().execute_command("LIKE", 7, 42) == 1
    daemon.drain()
    assert pg.value("SELECT count(*) FROM user_like_post") == 1


def test_a_database_that_the_pooler_does_not_reach(bed, redis, pg, pool):
    daemon = bed.daemon(redis, pg, wait="answers", postgres_conninfo=(
        pg.conninfo().replace(f"dbname={pg.name}", "dbname=nowhere")))
    logged(daemon, 'pg: .*database "nowhere" does not exist')
    assert daemon.client().execute_command("LIKE", 7, 42) == 1
    daemon.write_config(postgres_conninfo=pg.conninfo())
    daemon.term()
    daemon.start()
    daemon.drain()
    assert pg.value("SELECT count(*) FROM user_like_post") == 1


def test_read_only_behind_the_pooler(bed, redis):
    """With target_session_attrs it is not taken; without, it is given up at
    the first write. Either way nothing is lost."""
    cluster = bed.postgres()
    pg = cluster.create_database()
    attrs = f"{pg.conninfo()} target_session_attrs=read-write"
    picky = bed.daemon(redis, pg, postgres_conninfo=attrs)
    plain = bed.daemon(redis, pg)
    pg.query("ALTER SYSTEM SET default_transaction_read_only = on")
    cluster.restart()
    pg.pool.restart()
    assert picky.client().execute_command("LIKE", 7, 42) == 1
    assert plain.client().execute_command("LIKE", 8, 42) == 1
    logged(picky, "pg: cannot connect: .*session is read-only")
    logged(plain, "read-only transaction")
    with contextlib.closing(cluster.connect(pg.name)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET default_transaction_read_only = off")
        cursor.execute("ALTER SYSTEM RESET default_transaction_read_only")
    cluster.restart()
    pg.pool.ask("RECONNECT")
    for daemon in (picky, plain):
        wait_for(daemon.ready, what="a server that may be written to")
        daemon.drain()
    assert pg.value("SELECT count(*) FROM user_like_post") == 2
