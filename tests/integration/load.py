# SPDX-License-Identifier: MIT
"""A load of likes or follows that knows what it was answered.

    with Load(daemon, seed=1) as load:
        ...                          # kill, stop, restart what you like
    load.check(redis, pg)            # after a drain

Each thread has its own pairs, so that it alone knows their order; posts, or
those who are followed, are shared by all. A request is acked (its answer is
checked against what the pair must have been), refused (nothing changed), or
unknown (-UNKNOWN, or the connection was lost): then the pair may be in either
state until its next answer. Unknown requests are sent again or not, by chance.

With `evict` hashes of clean pairs go at random, as by their TTL, so that
PostgreSQL has to be asked. Where it may be away, answers are not to be checked
then: the daemon may have to assume "not liked"; the state is checked anyway.
(Lists of follows are not read under such a load: they are loaded on the word
that hashes live as long as cache.ttl says.)

A thread stays with its socket. So what a dead daemon had sent to Redis is
executed before anything that the thread sends after its reconnect."""
import collections
import contextlib
import random
import shutil
import socket
import threading

import redis as redis_py

from edges import FOLLOWS, LIKES, check_answers, check_clean, check_states
from harness import Failed, wait_for

EVICT = """
if redis.call('TTL', KEYS[1]) > 0 then
  return redis.call('DEL', KEYS[1])
end
return 0"""
# Nothing was recorded.
REFUSALS = ("UNAVAILABLE", "TRYAGAIN", "OOM")

