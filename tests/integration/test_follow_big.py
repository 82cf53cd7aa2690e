# SPDX-License-Identifier: MIT
"""One user with a million followers, of whom Redis knows nothing at first (I6,
I7); 300 000 when only a build with sanitizers is there (see test_scale.py)."""
import contextlib
import itertools
import re
import time

import pytest
import redis as redis_py

import harness
from servers import ROOT, wait_for
from test_scale import Pinger, Relay, peak_bytes, plain_build  # noqa: F401
from wire import Wire, encode

HUB, FIRST = 7, 1000
BASE = 1600000000
STEP = int(re.search(r"#define LISTS_STEP (\d+)", (
    ROOT / "daemon/services/lists.h").read_text())[1])
MEMORY_MAX = 128 * 1024 * 1024
# Red zones, shadow memory and 16 MiB of quarantine on top: 54 MiB measured.
SANITIZED_MAX = 256 * 1024 * 1024
PAGES_MAX = 64 * 1024 * 1024  # 32 MiB of pages, waiting or not
ROUNDS_MIN = 10         # of requests while the list is being loaded


def followers_put(pg, n):
    """Three at a time, three others follow."""
    pg.query(
        "INSERT INTO user_follow (user_id, followee_id, status, prev_status,"
        " ctime, mtime) SELECT %s + i, %s, 1, 0, to_timestamp(%s + i / 3),"
        " to_timestamp(%s + i / 3) FROM generate_series(0, %s) i",
        FIRST, HUB, BASE, BASE, n - 1)
    pg.query("INSERT INTO user_follow_count SELECT %s + i, 1, 0, now()"
             " FROM generate_series(0, %s) i", FIRST, n - 1)
    pg.query("INSERT INTO user_follow_count VALUES (%s, 0, %s, now())", HUB, n)
    pg.query("ANALYZE user_follow")


