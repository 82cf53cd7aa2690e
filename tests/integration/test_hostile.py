# SPDX-License-Identifier: MIT
"""A network that is not kind: beside each of attacks.py's attacks, others get
the right answers all the time, what the daemon holds is bounded, and it rests
when the attackers do.

Each runs on the build under test, and its memory is that of a plain build:
LIKESYNCD_PLAIN_BUILD, see run.sh."""
import contextlib
import os
import pathlib
import random
import re
import select
import threading
import time

import pytest

import attacks
import harness
from attacks import ATTACKS, MIB, Peer
from wire import Wire, encode

SEED = 20240611
PLAIN = os.environ.get("LIKESYNCD_PLAIN_BUILD")
BUILDS = {"tested": harness.BUILD}
if PLAIN:
    BUILDS["plain"] = pathlib.Path(PLAIN)
HZ = os.sysconf("SC_CLK_TCK")
REST = 0.2      # of a processor, at most
# On a machine that stalls, nobody's answer shall be a timeout.
PATIENT = {"redis_timeout_ms": 30000, "postgres_lookup_timeout_ms": 30000}


@pytest.fixture(params=BUILDS, autouse=True)
def build(request, monkeypatch):
    monkeypatch.setattr(harness, "BUILD", BUILDS[request.param])
    attacks.allow_files(4096)


class Neighbour(threading.Thread):
    """A client that knows what each of its answers must be: nobody else uses
    its users and posts, which have twelve digits."""

    POSTS = 20

    def __init__(self, daemon, number):
        super().__init__(daemon=True)
        self.wire = Wire(daemon.socket, timeout=60)
        self.user = 900_000_000_000 + number
        self.posts = [self.user + 1000 * i for i in range(self.POSTS)]
        self.liked = set()
        self.random = random.Random(f"{SEED}/{number}")
        self.answered = 0
        self.failure = None
        self.ended = threading.Event()
        self.go = threading.Event()
        self.idle = threading.Event()
        self.go.set()

    def run(self):
        try:
            while not self.ended.is_set():
                self.talk()
                if not self.go.is_set():
                    self.idle.set()
                    self.go.wait()
                    self.idle.clear()
                self.ended.wait(0.002)
        except BaseException as error:      # reported by the main thread
            self.failure = error
        finally:
            self.idle.set()

    def talk(self):
        """A pipeline, and its replies as bytes. Reads come last: they may see
        a write that was sent right behind them."""
        rnd = self.random
        talk = [self.event() for _ in range(rnd.randrange(12))]
        talk.append(self.counted_event())
        talk += [self.read() for _ in range(rnd.randrange(5))]
        self.wire.send(b"".join(request for request, _ in talk))
        for request, expected in talk:
            reply = self.wire.read()
            if reply != expected:
                raise harness.Failed(f"{request!r} was answered {reply!r}, "
                                     f"not {expected!r}")
            self.answered += 1

    def event(self):
        """(request, what must be answered), as have the next two."""
        on = self.random.random() < 0.5
        post = self.random.choice(self.posts)
        return encode("LIKE" if on else "UNLIKE", self.user, post), \
            b":%d\r\n" % self.change(post, on)

    def counted_event(self):
        post = self.random.choice(self.posts)
        return encode("LIKE", self.user, post, "WITHCOUNT"), \
            b"*2\r\n:%d\r\n:1\r\n" % self.change(post, True)

    def read(self):
        verb = ["LIKED", self.user] if self.random.random() < 0.5 else \
            ["LIKECOUNT"]
        return encode(*verb, *self.posts), \
            b"*%d\r\n" % self.POSTS + b"".join(
                b":%d\r\n" % (post in self.liked) for post in self.posts)

    def change(self, post, on):
        changed = (post in self.liked) != on
        (self.liked.add if on else self.liked.discard)(post)
        return changed


