# SPDX-License-Identifier: MIT
"""What clients read meanwhile: a read sees what was answered before it. Of pairs,
each client asks for its own; likes of a post are of all clients, so that a total
is between what surely was there and what may have been. Judged when all is over,
since only then windows of loss are known."""
import collections
import re
import time

from record import REFUSED, Read, Total

KINDS = {"LIKED": "like", "RELATION": "follow"}     # of those that are judged
SHOWN = 4


class Question:
    """One read of a pipeline."""

    def __init__(self, words, record):
        verb, user, *ids = words
        self.words, self.record = words, record
        self.keys = [(KINDS[verb], (user, i)) for i in ids] \
            if verb in KINDS else []
        self.posts = self.words[1:] if verb == "LIKECOUNT" else []
        self.before = self.asked()
        self.until = None
        self.sent = time.monotonic()

    def asked(self):
        """How many requests of each pair there are by now."""
        return [len(self.record.requests.get(key, ())) for key in self.keys]

    def pipelined(self):
        """All of its pipeline is written down: what comes behind it there may be
        in its answer, or not."""
        self.until = self.asked()

    def answer(self, reply):
        if reply[:1] == b"-":
            self.record.texts[reply[1:-2].decode()] += 1
            return
        if not self.keys and not self.posts:
            return
        values = re.findall(rb"^:(-?\d+)\r$", reply, re.M)
        if reply[:1] != b"*" or len(values) != len(self.keys) + len(self.posts):
            self.record.texts[f"(no answer to {self.words}: {reply[:100]!r})"] += 1
            return
        now = time.monotonic()
        self.record.totals += [Total(post, int(value), self.sent, now)
                               for post, value in zip(self.posts, values)]
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
    add_wrong(verdict, wrong, record.reads)


def judge_totals(verdict, record):
    """Only where no state is ever assumed: while one is, a total may be off."""
    likes = collections.defaultdict(list)
    for (kind, (_, post)), requests in record.requests.items():
        if kind == "like":
            likes[post].append(requests)
    wrong = []
    for total in record.totals:
        each = [record.states([r for r in requests if r.sent < total.answered],
                              before=total.sent)
                for requests in likes[total.post]]
        least, most = sum(map(min, each)), sum(map(max, each))
        if not least <= total.value <= most:
            wrong.append(f"post {total.post}: {total.value} likes, not "
                         f"{least} to {most}")
    add_wrong(verdict, wrong, record.totals)


def add_wrong(verdict, wrong, of):
    if wrong:
        verdict.add("read", f"{len(wrong)} of {len(of)} answers: "
                    f"{wrong[:SHOWN]}")
