# SPDX-License-Identifier: MIT
"""Two daemons on one Redis and one PostgreSQL."""
import contextlib
import random
import re
import threading
import time

import psycopg2
import pytest
import redis as redis_py

import harness
from load import (Load, Replies, assuming, check_clean, check_states,
                  copy_data, durable, put_back)
from servers import ROOT, wait_for

SMALL = {"flush_interval_ms": 20, "flush_batch_rows": 20,
         "flush_claim_rows": 7, "flush_lease_ms": 500,
         "postgres_lock_timeout_ms": 200}
PROBES = 500000                 # first user id of those below
FOR_EVER = 4 * 10**15           # us: a deadline that does not come
THROUGH = "SELECT synced_through FROM sync_state WHERE kind = 'like'"


@pytest.fixture
def two(bed, redis, pg):
    # A transaction of a daemon that is stopped keeps its row locks so long.
    pg.query(f"ALTER ROLE likesyncd IN DATABASE {pg.name}"
             " SET idle_in_transaction_session_timeout = '300ms'")
    return [bed.daemon(redis, pg, **SMALL) for _ in range(2)]


def instance(daemon):
    return re.findall(r"is ready \(instance (\w+)\)", daemon.log_text())[-1]


def own_batches(daemon, keys):
    """Those that it has on record, or had when it was stopped."""
    return [batch for batch in keys.zrange("likesync:batches:like", 0, -1)
            if f"-{instance(daemon)}-" in batch]


def pause_with_a_batch(daemon, load, keys):
    """SIGSTOP at a moment when a batch of it is under way."""
    def stopped():
        daemon.pause()
        found = own_batches(daemon, keys)
        if not found:
            daemon.resume()
            load.check_clients()
        return found
    return wait_for(stopped, 60, "a batch under way")


class Watermark(threading.Thread):
    """Likes pairs of its own, each once, through each daemon, and looks at
    synced_through: it never goes back, and all that was answered before it is
    in the tables, in the same snapshot. (Redis, PostgreSQL and this test read
    one clock.)"""

    def __init__(self, pg, *daemons):
        super().__init__(daemon=True)
        self.pg = pg
        self.daemons = daemons
        self.ended = threading.Event()
        self.probes = []                # (when it was answered, user)
        self.through = set()
        self.failure = None
        self.number = PROBES
        self.lock = threading.Lock()
        self.likers = [threading.Thread(target=self.like, args=(daemon,),
                                        daemon=True) for daemon in daemons]

    def next_user(self):
        with self.lock:
            self.number += 1
            return self.number

    def like(self, daemon):
        try:
            self.like_on(daemon)
        except BaseException as error:
            self.failure = error

    def like_on(self, daemon):
        while not self.ended.is_set():
            with contextlib.suppress(OSError), contextlib.closing(
                    Replies(daemon.socket, 30)) as replies:
                while not self.ended.wait(0.003):
                    user = self.next_user()
                    replies.send([f"LIKE {user} {user % 5}"])
                    if isinstance(replies.read(), int):
                        self.probes.append((time.time(), user))
            self.ended.wait(0.01)

    def run(self):
        try:
            with contextlib.closing(self.pg.connect()) as connection:
                cursor = connection.cursor()
                last = 0
                while not self.ended.wait(0.005):
                    last = self.look(cursor, last)
        except BaseException as error:
            self.failure = error

    def look(self, cursor, last):
        cursor.execute(
            f"SELECT extract(epoch FROM ({THROUGH}))::float8, array(SELECT"
            f" user_id FROM user_like_post WHERE user_id >= {PROBES})")
        through, users = cursor.fetchone()
        through = through or 0
        assert through >= last, f"synced_through: {last}, then {through}"
        rows = set(users)
        # A float of today has steps of less than a microsecond.
        ahead = [probe for probe in list(self.probes)
                 if probe[0] < through - 1e-6 and probe[1] not in rows]
        assert not ahead, f"answered before {through}, no row: {ahead[:5]}"
        self.through.add(through)
        return through

    def drain(self, daemon, timeout=60):
        """All that either daemon answered before is durable after it."""
        before = list(self.probes)
        daemon.drain(timeout)
        rows = {user for user, in self.pg.query(
            f"SELECT user_id FROM user_like_post WHERE user_id >= {PROBES}")}
        missing = [probe for probe in before if probe[1] not in rows]
        assert not missing, f"drained, but no row: {missing[:5]}"

    def __enter__(self):
        self.start()
        for liker in self.likers:
            liker.start()
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        for thread in [self, *self.likers]:
            thread.join(60)
        if kind is None:
            assert not self.failure, self.failure
            assert len(self.through) > 3, "the watermark does not move"
            assert len(self.probes) > 10


