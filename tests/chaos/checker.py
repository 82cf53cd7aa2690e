# SPDX-License-Identifier: MIT
"""What must be true when a case has healed, from three sources only: the
record of the clients, PostgreSQL, and Redis. It knows nothing of the daemon.

`read_facts` takes what the servers hold; `judge` compares it with the record and
needs no server, so test_checker.py can show for each check that it fails. Every
violation names its check; report.py says what each means."""
import collections
import contextlib
import dataclasses

import bed  # noqa: F401
from edges import (DIRTY_KEYS, EXACT_SQL, FOLLOW_EXACT_SQL, FOLLOWS, LIKES,
                   check_counts, check_hashes, check_lists, describe,
                   read_all)
from harness import Failed
from reads import judge_reads
from record import ACKED, REFUSED, UNKNOWN

# What an error reply may begin with; and where Redis takes no writes.
ERRORS = ("UNAVAILABLE", "TRYAGAIN", "UNKNOWN")
FULL = (*ERRORS, "OOM")
# The share of all requests that may have these outcomes where nothing explains
# more: no event is refused for PostgreSQL's sake (I8), nor while Redis is slow; but
# where the machine stands still, some come too late for their deadline.
MOST = {REFUSED: 0.05, UNKNOWN: 0.5}
ROWS_SQL = {
    "like": "SELECT user_id, post_id, status, chaos_us(mtime)"
            " FROM user_like_post",
    "follow": "SELECT user_id, followee_id, status, chaos_us(mtime)"
              " FROM user_follow"}
THROUGH_SQL = "SELECT kind, chaos_us(synced_through) FROM sync_state"


@dataclasses.dataclass
class Change:
    """One line of the audit, of one pair."""

    old_status: int | None
    status: int | None          # None: deleted
    old_us: int | None
    us: int | None

    def moved(self):
        return (self.old_status or 0) != self.status


@dataclasses.dataclass
class Facts:
    rows: dict = dataclasses.field(default_factory=dict)
    # (kind, pair): (status, us)
    audit: dict = dataclasses.field(default_factory=dict)
    # (kind, pair): [Change]
    inexact: list = dataclasses.field(default_factory=list)
    # (id, counted, rows), of a user who follows both twice
    letters: list = dataclasses.field(default_factory=list)
    # (kind, (actor, object))
    unattributed: int = 0
    through: dict = dataclasses.field(default_factory=dict)
    hashes: dict = dataclasses.field(default_factory=dict)
    # (kind, pair): us of its mtime
    left: list = dataclasses.field(default_factory=list)    # texts


@dataclasses.dataclass
class Verdict:
    lost: int = 0
    lost_in_window: int = 0
    window_s: float = 0.0       # how long before its end the oldest was acked
    doubled: int = 0
    violations: list = dataclasses.field(default_factory=list)

    def add(self, check, text):
        self.violations.append((check, text))

    def checks(self):
        return {check for check, _ in self.violations}


# ---- reading ----

def read_through(pg):
    return dict(pg.query(THROUGH_SQL))


def dirty_keys(redis):
    """What Redis holds that is not in PostgreSQL yet, or in flight."""
    with contextlib.closing(redis.client(timeout=5)) as keys:
        return [key for pattern in DIRTY_KEYS
                for key in keys.scan_iter(pattern, count=10000)]


def read_audit(pg):
    changes = collections.defaultdict(list)
    for kind, actor, obj, *change in pg.query(
            "SELECT kind, actor, object, old_status, new_status, old_us,"
            " new_us FROM chaos_audit ORDER BY seq"):
        changes[kind, (actor, obj)].append(Change(*change))
    return changes


def read_hashes(keys):
    """Times of the hashes, also of those that no command would believe."""
    found = {}
    for edges, first, second in ((LIKES, "user_id", "post_id"),
                                 (FOLLOWS, "user_id", "followee_id")):
        names = [name for name in keys.scan_iter(
                     edges.hash.partition("{")[0] + "*", count=10000)
                 if not name.startswith(edges.sets)]
        for (fields,) in read_all(keys, names,
                                  ("HMGET", first, second, "mtime")):
            if all(fields):
                actor, obj, mtime = fields
                found[edges.name, (int(actor), int(obj))] = \
                    round(float(mtime) * 1e6)
    return found


