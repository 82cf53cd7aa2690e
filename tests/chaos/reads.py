# SPDX-License-Identifier: MIT
"""What clients read meanwhile, of pairs of their own: a read sees what was answered
before it. Judged when all is over, since only then windows of loss are known."""
import re

from record import REFUSED, Read

KINDS = {"LIKED": "like", "RELATION": "follow"}     # of those that are judged
SHOWN = 4


class Question:
    """One read of a pipeline."""

    def __init__(self, words, record):
        verb, user, *ids = words
        self.words, self.record = words, record
        self.keys = [(KINDS[verb], (user, i)) for i in ids] \
            if verb in KINDS else []
        self.before = self.sent()
        self.until = None

    def sent(self):
        """How many requests of each pair there are by now."""
        return [len(self.record.requests.get(key, ())) for key in self.keys]

    def pipelined(self):
        """All of its pipeline is written down: what comes behind it there may be
        in its answer, or not."""
        self.until = self.sent()

    def answer(self, reply):
        if reply[:1] == b"-":
            self.record.texts[reply[1:-2].decode()] += 1
            return
        if not self.keys:
            return
        values = re.findall(rb"^:(\d)\r$", reply, re.M)
        assert reply[:1] == b"*" and len(values) == len(self.keys), \
            (self.words, reply)
        # (The second bit of RELATION is of a pair of the other's.)
        self.record.reads += [
            Read(key, int(value) & 1, before, until) for key, value, before, until
            in zip(self.keys, values, self.before, self.until)]


def judge_reads(verdict, record):
    wrong = []
    for read in record.reads:
        if read.key[1][0] in record.poison:
            continue                    # it is there until PostgreSQL refuses it
        requests = record.requests.get(read.key, [])
        may = record.states(requests[:read.before])
        may |= {r.event.want for r in requests[read.before:read.until]
                if r.outcome != REFUSED}
        if read.value not in may:
            wrong.append(f"{read.key}: {read.value}, behind "
                         f"{requests[:read.before][-2:]}")
    if wrong:
        verdict.add("read", f"{len(wrong)} of {len(record.reads)} answers: "
                    f"{wrong[:SHOWN]}")