def test_both_work(two, redis, pg):
    """Each pair has one daemon here, each post has both."""
    with harness.I1Watcher(pg), Watermark(pg, *two) as mark, \
            Load(*two, seed=41, evict=redis) as load:
        for n in range(10):
            load.wait_acked(200)
            mark.drain(two[n % 2])
    for daemon in two:
        assert daemon.metrics()["likesyncd_batches_written_total"] > 0
    assert not load.refusals()
    durable(two[0], load, redis, pg)


def test_paused_past_its_lease(two, redis, pg):
    """Its batch is written by the other; then it goes on with it."""
    a, b = two
    taken_over = "likesyncd_batches_taken_over_total"
    with harness.I1Watcher(pg), Watermark(pg, *two) as mark, \
            Load(*two, seed=42, evict=redis) as load, \
            contextlib.closing(redis.client()) as keys:
        for n in range(8):
            paused, other = (a, b) if n % 2 else (b, a)
            before = other.metrics()[taken_over]
            batches = pause_with_a_batch(paused, load, keys)
            wait_for(lambda: not set(batches) & set(own_batches(paused, keys)),
                     what="its batches to be done by the other")
            assert other.metrics()[taken_over] > before
            mark.drain(other)
            paused.resume()
            load.wait_acked(100)
    assert not load.refusals()
    durable(a, load, redis, pg)


def test_paused_for_a_moment_only(two, redis, pg):
    """Around its lease: both may be at the same batch at the same time."""
    seed = 43
    rnd = random.Random(seed)
    with harness.I1Watcher(pg), Watermark(pg, *two), \
            Load(*two, seed=seed, evict=redis) as load, \
            contextlib.closing(redis.client()) as keys:
        for _ in range(10):
            paused = rnd.choice(two)
            pause_with_a_batch(paused, load, keys)
            time.sleep(rnd.uniform(0.4, 0.7))
            paused.resume()
            load.wait_acked(50)
    assert not load.refusals()
    durable(two[0], load, redis, pg)


def test_killed_one_by_one_and_both(two, redis, pg):
    seed = 44
    rnd = random.Random(seed)
    with harness.I1Watcher(pg), Watermark(pg, *two) as mark, \
            assuming(redis, *two, seed=seed) as load:
        for _ in range(12):
            load.wait_acked(rnd.randint(1, 150))
            victims = rnd.choice([two[:1], two[1:], two])
            for daemon in victims:
                daemon.kill9()
            if len(victims) == 1 and rnd.random() < 0.5:
                other = two[0] if victims == two[1:] else two[1]
                other.wait_up(other.ready)      # it may just have been started
                mark.drain(other)
            for daemon in victims:
                daemon.start(wait=None)
        for daemon in two:
            daemon.wait_up(daemon.ready)
        load.wait_acked(200)
        mark.drain(two[1])
    durable(two[0], load, redis, pg)


def test_stopped_by_turns(two, redis, pg):
    """SIGTERM hands what is under way to the other at once."""
    with harness.I1Watcher(pg), Watermark(pg, *two) as mark, \
            assuming(redis, *two, seed=45) as load:
        for n in range(6):
            load.wait_acked(100)
            two[n % 2].restart()
            mark.drain(two[(n + 1) % 2])
    durable(two[0], load, redis, pg)


def test_the_watermark_of_a_pass_under_way(bed, redis, pg):
    """The flusher is paused in the middle of a pass, with nothing on record:
    what is left of the pass was answered before it began."""
    daemon = bed.daemon(redis, pg, **SMALL)
    rows = "SELECT count(*) FROM user_like_post"
    with contextlib.closing(daemon.admin()) as admin, \
            contextlib.closing(daemon.client()) as client, \
            contextlib.closing(redis.client()) as keys:
        def half_done():
            admin.execute_command("FLUSHER", "PAUSE")
            for post in range(400):
                client.execute_command("LIKE", time.time_ns(), post)
            answered = time.time()
            before = pg.value(rows)
            admin.execute_command("FLUSHER", "RESUME")
            wait_for(lambda: pg.value(rows) > before, what="rows")
            admin.execute_command("FLUSHER", "PAUSE")
            wait_for(lambda: not keys.exists("likesync:batches:like"),
                     what="the last ack")
            return answered if keys.exists("likesync:pass:like") else None
        answered = wait_for(half_done, 60, "a pass with something left")
        time.sleep(2.5)              # it is stored once a second
        assert keys.exists("likesync:pass:like")
        assert not pg.value(f"SELECT extract(epoch FROM ({THROUGH})) > %s",
                            answered)
        admin.execute_command("FLUSHER", "RESUME")
        daemon.drain()
        assert pg.value(f"SELECT extract(epoch FROM ({THROUGH})) > %s",
                        answered)


