# SPDX-License-Identifier: MIT
"""How late the event loops of the daemons were at the most, as they say
themselves from their first word on: on /metrics stands the longest delay of this
second and of the one before. What a daemon says after it was stopped does not
count: that was not its own fault. Nor what the machine does to everybody, which
a thread shows that does nothing but sleep: a stall is what a loop was late by
more than that. So a test on a machine that is busy or stands still does not fail."""
import contextlib
import http.client
import threading
import time

import bed  # noqa: F401
from harness import Failed

LATE = "likesyncd_loop_delay_seconds"
LIMIT_S = 0.1
SHOWN_S = 2             # for so long a delay may be shown
LOOK_S = 0.2
TICK_S = 0.01


class Sleeper(threading.Thread):
    """Knows when it was woken too late, and by how much."""

    def __init__(self):
        super().__init__(daemon=True)
        self.lates = []         # (when it woke, how late)
        self.ended = False

    def run(self):
        while not self.ended:
            due = time.monotonic() + TICK_S
            time.sleep(TICK_S)
            now = time.monotonic()
            self.lates.append((now, now - due))

    def longest_s(self, since):
        """Of those that were not over by then."""
        longest = 0.0
        for at, late in reversed(self.lates):
            if at < since:
                break
            longest = max(longest, late)
        return longest


class Looker(threading.Thread):
    """Looks at one daemon, so that another that is stopped is not in its way."""

    def __init__(self, daemon, sleeper):
        super().__init__(daemon=True)
        self.server, self.sleeper = daemon, sleeper
        self.longest_s = None   # nothing was seen yet
        self.own_s = 0.0        # at the most, without what the machine was late
        self.ended = threading.Event()

    def run(self):
        is_last = False
        while not is_last:
            is_last = self.ended.wait(LOOK_S)
            with contextlib.suppress(Failed, OSError,
                                     http.client.HTTPException):
                self.look()

    def look(self):
        pid = self.server.pid
        late = self.server.metrics()[LATE]
        since = time.monotonic() - SHOWN_S
        if self.server.pid == pid and self.server.resumed_at < since:
            self.longest_s = max(self.longest_s or 0.0, late)
            self.own_s = max(self.own_s,
                             late - self.sleeper.longest_s(since - late))


class Stalls:
    """with Stalls(daemons) as stalls: ..."""

    def __init__(self, daemons):
        self.sleeper = Sleeper()
        self.lookers = [Looker(daemon, self.sleeper) for daemon in daemons]

    def longest_ms(self):
        """None: nothing was seen."""
        seen = [looker.longest_s for looker in self.lookers
                if looker.longest_s is not None]
        return max(seen) * 1000 if seen else None

    def found(self):
        """A text for each daemon that stood still by itself."""
        return [f"{looker.server.dir.name}: its loop was late by"
                f" {looker.own_s * 1000:.0f} ms more than the machine"
                for looker in self.lookers if looker.own_s > LIMIT_S]

    def __enter__(self):
        for thread in (self.sleeper, *self.lookers):
            thread.start()
        return self

    def __exit__(self, *_):
        for looker in self.lookers:
            looker.ended.set()
        for looker in self.lookers:
            looker.join(20)
        self.sleeper.ended = True
        self.sleeper.join(20)
