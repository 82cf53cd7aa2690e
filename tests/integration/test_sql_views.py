# SPDX-License-Identifier: MIT
"""sql/views.sql: what DBAs look at, and dead letters that are applied after all,
whatever type ids have."""
import contextlib
import uuid

import psycopg2
import pytest

import harness
from servers import ROOT

VIEWS = ROOT / "sql" / "views.sql"
TYPES = ["bigint", "uuid", "text"]
DRIFTS = ("like_count_drift", "follow_count_drift")


def make_id(kind, n):
    return {"bigint": str(n), "uuid": str(uuid.UUID(int=n)),
            "text": f"né:{n}_%"}[kind]


@pytest.fixture
def db(pg):
    pg.psql("-f", VIEWS)
    return pg


@pytest.fixture(params=TYPES)
def typed(request, bed, redis, cluster):
    """A daemon with ids of one type, its database, and what makes an id."""
    kind = request.param
    database = cluster.create_database(
        variables={"user_id_type": kind, "post_id_type": kind})
    bed.databases.append(database)
    database.psql("-f", VIEWS)
    daemon = bed.daemon(redis, database, ids_user=kind, ids_post=kind)
    return daemon, database, lambda n: make_id(kind, n)


def refuse(db, table, condition):
    db.query(f"ALTER TABLE {table} ADD CONSTRAINT refuses CHECK ({condition})"
             " NOT VALID")


def allow(db, table):
    db.query(f"ALTER TABLE {table} DROP CONSTRAINT refuses")


def letters(db):
    return [number for number, in db.query(
        "SELECT id FROM sync_dead_letter ORDER BY id")]


def retry(db, number):
    return db.value("SELECT retry_dead_letter(%s)", number)


def state(db):
    """All that a retry may change, but the letters."""
    return [db.query(f"SELECT * FROM {table} ORDER BY 1, 2") for table in
            ("user_like_post", "post_like", "user_follow", "user_follow_count",
             "sync_batch")]


def check_exact(db):
    harness.check_exact(db)
    for view in DRIFTS:
        assert db.query(f"SELECT * FROM {view}") == []


def test_applies_again_and_by_itself(db):
    db.psql("-f", VIEWS)
    db.psql("-v", "read_role=nobody_here", "-v", "daemon_role=nobody_there",
            "-f", VIEWS)


def test_read_role(db):
    def may(what, right):
        return db.value(f"SELECT has_{what}_privilege('likesync_read', %s, %s)",
                        *right)
    for view in (*DRIFTS, "flush_lag", "dead_letters"):
        assert may("table", (view, "SELECT"))
        assert not may("table", (view, "UPDATE"))
    for function in ("retry_dead_letter(bigint)",
                     "apply_dead_edge(sync_dead_letter)",
                     "apply_dead_delta(sync_dead_letter)"):
        assert not may("function", (function, "EXECUTE"))


def test_daemon_role(db):
    """It may do what likesyncctl deadletter asks for, and no more than that."""
    def may(what, right):
        return db.value(f"SELECT has_{what}_privilege('likesyncd', %s, %s)", *right)
    for function in ("retry_dead_letter(bigint)",
                     "apply_dead_edge(sync_dead_letter)",
                     "apply_dead_delta(sync_dead_letter)"):
        assert may("function", (function, "EXECUTE"))
    assert may("table", ("sync_dead_letter", "DELETE"))
    for view in (*DRIFTS, "flush_lag", "dead_letters"):
        assert not may("table", (view, "SELECT"))


def test_like_drift(db):
    db.query("INSERT INTO post_like VALUES (1, 3, 1, now()), (2, 1, 0, now())")
    db.query("INSERT INTO user_like_post SELECT p, u, 1, 0, now(), now()"
             " FROM (VALUES (1, 10), (1, 11), (3, 10)) AS v(p, u)")
    assert db.query("SELECT * FROM like_count_drift ORDER BY post_id") == [
        (2, 1, 0, 0, 1), (3, 0, 0, 1, -1)]


def test_follow_drift(db):
    db.query("INSERT INTO user_follow_count VALUES (1, 1, 0, now()),"
             " (2, 0, 1, now()), (4, 2, 0, now())")
    db.query("INSERT INTO user_follow SELECT u, f, 1, 0, now(), now()"
             " FROM (VALUES (1, 2), (1, 3)) AS v(u, f)")
    assert db.query("SELECT * FROM follow_count_drift ORDER BY user_id") == [
        (1, 1, 2, 0, 0), (3, 0, 0, 0, 1), (4, 2, 0, 0, 0)]


