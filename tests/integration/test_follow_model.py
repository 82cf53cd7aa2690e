# SPDX-License-Identifier: MIT
"""Random follows, reads, walks, evictions and failures, one after another,
against a model that knows what each has to answer.

LIKESYNCD_MODEL=SEED:STEPS plays another game, or a longer one."""
import collections
import contextlib
import os
import random
import time

import pytest
import redis as redis_py

import harness
from edges import FOLLOWS, check_answers, check_clean, lists_of_rows
from graph import Graph
from servers import wait_for

# (daemons, game)
GAMES = [(1, "1:6000"), (2, "2:5000")]
if "LIKESYNCD_MODEL" in os.environ:
    GAMES = [(n, os.environ["LIKESYNCD_MODEL"]) for n in (1, 2)]
USERS = [str(user) for user in range(98, 122)]   # bytes are not numbers' order
BASE = 1289241911
SMALL = {"flush_interval_ms": 30, "flush_batch_rows": 20,
         "flush_claim_rows": 7, "flush_lease_ms": 500,
         "postgres_connect_timeout_ms": 500,
         "postgres_lookup_timeout_ms": 1000}
LISTS = ("FOLLOWING", "FOLLOWERS")
FILTERS = ("MUTUALS", "COMMON")
REFUSALS = ("UNAVAILABLE", "TRYAGAIN")


class Walk:
    """Pages of a list, with a cursor, while it changes. `always`: who was
    there all along, since when."""

    def __init__(self, request, asc, count, entries):
        self.request, self.asc, self.count = request, asc, count
        self.cursor = "0"
        self.seen = collections.Counter()
        self.always = dict(entries)

    def still(self, entries):
        now = dict(entries)
        self.always = {each: since for each, since in self.always.items()
                       if now.get(each) == since}

    def check(self):
        wrong = {each: self.seen[each] for each in self.always
                 if self.seen[each] != 1}
        assert not wrong, f"{self.request}: met not once, but {wrong}"