def read_letters(pg):
    """A like's owner is its post, a follow's the one who follows."""
    found = []
    for kind, owner, member in pg.query(
            "SELECT kind, owner_id, member_id FROM sync_dead_letter"):
        pair = (member, owner) if kind == "like" else (owner, member)
        found.append((kind, tuple(int(i) if i and i.isdigit() else i
                                  for i in pair)))
    return found


def read_left(redis, pg, apps):
    texts = []
    names = dirty_keys(redis)
    with contextlib.closing(redis.client()) as keys:
        if names:
            texts.append(f"{len(names)} keys: {describe(keys, names[:8])}")
        for check in (lambda: check_hashes(keys, pg, LIKES),
                      lambda: check_hashes(keys, pg, FOLLOWS),
                      lambda: check_counts(keys, pg),
                      lambda: check_lists(keys, pg, apps)):
            try:
                check()
            except Failed as error:
                texts.append(str(error))
    return texts


def read_facts(redis, pg, apps=False):
    """`apps`: an application wrote to keys; its lists are not ours to expire."""
    with contextlib.closing(redis.client()) as keys:
        hashes = read_hashes(keys)
    return Facts(
        rows={(kind, (actor, obj)): (status, us)
              for kind, sql in ROWS_SQL.items()
              for actor, obj, status, us in pg.query(sql)},
        audit=read_audit(pg),
        inexact=pg.query(EXACT_SQL) + pg.query(FOLLOW_EXACT_SQL),
        letters=read_letters(pg),
        unattributed=int(pg.value(
            "SELECT coalesce(sum(unattributed), 0) FROM post_like")),
        through=read_through(pg), hashes=hashes,
        left=read_left(redis, pg, apps))


# ---- judging ----

class Pair:
    """What the record says of one pair."""

    def __init__(self, record, requests):
        self.record, self.requests = record, requests
        self.events = list({id(r.event): r.event for r in requests}.values())
        self.timed = self.events[0].t is not None

    def may_be(self, lossy):
        """The states that it may have; `lossy`: what was acked in a window
        need not have stayed."""
        return self.record.states(self.requests, lossy)

    def missing(self, status, us):
        """Acked events that the row is older than, or contradicts."""
        if self.timed:
            return [e for e in self.events if e.changed() and e.t > us]
        if status in self.may_be(lossy=False):
            return []
        return [r.event for r in self.requests
                if r.outcome == ACKED and r.event.want != status][-1:]


def judge_states(verdict, record, facts):
    for key, requests in record.requests.items():
        if key[1][0] in record.poison:
            continue
        pair = Pair(record, requests)
        status, us = facts.rows.get(key, (0, 0))
        missing = pair.missing(status, us)
        inside = [e for e in missing if record.may_be_lost(e.first_ack())]
        if len(inside) < len(missing) or status not in pair.may_be(lossy=True):
            verdict.lost += max(1, len(missing) - len(inside))
            verdict.add("lost", f"{key}: row {status} at {us}, may be "
                        f"{pair.may_be(lossy=True)}; missing "
                        f"{[e for e in missing if e not in inside][:2]}")
        for event in inside:
            ack = event.first_ack()
            verdict.lost_in_window += 1
            verdict.window_s = max(verdict.window_s, *(
                w.until - ack.answered for w in record.windows if w.has(ack)))


def surplus(requests, changes):
    """Of a pair without times: changes to a state for which there are no events.
    (Of others, each change is looked up.)"""
    if not requests or requests[0].event.t is not None:
        return 0
    asked = collections.Counter(r.event.want for r in requests
                                if r.outcome != REFUSED)
    moves = collections.Counter(c.status for c in changes if c.moved())
    return sum(max(0, n - asked[status]) for status, n in moves.items())


def judge_doubled(verdict, record, facts):
    for key, changes in facts.audit.items():
        same = collections.Counter((c.us, c.status) for c in changes
                                   if c.moved())
        twice = sum(n - 1 for n in same.values())
        more = surplus(record.requests.get(key), changes)
        if twice or more:
            verdict.doubled += max(twice, more)
            verdict.add("doubled", f"{key}: {twice} events changed it twice, "
                        f"{more} changes more than events: {changes[-6:]}")