def test_flush_lag(db, daemon):
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
    daemon.drain()
    with contextlib.closing(daemon.admin()) as admin:
        flat = admin.execute_command("FLUSHER", "STATUS")
    mine = dict(zip(flat[::2], flat[1::2]))["instance"]
    rows = {row[0]: row[1:] for row in db.query(
        "SELECT kind, age < '1 minute', floor <= now() + '1 second',"
        " updated_at > now() - interval '1 minute', written_by, n_rows"
        " FROM flush_lag")}
    assert rows["like"] == (True, True, True, mine, 1)
    assert rows["follow"][3:] == (None, None)
    batch = db.value("SELECT last_batch FROM flush_lag WHERE kind = 'like'")
    assert db.value("SELECT count(*) FROM sync_batch WHERE batch_id = %s",
                    batch) == 1


def test_letters_in_words(db):
    db.query("INSERT INTO sync_dead_letter (kind, batch_id, owner_id, member_id,"
             " status, delta, ctime, mtime, sqlstate, reason, refused_at) VALUES"
             " ('like', 'a', '42', '7', 1, NULL, now(), now(), '23514', 'no',"
             "  now() - interval '1 hour'),"
             " ('like', 'b', '42', '7', 0, NULL, now(), now(), '23514', 'no', now()),"
             " ('like', 'c', '42', NULL, NULL, -3, NULL, NULL, '22003', 'no', now()),"
             " ('like', 'd', '42', '7', NULL, NULL, NULL, NULL, NULL, 'no', now()),"
             " ('follow', 'e', '7', '8', 1, NULL, now(), now(), '23514', 'no', now()),"
             " ('follow', 'f', '7', '8', 0, NULL, now(), now(), '23514', 'no', now())")
    assert db.query("SELECT kind, verb, user_id, post_id, followee_id"
                    " FROM dead_letters ORDER BY id") == [
        ("like", "LIKE", "7", "42", None), ("like", "UNLIKE", "7", "42", None),
        ("like", "COUNT -3", None, "42", None),
        ("like", "MALFORMED", "7", "42", None),
        ("follow", "FOLLOW", "7", None, "8"),
        ("follow", "UNFOLLOW", "7", None, "8")]
    assert db.value("SELECT age BETWEEN '59 minutes' AND '61 minutes'"
                    " FROM dead_letters WHERE verb = 'LIKE'")


def test_retry_like(typed):
    daemon, db, made = typed
    with daemon.client() as client:
        client.execute_command("LIKE", made(1), made(42))
        daemon.drain()
        refuse(db, "user_like_post", "false")
        client.execute_command("LIKE", made(2), made(42))
        client.execute_command("UNLIKE", made(1), made(42))
        daemon.drain()
    like, unlike = sorted(letters(db), key=lambda n: -db.value(
        "SELECT status FROM sync_dead_letter WHERE id = %s", n))
    before = state(db)
    with pytest.raises(psycopg2.errors.CheckViolation,
                       match=f"dead letter {like} .* still refused"):
        retry(db, like)
    assert state(db) == before and len(letters(db)) == 2
    allow(db, "user_like_post")
    assert retry(db, like) == f"applied: like {made(42)} {made(2)}"
    assert letters(db) == [unlike]
    check_exact(db)
    assert db.value("SELECT like_count FROM post_like") == 2
    retry(db, unlike)
    check_exact(db)
    assert db.query("SELECT post_id::text, user_id::text, status, prev_status"
                    " FROM user_like_post ORDER BY user_id::text") == [
        (made(42), made(1), 0, 1), (made(42), made(2), 1, 0)]
    after = state(db)
    assert "no such letter" in retry(db, like)
    assert state(db) == after


def test_retry_follow(typed):
    daemon, db, made = typed
    with daemon.client() as client:
        client.execute_command("FOLLOW", made(1), made(2))
        daemon.drain()
        refuse(db, "user_follow", "false")
        client.execute_command("UNFOLLOW", made(1), made(2))
        client.execute_command("FOLLOW", made(2), made(3))
        daemon.drain()
    allow(db, "user_follow")
    times = db.query("SELECT ctime, mtime FROM sync_dead_letter WHERE status = 1")
    for number in letters(db):
        assert retry(db, number).startswith("applied: follow ")
        check_exact(db)
    assert letters(db) == []
    assert db.query("SELECT user_id::text, followee_id::text, status"
                    " FROM user_follow ORDER BY status") == [
        (made(1), made(2), 0), (made(2), made(3), 1)]
    assert db.query("SELECT ctime, mtime FROM user_follow"
                    " WHERE status = 1") == times
    assert db.query("SELECT user_id::text, following_count, follower_count"
                    " FROM user_follow_count"
                    " WHERE following_count + follower_count > 0"
                    " ORDER BY follower_count") == [
        (made(2), 1, 0), (made(3), 0, 1)]


