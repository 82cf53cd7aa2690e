# SPDX-License-Identifier: MIT
"""Records and facts made by hand, for the tests of what judges them."""
import bed  # noqa: F401
import checker
from checker import Change, Facts
from record import Record

TIMED = ("like", (1, 10))
ORDERED = ("like", (1, 11))
POISON = ("like", (13, 10))


class Story:
    """A record, and facts that agree with it until a test changes them."""

    def __init__(self):
        self.record = Record()
        self.facts = Facts(through={"like": 2, "follow": 2})
        self.before = {"like": 1, "follow": 1}
        self.clock = 100.0

    def ask(self, key, want, answer=None, event=None):
        """answer: 0 or 1, an error's text, or None: no answer."""
        record = self.record
        event = event or record.event(0, *key, want, key == TIMED)
        request = record.send(event)
        request.sent = self.clock
        if answer is None:
            record.lost_answer(request)
        else:
            record.answer(request, answer)
        self.clock += 1
        request.answered = self.clock
        return event

    def write(self, event, status=None, us=None):
        """The daemon's part: the row and its audit."""
        key = event.kind, event.pair
        status = event.want if status is None else status
        us = us or event.t or int(self.clock * 1e6)
        old = self.facts.rows.get(key, (None, None))
        self.facts.rows[key] = status, us
        self.facts.audit.setdefault(key, []).append(
            Change(old[0], status, old[1], us))

    def judge(self, errors=checker.ERRORS, mostly=("refused", "unknown")):
        return checker.judge(self.record, self.facts, self.before, errors, mostly)

    def checks(self):
        return self.judge().checks()
