# SPDX-License-Identifier: MIT
"""What was asked and what was answered: the truth that the checker starts from.

An event is one wish of one client: pair, wanted state and, for about half of
the pairs, a time of its own (`AT`, in us, unique in the record and rising per
pair), which names its row afterwards. It may be sent several times; each
sending is a request, and the order of requests per pair is known, since a pair
belongs to one client."""
import collections
import dataclasses
import itertools
import time

ACKED, REFUSED, UNKNOWN, PENDING = "acked", "refused", "unknown", "pending"
# In 2020: no clock that a case moves makes it a time to come.
FIRST_US = 1_600_000_000_000_001


@dataclasses.dataclass
class Event:
    client: int
    kind: str               # "like" or "follow"
    pair: tuple             # (actor, post or other)
    want: int
    t: int | None = None    # us
    requests: list = dataclasses.field(default_factory=list)

    def outcome(self):
        """Acked if ever, else unknown if ever."""
        seen = {request.outcome for request in self.requests}
        for outcome in (ACKED, UNKNOWN, PENDING):
            if outcome in seen:
                return UNKNOWN if outcome == PENDING else outcome
        return REFUSED

    def changed(self):
        """Answered "1": it is what its pair was set to."""
        return any(r.outcome == ACKED and r.answer == 1 for r in self.requests)

    def first_ack(self):
        """The request that was acked first."""
        return min((r for r in self.requests if r.outcome == ACKED),
                   key=lambda r: r.answered)


@dataclasses.dataclass
class Request:
    event: Event
    sent: float                     # monotonic, as all times here
    answered: float | None = None
    outcome: str = PENDING
    answer: object = None           # 0 or 1, or an error's text
    counts: bool = False            # asks for the total, too


@dataclasses.dataclass(frozen=True)
class Read:
    """What a client was told of a pair of its own."""

    key: tuple              # kind, pair
    value: int
    before: int             # requests of the pair that were sent before
    until: int              # and with those that its pipeline sent behind it


@dataclasses.dataclass(frozen=True)
class Total:
    """How many likes a client was told that a post has."""

    post: int
    value: int
    sent: float
    answered: float


@dataclasses.dataclass(frozen=True)
class Window:
    """What was acked within it may be lost, and is counted apart; also what was
    sent within it, whose answer was still on its way at its end."""

    since: float
    until: float

    def has(self, request):
        return self.since <= request.answered and request.sent <= self.until


class Record:
    """Clients write to it from their threads; each pair from one only."""

    def __init__(self, late=False):
        self.times = itertools.count(FIRST_US)
        self.events = []
        self.requests = collections.defaultdict(list)   # by (kind, pair)
        self.late = late            # what clients gave up may still arrive
        self.reads = []
        self.totals = []
        self.evicted = set()        # (kind, pair) whose hash may have gone
        self.windows = []
        self.unattributed = 0       # added to counters without a row; None:
                                    # rows may have gone from under them
        self.poison = set()         # users whose rows PostgreSQL refuses
        self.texts = collections.Counter()              # of error replies

    def event(self, client, kind, pair, want, timed):
        event = Event(client, kind, pair, want,
                      next(self.times) if timed else None)
        self.events.append(event)
        return event

    def send(self, event):
        request = Request(event, time.monotonic())
        event.requests.append(request)
        self.requests[event.kind, event.pair].append(request)
        return request

    def answer(self, request, answer):
        """An integer, or the text of an error."""
        request.answered, request.answer = time.monotonic(), answer
        if isinstance(answer, int):
            request.outcome = ACKED
            return
        self.texts[answer] += 1
        request.outcome = UNKNOWN if answer.startswith("UNKNOWN") else REFUSED

    def wrong_answer(self, request, reply):
        """Not what an answer to it may be; no case explains that."""
        self.texts[f"(no answer: {reply[:100]!r})"] += 1
        self.lost_answer(request)

    def lost_answer(self, request):
        """The connection went, or it took too long."""
        request.outcome = UNKNOWN

    def lossy(self, since, until):
        self.windows.append(Window(since, until))

    def may_be_lost(self, request):
        return any(window.has(request) for window in self.windows)

    def states(self, requests, lossy=True, before=float("inf")):
        """Those that their pair may have behind them; its times order them, where
        it has times. `lossy`: what was acked in a window need not have stayed; only
        what was answered `before` is sure."""
        found, is_open = {0}, False
        for request in sorted(requests, key=lambda r: r.event.t or 0):
            want = request.event.want
            if request.outcome == ACKED and request.answered < before and not (
                    lossy and self.may_be_lost(request)):
                # It was so already, which leaves the older time: what comes late
                # and is newer than that wins.
                comes_late = self.late and is_open and request.event.t and \
                    not request.answer
                found, is_open = ({want} | found, True) if comes_late \
                    else ({want}, False)
            elif request.outcome != REFUSED:
                found.add(want)
                is_open = True
        return found

    def tally(self):
        """How many requests were acked, refused, unknown."""
        count = collections.Counter(
            request.outcome for requests in list(self.requests.values())
            for request in list(requests))
        count[UNKNOWN] += count.pop(PENDING, 0)
        return count