def judge_counts(verdict, facts):
    if facts.inexact:
        verdict.add("exact", f"{len(facts.inexact)} rows: {facts.inexact[:4]}")
    more = sum(max(0, (counted or 0) - (rows or 0))
               for _, *both in facts.inexact
               for counted, rows in zip(both[::2], both[1::2]))
    if more:
        verdict.doubled += more
        verdict.add("doubled", f"counts are {more} more than rows")


def judge_events(verdict, record, facts):
    """Whatever was written is what somebody asked for and was not refused."""
    asked = {(e.kind, e.pair, e.t): e for e in record.events if e.requests}
    for key, changes in facts.audit.items():
        pairs = record.requests.get(key)
        if not pairs:
            verdict.add("made-up", f"{key}: {changes[:3]}")
            continue
        if pairs[0].event.t is None:
            continue
        for change in changes:
            event = asked.get((*key, change.us))
            if not event or event.want != change.status:
                verdict.add("made-up", f"{key}: {change}, asked: {event}")
            elif event.outcome() == REFUSED:
                verdict.add("refused", f"{event}: in PostgreSQL: {change}")
    for key, us in facts.hashes.items():
        event = asked.get((*key, us))
        if event and event.outcome() == REFUSED:
            verdict.add("refused", f"{event}: in Redis")


def judge_times(verdict, facts):
    for key, changes in facts.audit.items():
        for change in changes:
            if change.status is None or change.us < (change.old_us or 0):
                verdict.add("time", f"{key}: {change}")


def judge_letters(verdict, record, facts):
    for kind, pair in facts.letters:
        if pair[0] not in record.poison:
            verdict.add("letters", f"{kind} {pair}: no poison")
    for (kind, pair), requests in record.requests.items():
        if pair[0] not in record.poison:
            continue
        if (kind, pair) in facts.rows:
            verdict.add("letters", f"{kind} {pair}: poison has a row")
        if any(r.event.changed() for r in requests) and \
                (kind, pair) not in facts.letters:
            verdict.add("lost", f"{kind} {pair}: poison without a letter")
            verdict.lost += 1


def judge_through(verdict, record, facts, before):
    kinds = {e.kind for e in record.events if e.outcome() == ACKED}
    for kind in sorted(kinds):
        if facts.through.get(kind, 0) <= before.get(kind, 0):
            verdict.add("through", f"{kind}: {facts.through.get(kind)}, "
                        f"before {before.get(kind)}")


def judge_answers(verdict, record, but=()):
    """Each 0 and 1 against what the pair was, where that is known. (An older
    event that is sent again is answered by its time, not by its state.) `but`:
    pairs that are not judged."""
    for key, requests in record.requests.items():
        if key[1][0] in record.poison or key in but:
            continue
        states, newest = {0}, 0
        for request in requests:
            event = request.event
            is_old = event.t is not None and event.t <= newest
            newest = max(newest, event.t or 0)
            if request.outcome == ACKED and not is_old:
                if len(states) == 1 and \
                        request.answer != (event.want not in states):
                    verdict.add("answer", f"{key} was {states}: {request}")
                states = {event.want}
            elif request.outcome != REFUSED and not is_old:
                states = states | {event.want}


def judge_errors(verdict, record, errors, mostly):
    for text, n in record.texts.items():
        if not text.startswith(tuple(errors)):
            verdict.add("answer", f"{n} times: {text}")
    tally = record.tally()
    for outcome, most in MOST.items():
        if outcome not in mostly and tally[outcome] > most * tally.total():
            verdict.add("served", f"{tally[outcome]} of {tally.total()} "
                        f"requests: {outcome}")


def judge(record, facts, through_before=None, errors=ERRORS, mostly=()):
    """`errors`: what error replies may begin with; `mostly`: outcomes that any
    number of requests may have."""
    verdict = Verdict()
    judge_states(verdict, record, facts)
    judge_doubled(verdict, record, facts)
    judge_events(verdict, record, facts)
    judge_times(verdict, facts)
    judge_letters(verdict, record, facts)
    judge_through(verdict, record, facts, through_before or {})
    judge_counts(verdict, facts)
    judge_reads(verdict, record)
    if record.unattributed not in (None, facts.unattributed):
        verdict.add("doubled" if facts.unattributed > record.unattributed
                    else "lost", f"{facts.unattributed} likes without rows, "
                    f"of {record.unattributed}")
    for text in facts.left:
        verdict.add("left", text)
    judge_errors(verdict, record, errors, mostly)
    return verdict