def test_retry_delta(typed, redis):
    daemon, db, made = typed
    key = made(42).replace("%", "%25").replace("_", "%5F").replace(":", "%3A")
    keys = redis.client()
    refuse(db, "post_like", "unattributed = 0")
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
        keys.incrby(f"post_{key}_counter", 5)
        keys.sadd("post_set", key)
        admin.execute_command("FLUSHER", "RESUME")
    daemon.drain()
    [number] = letters(db)
    with pytest.raises(psycopg2.errors.CheckViolation):
        retry(db, number)
    allow(db, "post_like")
    assert retry(db, number) == f"applied: like {made(42)} +5"
    assert db.query("SELECT post_id::text, like_count, unattributed"
                    " FROM post_like") == [(made(42), 5, 5)]
    check_exact(db)
    # Its ledger entry is the daemon's: a batch that is written again adds nothing.
    assert db.value("SELECT count(*) FROM sync_batch WHERE instance ="
                    " 'retry_dead_letter' AND batch_id LIKE %s",
                    "%:" + made(42)) == 1


def letter(db, **fields):
    fields = {"kind": "like", "batch_id": "b", "owner_id": "42",
              "member_id": "7", "status": 1, "ctime": "2024-01-01",
              "mtime": "2024-01-01", "sqlstate": "23514", "reason": "no",
              **fields}
    return db.value(
        f"INSERT INTO sync_dead_letter ({', '.join(fields)}) VALUES"
        f" ({', '.join(['%s'] * len(fields))}) RETURNING id", *fields.values())


def test_retry_older_than_the_row(db):
    """Meanwhile the user took it back: the letter goes, and changes nothing."""
    db.query("INSERT INTO user_like_post VALUES (42, 7, 0, 1, '2024-01-01',"
             " '2024-02-01')")
    before = state(db)
    retry(db, letter(db))
    assert state(db) == before and letters(db) == []


def test_retry_delta_once(db):
    """The daemon wrote the batch again before, once the cause was mended."""
    db.query("INSERT INTO sync_batch VALUES ('b:42', 'x', 'like', 0, now())")
    db.query("INSERT INTO post_like VALUES (42, 5, 5, now())")
    before = state(db)
    retry(db, letter(db, member_id=None, status=None, ctime=None, mtime=None,
                     delta=5))
    assert state(db) == before and letters(db) == []


@pytest.mark.parametrize("fields, why", [
    ({"owner_id": "x42"}, "invalid input syntax for type bigint"),
    ({"sqlstate": None, "reason": "the hash or an id in Redis is malformed"},
     "malformed"),
    ({"status": 2}, "check constraint"),
    ({"status": None}, "no member_id, status, ctime or mtime"),
    ({"member_id": None}, "no member_id, status, ctime or mtime"),
    ({"kind": "bookmark"}, "bookmark is unknown"),
    ({"kind": "follow", "status": None, "member_id": None, "delta": 3},
     "no member_id, status, ctime or mtime"),
])
def test_what_cannot_be_applied(db, fields, why):
    number = letter(db, **fields)
    before = state(db)
    with pytest.raises(psycopg2.Error, match=why):
        retry(db, number)
    assert state(db) == before and letters(db) == [number]


def test_left_out_without_an_error(db):
    db.query("CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS"
             " 'BEGIN RETURN NULL; END'")
    db.query("CREATE TRIGGER t BEFORE INSERT ON user_like_post FOR EACH ROW"
             " EXECUTE FUNCTION leave_out()")
    number = letter(db, sqlstate=None, reason="the table left it out")
    with pytest.raises(psycopg2.Error, match="left it out"):
        retry(db, number)
    db.query("DROP TRIGGER t ON user_like_post")
    retry(db, number)
    assert letters(db) == []
    check_exact(db)


def test_two_at_once(db):
    """Whoever comes second waits, and finds it applied."""
    number = letter(db)
    with contextlib.closing(db.connect()) as first, \
            contextlib.closing(db.connect()) as second:
        first.autocommit = False
        one, two = first.cursor(), second.cursor()
        one.execute("SELECT retry_dead_letter(%s)", (number,))
        two.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg2.errors.QueryCanceled):
            two.execute("SELECT retry_dead_letter(%s)", (number,))
        first.commit()
        two.execute("SELECT retry_dead_letter(%s)", (number,))
        assert "no such letter" in two.fetchone()[0]
    assert db.value("SELECT like_count FROM post_like") == 1
    check_exact(db)
