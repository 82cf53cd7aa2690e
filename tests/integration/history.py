# SPDX-License-Identifier: MIT
"""What clients were told of totals while these moved, and whether an order of
the events that respects real time explains it.

An event or a count took effect at some instant between `begun`, when it was
sent, and `ended`, when its reply was read, in the order of its connection."""
import bisect
import collections
import itertools
import random
import re
import threading
import time

import redis as redis_py

from edges import LIKES
from load import EVICT
from servers import Failed, wait_for
from wire import Wire, encode


class Event:
    """`delta`: what it changed, by its reply."""

    __slots__ = ("begun", "ended", "delta")

    def __init__(self, begun, ended, delta):
        self.begun, self.ended, self.delta = begun, ended, delta


class Count:
    """`sure`: events of its own connection that it comes behind, though they
    were answered after it was sent."""

    __slots__ = ("begun", "ended", "total", "sure")

    def __init__(self, begun, ended, total, sure=()):
        self.begun, self.ended, self.total = begun, ended, total
        self.sure = sure


class Sums:
    """Of deltas, by the time at which their events began or ended."""

    def __init__(self, events, when, part):
        pairs = sorted((when(event), part(event.delta)) for event in events)
        self.times = [at for at, _ in pairs]
        self.sums = [0, *itertools.accumulate(delta for _, delta in pairs)]

    def before(self, at):
        return self.sums[bisect.bisect_left(self.times, at)]


def down(delta):
    return min(delta, 0)


def up(delta):
    return max(delta, 0)


def check_bounds(events, counts):
    """What ended before a count began is in it, what began before it ended
    may be. Fails with the first counts that are outside of that."""
    sums = {(part, name): Sums(events, lambda e, n=name: getattr(e, n), part)
            for part in (down, up) for name in ("begun", "ended")}
    wrong = []
    for count in counts:
        least = sums[up, "ended"].before(count.begun) + \
            sums[down, "begun"].before(count.ended) + \
            sum(up(event.delta) for event in count.sure)
        most = sums[down, "ended"].before(count.begun) + \
            sums[up, "begun"].before(count.ended) + \
            sum(down(event.delta) for event in count.sure)
        if not least <= count.total <= most:
            wrong.append((count.total, least, most))
    if wrong:
        raise Failed(f"{len(wrong)} of {len(counts)} totals cannot be (total, "
                     f"least, most): {wrong[:5]}")


def check_order(events, counts):
    """Of events in a known order: each total is a sum of the first ones, and
    a count that began after another had ended is not behind it."""
    sums = [0, *itertools.accumulate(event.delta for event in events)]
    places = {id(event): i + 1 for i, event in enumerate(events)}
    begun = [event.begun for event in events]
    ended = [event.ended for event in events]
    reached, floor = [], 0   # (ended, place) of counts; the place of those over
    for count in sorted(counts, key=lambda count: count.begun):
        reached.sort()
        while reached and reached[0][0] < count.begun:
            floor = max(floor, reached.pop(0)[1])
        first = max([bisect.bisect_left(ended, count.begun), floor]
                    + [places[id(event)] for event in count.sure])
        last = bisect.bisect_left(begun, count.ended)
        place = next((i for i in range(first, last + 1)
                      if sums[i] == count.total), None)
        if place is None:
            raise Failed(f"a total of {count.total} is no sum of the first "
                         f"{first} to {last} events: {sums[first:last + 1]}")
        reached.append((count.ended, place))


