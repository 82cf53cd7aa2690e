# SPDX-License-Identifier: MIT
"""What PostgreSQL wrote into its log about the daemons: the evidence that a fault
took place. A case that reads it declares pg=LOGGED."""
import bed  # noqa: F401
from servers import DAEMON_ROLE

# Role and SQLSTATE in front of each line.
LOGGED = {"log_line_prefix": "%m [%p] %u %e "}


class Sign:
    """A text in the log, as often as it comes from now on."""

    def __init__(self, run, text):
        self.run, self.text = run, text
        self.before = self.count()

    def count(self):
        return self.run.cluster.log_text().count(self.text)

    def wait(self, more=1, failed=lambda: False):
        """Until it came so often since it was made; gives up when failed()."""
        target = self.before + more
        self.run.until(lambda: failed() or self.count() >= target,
                       f"{more} times {self.text!r} in PostgreSQL's log")
        self.before = self.count()


def refused(run, sqlstate):
    """PostgreSQL refuses something to a daemon with it."""
    return Sign(run, f" {DAEMON_ROLE} {sqlstate} ")