# ---- paused between a lookup and its resend ----

def send_and_pause(daemon, pg, request):
    """The lookup for the request is answered by PostgreSQL, but not yet read:
    the daemon is stopped. Returns the client's connection."""
    waiting = ("SELECT count(*) FROM pg_stat_activity WHERE usename ="
               " 'likesyncd' AND datname = current_database()"
               " AND state = 'active'")
    replies = Replies(daemon.socket, 30)
    with contextlib.closing(psycopg2.connect(pg.conninfo("postgres"))) \
            as rival:
        rival.cursor().execute("LOCK TABLE user_like_post")
        replies.send([request])
        wait_for(lambda: pg.value(waiting + " AND wait_event_type = 'Lock'"),
                 what="a lookup that waits")
        daemon.pause()
    wait_for(lambda: not pg.value(waiting), what="the lookup's end")
    return replies


@pytest.mark.parametrize("first, meanwhile, answer, last", [
    ("LIKE", ["LIKE"], 0, 1),
    ("LIKE", ["LIKE", "UNLIKE"], 1, 1),
    ("UNLIKE", ["LIKE"], 1, 0),
    ("UNLIKE", ["LIKE", "UNLIKE"], 0, 0),
])
@pytest.mark.parametrize("drained", [True, False])
def test_paused_before_the_resend(bed, redis, pg, first, meanwhile, answer,
                                  last, drained):
    """What it looked up is old by then: the hash counts."""
    a, b = (bed.daemon(redis, pg, **{
        **SMALL, "postgres_lookup_timeout_ms": 30000}) for _ in range(2))
    with harness.I1Watcher(pg), contextlib.closing(b.client()) as other, \
            contextlib.closing(send_and_pause(a, pg, f"{first} 7 42")) \
            as replies:
        for verb in meanwhile:
            assert other.execute_command(verb, 7, 42) == 1
            if drained:
                b.drain()
        a.resume()
        assert replies.read() == answer
        assert other.execute_command("LIKED", 7, 42) == [last]
        b.drain()
    check_states(pg, {(7, 42): {last}})
    wait_for(lambda: not redis.client().exists("likesync:batches:like"),
             what="the last ack")
    check_clean(redis, pg)


def test_no_read_of_an_older_redis(bed, redis, pg, tmp_path):
    """Redis comes back older, and PostgreSQL does not tell the floor for a
    while: nothing is read before the generation is raised."""
    daemon = bed.daemon(redis, pg)
    with contextlib.closing(daemon.client()) as client:
        assert client.execute_command("UNLIKE", 7, 42) == 0  # cached
        redis.stop()
        copy_data(redis, tmp_path)
        redis.start()
        wait_for(daemon.ready, what="the daemon to be back")
        assert client.execute_command("LIKE", 7, 42) == 1
        daemon.drain()
        redis.stop()
        put_back(redis, tmp_path)
        with contextlib.closing(pg.connect()) as rival:
            rival.cursor().execute("BEGIN; LOCK TABLE sync_batch")
            redis.start()
            end = time.monotonic() + 1
            while time.monotonic() < end:
                with contextlib.suppress(redis_py.ResponseError):
                    assert client.execute_command("LIKED", 7, 42) == [1]
                time.sleep(0.01)
        wait_for(daemon.ready, what="the daemon to be back")
        assert client.execute_command("LIKED", 7, 42) == [1]


@pytest.mark.parametrize("first, answer, last", [("UNLIKE", 1, 0),
                                                 ("LIKE", 0, 1)])
