# SPDX-License-Identifier: MIT
"""What a run is judged by when it has healed: the checker's verdict (checker.py),
what the daemons answer and hold, and how long they needed after each repair."""
import bisect
import contextlib
import os
import time

import redis as redis_py

import bed  # noqa: F401
import checker
import clients
from edges import check_answers
from harness import Failed, wait_for
from reads import judge_totals
from record import ACKED
from through import judge_through, read_looks

# Which 0 and 1 are judged. What Redis does not know is assumed while no connection
# to PostgreSQL is up, as it is just after a start; then they may be wrong, and so
# may totals.
ALL = "all"             # those of all pairs, and totals: nothing is assumed
KEPT = "kept"           # those of pairs whose hash stays in Redis
# None: what was acked may be lost; or a state may be assumed though its hash stays,
# since Redis or PostgreSQL has another history, or be gone, since a clock jumps; or
# a client does not know in which order it was answered.
NONE = "none"
FDS = 2                 # more than before are not yet a leak
MEMORY = 8 * 2**20      # of 1.5 MiB that were seen


def judge(run, before):
    """`before`: what the daemons held, as `measure` has it."""
    facts = checker.read_facts(run.redis, run.pg, run.apps)
    verdict = checker.judge(run.record, facts, run.through,
                            run.case.errors, run.case.mostly)
    if run.case.answers == ALL:
        checker.judge_answers(verdict, run.record)
        judge_totals(verdict, run.record)
    elif run.case.answers == KEPT:
        checker.judge_answers(verdict, run.record, run.record.evicted)
    if run.case.answers != NONE:
        judge_through(verdict, run.record, read_looks(run.pg),
                      time.time() - time.monotonic())
    run.result.violations += verdict.violations
    for name in ("lost", "lost_in_window", "window_s", "doubled"):
        setattr(run.result, name, getattr(verdict, name))
    run.result.bound_s = max((window.until - window.since
                              for window in run.record.windows), default=0.0)
    judge_watcher(run)
    for daemon in run.daemons:
        judge_answers(run, daemon)
    for daemon, (fds, rss) in zip(run.daemons, before):
        judge_fds(run, daemon, fds)
        judge_memory(run, daemon, rss)


def judge_watcher(run):
    """I1 in every snapshot meanwhile."""
    watcher = run.watcher
    if watcher.failure or not watcher.checks:
        run.fail("watcher", f"{watcher.checks} looks: {watcher.failure}")
    if watcher.violations:
        run.fail("exact", f"{len(watcher.violations)} rows in "
                 f"{watcher.checks} looks: {watcher.violations[:4]}")


# ---- answers ----

def judge_answers(run, daemon):
    """What a daemon says of all pairs is what PostgreSQL has. Lists that are
    being loaded are asked for again."""
    def answered():
        with contextlib.suppress(redis_py.ResponseError):
            check_answers(daemon, run.pg)
            check_pairs(run, daemon)
            return True
        return False
    try:
        wait_for(answered, 60, "an answer to each read")
    except (Failed, redis_py.RedisError) as error:
        run.fail("answers", f"{daemon.dir.name}: {error}")


def check_pairs(run, daemon):
    likes = dict(run.pg.query("SELECT post_id, like_count FROM post_like"))
    liked = set(run.pg.query("SELECT user_id, post_id FROM user_like_post"
                             " WHERE status = 1"))
    follows = set(run.pg.query("SELECT user_id, followee_id FROM"
                               " user_follow WHERE status = 1"))
    others = run.load.targets()
    posts = sorted({*likes, *clients.POSTS})
    wanted = [(("LIKECOUNT", *posts), [likes.get(p, 0) for p in posts])]
    for user in run.load.users():
        wanted.append((("LIKED", user, *posts),
                       [int((user, p) in liked) for p in posts]))
        wanted.append((("RELATION", user, *others),
                       [((user, o) in follows) + 2 * ((o, user) in follows)
                        for o in others]))
    with contextlib.closing(daemon.client()) as client:
        pipe = client.pipeline(transaction=False)
        for words, _ in wanted:
            pipe.execute_command(*words)
        for (words, right), got in zip(wanted, pipe.execute()):
            if got != right:
                raise Failed(f"{words}: {got}, not {right}")


# ---- what they hold ----

def measure(daemon):
    """(file descriptors, bytes of memory)"""
    return count_fds(daemon), daemon.rss_bytes()


def count_fds(daemon):
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def judge_fds(run, daemon, before):
    """Those of clients that have gone go a little later."""
    with contextlib.suppress(Failed):
        wait_for(lambda: count_fds(daemon) <= before + FDS, 10)
    now = count_fds(daemon)
    if now > before + FDS:
        run.fail("fds", f"{daemon.dir.name}: {now}, before {before}")


def judge_memory(run, daemon, before):
    """A sanitizer keeps what is freed, so it is looked at where there is none."""
    if not run.case.memory or not daemon.plain:
        return
    now = daemon.rss_bytes()
    run.result.grown = max(run.result.grown, now - before)
    if now > before + MEMORY:
        run.fail("memory", f"{daemon.dir.name}: {now}, before {before}")


# ---- how long it took ----

class Repairs:
    """When all was well again, and when something broke next. The time to heal
    is that until every client was acked what it asked for since; it counts up to
    the next fault, if that came first."""

    def __init__(self):
        self.marks = []         # (monotonic, whether all is well from then on)

    def mark(self, at, is_well):
        self.marks.append((at, is_well))

    def times(self, end):
        """(since, until) of each time between a repair and what came next."""
        following = [at for at, _ in self.marks[1:]] + [end]
        return [(since, until) for (since, is_well), until
                in zip(self.marks, following) if is_well]

    def longest_s(self, record, n_clients, end):
        acks = [sorted((request.sent, request.answered)
                       for event in record.events if event.client == client
                       for request in event.requests
                       if request.outcome == ACKED)
                for client in range(n_clients)]
        return max((min(first_ack(each, since), until) - since
                    for since, until in self.times(end) for each in acks),
                   default=0.0)


def first_ack(acks, since):
    """Of what was sent since; never, if none was."""
    at = bisect.bisect(acks, (since,))
    return acks[at][1] if at < len(acks) else float("inf")
