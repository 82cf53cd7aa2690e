# SPDX-License-Identifier: MIT
"""Applications that write the keys themselves, without the daemon."""
import contextlib
import time

import bed  # noqa: F401
from edges import app_follows, app_likes
from harness import Failed


class Others:
    """An application that writes the keys by their recipe; and one that moves
    a counter only."""

    DELTA = 5

    def __init__(self, run):
        self.run, self.n = run, 0
        self.listed = []        # requests that only `adopt follows` will see

    def write_lists(self):
        """Of an edge, the lists only: as from before there was a daemon."""
        user, other = 950000 + len(self.listed), 901
        event = self.run.record.event(-1, "follow", (user, other), 1, False)
        self.listed.append(self.run.record.send(event))
        now = int(time.time())
        with contextlib.closing(self.run.redis.client()) as keys:
            keys.zadd(f"{user}:follow", {other: now})
            keys.zadd(f"{other}:fans", {user: now})

    def adopt(self, daemon):
        """All of that, to the end."""
        status, text = daemon.ctl("adopt", "follows")
        if status != 0:
            raise Failed(f"adopt follows: {status}\n{text}")
        for request in self.listed:
            self.run.record.answer(request, 1)
        # A list that was taken over expires after it is read.
        with contextlib.closing(self.run.redis.client()) as keys, \
                contextlib.closing(daemon.client()) as client:
            for end, command in (("follow", "FOLLOWING"), ("fans", "FOLLOWERS")):
                for name in keys.scan_iter(f"9*:{end}", count=1000):
                    client.execute_command(command, name.split(":")[0])

    def write(self):
        user, record = 900000 + self.n, self.run.record
        self.n += 1
        with contextlib.closing(self.run.redis.client()) as keys:
            like = record.event(-1, "like", (user, 901 + self.n % 3), 1, False)
            request = record.send(like)
            app_likes(keys, *like.pair)
            record.answer(request, 1)
            follow = record.event(-1, "follow", like.pair, 1, False)
            request = record.send(follow)
            app_follows(keys, *follow.pair)
            record.answer(request, 1)
            keys.incrby("post_990_counter", self.DELTA)
            keys.sadd("post_set", 990)
            record.unattributed += self.DELTA