def test_rolled_back_before_the_resend(bed, redis, pg, tmp_path, first,
                                       answer, last):
    """The hash that would count is gone: what was looked up before Redis was
    rolled back must be looked up again."""
    a, b = (bed.daemon(redis, pg, **{
        **SMALL, "postgres_lookup_timeout_ms": 30000}) for _ in range(2))
    redis.stop()
    copy_data(redis, tmp_path)
    redis.start()
    for daemon in (a, b):
        wait_for(daemon.ready, what="the daemon to be back")
    with contextlib.closing(b.client()) as other, \
            contextlib.closing(send_and_pause(a, pg, f"{first} 7 42")) \
            as replies:
        assert other.execute_command("LIKE", 7, 42) == 1
        b.drain()
        redis.stop()
        put_back(redis, tmp_path)
        redis.start()
        wait_for(b.ready, what="the daemon to be back")
        a.resume()
        reply = replies.read()
        if str(reply).startswith("UNKNOWN"):  # into the connection of before
            wait_for(a.ready, what="the daemon to be back")
            with contextlib.closing(a.client()) as client:
                reply = client.execute_command(first, 7, 42)
        assert reply == answer
        b.drain()
    check_states(pg, {(7, 42): {last}})


# What core/edge.c puts in front of a script.
LIKE_NAMES = {
    "KIND": "like", "REGISTRY": "post_set", "SET": "post_user_like_set_",
    "HASH": "post_user_like_", "OWNER_FIELD": "post_id",
    "MEMBER_FIELD": "user_id", "COUNTER_PRE": "post_",
    "COUNTER_POST": "_counter"}


def run_script(keys, name, *arguments):
    """One of the daemon's scripts, at a moment that no daemon can be made to
    meet."""
    names = "".join(f"local {name} = '{text}'\n"
                    for name, text in LIKE_NAMES.items())
    texts = [(ROOT / "daemon/lua" / f"{part}.lua").read_text()
             for part in ("common", "rows", name)]
    lists = "local LISTS, UNSYNCED_SETS\n" \
        "local FOLLOW_PRE, FOLLOW_POST, FANS_PRE, FANS_POST\n"
    return keys.eval(names + lists + "".join(texts), 0, *arguments)


def test_a_registry_of_the_wrong_type(redis):
    """Between a tick and a claim: it must not become the pass, where it would
    stay for ever."""
    keys = redis.client()
    keys.set("post_set", "x")
    with pytest.raises(redis_py.ResponseError, match="post_set is not a set"):
        run_script(keys, "claim", "a", "ao", 15000, 10, 1)
    assert keys.keys() == ["post_set"]


def test_the_same_copy_of_redis_twice(redis):
    """It has the same generation each time. What was read, or claimed, the
    first time must not count the second time."""
    keys, state = redis.client(), "likesync:state:like"
    run_script(keys, "recover", "run1", "id", 0, "")
    copy, epochs = keys.hgetall(state), set()
    for run in ("run2", "run3"):
        keys.delete(state)
        keys.hset(state, mapping=copy)
        assert run_script(keys, "recover", run, "id", 0, "")[:2] == [1, 1]
        epochs.add(run_script(keys, "counts", 0, 42)[0])
    assert len(epochs) == 2


def ack_all(keys, batch):
    for field in keys.hkeys(f"likesync:batch:{batch}"):
        owner, member = field.split(" ")
        edge = keys.hgetall(f"post_user_like_{owner}_{member}")
        us = edge["mtime"].replace(".", "")
        run_script(keys, "ack", batch, "0:0", 3600, 0, owner, member,
                   edge["status"], us, us, "")


@pytest.mark.parametrize("acked", [False, True])
def test_a_batch_does_not_go_on_in_another_pass(redis, acked):
    """Between two claims of one batch another daemon uses up the pass and
    starts the next, or also acks that batch, whose lease had run out. A pair
    that changed meanwhile must not come onto the same record again: it would be
    counted twice there, and an ack of its first state would take it off."""
    keys = redis.client()

    def event(user, post, op):
        assert run_script(keys, "event", 3600, 0, FOR_EVER, post, user, op,
                          "a")[1] == 1

    def claim(batch, most, goes_on=False, new_pass=False):
        return run_script(keys, "claim", batch, "" if goes_on else batch + "o",
                          15000, most, int(new_pass))

    for user in (1, 2, 3):
        event(user, 42, "1")
    user = claim("a", 1, new_pass=True)[6]
    event(user, 42, "0")
    claim("b", 100)
    event(9, 43, "1")
    claim("c", 0, new_pass=True)            # only starts it
    if acked:
        ack_all(keys, "a")
    assert claim("a", 100, goes_on=True)[3] == 0
    claim("c", 100)
    assert f"42 {user}" in keys.hkeys("likesync:batch:c")
    for batch in "abc":
        ack_all(keys, batch)
    left = keys.keys("likesync:*")
    assert left == ["likesync:state:like"], left