def oldest(numbers):
    """[id, time] of these followers, oldest first."""
    pairs = [(BASE + i // 3, str(FIRST + i)) for i in numbers]
    return [[each, str(since)] for since, each in
            sorted(pairs, key=lambda pair: (pair[0], pair[1].encode()))]


class Round:
    """Requests to other lists and to this one while it is being loaded."""

    def __init__(self, daemon, n):
        self.wire = Wire(daemon.socket)
        self.new = itertools.count(10 ** 8)
        # Of what is loaded by then, and of what is not.
        self.gone = itertools.chain.from_iterable(
            (FIRST + i, FIRST + n - 1 - i) for i in range(10, n, 1000))
        self.followed, self.unfollowed = [], []
        self.longest_ms = 0

    def play(self):
        new, old = next(self.new), next(self.gone)
        a, b = new + 10 ** 9, new + 2 * 10 ** 9
        dialog = [(("FOLLOW", a, b), b":1\r\n"),
                  (("RELATION", a, b), b"*1\r\n:1\r\n"),
                  (("FOLLOW", a, b), b":0\r\n"),
                  (("FOLLOW", new, HUB), b":1\r\n"),
                  (("UNFOLLOW", old, HUB), b":1\r\n"),
                  (("PING",), b"+PONG\r\n"),
                  (("RELATION", HUB, new, old), b"*2\r\n:2\r\n:0\r\n"),
                  (("UNFOLLOW", a, b), b":1\r\n"),
                  (("RELATION", b, a, HUB), b"*2\r\n:0\r\n:0\r\n")]
        start = time.monotonic()
        self.wire.send(b"".join(encode(*request) for request, _ in dialog))
        for request, reply in dialog:
            assert self.wire.read() == reply, request
        self.longest_ms = max(self.longest_ms,
                              (time.monotonic() - start) * 1000)
        self.followed.append(new)
        self.unfollowed.append(old)


@pytest.fixture
def big(bed, pg, plain_build):  # noqa: F811
    """(number of followers, database, Redis, relay to it, daemon)"""
    n = 300_000 if harness.build_has("LIKESYNCD_SANITIZE") else 1_000_000
    followers_put(pg, n)
    redis = bed.redis(appendonly="no")
    relay = Relay(bed, redis)
    yield n, pg, redis, relay, bed.daemon(relay, pg)
    relay.close()


def position(keys):
    return keys.hget(f"likesync:list:{HUB}:fans", "pos")


def load(daemon, keys, n):
    """The first page, then rounds until all is there."""
    rounds = Round(daemon, n)
    with contextlib.closing(daemon.client()) as client:
        start = time.monotonic()
        page = client.execute_command("FOLLOWERS", HUB, "COUNT", 10,
                                      "WITHTIMES")
        print(f"the first page took {(time.monotonic() - start) * 1000:.1f} "
              "ms")
        assert page == oldest(range(n - 13, n))[:-11:-1]
        assert keys.zcard(f"{HUB}:fans") < n / 2
        while position(keys) != "end":
            rounds.play()
            assert time.monotonic() - start < 120
            time.sleep(0.01)
        print(f"{n} were loaded in {time.monotonic() - start:.1f} s")
    print(f"{len(rounds.followed)} rounds of 9 requests meanwhile, the "
          f"longest took {rounds.longest_ms:.1f} ms")
    assert len(rounds.followed) >= ROUNDS_MIN
    return rounds


def check_pages(client, keys, n, rounds):
    """Ranges and walks of the whole list."""
    total = n + len(rounds.followed) - len(rounds.unfollowed)
    ask = client.execute_command
    assert ask("FOLLOWCOUNT", HUB) == [[0, total]]
    for options in ((), ("RANGE", 0, -1), ("RANGE", 5, total)):
        with pytest.raises(redis_py.ResponseError, match="use CURSOR"):
            ask("FOLLOWERS", HUB, *options)
    there = [each for each in oldest(range(11_100))
             if int(each[0]) not in rounds.unfollowed]
    assert pages(ask, "ASC", 11) == there[:11000]
    there = [each for each in oldest(range(n - 11_100, n))
             if int(each[0]) not in rounds.unfollowed][::-1]
    new = [[str(each), None] for each in rounds.followed[::-1]]
    walked = pages(ask, "DESC", 11)
    assert [each for each, _ in walked[:len(new)]] == \
        [each for each, _ in new]
    assert walked[len(new):] == there[:11000 - len(new)]
    middle = there[5000]
    rank = keys.zrevrank(f"{HUB}:fans", middle[0])
    assert ask("FOLLOWERS", HUB, "RANGE", rank, rank, "WITHTIMES") == [middle]


def pages(ask, order, n):
    """The items of n pages."""
    items, cursor = [], "0"
    for _ in range(n):
        cursor, more = ask("FOLLOWERS", HUB, "CURSOR", cursor, "COUNT", 1000,
                           order, "WITHTIMES")
        items += more
    return items


def check_steps(relay, redis, n):
    """No call took more rows than a step has; so many calls there were."""
    assert STEP <= 500
    assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] > n / STEP
    # Nothing else comes so often.
    loader = max((kind for kind in relay.calls if kind != "reply"),
                 key=relay.calls.get)
    # EVALSHA, hash, 0, what is for the whole call, and so much per row.
    assert relay.largest[loader] == 3 + 7 + 4 * STEP
    slow = [entry["duration"] / 1000 for entry in redis.slowlog_get(1000)
            if b"EVALSHA" in bytes(entry["command"])]
    print(f"{relay.calls[loader]} steps; {len(slow)} scripts took 10 ms or "
          f"more, {max(slow, default=0):.1f} ms at most")


def test_a_million_followers(big):
    n, pg, redis, relay, daemon = big
    keys = redis.client()
    keys.config_set("slowlog-log-slower-than", 10000)
    with Pinger(daemon) as pinger:
        pinger.enter("loading")
        rounds = load(daemon, keys, n)
        pinger.check()
    total = n + len(rounds.followed) - len(rounds.unfollowed)
    assert keys.zcard(f"{HUB}:fans") == total
    for new, old in zip(rounds.followed, rounds.unfollowed):
        assert keys.zscore(f"{HUB}:fans", new)
        assert keys.zscore(f"{HUB}:fans", old) is None
    with contextlib.closing(daemon.client()) as client:
        check_pages(client, keys, n, rounds)
    check_steps(relay, keys, n)
    daemon.drain(60)
    assert pg.query("SELECT count(*) FROM user_follow WHERE status = 1 AND"
                    " followee_id = %s", HUB) == [(total,)]
    assert pg.query("SELECT following_count, follower_count FROM"
                    " user_follow_count WHERE user_id = %s", HUB) == \
        [(0, total)]
    harness.check_exact(pg)
    wait_for(lambda: keys.ttl(f"{HUB}:fans") > 0, 10, "its TTL")
    peak = peak_bytes(daemon)
    print(f"the daemon's memory was {peak / 2**20:.1f} MiB at most")
    sanitized = harness.build_has("LIKESYNCD_SANITIZE")
    assert peak < (SANITIZED_MAX if sanitized else MEMORY_MAX)


def test_many_long_pages_at_a_time(bed, pg, redis, plain_build):  # noqa: F811
    """A client that asks for all of them at once. Their replies are not all made
    at a time, and those that would wait too long are refused."""
    n, pages = 10_000, 300
    followers_put(pg, n)
    daemon = bed.daemon(redis, pg)
    refused = 0
    with Wire(daemon.socket, timeout=60) as wire:
        wire.send(encode("FOLLOWERS", HUB, "COUNT", 1))
        first = wire.read()
        wire.send(encode("FOLLOWERS", HUB, "WITHTIMES", "VIEWER", 8))
        whole = wire.read()
        assert first[4:] in whole and whole.startswith(b"*%d\r\n" % n)
        wire.send(encode("FOLLOWERS", HUB, "WITHTIMES", "VIEWER", 8) * pages)
        for _ in range(pages):
            reply = wire.read()
            refused += reply.startswith(b"-TRYAGAIN ")
            assert reply == whole or reply.startswith(b"-TRYAGAIN ")
        assert wire.call("PING") == b"+PONG\r\n"
    peak = peak_bytes(daemon)
    print(f"{refused} of {pages} were refused; the daemon's memory was "
          f"{peak / 2**20:.1f} MiB at most")
    assert refused < pages
    assert daemon.metrics()["likesyncd_reads_waiting"] == 0
    sanitized = harness.build_has("LIKESYNCD_SANITIZE")
    assert peak < (SANITIZED_MAX if sanitized else PAGES_MAX)
