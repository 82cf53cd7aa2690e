# SPDX-License-Identifier: MIT
"""LIKECOUNT and WITHCOUNT: each total is what the events come to, one after
the other, also in the middle of a flush and right after what was kept has
vanished."""
import contextlib
import random
import threading
import time

import pytest

import harness
from edges import check_clean, check_states
from history import Count, Event, History, check_bounds, check_order
from load import Load
from servers import Failed, wait_for
from wire import Wire, encode

# Many flushes, of several batches each, of several claims each.
SMALL = {"flush_interval_ms": 10, "flush_batch_rows": 20,
         "flush_claim_rows": 7, "postgres_connections": 3}
COUNTS = 20000


def flusher(daemon, what):
    with contextlib.closing(daemon.admin()) as admin:
        assert admin.execute_command("FLUSHER", what)


def forget(redis):
    """Takes all bases of totals out of Redis."""
    with contextlib.closing(redis.client()) as keys:
        names = list(keys.scan_iter("likesync:count:*", 1000))
        return keys.delete(*names) if names else 0


def like_count(pg, post):
    return pg.value("SELECT coalesce(sum(like_count), 0)::bigint"
                    " FROM post_like WHERE post_id = %s", post)


def queries(cluster):
    """How often the totals of posts were asked for."""
    return cluster.log_text().count("JOIN post_like p ON")


# ---- the checkers themselves ----

def history_of(*deltas):
    """Events, one after the other: the nth from 10 n to 10 n + 5."""
    return [Event(10 * n, 10 * n + 5, delta)
            for n, delta in enumerate(deltas, 1)]


@pytest.mark.parametrize("begun, ended, total, good", [
    (0, 5, 0, True), (0, 5, 1, False),
    (16, 19, 1, True), (16, 19, 0, False), (16, 19, 2, False),
    (12, 14, 0, True), (12, 14, 1, True), (12, 14, -1, False),
    (26, 34, 0, False), (26, 34, 1, True), (26, 34, 2, True),
    (6, 60, 3, False)])
def test_the_checkers_know_what_cannot_be(begun, ended, total, good):
    """After one, two, and one like again."""
    events, counts = history_of(1, 1, -1), [Count(begun, ended, total)]
    for check in (check_bounds, check_order):
        with contextlib.nullcontext() if good else pytest.raises(Failed):
            check(events, counts)


def test_the_checkers_know_what_must_be():
    events = history_of(1, 1, -1)
    # It comes behind the second event.
    check_bounds(events, [Count(20, 25, 2, events[1:2])])
    check_order(events, [Count(20, 25, 2, events[1:2])])
    for check in (check_bounds, check_order):
        with pytest.raises(Failed):
            check(events, [Count(20, 25, 1, events[1:2])])
    # Totals do not go back, though each of these could be by itself.
    events = [Event(0, 100, 1), Event(0, 100, 1)]
    check_order(events, [Count(10, 20, 1), Count(30, 40, 2)])
    with pytest.raises(Failed):
        check_order(events, [Count(10, 20, 2), Count(30, 40, 1)])


# ---- any order that respects real time ----