class Neighbours:
    """Two of them, all the while."""

    def __init__(self, daemon):
        print(f"neighbours: seed {SEED}")
        self.daemon = daemon
        self.all = [Neighbour(daemon, n) for n in range(2)]

    def __enter__(self):
        for one in self.all:
            one.start()
        self.wait_answered(100)
        return self

    def __exit__(self, kind, error, trace):
        for one in self.all:
            one.ended.set()
            one.go.set()
            one.join(90)
            one.wire.close()
        if kind is None:
            self.check()

    def check(self):
        for one in self.all:
            if one.failure:
                raise harness.Failed(f"a neighbour: {one.failure!r}") \
                    from one.failure

    def wait_answered(self, more):
        """Until each got so many more answers, all of them right."""
        goals = [one.answered + more for one in self.all]

        def done():
            self.check()
            return all(one.answered >= goal
                       for one, goal in zip(self.all, goals))
        harness.wait_for(done, 90, f"{more} answers to a neighbour")

    @contextlib.contextmanager
    def quiet(self):
        """They stay connected, and say nothing."""
        for one in self.all:
            one.go.clear()
        for one in self.all:
            assert one.idle.wait(90)
        self.check()
        yield
        for one in self.all:
            one.go.set()

    def check_rows(self, pg):
        """What they were told is durable; call after the end."""
        self.daemon.drain(60)
        for one in self.all:
            rows = pg.query("SELECT post_id FROM user_like_post"
                            " WHERE user_id = %s AND status = 1", one.user)
            assert {post for post, in rows} == one.liked
        harness.check_exact(pg)


