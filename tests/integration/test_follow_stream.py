# SPDX-License-Identifier: MIT
"""A real stream of follows, twice, by several clients; then everything that
can be asked is as an oracle has it: from what was just written, after Redis
lost all of it, and after the daemon died in the middle of loading it."""
import contextlib
import random
import threading

import pytest

import harness
from edges import check_clean
from graph import Graph, walk
from servers import ROOT, wait_for
from wire import Wire, encode

STREAM = ROOT / "tests" / "data" / "follows.tsv"
CLIENTS = 8
PIPELINE = 256
SEED = 20101108
needs_faults = pytest.mark.skipif(
    not harness.build_has("LIKESYNCD_FAULTS"),
    reason="built without LIKESYNCD_FAULTS")


class World:
    """The stream, what comes of it, and who is asked about."""

    def __init__(self):
        self.events = [tuple(line.split("\t")) for line in
                       STREAM.read_text().splitlines()]
        self.graph = Graph()
        self.changes = []
        for verb, user, other, time in self.events:
            self.changes.append(int(
                (self.graph.since(user, other) is None) == (verb == "FOLLOW")))
            if verb == "FOLLOW":
                self.graph.follow(user, other, int(time))
            else:
                self.graph.unfollow(user, other)
        rnd = random.Random(SEED)
        print("seed", SEED)
        everybody = sorted({user for event in self.events
                            for user in event[1:3]}, key=int)
        by_fans = sorted(everybody, reverse=True,
                         key=lambda user: len(self.graph.fans[user]))
        self.users = by_fans[:50] + rnd.sample(by_fans[50:], 50)
        self.viewers = {user: rnd.choice(everybody) for user in self.users}
        self.others = {user: rnd.choice(by_fans[:50]) for user in self.users}
        self.samples = {user: rnd.sample(everybody, 20)
                        for user in self.users}
        assert len(self.graph.fans[by_fans[0]]) > 500, "no list of two steps"


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def stack(session_bed, cluster, world):
    """Redis, the database and a daemon to which the stream was played."""
    pg = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        redis = bed.redis()
        daemon = bed.daemon(redis, pg)
        with harness.I1Watcher(pg) as watcher:
            play(daemon, world.events, world.changes)
            play(daemon, world.events, [0] * len(world.events))
            daemon.drain(60)
        print(watcher.checks, "checks of I1")
        yield redis, pg, daemon
    pg.drop()