@pytest.mark.skipif(not harness.build_has("LIKESYNCD_FAULTS"),
                    reason="built without fault points")
def test_a_row_of_an_app_whose_batch_is_over(bed, redis, pg):
    """The first daemon looked it up and was stopped; the second one took the
    batch over and acked it, and took an unlike since. The first one must not
    write that: nobody would know that PostgreSQL has it."""
    slow = bed.daemon(redis, pg, fault="before_ack", **SMALL)
    other = bed.daemon(redis, pg, **SMALL)
    with contextlib.closing(redis.client()) as keys, \
            contextlib.closing(slow.admin()) as slow_admin, \
            contextlib.closing(other.admin()) as admin, \
            contextlib.closing(other.client()) as client:
        admin.execute_command("FLUSHER", "PAUSE")
        with contextlib.closing(pg.connect()) as rival:
            rival.autocommit = False         # its lock holds the lookup
            rival.cursor().execute(
                "LOCK TABLE user_like_post IN ACCESS EXCLUSIVE MODE")
            since = int(time.time()) - 100
            keys.hset("post_user_like_42_7", mapping={
                "status": 1, "post_id": 42, "user_id": 7, "ctime": since,
                "mtime": since})
            keys.incr("post_42_counter")
            keys.sadd("post_user_like_set_42", 7)
            keys.sadd("post_set", 42)
            wait_for(lambda: keys.exists("likesync:onrecord:like"),
                     what="the claim")
            slow_admin.execute_command("FLUSHER", "PAUSE")
            wait_for(lambda: pg.value("SELECT count(*) FROM pg_locks"
                                      " WHERE NOT granted"),
                     what="the lookup")
            slow.pause()
            rival.rollback()
        admin.execute_command("FLUSHER", "RESUME")
        wait_for(lambda: not keys.exists("likesync:batches:like"),
                 what="the other daemon to write and ack it")
        admin.execute_command("FLUSHER", "PAUSE")
        assert client.execute_command("UNLIKE", 7, 42) == 1
        slow.resume()
        slow.wait_fault()
        assert pg.query("SELECT status FROM user_like_post") == [(1,)]
        keys.delete("likesync:count:like:0:42")
        assert client.execute_command("LIKECOUNT", 42) == [0]
        admin.execute_command("FLUSHER", "RESUME")
    other.drain()
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 0
    check_states(pg, {(7, 42): {0}})
    check_clean(redis, pg)


def test_a_busy_daemon_takes_over(bed, redis, pg):
    """As many batches of its own as it may have are under way, and none of
    them ends: that of a dead daemon is taken over all the same."""
    dead, busy = [bed.daemon(redis, pg, **{**SMALL, "flush_lease_ms": 60000,
                                           "postgres_lock_timeout_ms": 60000})
                  for _ in range(2)]
    likes = {(user, 1): {1} for user in range(200)}
    with contextlib.closing(redis.client()) as keys, \
            contextlib.closing(busy.admin()) as admin, \
            contextlib.closing(pg.cluster.connect(pg.name)) as rival:
        rival.autocommit = False
        rival.cursor().execute("LOCK TABLE user_like_post IN EXCLUSIVE MODE")
        admin.execute_command("FLUSHER", "PAUSE")
        with contextlib.closing(dead.client()) as client:
            assert client.execute_command("LIKE", 0, 1) == 1
        batch, = wait_for(lambda: own_batches(dead, keys), what="a batch")
        dead.kill9()
        with contextlib.closing(busy.client()) as client:
            for user, post in list(likes)[1:]:
                assert client.execute_command("LIKE", user, post) == 1
        admin.execute_command("FLUSHER", "RESUME")
        wait_for(lambda: len(own_batches(busy, keys)) == 3,
                 what="all batches that two connections may have")
        keys.zadd("likesync:leases:like", {batch: 1})
        wait_for(lambda: busy.metrics()["likesyncd_batches_taken_over_total"],
                 what="the dead daemon's batch to be taken over")
        rival.rollback()
    busy.drain()
    check_states(pg, likes)
    check_clean(redis, pg)
    harness.check_exact(pg)
