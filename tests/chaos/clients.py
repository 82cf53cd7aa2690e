# SPDX-License-Identifier: MIT
"""The load: threads that like and follow through raw RESP and write down all.

    with Load(record, [addresses], seed=1) as load:
        load.wait_acked(100)

A client has pairs of its own, some of them hot; the posts, and those who are
followed, are everybody's. It sends pipelines of 1 to 16 requests, now and then
a read between them, asks for the total with some of the likes, sends what is
unknown again by chance, and reconnects when it has to, to its own address
unless it roams. Where what it gave up may arrive late, it asks nothing more of that
pair, unless its events have times: without one, the late event would rightly
win. Hashes of likes that are clean go at random, as by their TTL, unless
`evict` is None. (Not those of follows: lists are loaded on the word that these
live as long as cache.ttl says.)"""
import contextlib
import random
import re
import threading
import time

import redis as redis_py

import bed  # noqa: F401
from edges import LIKES
from harness import Failed, wait_for
from record import ACKED, PENDING, UNKNOWN, Request, Total
from reads import Question
from wire import Wire, encode

# Clean ones only, as by their TTL; but nothing goes so early by itself, and daemons
# rely on that (services/recall.c), so Redis has another history then.
EVICT = """
local gone = 0
for i = 2, #KEYS do
  if redis.call('TTL', KEYS[i]) > 0 then
    gone = gone + redis.call('DEL', KEYS[i])
  end
end
if gone > 0 then
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'since', string.format('%d%06d', t[1], t[2]))
end
return gone"""
WITH_TOTAL = re.compile(rb"\*2\r\n(:[01]\r\n)(?::(-?\d+)|\$-1)\r\n")
ANSWER = re.compile(rb"(:[01]|-[^\r\n]+)\r\n")
VERBS = {"like": ("UNLIKE", "LIKE"), "follow": ("UNFOLLOW", "FOLLOW")}
POSTS = range(1, 9)
USERS = 25              # of a client: many pairs, so that most are seldom asked for
                        # and a loss is not written over
COUNTED = 0.2           # of the likes, which ask for the total
HOT = 4                 # of its pairs, which get every third request


def at_text(us):
    return f"{us // 10**6}.{us % 10**6:06d}"


def words_of(event):
    words = [VERBS[event.kind][event.want], *event.pair]
    return words if event.t is None else [*words, "AT", at_text(event.t)]


def counted(record, request, reply):
    """Keeps the total, if there is one, and returns the answer; None: it is none."""
    found = WITH_TOTAL.fullmatch(reply)
    if not found:
        return None
    answer, total = found.groups()
    if total:
        record.totals.append(Total(request.event.pair[1], int(total),
                                   request.sent, time.monotonic()))
    return answer