def play(daemon, events, expected):
    """Each client sends a part, in order."""
    failures = []

    def send(number):
        mine = [(encode(verb, user, other, "AT", time), answer)
                for (verb, user, other, time), answer
                in list(zip(events, expected))[number::CLIENTS]]
        try:
            with Wire(daemon.socket, timeout=120) as wire:
                for start in range(0, len(mine), PIPELINE):
                    part = mine[start:start + PIPELINE]
                    wire.send(b"".join(request for request, _ in part))
                    for request, answer in part:
                        reply = wire.read()
                        assert reply == b":%d\r\n" % answer, (request, reply)
        except Exception as error:
            failures.append(error)

    clients = [threading.Thread(target=send, args=(number,))
               for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(200)
        assert not client.is_alive()
    assert not failures, failures[0]


def check_lists(world, ask, users):
    """Both lists of each, in both orders, by rank and by cursor, with times
    and relations to somebody else and to the user."""
    graph = world.graph
    for user in users:
        for command in ("FOLLOWING", "FOLLOWERS"):
            viewer = world.viewers[user]
            newest = graph.entries(command, user)
            ids = [each for each, _ in newest]
            timed = [[each, str(time)] for each, time in newest]
            related = [[each, str(time), graph.relation(viewer, each)]
                       for each, time in newest]
            assert ask(command, user) == ids
            assert ask(command, user, "ASC", "WITHTIMES") == timed[::-1]
            assert walk(ask, command, user, "WITHTIMES", count=70) == timed
            assert walk(ask, command, user, "ASC") == ids[::-1]
            assert ask(command, user, "RANGE", 10, 29, "WITHTIMES", "VIEWER",
                       viewer) == related[10:30]
            assert walk(ask, command, user, "WITHTIMES", "VIEWER",
                        viewer, count=100) == related
            assert ask(command, user, "RANGE", 0, 49, "VIEWER", user) == [
                [each, graph.relation(user, each)] for each in ids[:50]]
            assert ask(command, user, "RANGE", -5, -1) == ids[-5:]


def check_relations(world, ask, users):
    graph = world.graph
    assert ask("FOLLOWCOUNT", *users) == [graph.counts(u) for u in users]
    for user in users:
        near = [each for each, _ in graph.entries("FOLLOWERS", user)[:20]]
        them = world.samples[user] + near
        assert ask("RELATION", user, *them) == [graph.relation(user, other)
                                                for other in them]
        for request in (("MUTUALS", user),
                        ("COMMON", user, world.others[user])):
            entries = graph.entries(*request)
            ids = [each for each, _ in entries]
            timed = [[each, str(time)] for each, time in entries]
            assert ask(*request) == ids
            assert ask(*request, "ASC", "WITHTIMES") == timed[::-1]
            assert ask(*request, "RANGE", 3, 12) == ids[3:13]
            assert walk(ask, *request, "WITHTIMES", count=20) == timed
            assert walk(ask, *request, "ASC", count=50) == ids[::-1]


def check_all(world, daemon):
    with contextlib.closing(daemon.client(timeout=60)) as client:
        check_lists(world, client.execute_command, world.users)
        check_relations(world, client.execute_command, world.users)


def forget(redis, daemon):
    daemon.drain()
    redis.client().flushall()


def test_the_stream_is_in_the_tables(stack, world):
    redis, pg, daemon = stack
    rows = pg.query("SELECT user_id::text, followee_id::text,"
                    " extract(epoch FROM ctime)::bigint FROM user_follow"
                    " WHERE status = 1")
    assert sorted(rows) == sorted(
        (user, other, world.graph.since(user, other))
        for user, other in world.graph.edges())
    check_clean(redis, pg)


def test_what_was_written_is_answered(stack, world):
    check_all(world, stack[2])


def test_after_redis_lost_everything(stack, world):
    redis, pg, daemon = stack
    forget(redis, daemon)
    check_all(world, daemon)
    check_clean(redis, pg)


def test_relations_first_after_redis_lost_everything(stack, world):
    """Nothing has been loaded when they are asked for."""
    redis, pg, daemon = stack
    forget(redis, daemon)
    with contextlib.closing(daemon.client(timeout=60)) as client:
        check_relations(world, client.execute_command, world.users)
    check_clean(redis, pg)


def half_loaded(redis, requests):
    """How many of these lists somebody began to load and did not end."""
    with contextlib.closing(redis.client()) as keys:
        positions = [keys.hget("likesync:list:%s:%s" % (
            user, "follow" if command == "FOLLOWING" else "fans"), "pos")
            for command, user in requests]
    return sum(pos not in (None, "end") for pos in positions)


@needs_faults
@pytest.mark.parametrize("order", ["DESC", "ASC"])
def test_after_each_list_was_half_loaded(stack, world, order):
    """A few lists at a time are being loaded when the daemon is killed: as
    they begin, when what is not synced is in, or after a step."""
    redis, pg, daemon = stack
    forget(redis, daemon)
    daemon.term()
    requests = [(command, user) for user in world.users
                for command in ("FOLLOWERS", "FOLLOWING")
                if world.graph.entries(command, user)]
    halves = 0
    faults = ("list_begun:4", "list_overlaid:1", "list_begun:3",
              "list_overlaid:3", "list_step:1")
    for number, start in enumerate(range(0, len(requests), 4)):
        group = requests[start:start + 4]
        fault = faults[number % len(faults)]
        if len(group) < 4:
            fault = "list_begun:1"
        daemon.start(fault, wait=None)
        wait_for(daemon.socket.exists, 30, "its socket")
        half_load(daemon, group, order)
        halves += half_loaded(redis, group)
    print(halves, "of", len(requests), "lists were half-loaded")
    assert halves > len(requests) // 2
    daemon.start()
    check_all(world, daemon)
    check_clean(redis, pg)


def half_load(daemon, group, order):
    """Asks until it has died of it: at first, it may not know its backends
    yet."""
    def died():
        if daemon.running():
            with contextlib.suppress(OSError):
                with Wire(daemon.socket) as wire:
                    wire.send(b"".join(encode(*request, order)
                                       for request in group))
                    for _ in group:
                        wire.read()
        return not daemon.running()
    wait_for(died, 30, "its end")
    daemon.wait_fault()
