# SPDX-License-Identifier: MIT
"""What does not grow with the backlog: the work of one script call, the
daemon's memory, and whether it answers at all (I6, I7).

Between the daemon and Redis stands a relay that looks at the head of every
array that passes, so the sizes are those of all calls, not of samples. Memory
is that of a plain build: LIKESYNCD_PLAIN_BUILD, see run.sh."""
import contextlib
import os
import pathlib
import re
import socket
import threading
import time

import pytest

import harness

LIKES = 200_000
CLAIM_ROWS = 500  # as by default
EVENTS = 128      # of one call, in services/ingest.c
MEMORY_MAX = 64 * 1024 * 1024
CONNECTIONS = 4
PIPELINE = 512
PLAIN = os.environ.get("LIKESYNCD_PLAIN_BUILD")


@pytest.fixture(autouse=True)
def plain_build(monkeypatch):
    """The daemon without sanitizers, where there is one."""
    if PLAIN:
        monkeypatch.setattr(harness, "BUILD", pathlib.Path(PLAIN))


class Relay:
    """A unix socket that leads to Redis' own. `largest` holds the greatest
    number of elements by kind of array: requests by the hash of their script
    ("other" without one), and "reply"."""

    SCRIPT = re.compile(rb"\*(\d+)\r\n\$(?!7\r\nEVALSHA)|\*(\d+)\r\n\$7\r\n"
                        rb"EVALSHA\r\n\$40\r\n([0-9a-f]{40})\r\n")
    ARRAY = re.compile(rb"\*(\d+)\r\n")
    OVERLAP = 96  # more than a match

    def __init__(self, bed, redis):
        self.path = bed.dir / "relay"
        self.target = str(redis.socket)
        self.address = f"unix:{self.path}"
        self.largest = {}
        self.calls = {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.target)
            for source, sink, see in ((near, far, self.see_request),
                                      (far, near, self.see_reply)):
                threading.Thread(target=self.copy, daemon=True,
                                 args=(source, sink, see)).start()

    def copy(self, source, sink, see):
        tail = b""
        with contextlib.suppress(OSError):
            while True:
                chunk = source.recv(256 * 1024)
                if not chunk:
                    break
                seen = tail + chunk
                see(seen, len(tail))
                tail = seen[-self.OVERLAP:]
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def note(self, kind, n):
        self.largest[kind] = max(n, self.largest.get(kind, 0))
        self.calls[kind] = self.calls.get(kind, 0) + 1

    def see_request(self, seen, known):
        for match in self.SCRIPT.finditer(seen):
            if match.end() <= known:
                continue
            if match[3]:
                self.note(match[3].decode(), int(match[2]))
            else:
                self.note("other", int(match[1]))

    def see_reply(self, seen, known):
        for match in self.ARRAY.finditer(seen):
            if match.end() > known:
                self.note("reply", int(match[1]))

    def close(self):
        self.listener.close()