class Game:
    """Times are in microseconds. Pairs are of two sorts: those that clients
    give a time (`timed`), and those that the server does."""

    def __init__(self, bed, daemons, seed):
        self.rnd = random.Random(seed)
        self.redis = bed.redis(appendfsync="always")
        self.cluster = bed.postgres()
        self.pg = self.cluster.create_database()
        self.daemons = [bed.daemon(self.redis, self.pg, **SMALL)
                        for _ in range(daemons)]
        self.keys = self.redis.client()
        self.clients = {}
        self.graph = Graph()
        self.mtime = collections.defaultdict(int)
        self.clock = 0          # of the times that clients give
        self.away = False       # PostgreSQL
        self.vague = set()      # pairs whose times only PostgreSQL knows
        self.walks = []
        self.log = collections.deque(maxlen=40)
        self.tally = collections.Counter()

    # ---- asking ----

    def ask(self, *request, daemon=None):
        daemon = daemon or self.rnd.choice(self.daemons)
        if daemon not in self.clients:
            self.clients[daemon] = daemon.client()
        self.log.append((daemon.dir.name, *request))
        return self.clients[daemon].execute_command(*request)

    def ask_or_none(self, *request):
        """None: refused, as it may be while PostgreSQL is away."""
        try:
            return self.ask(*request)
        except redis_py.ResponseError as error:
            if self.away and str(error).startswith(REFUSALS):
                self.tally["refused"] += 1
                return None
            raise

    def forget_clients(self, daemon):
        if daemon in self.clients:
            self.clients.pop(daemon).close()

    # ---- events ----

    def pick(self, timed):
        while True:
            user, other = self.rnd.sample(USERS, 2)
            if (int(user) + int(other)) % 3 == 0 if timed else \
                    (int(user) + int(other)) % 3 != 0:
                return user, other

    def hash_times(self, pair):
        """When the follow began, and when it was last changed; or None."""
        times = self.keys.hmget(FOLLOWS.hash_of(pair), "ctime", "mtime")
        return [round(float(each) * 1e6) for each in times] \
            if all(times) else None

    def learn(self, pair, want):
        """The time that the server gave the change."""
        ctime, mtime = self.hash_times(pair)
        assert mtime > self.mtime[pair], pair
        assert abs(mtime / 1e6 - time.time()) < 5, pair
        self.mtime[pair] = mtime
        self.graph.unfollow(*pair)
        if want:
            assert ctime == mtime
            self.graph.follow(*pair, ctime)

    def changed(self):
        for walk in self.walks:
            walk.still(self.graph.entries(*walk.request))

    def event(self):
        pair, want = self.pick(timed=False), int(self.rnd.random() < 0.6)
        was = self.graph.since(*pair)
        answer = self.ask_or_none(FOLLOWS.verbs[want], *pair)
        if self.away:
            self.assumed(pair, want, answer)
            return
        assert answer == (want != (was is not None))
        if answer:
            self.learn(pair, want)
            self.changed()

    def assumed(self, pair, want, answer):
        """The answer may be wrong, and the time that Redis has; what becomes
        of it may not."""
        if answer is None:
            return
        self.vague.add(pair)
        was = self.graph.since(*pair)
        if want and was is None:
            self.graph.follow(*pair, self.hash_times(pair)[0])
        elif not want:
            self.graph.unfollow(*pair)
        for walk in self.walks:
            for user, other in (pair, pair[::-1]):
                walk.always.pop(user, None)
                walk.always.pop(other, None)
        self.changed()

    def event_at(self):
        """Some are older than what is there."""
        if self.away:
            return
        pair, want = self.pick(timed=True), int(self.rnd.random() < 0.6)
        self.clock += self.rnd.random() < 0.3
        at = BASE + self.clock - self.rnd.choice((0, 0, 0, 5, 50))
        is_newer = at * 1000000 > self.mtime[pair]
        was = self.graph.since(*pair)
        changes = is_newer and want != (was is not None)
        answer = self.ask(FOLLOWS.verbs[want], *pair, "AT", at)
        assert answer == changes
        if changes:
            self.mtime[pair] = at * 1000000
            self.graph.unfollow(*pair)
            if want:
                self.graph.follow(*pair, at * 1000000)
            self.changed()

    # ---- reads ----

    @staticmethod
    def text(us):
        return f"{us // 1000000}.{us % 1000000:06}".rstrip("0").rstrip(".")

    def request(self):
        command = self.rnd.choice(LISTS + LISTS + FILTERS)
        users = self.rnd.sample(USERS, 2)
        return (command, *users) if command == "COMMON" else \
            (command, users[0])

    def read(self):
        request = self.request()
        entries = self.graph.entries(*request)
        if self.away:
            items = self.ask_or_none(*request)
            ids = sorted(each for each, _ in entries)
            assert items is None or sorted(items) == ids, (items, ids)
            return
        options, viewer = [], None
        if self.rnd.random() < 0.4:
            options, entries = ["ASC"], entries[::-1]
        if self.rnd.random() < 0.5:
            start, n = self.rnd.randint(0, 12), self.rnd.randint(1, 9)
            options += ["RANGE", start, start + n - 1]
            entries = entries[start:start + n]
        with_times = self.rnd.random() < 0.7
        if request[0] in LISTS and self.rnd.random() < 0.4:
            viewer = self.rnd.choice(USERS)
            options += ["VIEWER", viewer]
        options += ["WITHTIMES"] * with_times
        expected = [self.item(each, with_times, viewer) for each in entries]
        assert self.ask(*request, *options) == expected

    def item(self, entry, with_times, viewer):
        each, since = entry
        parts = [each] + [self.text(since)] * with_times
        if viewer:
            parts.append(self.graph.relation(viewer, each))
        return parts if len(parts) > 1 else each

    def relations(self):
        user, *others = self.rnd.sample(USERS, self.rnd.randint(2, 12))
        codes = self.ask_or_none("RELATION", user, *others)
        assert codes in (None, [self.graph.relation(user, each)
                                for each in others])

    def counts(self):
        users = self.rnd.sample(USERS, self.rnd.randint(1, 4))
        counts = self.ask_or_none("FOLLOWCOUNT", *users)
        assert counts in (None, [self.graph.counts(user) for user in users])

    def walk(self):
        """Begins one, or reads the next page of one."""
        if self.away:
            return
        if len(self.walks) < 4:
            request = self.request()
            self.walks.append(Walk(request, self.rnd.random() < 0.5,
                                   self.rnd.randint(1, 6),
                                   self.graph.entries(*request)))
        walk = self.rnd.choice(self.walks)
        walk.cursor, items = self.ask(
            *walk.request, "CURSOR", walk.cursor, "COUNT", walk.count,
            "ASC" if walk.asc else "DESC")
        there = [each for each, _ in self.graph.entries(*walk.request)]
        there = there[::-1] if walk.asc else there
        assert items == [each for each in there if each in items]
        assert len(items) == walk.count or walk.cursor == "0"
        walk.seen.update(items)
        if walk.cursor == "0":
            walk.check()
            self.walks.remove(walk)
            self.tally["walked"] += 1

    # ---- what goes ----

    def evict(self):
        """Only what has a TTL may go by itself."""
        kind = self.rnd.choice(("list", "list", "both", "mark", "hash"))
        user, other = self.rnd.sample(USERS, 2)
        key = f"{user}:{self.rnd.choice(('follow', 'fans'))}"
        if kind == "mark":
            self.drop_clean(f"likesync:list:{key}")
        elif kind == "hash":
            for other in USERS:
                self.drop_clean(FOLLOWS.hash_of((user, other)))
        elif self.drop_clean(key) and kind == "both":
            self.keys.delete(f"likesync:list:{key}")
        self.log.append(("evict", kind, user, key))

    def drop_clean(self, key):
        gone = self.keys.ttl(key) > 0 and self.keys.delete(key)
        self.tally["evicted"] += bool(gone)
        return gone

    def drain(self):
        """What a daemon that was killed left is not the others' to drain
        before its lease has run out."""
        for daemon in self.daemons:
            daemon.drain(60)
        wait_for(lambda: not self.keys.exists("likesync:batches:follow"), 30,
                 "the batches on record to be taken over")
        self.daemons[0].drain(60)

    def lose_redis(self):
        if self.away:
            return
        self.drain()
        self.log.append(("FLUSHALL",))
        self.keys.flushall()
        self.tally["emptied"] += 1

    # ---- who goes ----

    def kill(self):
        """Sometimes with an event under way, of which nobody knows then."""
        daemon = self.rnd.choice(self.daemons)
        pair = None
        if not self.away and self.rnd.random() < 0.5:
            pair, want = self.pick(timed=False), self.rnd.randint(0, 1)
            with contextlib.closing(daemon.raw()) as wire:
                wire.sendall(
                    f"{FOLLOWS.verbs[want]} {pair[0]} {pair[1]}\r\n".encode())
                time.sleep(self.rnd.choice((0, 0.0005, 0.002)))
        daemon.kill9()
        self.log.append(("kill -9", daemon.dir.name, pair))
        self.forget_clients(daemon)
        daemon.start(wait="answers" if self.away else "ready")
        times = pair and self.hash_times(pair)
        if times and times[1] > self.mtime[pair]:
            self.learn(pair, want)
            self.changed()
        self.tally["killed"] += 1

    def restart_redis(self):
        if self.away:
            return
        # Told to an emptied Redis at the next check.
        wait_for(lambda: self.keys.hexists("likesync:state:follow", "run_id"),
                 30, "its run id to be known")
        before = FOLLOWS.generation(self.keys)
        self.log.append(("Redis restarts",))
        self.redis.kill9()
        self.redis.start()
        self.keys = self.redis.client()
        wait_for(lambda: FOLLOWS.generation(self.keys) > before, 30,
                 "the generation to go up")
        for daemon in self.daemons:
            daemon.wait_up(daemon.ready)
        self.tally["Redis restarted"] += 1

    def postgres(self):
        """Goes, or comes back."""
        self.log.append(("PostgreSQL", "back" if self.away else "away"))
        if not self.away:
            self.cluster.stop(self.rnd.choice(("fast", "immediate")))
            for daemon in self.daemons:
                wait_for(lambda: not daemon.metrics()
                         ["likesyncd_postgres_up"], 30, "it to be missed")
            self.away = True
            return
        self.come_back()

    def come_back(self):
        self.cluster.start()
        for daemon in self.daemons:
            daemon.wait_up(daemon.ready)
        self.away = False
        self.drain()
        for pair in self.vague:
            times = self.hash_times(pair)
            self.mtime[pair] = times[1] if times else self.mtime[pair]
        self.vague.clear()
        self.tally["PostgreSQL away"] += 1

    # ---- all of it ----

    STEPS = [("event", 300), ("event_at", 120), ("read", 260),
             ("relations", 90), ("counts", 50), ("walk", 150), ("evict", 60),
             ("lose_redis", 4), ("kill", 8), ("restart_redis", 1.5)]

    def step(self, number):
        names, weights = zip(*self.STEPS)
        name = self.rnd.choices(names, weights)[0]
        if number % 700 == 350 and not self.away or \
                self.away and self.rnd.random() < 0.02:
            name = "postgres"
        getattr(self, name)()

    def end(self):
        if self.away:
            self.come_back()
        self.drain()
        rows = lists_of_rows(self.pg)
        wanted = {f"{user}:follow": others for user, others
                  in self.graph.followees.items() if others}
        assert {key: members for key, members in rows.items()
                if key.endswith(":follow")} == wanted
        check_clean(self.redis, self.pg)
        for daemon in self.daemons:
            check_answers(daemon, self.pg)
        check_clean(self.redis, self.pg)


@pytest.mark.parametrize("daemons, game", GAMES)
def test_a_random_game(bed, daemons, game):
    seed, steps = map(int, game.split(":"))
    print("seed", seed)
    game = Game(bed, daemons, seed)
    with harness.I1Watcher(game.pg):
        for number in range(steps):
            try:
                game.step(number)
            except BaseException:
                print(f"step {number}, after", *game.log, sep="\n  ")
                raise
        game.end()
    print(dict(game.tally))
    for what in ("walked", "evicted", "emptied", "killed", "refused",
                 "Redis restarted", "PostgreSQL away"):
        assert game.tally[what], what