@pytest.mark.parametrize("daemons", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_totals_can_be_explained(bed, redis, pg, daemons, seed):
    started = [bed.daemon(redis, pg, **SMALL) for _ in range(daemons)]
    began = time.monotonic()
    with harness.I1Watcher(pg), \
            History(redis, *started, seed=seed) as history:
        history.wait_counted(COUNTS // 2)
    print(f"{history.counted()} totals in {time.monotonic() - began:.1f} s")
    history.check()
    assert history.forgetter.forgotten > 100
    assert sum(client.evicted for client in history.clients) > 100
    for daemon in started:
        daemon.drain()
    check_end(started[0], history, redis, pg)


def check_end(daemon, history, redis, pg):
    """Replies, totals and tables agree, warm and cold."""
    likes = history.likes()
    with contextlib.closing(daemon.client()) as client:
        for _ in range(2):
            totals = client.execute_command("LIKECOUNT", *likes)
            assert dict(zip(likes, totals)) == likes
            check_clean(redis, pg)
            forget(redis)
    assert {post: like_count(pg, post) for post in likes} == likes


def test_optimistic_is_exact_after_the_flush(bed, redis, pg):
    """Replies may be wrong meanwhile; they assume what was not looked up."""
    daemon = bed.daemon(redis, pg, like_lookup="optimistic", **SMALL)
    with History(redis, daemon, seed=3, answers=False) as history:
        for n in range(1, 6):
            history.wait_counted(n * 500)
            time.sleep(0.05)
    assert sum(client.evicted for client in history.clients) > 0
    daemon.drain()
    check_end(daemon, history, redis, pg)


def test_a_post_that_never_rests(bed, redis, pg):
    """It is always on record somewhere, so claims have to leave it alone for
    a moment; the watermark goes on all the while."""
    daemon = bed.daemon(redis, pg, **{**SMALL, "flush_interval_ms": 1})
    with History(redis, daemon, seed=4, posts=1, users=40, threads=3,
                 pipeline=30, reads=0.05) as history:
        history.wait_counted(200)
        first = synced_through(pg)
        seen = set()
        wait_for(lambda: seen.add(synced_through(pg)) or len(seen) > 4, 30,
                 "the watermark to advance")
        history.wait_counted(3000)
        assert synced_through(pg) > first
        behind = pg.value("SELECT extract(epoch FROM clock_timestamp() -"
                          " synced_through) FROM sync_state"
                          " WHERE kind = 'like'")
    history.check()
    assert behind < 10
    daemon.drain()
    check_end(daemon, history, redis, pg)


def test_others_that_never_rest(bed, redis):
    """A total that nobody keeps costs one query, however much is flushed of
    other posts meanwhile."""
    cluster = bed.postgres(log_statement="all")
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, **{**SMALL, "flush_interval_ms": 1})
    quiet = range(1000, 1020)
    with contextlib.closing(daemon.client()) as client:
        for post in quiet:
            client.execute_command("LIKE", post % 7, post)
        daemon.drain()
        with Load(daemon, seed=5, posts=200, pause=0.001) as load, \
                contextlib.closing(redis.client()) as keys:
            load.wait_acked(100)
            before = daemon.metrics()["likesyncd_batches_written_total"]
            asked = queries(cluster)
            for _ in range(20):
                for post in quiet:
                    keys.delete(f"likesync:count:like:0:{post}")
                    assert client.execute_command("LIKECOUNT", post) == [1]
            assert queries(cluster) - asked == 20 * len(quiet)
            assert daemon.metrics()["likesyncd_batches_written_total"] > \
                before + 50
    daemon.drain()
    check_clean(redis, pg)


def synced_through(pg):
    return pg.value("SELECT synced_through FROM sync_state"
                    " WHERE kind = 'like'")


# ---- WITHCOUNT ----

def test_first_likes_count_themselves(bed, redis, pg):
    """Likes of different users from many connections at once, some pipelined:
    each total has its own like in it."""
    daemon = bed.daemon(redis, pg, **SMALL)
    posts, clients, each = range(1, 11), 8, 20
    events, counts = ({post: [] for post in posts} for _ in range(2))
    barrier = threading.Barrier(clients)

    def like(number):
        users = range(number * each, (number + 1) * each)
        with Wire(daemon.socket) as wire:
            for post in posts:
                barrier.wait(60)
                begun = time.monotonic_ns()
                if number % 2:
                    wire.send(b"".join(encode("LIKE", user, post, "WITHCOUNT")
                                       for user in users))
                for user in users:
                    if number % 2 == 0:
                        begun = time.monotonic_ns()
                        wire.send(encode("LIKE", user, post, "WITHCOUNT"))
                    answered(post, begun, wire.read())

    def answered(post, begun, reply):
        now = time.monotonic_ns()
        event = Event(begun, now, 1)
        assert reply.startswith(b"*2\r\n:1\r\n:"), reply
        events[post].append(event)
        counts[post].append(Count(begun, now, int(reply[9:]), (event,)))

    run_all(like, clients)
    for post in posts:
        assert len(counts[post]) == clients * each
        check_bounds(events[post], counts[post])
        assert max(count.total for count in counts[post]) <= clients * each
    daemon.drain()
    check_clean(redis, pg)


def run_all(target, n):
    """n threads; fails as the first of them did."""
    failures = []

    def run(number):
        try:
            target(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True)
               for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]


def pipeline(command, users):
    """Of one post, with a count behind it."""
    return b"".join(encode(command, user, 42, "WITHCOUNT")
                    for user in users) + encode("LIKECOUNT", 42)


def read_totals(wire, n):
    """Of n events, all of which change something; and what is counted behind
    them."""
    replies = [wire.read().split(b"\r\n") for _ in range(n)]
    assert all(reply[:2] == [b"*2", b":1"] for reply in replies), replies
    count = wire.read().split(b"\r\n")
    assert count[0] == b"*1"
    return [int(reply[2][1:]) for reply in replies], int(count[1][1:])