def cpu_s(daemon):
    stat = pathlib.Path(f"/proc/{daemon.pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def check_rest(daemon):
    """It comes to rest: over a second, it uses little of a processor."""
    def share():
        start, used = time.monotonic(), cpu_s(daemon)
        time.sleep(1)
        return (cpu_s(daemon) - used) / (time.monotonic() - start)
    harness.wait_for(lambda: share() < REST, 60,
                     f"a second with under {REST:.0%} of a processor used")


class Memory:
    """The greatest resident size of a daemon from here on."""

    def __init__(self, daemon):
        self.pid = daemon.pid
        # See proc(5): VmHWM starts again at VmRSS.
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        self.before = self.peak()

    def peak(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) * 1024

    def check(self, name, most_mib):
        grown = (self.peak() - self.before) / MIB
        print(f"{name}: memory grew from {self.before / MIB:.1f} MiB by "
              f"{grown:.1f} at most, of {most_mib}")
        if not harness.build_has("LIKESYNCD_SANITIZE"):
            assert grown < most_mib


def clients(daemon):
    return daemon.metrics()["likesyncd_clients"]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(bed, redis, pg, name):
    print(f"{name}: seed {SEED}")
    kind = ATTACKS[name]
    daemon = bed.daemon(redis, pg, tcp=True, **PATIENT, **kind.options)
    attack = kind([daemon.socket, ("127.0.0.1", daemon.port)],
                  random.Random(SEED))
    with Neighbours(daemon) as neighbours:
        before, memory = clients(daemon), Memory(daemon)
        with contextlib.closing(attack):
            for _ in range(kind.rounds):
                attack.step()
                neighbours.check()
            neighbours.wait_answered(100)
            with neighbours.quiet():
                check_rest(daemon)
            attack.check()
        neighbours.wait_answered(100)
        harness.wait_for(lambda: clients(daemon) == before, 60,
                         "all attackers to be gone")
        memory.check(name, kind.memory_mib)
        with neighbours.quiet():
            check_rest(daemon)
    neighbours.check_rows(pg)


class Crowd:
    """A client with many reads, ten times what goes to the backends at a
    time."""

    READS = 4000
    ASK = encode("LIKED", attacks.USER, 1000)
    REPLY = b"*1\r\n:0\r\n"

    def __init__(self, daemon):
        self.daemon = daemon
        self.peer = Peer(daemon.socket)

    def waiting(self):
        return self.daemon.metrics()["likesyncd_reads_waiting"]

    def send(self):
        """Until as many as can wait do."""
        rest = self.ASK * self.READS
        while rest:
            rest = rest[self.peer.push(rest):]
        harness.wait_for(lambda: self.waiting() > self.READS * 0.7, 60,
                         "most of them to wait")

    def answered(self):
        return self.peer.pull_all() // len(self.REPLY)

    def take(self):
        harness.wait_for(lambda: self.answered() == self.READS, 60,
                         "all of them to be answered")
        assert self.peer.inbox == self.REPLY * self.READS
        self.peer.inbox.clear()

    def overtaken(self, redis):
        """Sends while Redis stands still, and then another asks something:
        how many of these are answered when that is."""
        with contextlib.closing(Peer(self.daemon.socket)) as other:
            redis.pause()
            try:
                self.send()
                before = self.waiting()
                other.push(encode("LIKED", attacks.USER, 1))
                harness.wait_for(lambda: self.waiting() > before, 60,
                                 "the other to wait")
            finally:
                redis.resume()
            while not other.pull():
                assert select.select([other.socket, self.peer.socket], [], [],
                                     60)[0]
                self.answered()
            answered = self.answered()
            assert other.inbox == self.REPLY
        self.take()
        return answered


def test_readers_take_turns(bed, redis, pg):
    """Who comes last is not answered last. (On a machine that stalls we may
    see it late; not every time.)"""
    crowd = Crowd(bed.daemon(redis, pg, server_max_pipeline=2 * Crowd.READS,
                             **PATIENT))
    with contextlib.closing(crowd.peer):
        answered = []
        while min(answered, default=crowd.READS) > crowd.READS / 2:
            assert len(answered) < 10, answered
            answered.append(crowd.overtaken(redis))
        print(f"answered before the other was: {answered} of {crowd.READS}")


class Knocking(threading.Thread):
    """Tries to get in, without end; counts how often it was told that there
    are too many."""

    REFUSAL = b"-ERR max number of clients reached\r\n"

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.path = daemon.socket
        self.refused = 0
        self.got_in = []
        self.failure = None
        self.ended = threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                self.knock()
                self.ended.wait(0.002)
        except Exception as error:      # reported by the main thread
            self.failure = error

    def knock(self):
        """Who is let in says PONG, and stays."""
        peer = Peer(self.path)
        peer.push(encode("PING"))
        harness.wait_for(lambda: peer.pull_all() or peer.ended, 60,
                         "an answer at the door")
        if peer.inbox == b"+PONG\r\n":
            self.got_in.append(peer)
            return
        harness.wait_for(peer.is_over, 60, "who is refused to be closed")
        peer.close()
        assert peer.inbox == self.REFUSAL, peer.inbox
        self.refused += 1

    def wait_refused(self, more):
        goal = self.refused + more
        harness.wait_for(lambda: self.failure or self.refused >= goal, 90,
                         f"{more} more to be refused")
        assert not self.failure, self.failure

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(90)
        for peer in self.got_in:
            peer.close()


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def test_few_descriptors(bed):
    """With 64 descriptors there are fewer places for clients; the backends,
    HTTP and the admin listener have theirs, also when all clients' are taken
    and many are at the door."""
    redis, cluster = bed.redis(), bed.postgres()
    pg = cluster.create_database()
    daemon = bed.daemon(redis, pg, nofile=64, **PATIENT)
    with Neighbours(daemon) as neighbours, Knocking(daemon) as knocking:
        knocking.wait_refused(50)
        print(f"{len(knocking.got_in)} got in, {descriptors(daemon)} "
              "descriptors are in use")
        assert 1 <= len(knocking.got_in) + 2 == clients(daemon) < 64
        neighbours.wait_answered(100)
        with neighbours.quiet():
            for server in redis, cluster:
                server.restart()
                knocking.wait_refused(20)
                harness.wait_for(lambda: is_up(daemon), 60,
                                 "both backends to be up again")
            daemon.drain(60)        # so the admin listener lets us in
        neighbours.wait_answered(100)
        for peer in knocking.got_in:
            peer.push(encode("PING"))
            harness.wait_for(lambda: peer.pull_all() == 14, 30, "a PONG")
        knocking.ended.set()
        knocking.join(90)
        with neighbours.quiet():
            check_rest(daemon)
    neighbours.check_rows(pg)


def is_up(daemon):
    up = daemon.metrics()
    return up["likesyncd_redis_up"] == 1 and up["likesyncd_postgres_up"] == 1