class Client(threading.Thread):
    """Likes, unlikes and counts, pipelined. Its pairs are its own."""

    def __init__(self, load, path, number):
        super().__init__(daemon=True)
        self.load, self.path, self.number = load, path, number
        self.random = random.Random(f"{load.seed}/{number}")
        self.users = range(number * 1000, number * 1000 + load.users)
        self.posts = [*load.posts, load.own_post(number)]
        self.liked = collections.Counter()
        self.events = collections.defaultdict(list)
        self.counts = collections.defaultdict(list)
        self.counted = self.evicted = 0
        self.failure = None
        self.keys = load.redis.client()

    def run(self):
        try:
            with Wire(self.path) as wire:
                while not self.load.ended.is_set():
                    self.turn(wire)
                    self.evict()
        except BaseException as error:          # reported by the main thread
            self.failure = error

    def choose(self, own_user):
        """Order is kept per pair: so, for the order of all events of its own
        post to be known, these are of one pair in a pipeline."""
        rnd = self.random
        if rnd.random() < self.load.reads:
            posts = self.load.all_posts()
            return ("LIKECOUNT", *rnd.sample(posts, rnd.randint(1, len(posts))))
        verb = rnd.choice(("LIKE", "UNLIKE"))
        count = ("WITHCOUNT",) if rnd.random() < 0.3 else ()
        post = rnd.choice(self.posts)
        user = rnd.choice(self.users) if post in self.load.posts else own_user
        return (verb, user, post, *count)

    def turn(self, wire):
        own_user = self.random.choice(self.users)
        requests = [self.choose(own_user)
                    for _ in range(self.random.randint(1, self.load.pipeline))]
        under_way = collections.defaultdict(list)
        begun = time.monotonic_ns()
        wire.send(b"".join(encode(*request) for request in requests))
        for request in requests:
            reply = wire.read()
            now = time.monotonic_ns()
            if reply[:1] not in (b":", b"*"):
                raise Failed(f"{request}: {reply}")
            numbers = [int(n) for n in re.findall(rb":(-?\d+)\r\n", reply)]
            if request[0] == "LIKECOUNT":
                for post, total in zip(request[1:], numbers, strict=True):
                    self.answered(post, begun, now, total, under_way[post])
                continue
            user, post = request[1:3]
            event = Event(begun, now, self.changed(request, numbers[0]))
            self.events[post].append(event)
            under_way[post].append(event)
            of_pair = under_way[user, post]
            of_pair.append(event)
            if len(request) > 3:
                self.answered(post, begun, now, numbers[1], of_pair)

    def answered(self, post, begun, ended, total, sure):
        self.counts[post].append(Count(begun, ended, total, tuple(sure)))
        self.counted += 1

    def changed(self, request, answer):
        """The delta of an event that was answered so."""
        want = int(request[0] == "LIKE")
        delta = want - self.liked[request[1:3]]
        if self.load.answers and answer != abs(delta):
            raise Failed(f"{request}: {answer}, not {abs(delta)}")
        self.liked[request[1:3]] = want
        return delta

    def evict(self):
        """Only of pairs of which nothing is under way."""
        pipe = self.keys.pipeline(transaction=False)
        for _ in range(2):
            post = self.random.choice(self.posts)
            user = self.random.choice(self.users)
            pipe.eval(EVICT, 1, LIKES.hash_of((user, post)))
        self.evicted += sum(pipe.execute())


class Forgetter(threading.Thread):
    """Takes the bases of totals out of Redis, at any time."""

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load, self.keys = load, load.redis.client()
        self.forgotten = 0
        self.failure = None

    def run(self):
        try:
            while not self.load.ended.wait(self.load.forget_s):
                names = list(self.keys.scan_iter("likesync:count:*", 1000))
                self.forgotten += sum(self.keys.eval(EVICT, 1, name)
                                      for name in names)
        except redis_py.RedisError as error:
            self.failure = error


class History:
    """Clients, spread over `daemons`, at a handful of posts and at a post of
    each client's own.

        with History(redis, daemon, seed=1) as history:
            history.wait_counted(1000)
        history.check()"""

    def __init__(self, redis, *daemons, seed, threads=4, posts=3, users=8,
                 pipeline=6, reads=0.4, forget_s=0.005, answers=True):
        print(f"history: seed {seed}")
        self.redis, self.seed, self.users = redis, seed, users
        self.posts = range(1, posts + 1)
        self.pipeline, self.reads, self.forget_s = pipeline, reads, forget_s
        self.answers = answers
        self.ended = threading.Event()
        self.clients = [Client(self, daemons[n % len(daemons)].socket, n)
                        for n in range(threads)]
        self.forgetter = Forgetter(self)

    def own_post(self, number):
        return 100 + number

    def all_posts(self):
        return [*self.posts, *map(self.own_post, range(len(self.clients)))]

    def __enter__(self):
        for thread in (*self.clients, self.forgetter):
            thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        for thread in (*self.clients, self.forgetter):
            thread.join(60)
        if kind is None:
            self.check_threads()

    def check_threads(self):
        for thread in (*self.clients, self.forgetter):
            if thread.failure:
                raise thread.failure
            if self.ended.is_set() and thread.is_alive():
                raise Failed("a client got no answer")

    def counted(self):
        return sum(client.counted for client in self.clients)

    def wait_counted(self, n, timeout=180):
        def done():
            self.check_threads()
            return self.counted() >= n
        wait_for(done, timeout, f"{n} totals")

    def likes(self):
        """{post: how many like it}, as the replies to the events have it."""
        totals = collections.Counter({post: 0 for post in self.all_posts()})
        for client in self.clients:
            for (_, post), liked in client.liked.items():
                totals[post] += liked
        return dict(totals)

    def check(self):
        """Every total can be explained."""
        for post in self.all_posts():
            events, counts = (
                [each for client in self.clients
                 for each in getattr(client, what)[post]]
                for what in ("events", "counts"))
            if not events or not counts:
                raise Failed(f"post {post} was left alone")
            check_bounds(events, counts)
            if post not in self.posts:
                check_order(events, counts)
