# SPDX-License-Identifier: MIT
"""Applications that write the keys themselves, without the daemon."""
import contextlib
import time

import bed  # noqa: F401
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
        now = int(time.time())
        with contextlib.closing(self.run.redis.client()) as keys:
            like = record.event(-1, "like", (user, 901 + self.n % 3), 1, False)
            request, (_, post) = record.send(like), like.pair
            keys.sadd("post_set", post)
            keys.sadd(f"post_user_like_set_{post}", user)
            keys.hset(f"post_user_like_{post}_{user}", mapping={
                "status": 1, "post_id": post, "user_id": user,
                "ctime": now, "mtime": now})
            keys.incr(f"post_{post}_counter")
            record.answer(request, 1)
            follow = record.event(-1, "follow", (user, post), 1, False)
            request = record.send(follow)
            keys.sadd("follow_set", user)
            keys.sadd(f"user_follow_set_{user}", post)
            keys.hset(f"user_follow_{user}_{post}", mapping={
                "status": 1, "user_id": user, "followee_id": post,
                "ctime": now, "mtime": now})
            keys.zadd(f"{user}:follow", {post: now})
            keys.zadd(f"{post}:fans", {user: now})
            record.answer(request, 1)
            keys.incrby("post_990_counter", self.DELTA)
            keys.sadd("post_set", 990)
            record.unattributed += self.DELTA