def test_a_pipeline_of_one_post(bed, redis, pg):
    """Of one connection alone, and of pairs that Redis knows: between its own
    place and the end of the pipeline, and a count behind all of it has all of
    it."""
    daemon = bed.daemon(redis, pg, **SMALL)
    users = range(30)
    with Wire(daemon.socket) as wire:
        wire.send(pipeline("LIKE", users))      # looked up
        assert read_totals(wire, 30)[1] == 30
        for turn in range(40):
            forget(redis)
            like = turn % 2
            wire.send(pipeline(("UNLIKE", "LIKE")[like], users))
            totals, count = read_totals(wire, 30)
            for place, total in enumerate(totals, 1):
                assert place <= (total if like else 30 - total) <= 30, totals
            assert count == 30 * like


def test_a_pipeline_of_new_likes(bed, redis, pg):
    """Some are looked up before Redis is asked, some after, so that any may
    come behind the others: each has itself and what was answered before."""
    daemon = bed.daemon(redis, pg, **SMALL)
    with Wire(daemon.socket) as wire:
        for turn in range(20):
            forget(redis)
            before = 30 * turn
            wire.send(pipeline("LIKE", range(before, before + 30)))
            totals, count = read_totals(wire, 30)
            assert before < min(totals) <= max(totals) <= before + 30, totals
            # The last of them to take effect has them all.
            assert count == max(totals) == before + 30


@contextlib.contextmanager
def rows_held_up(pg):
    """Nobody can look one up meanwhile."""
    with contextlib.closing(pg.connect()) as connection:
        connection.autocommit = False
        connection.cursor().execute(
            "LOCK TABLE user_like_post IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


def test_a_like_that_is_looked_up_comes_behind(bed, redis, pg):
    """Later ones of the same pipeline do not wait for it, nor count it."""
    daemon = bed.daemon(redis, pg, postgres_lookup_timeout_ms=30000)
    known = range(1, 6)
    with Wire(daemon.socket) as wire, \
            contextlib.closing(redis.client()) as keys:
        wire.send(pipeline("LIKE", known))
        assert read_totals(wire, 5)[1] == 5
        wire.send(pipeline("UNLIKE", known))
        assert read_totals(wire, 5)[1] == 0
        daemon.drain()
        flusher(daemon, "PAUSE")
        with rows_held_up(pg):
            wire.send(pipeline("LIKE", [0, *known]))
            wait_for(lambda: keys.get("post_42_counter") == "5", 30,
                     "the known ones to be recorded")
        totals, count = read_totals(wire, 6)
    assert totals == [6, 5, 5, 5, 5, 5]
    assert count == 6
    flusher(daemon, "RESUME")
    daemon.drain()
    check_clean(redis, pg)


# ---- what it costs ----

class Traffic:
    """What a Redis was asked in between, scripts with their arguments."""

    def __init__(self, redis):
        self.redis = redis

    def __enter__(self):
        self.keys = self.redis.client()
        self.monitor = self.keys.monitor()
        self.monitor.__enter__()
        return self

    def __exit__(self, *_):
        self.monitor.__exit__(None, None, None)

    def calls(self, word):
        """Of clients, the calls that have this argument."""
        with contextlib.closing(self.redis.client()) as keys:
            keys.ping()
            keys.echo("the end")
        found = []
        while True:
            command = self.monitor.next_command()
            if command["command"] == "ECHO the end":
                return found
            if command["client_type"] != "lua" and \
                    str(word) in command["command"].split():
                found.append(command["command"])


def test_what_fifty_posts_cost(bed, redis):
    """Warm: one script and no query. Cold: one query, and one script more
    that keeps what it brought."""
    cluster = bed.postgres(log_statement="all")
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg)
    posts = range(90001, 90051)

    with contextlib.closing(daemon.client()) as client:
        for post in posts[:25]:
            client.execute_command("LIKE", 7, post)
        daemon.drain()
        expected = [1] * 25 + [0] * 25
        for scripts, asked in [(2, 1)] + [(1, 0)] * 100:
            before = queries(cluster)
            with Traffic(redis) as traffic:
                assert client.execute_command("LIKECOUNT", *posts) == expected
                calls = traffic.calls(posts[30])
            assert len(calls) == scripts, calls
            assert queries(cluster) - before == asked
        # Likes and flushes do not make them cold.
        client.execute_command("LIKE", 8, posts[0])
        daemon.drain()
        before = queries(cluster)
        assert client.execute_command("LIKECOUNT", *posts) == \
            [2, *expected[1:]]
        assert queries(cluster) == before
        # Some: only these are asked for, all in one query.
        with contextlib.closing(redis.client()) as keys:
            keys.delete(*(f"likesync:count:like:0:{post}"
                          for post in posts[10:20]))
        assert client.execute_command("LIKECOUNT", *posts) == \
            [2, *expected[1:]]
        assert queries(cluster) - before == 1