class Pinger(threading.Thread):
    """PING on a connection of its own, all the while."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.client = daemon.client(timeout=60)
        self.phase = "start"
        self.answered = {}
        self.longest_ms = {}
        self.failure = None
        self.ended = threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                phase, start = self.phase, time.monotonic()
                assert self.client.ping()
                took = (time.monotonic() - start) * 1000
                self.answered[phase] = self.answered.get(phase, 0) + 1
                self.longest_ms[phase] = max(took,
                                             self.longest_ms.get(phase, 0))
                self.ended.wait(0.005)
        except Exception as error:
            self.failure = error

    def enter(self, phase):
        """Starts a phase; at least one PING that was sent in the last one is
        answered in it."""
        self.check()
        self.phase = phase

    def check(self):
        phase = self.phase
        harness.wait_for(lambda: self.failure or self.answered.get(phase), 60,
                         f"a PONG while {phase}")
        if self.failure:
            raise harness.Failed(f"PING while {phase}: {self.failure}")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, trace):
        self.ended.set()
        self.join(60)
        self.client.close()
        if kind is None:
            assert not self.failure, self.failure
        for phase, n in self.answered.items():
            print(f"PING while {phase}: {n} answered, the longest took "
                  f"{self.longest_ms[phase]:.1f} ms")


def encode(user, post):
    return (f"*3\r\n$4\r\nLIKE\r\n${len(user)}\r\n{user}\r\n"
            f"${len(post)}\r\n{post}\r\n")


def fill(daemon, pairs):
    """LIKEs all (user, post) over several connections; each must answer 1."""
    failures = []

    def play(mine):
        try:
            with contextlib.closing(daemon.raw()) as connection:
                connection.settimeout(120)
                for start in range(0, len(mine), PIPELINE):
                    chunk = mine[start:start + PIPELINE]
                    connection.sendall("".join(
                        encode(str(user), str(post))
                        for user, post in chunk).encode())
                    due = 4 * len(chunk)
                    got = b""
                    while len(got) < due:
                        part = connection.recv(65536)
                        assert part, "closed"
                        got += part
                    assert got == b":1\r\n" * len(chunk), got[:200]
        except Exception as error:
            failures.append(error)

    players = [threading.Thread(target=play, args=(pairs[i::CONNECTIONS],))
               for i in range(CONNECTIONS)]
    for player in players:
        player.start()
    for player in players:
        player.join(150)
    assert not failures, failures[0]


def peak_bytes(daemon):
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) * 1024


@pytest.mark.parametrize("shape", ["one_post", "many_posts"])
def test_a_great_backlog(bed, pg, shape):
    redis = bed.redis()
    relay = Relay(bed, redis)
    daemon = bed.daemon(relay, pg)
    admin = daemon.admin(timeout=120)
    admin.execute_command("FLUSHER", "PAUSE")
    if shape == "one_post":
        pairs = [(user, 42) for user in range(LIKES)]
    else:
        pairs = [(7, post) for post in range(LIKES)]

    with Pinger(daemon) as pinger:
        pinger.enter("filling")
        fill(daemon, pairs)
        keys = redis.client()
        assert keys.scard("post_set") == len({post for _, post in pairs})
        assert pg.value("SELECT count(*) FROM user_like_post") == 0
        pinger.enter("flushing")
        admin.execute_command("FLUSHER", "RESUME")
        daemon.drain(timeout=120)
        pinger.check()

    assert pg.query("SELECT count(*), sum(status), count(DISTINCT post_id)"
                    "  FROM user_like_post") == \
        [(LIKES, LIKES, len({post for _, post in pairs}))]
    assert pg.value("SELECT sum(like_count) FROM post_like") == LIKES
    harness.check_exact(pg)
    assert not keys.exists("post_set", "likesync:pass:like",
                           "likesync:parts:like", "likesync:onrecord:like")
    if shape == "one_post":
        assert daemon.client().execute_command("LIKECOUNT", 42) == [LIKES]

    # EVALSHA, hash, 0, what is for the whole call, and so much per row.
    # An owner is as much work as a pair.
    largest = relay.largest
    rows = CLAIM_ROWS if shape == "one_post" else CLAIM_ROWS // 2
    ack_max, event_max = 7 + 6 * rows, 6 + 4 * EVENTS
    requests = sorted(n for kind, n in largest.items() if kind != "reply")
    print(f"{shape}: greatest requests {requests}, reply {largest['reply']}, "
          f"{sum(relay.calls.values()) - relay.calls['reply']} calls")
    assert requests[-1] == ack_max    # so whole calls were seen,
    assert requests[-2] == event_max  # of both scripts that take rows
    # Claims: five values, six a row, and a number of orphans: there are none.
    assert largest["reply"] == 6 + 6 * rows
    relay.close()

    peak = peak_bytes(daemon)
    print(f"{shape}: the daemon's memory was {peak / 2**20:.1f} MiB at most")
    if not harness.build_has("LIKESYNCD_SANITIZE"):
        assert peak < MEMORY_MAX


def commands_by_call(redis):
    """[commands that a script call made], from a SLOWLOG that logs all."""
    by_call, inside = [], []
    for entry in reversed(redis.slowlog_get(10**6)):
        name = entry["command"].split(b" ")[0].upper()
        if name in (b"EVALSHA", b"EVAL"):
            by_call.append(inside)
        if name in (b"EVALSHA", b"EVAL", b"SLOWLOG", b"CONFIG"):
            inside = []
        else:
            inside.append(name)
    return by_call


@pytest.mark.parametrize("what", ["members_without_a_hash",
                                  "posts_without_members"])
def test_what_is_no_row_is_bounded_too(bed, pg, what):
    """Left over by others, or by a Redis that lost a part: nothing comes of
    it, but it has to be looked at."""
    claim_rows, looks, n = 50, 100, 3000
    redis = bed.redis(slowlog_max_len="1000000")
    keys = redis.client(decode=False)
    if what == "members_without_a_hash":
        keys.sadd("post_set", 42)
        keys.sadd("post_user_like_set_42", *range(n))
    else:
        keys.sadd("post_set", *range(n))
    keys.config_set("slowlog-log-slower-than", 0)
    daemon = bed.daemon(redis, pg, flush_claim_rows=claim_rows)
    daemon.drain(timeout=60)
    calls = commands_by_call(keys)
    assert sum(len(call) for call in calls) > 2 * n  # they are logged
    print(f"{what}: {len(calls)} calls, the longest of "
          f"{max(map(len, calls))} commands")
    # No more than six commands for each that it looks at.
    assert max(map(len, calls)) <= 6 * (claim_rows + looks) + 50
    assert not keys.exists("post_set", "post_user_like_set_42",
                           "likesync:again:like")
    assert pg.value("SELECT count(*) FROM user_like_post") == 0
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 0
