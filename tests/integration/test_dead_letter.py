# SPDX-License-Identifier: MIT
"""Rows that PostgreSQL refuses: they, and only they, go to the dead letters;
all others are written, and all counts stay right."""
import contextlib
import re

import pytest
import redis as redis_py

import harness
from edges import FOLLOWS, LIKES, check_clean, check_counts, staying
from servers import ROOT, wait_for
from wire import Wire, encode

ROWS = 1200          # in one batch, several claims
CHECK = "test_refuses"


def flusher(daemon, word):
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", word)


class Case:
    """Likes that wait in Redis until the table refuses some of them."""

    def __init__(self, bed, redis, pg):
        self.redis, self.pg = redis, pg
        self.daemon = bed.daemon(redis, pg, flush_batch_rows=5000,
                                 flush_claim_rows=500)
        self.keys = redis.client()
        self.client = self.daemon.client()
        self.flusher("PAUSE")

    def flusher(self, word):
        flusher(self.daemon, word)

    def flush(self):
        self.flusher("RESUME")
        self.daemon.drain(60)

    def send(self, verb, pairs):
        """(user, post) pairs in one pipeline; all must change something."""
        with Wire(self.daemon.socket) as wire:
            wire.send(b"".join(encode(verb, *pair) for pair in pairs))
            assert {wire.read() for _ in pairs} == {b":1\r\n"}

    def refuse(self, condition, table="user_like_post"):
        self.pg.query(f"ALTER TABLE {table} ADD CONSTRAINT {CHECK}"
                      f" CHECK ({condition}) NOT VALID")

    def allow(self, table="user_like_post"):
        self.pg.query(f"ALTER TABLE {table} DROP CONSTRAINT {CHECK}")

    def letters(self):
        return self.pg.query(
            "SELECT owner_id::bigint, member_id::bigint, status, delta,"
            " sqlstate FROM sync_dead_letter ORDER BY 1, 2")

    def liked(self):
        return set(self.pg.query("SELECT user_id, post_id FROM user_like_post"
                                 " WHERE status = 1"))

    def check(self, liked, posts):
        """Rows, counts in the tables and of the command, and nothing left."""
        assert self.liked() == set(liked)
        totals = [sum(post == p for _, p in liked) for post in posts]
        assert self.client.execute_command("LIKECOUNT", *posts) == totals
        harness.check_exact(self.pg)
        assert self.pg.value(
            "SELECT coalesce(sum(unattributed), 0) FROM post_like") == 0
        assert staying(self.keys) == harness.STATE_KEYS
        check_counts(self.keys, self.pg)


@pytest.fixture
def case(bed, redis, pg):
    return Case(bed, redis, pg)


def batch_of(posts):
    return [(user, posts[user % len(posts)]) for user in range(ROWS)]


@pytest.mark.parametrize("posts", [[42], [42, 43, 44, 45, 46]],
                         ids=["one-post", "five-posts"])
