# SPDX-License-Identifier: MIT
"""How late the event loops of the daemons were at the most, as they say
themselves. What a daemon says after a start or after it was stopped does not
count: then it was not its own fault."""
import contextlib
import threading
import time

import bed  # noqa: F401
from harness import Failed
from servers import process_state

LATE = "likesyncd_loop_delay_seconds"
SETTLE_S = 5            # it looks at its loop in steps of seconds


class Stalls(threading.Thread):
    def __init__(self, daemons):
        super().__init__(daemon=True)
        self.daemons = daemons
        self.since = {}         # daemon: since when its word counts
        self.pids = {}
        self.longest_s = 0.0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.2):
            for daemon in self.daemons:
                with contextlib.suppress(Failed, OSError):
                    self.look(daemon)

    def look(self, daemon):
        now = time.monotonic()
        if process_state(daemon.pid) not in "RSD" or \
                self.pids.get(daemon) != daemon.pid:
            self.pids[daemon] = daemon.pid
            self.since[daemon] = now + SETTLE_S
        elif now > self.since[daemon]:
            self.longest_s = max(self.longest_s, daemon.metrics()[LATE])

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.ended.set()
        self.join(20)