# ---- what others add, and what PostgreSQL refuses ----

@pytest.mark.parametrize("interval_ms", [1, 100])
def test_counters_of_an_app(bed, redis, pg, interval_ms):
    """INCRBY without a row, between likes: exact after each, whatever the
    flusher does with the delta meanwhile."""
    daemon = bed.daemon(redis, pg,
                        **{**SMALL, "flush_interval_ms": interval_ms})
    rnd = random.Random(interval_ms)
    keys = redis.client()
    total, added, liked = 0, 0, dict.fromkeys(range(9), 0)
    end = time.monotonic() + 4
    with contextlib.closing(daemon.client()) as client:
        while time.monotonic() < end:
            if rnd.random() < 0.2:
                delta = rnd.choice([-2, -1, 1, 5])
                keys.sadd("post_set", 42)
                keys.incrby("post_42_counter", delta)
                added += delta
            else:
                user, want = rnd.randrange(9), rnd.randrange(2)
                client.execute_command(("UNLIKE", "LIKE")[want], user, 42)
                liked[user] = want
            if rnd.random() < 0.2:
                forget(redis)
            if rnd.random() < 0.1:         # now and then all is explained
                time.sleep(0.3)
            total = added + sum(liked.values())
            for _ in range(3):
                assert client.execute_command("LIKECOUNT", 42) == [total]
        daemon.drain()
        wait_for(lambda: like_count(pg, 42) == total, 30, "the rest of it")
        for _ in range(2):
            assert client.execute_command("LIKECOUNT", 42) == [total]
            forget(redis)
    daemon.drain()
    assert pg.value("SELECT unattributed FROM post_like") == added
    check_clean(redis, pg, added)


def test_rows_of_an_app(bed, redis, pg):
    """By the recipe of four commands: what its counter says counts at once,
    and once only."""
    daemon = bed.daemon(redis, pg, **SMALL)
    keys, start = redis.client(), int(time.time()) - 1000
    with contextlib.closing(daemon.client()) as client:
        for turn in range(150):
            user, status = turn % 5, turn // 5 % 2 == 0
            keys.sadd("post_set", 42)
            keys.sadd("post_user_like_set_42", user)
            keys.hset(f"post_user_like_42_{user}", mapping={
                "status": int(status), "post_id": 42, "user_id": user,
                "ctime": start, "mtime": start + turn})
            keys.incrby("post_42_counter", 1 if status else -1)
            total = turn % 5 + 1 if status else 4 - turn % 5
            if turn % 3 == 0:
                forget(redis)
            for _ in range(5):
                assert client.execute_command("LIKECOUNT", 42) == [total]
            if turn % 4 == 0:
                daemon.drain()
    daemon.drain()
    check_clean(redis, pg)


def test_likes_that_postgres_refuses(bed, redis, pg):
    """They count until they are dead letters, and then no more."""
    pg.query("ALTER TABLE user_like_post ADD CHECK (user_id % 10 <> 3)")
    daemon = bed.daemon(redis, pg, **SMALL)
    flusher(daemon, "PAUSE")
    with contextlib.closing(daemon.client()) as client:
        for user in range(40):
            assert client.execute_command("LIKE", user, 42) == 1
        assert client.execute_command("LIKECOUNT", 42) == [40]
        flusher(daemon, "RESUME")
        totals = [40]
        while totals[-1] > 36 or len(totals) < 30:
            totals += client.execute_command("LIKECOUNT", 42)
            forget(redis)
        daemon.drain()
        assert totals == sorted(totals, reverse=True) and min(totals) == 36
        for _ in range(2):
            assert client.execute_command("LIKECOUNT", 42) == [36]
            forget(redis)
        # One like more is one more.
        assert client.execute_command("LIKE", 100, 42, "WITHCOUNT") == [1, 37]
    daemon.drain()
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 4
    pg.query("DELETE FROM sync_dead_letter")
    check_states(pg, {(user, 42): {int(user % 10 != 3)} for user in range(40)})
    check_clean(redis, pg)