@pytest.mark.parametrize("bad", [
    [0], [ROWS // 2], [ROWS - 1], [0, 1, 499, 500, 777, ROWS - 1],
    list(range(0, ROWS, 100))],
    ids=["first", "middle", "last", "several", "every-100th"])
def test_refused_rows_of_a_big_batch(case, posts, bad):
    pairs = batch_of(posts)
    case.send("LIKE", pairs)
    case.refuse(f"user_id NOT IN ({','.join(map(str, bad))})")
    with harness.I1Watcher(case.pg):
        case.flush()
    assert case.letters() == sorted(
        (post, user, 1, None, "23514") for user, post in pairs if user in bad)
    assert case.pg.value("SELECT count(*) FROM sync_dead_letter"
                         " WHERE reason NOT LIKE '%%test_refuses%%'"
                         " OR kind <> 'like' OR batch_id = ''") == 0
    good = [pair for pair in pairs if pair[0] not in bad]
    case.check(good, posts)
    metrics = case.daemon.metrics()
    assert metrics["likesyncd_dead_letters_total"] == len(bad)
    # What was refused is not believed any more.
    user = bad[0]
    post = dict(pairs)[user]
    assert case.client.execute_command("LIKED", user, post) == [0]
    # A later event of the pair works once nothing refuses it.
    case.allow()
    assert case.client.execute_command("LIKE", user, post) == 1
    case.daemon.drain()
    case.check(good + [(user, post)], posts)
    assert len(case.letters()) == len(bad)


def test_those_that_there_are_are_shown(case):
    """Also by a daemon that has refused none of them, and not when they went."""
    def shown():
        return case.daemon.metrics()["likesyncd_dead_letters"]

    case.send("LIKE", [(7, 42), (8, 42), (9, 42)])
    case.refuse("user_id = 9")
    case.flush()
    wait_for(lambda: shown() == 2, 60, "the metric")
    case.daemon.restart()
    wait_for(lambda: shown() == 2, 60, "the metric after a restart")
    assert case.daemon.metrics()["likesyncd_dead_letters_total"] == 0
    case.pg.query("DELETE FROM sync_dead_letter WHERE member_id = '7'")
    wait_for(lambda: shown() == 1, 60, "one to be gone")


def test_all_rows_of_one_post(case):
    """In a batch with others, in the middle of them."""
    posts = [10, 20, 30]
    pairs = batch_of(posts)
    case.send("LIKE", pairs)
    case.refuse("post_id <> 20")
    case.flush()
    assert case.letters() == sorted((post, user, 1, None, "23514")
                                    for user, post in pairs if post == 20)
    case.check([pair for pair in pairs if pair[1] != 20], posts)
    assert case.pg.value(
        "SELECT count(*) FROM post_like WHERE post_id = 20") == 0


def test_a_check_on_the_counts(case):
    """No more than 3 likes of a post: the rows up to it fit, those beyond do
    not, and the count is that of the rows."""
    posts = [1, 2]
    pairs = [(user, 1) for user in range(8)] + [(user, 2) for user in (1, 2)]
    case.send("LIKE", pairs)
    case.refuse("like_count <= 3", table="post_like")
    case.flush()
    found = case.letters()
    assert len(found) == 5
    assert {letter[0] for letter in found} == {1}
    refused = {(letter[1], 1) for letter in found}
    case.check(set(pairs) - refused, posts)
    assert case.client.execute_command("LIKECOUNT", 1) == [3]
    case.allow("post_like")
    case.send("LIKE", sorted(refused))
    case.daemon.drain()
    case.check(pairs, posts)


def test_a_refused_unlike(case):
    """The row stays liked, and so do the counts and what is answered."""
    pairs = [(user, 42) for user in range(10)]
    case.send("LIKE", pairs)
    case.flush()
    case.flusher("PAUSE")
    case.send("UNLIKE", [(3, 42), (4, 42)])
    case.refuse("NOT (user_id = 3 AND status = 0)")
    case.flush()
    assert case.letters() == [(42, 3, 0, None, "23514")]
    good = [pair for pair in pairs if pair[0] != 4]
    case.check(good, [42])
    assert case.client.execute_command("LIKED", 3, 42) == [1]
    case.allow()
    assert case.client.execute_command("UNLIKE", 3, 42) == 1
    case.daemon.drain()
    case.check([pair for pair in good if pair[0] != 3], [42])


def test_refused_follows(bed, redis, pg):
    """Their lists are again what the table holds, also one that the event had
    left empty."""
    daemon = bed.daemon(redis, pg)
    ask = daemon.client().execute_command
    for pair in ((1, 2), (3, 4), (3, 5)):
        assert ask("FOLLOW", *pair) == 1
    daemon.drain()

    def check():
        assert [ask("FOLLOWING", user) for user in (1, 3)] == [["2"],
                                                              ["5", "4"]]
        assert [ask("FOLLOWERS", user) for user in (2, 4, 5, 9)] == \
            [["1"], ["3"], ["3"], []]
        assert ask("FOLLOWCOUNT", 1, 2, 3, 9) == [[1, 0], [0, 1], [2, 0],
                                                  [0, 0]]
        assert ask("RELATION", 1, 2, 9) == [1, 0]
        harness.check_exact(pg)

    check()
    pg.query(f"ALTER TABLE user_follow ADD CONSTRAINT {CHECK}"
             " CHECK (status = 1 AND followee_id <> 9) NOT VALID")
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
        assert ask("UNFOLLOW", 1, 2) == 1
        assert ask("FOLLOWING", 1) == ask("FOLLOWERS", 2) == []   # whole
        assert ask("UNFOLLOW", 3, 4) == ask("FOLLOW", 3, 9) == 1
        admin.execute_command("FLUSHER", "RESUME")
    daemon.drain()
    check()
    assert pg.query("SELECT kind, owner_id, member_id, status, sqlstate"
                    " FROM sync_dead_letter ORDER BY 2, 3") == [
        ("follow", "1", "2", 0, "23514"), ("follow", "3", "4", 0, "23514"),
        ("follow", "3", "9", 1, "23514")]
    assert not redis.client().keys("likesync:unsynced:*")


def test_follows_of_others_that_are_none(bed, redis, pg):
    """No id, and no state: they do not count as unsynced for ever, which would
    keep the lists beside them."""
    daemon = bed.daemon(redis, pg)
    keys = redis.client()
    assert daemon.client().execute_command("FOLLOW", 1, 8) == 1
    daemon.drain()
    keys.hset("user_follow_1_abc", mapping={"status": 1, "mtime": 1700000000})
    keys.hset("user_follow_1_7", mapping={"status": 7, "mtime": 1700000000})
    keys.sadd("user_follow_set_1", "abc", "7")
    keys.sadd("follow_set", 1)
    daemon.drain()
    assert pg.query("SELECT member_id, status FROM sync_dead_letter"
                    " ORDER BY 1") == [("7", None), ("abc", None)]
    assert not keys.keys("likesync:unsynced:*")
    assert keys.ttl("1:follow") > 0
    assert daemon.client().execute_command("FOLLOWING", 1) == ["8"]


@pytest.mark.parametrize("sqlstate", ["P0001", "23514", "22003", "23502",
                                      "P0004", "LS001"])
def test_a_trigger_that_raises(case, sqlstate):
    pairs = batch_of([42, 43])
    case.pg.query(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF NEW.user_id IN (5, 600) THEN
            RAISE EXCEPTION 'not you' USING ERRCODE = '{sqlstate}';
          END IF;
          RETURN NEW;
        END $$""")
    case.pg.query("CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON"
                  " user_like_post FOR EACH ROW EXECUTE FUNCTION refuse()")
    case.send("LIKE", pairs)
    case.flush()
    assert [(letter[1], letter[4]) for letter in case.letters()] == \
        [(600, sqlstate), (5, sqlstate)]
    assert case.pg.value("SELECT bool_and(reason LIKE '%%not you%%')"
                         " FROM sync_dead_letter")
    case.check([pair for pair in pairs if pair[0] not in (5, 600)], [42, 43])


def test_a_trigger_that_leaves_rows_out(case):
    """It returns NULL: no error and no row. The row is not lost in silence,
    and not counted."""
    case.pg.query("""
        CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF NEW.user_id IN (5, 600) THEN RETURN NULL; END IF;
          RETURN NEW;
        END $$""")
    case.pg.query("CREATE TRIGGER leave_out BEFORE INSERT ON user_like_post"
                  " FOR EACH ROW EXECUTE FUNCTION leave_out()")
    pairs = batch_of([42, 43])
    case.send("LIKE", pairs)
    case.flush()
    assert case.letters() == [(42, 600, 1, None, None),
                              (43, 5, 1, None, None)]
    case.check([pair for pair in pairs if pair[0] not in (5, 600)], [42, 43])
    assert case.client.execute_command("LIKED", 5, 43) == [0]


def test_a_newer_event_while_the_row_is_refused(case):
    """UNLIKE follows the LIKE that is refused: nothing was ever there."""
    case.send("LIKE", [(7, 42), (8, 42)])
    case.refuse("NOT (user_id = 7 AND status = 1)")
    case.flush()
    assert case.letters() == [(42, 7, 1, None, "23514")]
    assert case.client.execute_command("UNLIKE", 7, 42) == 0
    # It may be tried again, and is refused again, in a batch of its own.
    assert case.client.execute_command("LIKE", 7, 42) == 1
    case.daemon.drain()
    assert len(case.letters()) == 2
    case.check([(8, 42)], [42])
    assert case.client.execute_command("LIKED", 7, 42) == [0]
    assert case.pg.value("SELECT count(DISTINCT batch_id)"
                         " FROM sync_dead_letter") == 2


def test_a_refused_delta_without_a_row(case):
    """Of several posts: it alone is a dead letter and leaves the counter."""
    for post in range(1, 10):
        case.keys.sadd("post_set", post)
        case.keys.incrby(f"post_{post}_counter", 10 * post)
    case.send("LIKE", [(7, 100)])
    case.refuse("like_count NOT IN (30, 90)", table="post_like")
    case.flush()
    assert case.letters() == [(3, None, None, 30, "23514"),
                              (9, None, None, 90, "23514")]
    assert dict(case.pg.query("SELECT post_id, unattributed FROM post_like"
                              " WHERE unattributed <> 0")) == \
        {post: 10 * post for post in (1, 2, 4, 5, 6, 7, 8)}
    assert case.client.execute_command("LIKECOUNT", 3, 4, 9, 100) == \
        [0, 40, 0, 1]
    assert not case.keys.exists("post_3_counter", "post_9_counter",
                                "post_set", "likesync:onrecord:like")
    harness.check_exact(case.pg)
    case.allow("post_like")
    case.keys.sadd("post_set", 3)
    case.keys.incrby("post_3_counter", 30)
    case.daemon.drain()
    assert case.client.execute_command("LIKECOUNT", 3) == [30]


@pytest.mark.skipif(not harness.build_has("LIKESYNCD_FAULTS"),
                    reason="no fault points")
@pytest.mark.parametrize("point", ["dead_lettered", "before_ack"])
def test_a_kill_writes_no_letter_twice(case, point):
    """The batch is taken over under its own id."""
    pairs = [(user, 42) for user in range(50)]
    case.daemon.term()
    case.daemon.write_config(flush_lease_ms=500)
    case.daemon.start()
    case.flusher("PAUSE")
    case.send("LIKE", pairs)
    case.refuse("user_id NOT IN (3, 33)")
    case.daemon.kill9()
    case.daemon.start(fault=point, wait=None)
    case.daemon.wait_fault()
    case.daemon.start()
    case.daemon.drain(60)
    assert case.letters() == [(42, 3, 1, None, "23514"),
                              (42, 33, 1, None, "23514")]
    case.client = case.daemon.client()
    case.check([pair for pair in pairs if pair[0] not in (3, 33)], [42])


# ---- DEADLETTER ----

VIEWS = ROOT / "sql" / "views.sql"


def as_map(flat):
    return dict(zip(flat[::2], flat[1::2]))


class Letters:
    """What the operator asks for, on the admin listener."""

    def __init__(self, case):
        self.case = case
        self.client = case.daemon.admin()

    def ask(self, *words):
        return self.client.execute_command("DEADLETTER", *words)

    def list(self, *words):
        """(how many there are, those that are listed)"""
        reply = as_map(self.ask("LIST", *words))
        return reply["total"], [as_map(flat) for flat in reply["letters"]]

    def refused(self, *words):
        with pytest.raises(redis_py.ResponseError) as refusal:
            self.ask(*words)
        return str(refusal.value)


@pytest.fixture
def letters(case):
    case.pg.psql("-f", VIEWS)
    return Letters(case)


def test_letters_are_listed_in_words(letters):
    case = letters.case
    assert letters.list() == (0, [])
    case.refuse("user_id <> 7")
    case.refuse("followee_id <> 8", table="user_follow")
    case.refuse("unattributed = 0", table="post_like")
    case.send("LIKE", [(7, 42)])
    case.flush()
    case.flusher("PAUSE")
    case.send("FOLLOW", [(7, 8)])
    case.flush()
    case.flusher("PAUSE")
    case.keys.incrby("post_43_counter", 5)
    case.keys.sadd("post_set", 43)
    case.flush()
    case.keys.hset("user_follow_1_abc", mapping={"status": 1, "mtime": 5})
    case.keys.sadd("user_follow_set_1", "abc")
    case.keys.sadd("follow_set", 1)
    case.flush()
    total, found = letters.list()
    assert total == 4
    assert [(letter["what"], letter["sqlstate"]) for letter in found] == [
        ("MALFORMED follow 1 abc", ""), ("COUNT +5 43", "23514"),
        ("FOLLOW 7 8", "23514"), ("LIKE 7 42", "23514")]
    like = found[3]
    assert (like["kind"], like["verb"], like["user"], like["post"]) == \
        ("like", "LIKE", "7", "42")
    assert found[2]["followee"] == "8"
    assert "test_refuses" in like["reason"]
    row = case.pg.query(
        "SELECT id, extract(epoch FROM mtime) * 1000000,"
        " extract(epoch FROM refused_at) * 1000000 FROM sync_dead_letter"
        " WHERE kind = 'like' AND status = 1")[0]
    assert (like["id"], like["event_us"], like["refused_us"]) == row
    assert found[1]["event_us"] == 0
    # A part of them.
    assert letters.list("COUNT", 1) == (4, found[:1])
    assert letters.list("FROM", found[1]["id"], "COUNT", 2) == (4, found[1:3])
    assert letters.list("COUNT", 2, "FROM", like["id"]) == (4, [like])


def test_a_letter_is_tried_again(letters):
    case = letters.case
    case.send("LIKE", [(7, 42), (8, 42)])
    case.refuse("user_id <> 7")
    case.flush()
    [letter] = letters.list()[1]
    refusal = letters.refused("RETRY", letter["id"])
    assert f"dead letter {letter['id']} (like 42 7) is still refused" in refusal
    assert "test_refuses" in refusal
    assert letters.list() == (1, [letter])
    case.allow()
    with harness.I1Watcher(case.pg):
        assert letters.ask("RETRY", letter["id"]) == "applied: like 42 7"
    assert letters.list() == (0, [])
    assert case.liked() == {(7, 42), (8, 42)}
    harness.check_exact(case.pg)
    assert f"there is no dead letter {letter['id']}" in \
        letters.refused("RETRY", letter["id"])
    assert f"applied by the operator (id {letter['id']})" in \
        case.daemon.log_text()


def test_a_letter_is_dropped(letters):
    case = letters.case
    pairs = [(user, 42) for user in range(4)]
    case.send("LIKE", pairs)
    case.refuse("user_id NOT IN (1, 2)")
    case.flush()
    newer, older = letters.list()[1]
    assert letters.ask("DROP", older["id"]) == str(older["id"])
    assert letters.list() == (1, [newer])
    assert "there is no dead letter" in letters.refused("DROP", older["id"])
    assert f"dropped by the operator (id {older['id']})" in \
        case.daemon.log_text()
    case.check([(0, 42), (3, 42)], [42])


def test_what_has_not_been_applied_is_named(case):
    """sql/views.sql is not, or not since it has these grants."""
    letters = Letters(case)
    number = case.pg.value(
        "INSERT INTO sync_dead_letter (kind, batch_id, owner_id, reason)"
        " VALUES ('like', 'b', '42', 'no') RETURNING id")
    apply = r"apply sql/views.sql \(psql -d DB -f views.sql\)$"
    assert re.search(r"retry_dead_letter\(bigint\) does not exist: " + apply,
                     letters.refused("RETRY", number))
    assert re.search("permission denied for table sync_dead_letter: " + apply,
                     letters.refused("DROP", number))
    case.pg.psql("-f", VIEWS)
    case.pg.query("REVOKE EXECUTE ON FUNCTION retry_dead_letter(bigint)"
                  " FROM likesyncd")
    assert re.search("permission denied for function retry_dead_letter: "
                     + apply, letters.refused("RETRY", number))
    case.pg.query("REVOKE SELECT ON sync_dead_letter FROM likesyncd")
    assert "apply sql/schema.sql and sql/roles.sql" in letters.refused("LIST")


def test_a_letter_that_is_locked(letters):
    """The flusher's lock_timeout holds here, too."""
    case = letters.case
    case.daemon.term()
    case.daemon.write_config(postgres_lock_timeout_ms=50)
    case.daemon.start()
    letters = Letters(case)
    number = case.pg.value(
        "INSERT INTO sync_dead_letter (kind, batch_id, owner_id, reason)"
        " VALUES ('like', 'b', '42', 'no') RETURNING id")
    with contextlib.closing(case.pg.connect()) as other:
        other.autocommit = False
        other.cursor().execute("SELECT FROM sync_dead_letter FOR UPDATE")
        for word in ("RETRY", "DROP"):
            assert letters.refused(word, number).startswith("TRYAGAIN ")
    assert letters.list()[0] == 1


def test_letters_while_postgres_is_away(bed, redis):
    cluster = bed.postgres()
    daemon = bed.daemon(redis, cluster.create_database())
    cluster.stop()
    with contextlib.closing(daemon.admin()) as admin:
        for words in (("LIST",), ("RETRY", 1), ("DROP", 1)):
            with pytest.raises(redis_py.ResponseError) as refusal:
                admin.execute_command("DEADLETTER", *words)
            assert re.match("(UNAVAILABLE|UNKNOWN) ", str(refusal.value))


@pytest.mark.parametrize("words, why", [
    (("RETRY",), "wrong number of arguments for 'deadletter|retry' command"),
    (("RETRY", "ALL"), "invalid id 'ALL'"),
    (("DROP", "0"), "invalid id '0'"),
    (("DROP", "1", "2"), "wrong number of arguments for 'deadletter|drop'"),
    (("LIST", "COUNT"), "syntax error"),
    (("LIST", "COUNT", "1001"), "from 1 to 1000"),
    (("LIST", "FROM", "x"), "invalid id 'x'"),
    (("LIST", "TO", "1"), "syntax error"),
    (("NOPE",), "Try DEADLETTER HELP"),
])
def test_wrong_requests(case, words, why):
    assert why in Letters(case).refused(*words)


def test_clients_may_not(case):
    with pytest.raises(redis_py.exceptions.NoPermissionError):
        case.client.execute_command("DEADLETTER", "LIST")


@pytest.mark.parametrize("edges", [LIKES, FOLLOWS], ids=lambda edges: edges.name)
@pytest.mark.parametrize("lists", ["no", "yes"])
def test_a_dirty_pair_without_a_row(bed, redis, pg, edges, lists):
    """As an ack leaves it that finds its row among the dead letters, and the pair
    marked again: nothing is written, and no mark of it stays for ever."""
    daemon = bed.daemon(redis, pg, like_lists=lists)
    flusher(daemon, "PAUSE")
    with contextlib.closing(daemon.client()) as client:
        for verb in reversed(edges.verbs):
            assert client.execute_command(verb, 7, 8) == 1
    with contextlib.closing(redis.client()) as keys:
        keys.hset(edges.hash_of((7, 8)), mapping={
            "status": 0, "mtime": "0.000000", "synced": "0 0"})
    flusher(daemon, "RESUME")
    daemon.drain()
    check_clean(redis, pg)
    assert edges.rows(pg) == {}