class Client(threading.Thread):
    """One thread, one connection at a time, its pairs. The address may be
    changed at any time; it counts from the next connect."""

    def __init__(self, load, address, number):
        super().__init__(daemon=True)
        self.load, self.record, self.address = load, load.record, address
        self.number = number
        self.random = random.Random(f"{load.seed}/{number}")
        self.users = load.users_of(number)
        self.pairs = [("like", (user, post))
                      for user in self.users for post in POSTS]
        self.pairs += [("follow", (user, other)) for user in self.users
                       for other in load.targets() if other != user]
        self.random.shuffle(self.pairs)
        # Half of the pairs have times of their own: the two do not mix.
        self.timed = set(self.pairs[::2])
        self.last = {}          # pair: its last request
        self.again = []
        self.left = set()       # pairs that are not asked for any more
        self.keys = load.evict.client(timeout=1) if load.evict else None
        self.connects = 0
        self.acked = 0
        self.failure = None

    def run(self):
        try:
            while not self.load.ended.is_set():
                if self.load.roams:
                    self.address = self.random.choice(self.load.addresses)
                with contextlib.suppress(OSError):
                    with Wire(self.address, self.load.timeout) as wire:
                        self.connects += 1
                        self.talk(wire)
                self.load.ended.wait(0.02)      # until there is a listener
        except BaseException as error:          # the main thread reports it
            self.failure = error

    def talk(self, wire):
        while not self.load.ended.is_set():
            if self.load.held.is_set():
                self.load.ended.wait(0.01)
                continue
            self.exchange(wire, self.choose())
            self.evict()
            self.load.ended.wait(self.load.pause)

    def exchange(self, wire, events):
        """Sends a pipeline and reads its replies; None is a read."""
        waiting, data = [], b""
        for event in events:
            if event is None:
                waiting.append(Question(self.read(), self.record))
                data += encode(*waiting[-1].words)
                continue
            request = self.record.send(event)
            request.counts = event.kind == "like" and \
                self.random.random() < COUNTED
            self.last[event.kind, event.pair] = request
            waiting.append(request)
            data += encode(*words_of(event), *["WITHCOUNT"] * request.counts)
        for question in waiting:
            if isinstance(question, Question):
                question.pipelined()
        try:
            wire.send(data)
            for request in waiting:
                self.answered(request, wire.read())
        except OSError:
            for request in waiting:
                if isinstance(request, Request) and \
                        request.outcome == PENDING:
                    self.record.lost_answer(request)
                    self.give_up(request.event)
            raise

    def answered(self, request, reply):
        if not reply.endswith(b"\r\n"):
            raise ConnectionError("closed")
        if isinstance(request, Question):
            request.answer(reply)
            return
        if request.counts and reply[:1] == b"*":
            reply = counted(self.record, request, reply) or reply
        if not ANSWER.fullmatch(reply):
            self.record.wrong_answer(request, reply)
            self.unknown(request.event)
            return
        text = reply[1:-2].decode()
        self.record.answer(request, int(text) if reply[:1] == b":" else text)
        if request.outcome == UNKNOWN:
            self.unknown(request.event)
        self.acked += request.outcome == ACKED

    def give_up(self, event):
        """Sent, and not answered."""
        if self.load.late and event.t is None:
            self.left.add((event.kind, event.pair))
        else:
            self.unknown(event)

    def unknown(self, event):
        if self.random.random() < 0.5:
            self.again.append(event)

    def choose(self):
        again = [event for event in self.again
                 if (event.kind, event.pair) not in self.left]
        self.again = []
        return again + [self.fresh() for _ in
                        range(self.random.randint(1, self.load.pipeline))]

    def fresh(self):
        if self.load.reads and self.random.random() < 0.1:
            return None
        pair = self.choose_pair()
        last = self.last.get(pair)
        want = 1 - last.event.want if last else 1
        if self.random.random() < 0.2:
            want = 1 - want
        return self.record.event(self.number, *pair, want, pair in self.timed)

    def choose_pair(self):
        while True:
            hot = self.random.random() < 0.3
            pair = self.random.choice(self.pairs[:HOT] if hot else self.pairs)
            if self.load.kind in (None, pair[0]) and pair not in self.left:
                return pair

    def read(self):
        user = self.random.choice(self.users)
        return self.random.choice([
            ("LIKED", user, *POSTS), ("LIKECOUNT", *POSTS),
            ("FOLLOWING", user), ("FOLLOWERS", user), ("FOLLOWCOUNT", user),
            ("RELATION", user, *self.load.targets())])

    def evict(self):
        """Only what is known: nothing of that pair is under way anywhere."""
        if not self.keys or self.random.random() > 0.1:
            return
        names = []
        for kind, pair in self.random.sample(self.pairs, 20):
            last = self.last.get((kind, pair))
            if kind == "like" and last and last.outcome == ACKED:
                names.append(LIKES.hash_of(pair))
                self.record.evicted.add((kind, pair))
        with contextlib.suppress(redis_py.RedisError):
            self.keys.eval(EVICT, 1 + len(names), "likesync:state:like", *names)


class Load:
    """Clients, spread over the addresses: a unix socket's path, or (host,
    port). `roams`: each connect goes to any of them."""

    def __init__(self, record, addresses, *, seed, clients=4, pipeline=16,
                 pause=0.02, timeout=30.0, late=False, evict=None,
                 reads=True, roams=False):
        self.addresses, self.roams = addresses, roams
        self.record, self.seed, self.n_clients = record, seed, clients
        self.pipeline, self.pause, self.timeout = pipeline, pause, timeout
        self.late, self.evict, self.reads = late, evict, reads
        self.kind = None        # "like" or "follow": only those, from now on
        self.ended = threading.Event()
        self.held = threading.Event()
        self.clients = [Client(self, addresses[n % len(addresses)], n)
                        for n in range(clients)]

    @staticmethod
    def users_of(number):
        return range(1000 * (number + 1), 1000 * (number + 1) + USERS)

    def targets(self):
        """Users of all clients in turn, so that some follow each other."""
        return [self.users_of(n % self.n_clients)[n // self.n_clients]
                for n in range(min(8, USERS * self.n_clients))]

    def users(self):
        """Of all clients."""
        return [user for client in self.clients for user in client.users]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for client in self.clients:
            client.join(self.timeout + 30)

    def check(self):
        for client in self.clients:
            if client.failure:
                raise client.failure
            if client.is_alive() and self.ended.is_set():
                raise Failed(f"client {client.number} got no answer")

    def acked(self):
        return sum(client.acked for client in self.clients)

    def wait_acked(self, more, timeout=60.0):
        """Waits until `more` requests were acked from now on."""
        target = self.acked() + more

        def done():
            self.check()
            return self.acked() >= target
        wait_for(done, timeout, f"{more} more acked requests")

    def wait_each(self, more=1, timeout=60.0):
        """The same of each client."""
        targets = [client.acked + more for client in self.clients]

        def done():
            self.check()
            return all(client.acked >= target for client, target
                       in zip(self.clients, targets))
        wait_for(done, timeout, f"{more} more acked requests of each client")