class Replies:
    """The few RESP2 types that events are answered with, in order."""

    def __init__(self, path, timeout):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rb")

    def send(self, requests):
        self.socket.sendall("".join(f"{r}\r\n" for r in requests).encode())

    def read(self):
        """An integer, or the text of an error."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        text = line[1:-2].decode()
        if line[:1] == b":":
            return int(text)
        if line[:1] == b"-":
            return text
        raise Failed(f"not an answer to an event: {line!r}")

    def close(self):
        self.file.close()
        self.socket.close()


class Client(threading.Thread):
    """One thread, its pairs, and what each may be: {0}, {1} or both."""

    def __init__(self, load, path, number):
        super().__init__(daemon=True)
        self.load = load
        self.path = path
        self.random = random.Random(f"{load.seed}/{number}")
        users = range(number * 1000, number * 1000 + load.users)
        pairs = [(user, target) for target in load.targets()
                 for user in users
                 if load.edges is LIKES or user != target]
        self.may_be = {pair: {0} for pair in pairs}
        self.pairs = pairs
        self.again = []
        self.keys = load.evict.client(timeout=1) if load.evict else None
        self.tally = collections.Counter()
        self.wrong = []
        self.refusals = collections.Counter()
        self.failure = None
        self.idle = False

    def run(self):
        try:
            while not self.load.ended.is_set():
                self.wait_for_leave()
                with contextlib.suppress(OSError):
                    with contextlib.closing(
                            Replies(self.path, self.load.timeout)) as replies:
                        self.talk(replies)
                self.load.ended.wait(0.01)      # until there is a listener
        except BaseException as error:          # reported by the main thread
            self.failure = error
        finally:
            with self.load.door:
                self.idle = True
                self.load.door.notify_all()

    def wait_for_leave(self):
        """hold() waits until every client is here."""
        with self.load.door:
            self.idle = True
            self.load.door.notify_all()
            while self.load.held and not self.load.ended.is_set():
                self.load.door.wait(0.05)
            self.idle = False

    def talk(self, replies):
        while not self.load.ended.is_set():
            self.wait_for_leave()
            if self.load.ended.is_set():
                return
            wanted = self.choose()
            waiting = collections.deque(wanted)
            try:
                replies.send(f"{self.verb(want)} {pair[0]} {pair[1]}"
                             for pair, want in wanted)
                while waiting:
                    self.answered(*waiting[0], replies.read())
                    waiting.popleft()
            except OSError:
                for pair, want in waiting:
                    self.unknown(pair, want)
                raise
            self.evict()
            self.load.ended.wait(self.load.pause)

    def verb(self, want):
        return self.load.edges.verbs[want]

    def evict(self):
        """Only what is known: nothing of that pair is under way anywhere."""
        if not self.keys:
            return
        with contextlib.suppress(redis_py.RedisError):
            for pair in self.random.sample(self.pairs, 4):
                if len(self.may_be[pair]) == 1:
                    self.tally["evicted"] += self.keys.eval(
                        EVICT, 1, self.load.edges.hash_of(pair))

    def choose(self):
        """A pipeline of requests; some pairs more than once."""
        rnd = self.random
        again, self.again = self.again, []
        fresh = [(rnd.choice(self.pairs), rnd.randint(0, 1))
                 for _ in range(rnd.randint(1, self.load.pipeline))]
        return again + fresh

    def answered(self, pair, want, answer):
        if isinstance(answer, int):
            self.tally["acked"] += 1
            known = self.may_be[pair]
            if self.load.answers and len(known) == 1 and \
                    answer != (want not in known):
                self.wrong.append((pair, known, self.verb(want), answer))
            self.may_be[pair] = {want}
        elif answer.startswith("UNKNOWN"):
            self.refusals[answer] += 1
            self.unknown(pair, want)
        elif answer.split()[0] in REFUSALS:
            self.refusals[answer] += 1
            self.tally["refused"] += 1
        else:
            raise Failed(f"{self.verb(want)} {pair}: {answer}")

    def unknown(self, pair, want):
        self.tally["unknown"] += 1
        self.may_be[pair] = self.may_be[pair] | {want}
        if self.random.random() < 0.5:
            self.again.append((pair, want))


class Load:
    """Threads that like and unlike, or follow and unfollow, spread over
    `daemons`."""

    def __init__(self, *daemons, seed, threads=4, posts=8, users=12,
                 pipeline=16, pause=0.005, timeout=30.0, evict=None,
                 answers=True, edges=LIKES):
        """`evict`: the Redis to take clean hashes from; `answers`: check
        them. Of follows, `posts` is how many are followed."""
        print(f"load: seed {seed}")
        self.seed, self.edges = seed, edges
        self.posts, self.users, self.threads = posts, users, threads
        self.pipeline, self.pause, self.timeout = pipeline, pause, timeout
        self.evict, self.answers = evict, answers
        self.ended = threading.Event()
        self.door = threading.Condition()
        self.held = False
        self.clients = [Client(self, daemons[n % len(daemons)].socket, n)
                        for n in range(threads)]

    def targets(self):
        """Posts; or users of all threads in turn, so that some follow each
        other."""
        if self.edges is LIKES:
            return range(self.posts)
        return [n % self.threads * 1000 + n // self.threads
                for n in range(self.posts)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, kind, error, trace):
        if kind is None and self.evict and not self.held:
            self.wait_evicted()
        self.ended.set()
        for client in self.clients:
            client.join(self.timeout + 30)
        if kind is None:
            self.check_clients()

    def check_clients(self):
        for client in self.clients:
            if client.failure:
                raise client.failure
            if client.is_alive() and self.ended.is_set():
                raise Failed("a client got no answer")
            if client.wrong:
                raise Failed(f"{len(client.wrong)} wrong answers (pair, was, "
                             f"request, answer): {client.wrong[:5]}")

    def count(self, what="acked"):
        """How many requests were acked, refused or unknown."""
        return sum(client.tally[what] for client in self.clients)

    def refusals(self):
        return sum((client.refusals for client in self.clients),
                   collections.Counter())

    def wait_acked(self, more, timeout=60.0):
        """Waits until `more` requests were acked from now on."""
        target = self.count() + more

        def done():
            self.check_clients()
            return self.count() >= target
        wait_for(done, timeout, f"{more} more acked requests")

    def wait_evicted(self, timeout=30.0):
        """Until there was something clean to evict, once at least."""
        def done():
            self.check_clients()
            return self.count("evicted")
        wait_for(done, timeout, "something to evict")

    def hold(self, timeout=60.0):
        """Returns when nothing is under way; release() goes on."""
        with self.door:
            self.held = True
            if not self.door.wait_for(
                    lambda: all(c.idle for c in self.clients), timeout):
                raise Failed("the clients do not come to rest")
        self.check_clients()

    def release(self):
        with self.door:
            self.held = False
            self.door.notify_all()

    def may_be(self):
        """{pair: the set of states that it may have}."""
        return {pair: set(states) for client in self.clients
                for pair, states in client.may_be.items()}

    def check(self, redis, pg, may_be=None, unattributed=0, apps=False):
        """After a drain: nothing lost, nothing doubled, all clean."""
        self.check_clients()
        if not self.count():
            raise Failed("nothing was acked")
        if self.evict and not self.count("evicted"):
            raise Failed("nothing was evicted")
        check_states(pg, may_be or self.may_be(), self.edges)
        check_clean(redis, pg, unattributed, apps)


def assuming(redis, *daemons, seed, **options):
    """A Load for where PostgreSQL may be away (a daemon that starts knows it
    a bit later than it knows its clients): what is answered may be wrong, the
    durable state may not."""
    return Load(*daemons, seed=seed, evict=redis, answers=False, **options)


def durable(daemon, load, redis, pg, unattributed=0, may_be=None, timeout=60,
            apps=False):
    """Drains and checks everything; what a killed daemon left is not ours to
    drain before its lease has run out, so the record is waited for."""
    daemon.drain(timeout)
    with contextlib.closing(redis.client()) as keys:
        wait_for(lambda: not keys.exists("likesync:batches:like",
                                         "likesync:batches:follow"), 30,
                 "the batches on record to be taken over")
    daemon.drain(timeout)
    load.check(redis, pg, may_be, unattributed, apps)
    if load.edges is FOLLOWS:
        check_answers(daemon, pg)
        check_clean(redis, pg, unattributed, apps)


def copy_data(redis, target):
    """What the data directory of a Redis that does not run holds."""
    for entry in redis.dir.iterdir():
        if entry.is_dir() or entry.suffix in (".rdb", ".aof"):
            copy = shutil.copytree if entry.is_dir() else shutil.copy2
            copy(entry, target / entry.name)


def put_back(redis, source):
    """Rolls it back to such a copy."""
    for entry in list(redis.dir.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.suffix in (".rdb", ".aof"):
            entry.unlink()
    for entry in source.iterdir():
        copy = shutil.copytree if entry.is_dir() else shutil.copy2
        copy(entry, redis.dir / entry.name)
