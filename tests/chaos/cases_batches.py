# SPDX-License-Identifier: MIT
"""Cases of a batch on its way into PostgreSQL: COMMIT and its answer lost, rows that
others have locked, poison."""
import contextlib
import threading

import psycopg2

import bed  # noqa: F401
from case import case
from clients import POSTS
from harness import Failed
from pglog import LOGGED, Sign, refused
from servers import SUPERUSER

BIG = {"flush_interval_ms": 100, "flush_batch_rows": 500, "flush_claim_rows": 100}
BIG_ROWS = 300          # at least, of a batch that has poison


# ---- COMMIT ----

def lose(run, what, begin):
    """`begin`: of a link, makes it lose the nth, and so many behind it. Each
    daemon loses some while only likes, and only follows, come."""
    turns = [(kind, n) for n in range(len(run.daemons))
             for kind in ("like", "follow")] * run.rounds(2)
    for run.load.kind, n in turns:
        link, daemon = run.link("pg", n), run.daemons[n]
        run.load.wait_acked(run.random.randint(1, 100))
        times = run.random.randint(1, 4)
        run.fault(f"{daemon.dir.name}: {what}, {times} times, "
                  f"{run.load.kind}s", repair=lambda: link.mode("pass"))
        begin(link)(nth=run.random.randint(1, 4), times=times)
        run.until(lambda: link.fired() >= times, what)
        if run.random.random() < 0.4:
            run.fault(f"{daemon.dir.name} is killed, too")
            daemon.kill9()
            run.mend()
            daemon.start(wait=None)
        run.mend()
    run.load.kind = None


def need_writes_again(run):
    """A batch is in the ledger, and was written again."""
    run.until(lambda: run.pg.value(
        "SELECT count(DISTINCT kind) FROM sync_batch WHERE writes > 1") == 2,
        "batches of both kinds to be written again")


@case("commit_answer_lost", "COMMIT is done, and its answer lost", daemons=2,
      links="pg")
def commit_answer_lost(run):
    lose(run, "the answer to COMMIT is lost",
         lambda link: link.lose_commit_answer)
    need_writes_again(run)


@case("commit_lost", "COMMIT is lost on its way", daemons=2, links="pg", pg=LOGGED)
def commit_lost(run):
    sign = Sign(run, "unexpected EOF on client connection with an open transaction")
    lose(run, "COMMIT is lost", lambda link: link.lose_commit)
    sign.wait()


@case("commit_pooler", "COMMIT and its answer lost in front of a pooler", daemons=2,
      links="pg", pooler=True)
def commit_pooler(run):
    lose(run, "the answer to COMMIT is lost",
         lambda link: link.lose_commit_answer)
    lose(run, "COMMIT is lost", lambda link: link.lose_commit)
    need_writes_again(run)


# ---- rows that others have locked ----

class Rival(threading.Thread):
    """A session that updates rows of the daemons'; none of it changes anything."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.pg, self.kind = run.pg, run.load.kind
        self.ids = sorted(POSTS if self.kind == "like" else run.load.targets())
        self.ended = threading.Event()
        self.failure = None

    def run(self):
        try:
            with contextlib.closing(psycopg2.connect(
                    self.pg.conninfo(SUPERUSER))) as session:
                while not self.ended.is_set():
                    self.play(session.cursor())
                    session.commit()
        except psycopg2.Error as error:         # the case asks for it
            self.failure = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(30)
        if self.failure:
            raise self.failure


class Opposite(Rival):
    """In the order that they do not: counts first, then rows, backwards."""

    UPDATES = {
        "like": ("UPDATE post_like SET mtime = mtime WHERE post_id = %s",
                 "UPDATE user_like_post SET prev_status = prev_status"
                 " WHERE post_id = %s"),
        "follow": ("UPDATE user_follow_count SET mtime = mtime WHERE user_id = %s",
                   "UPDATE user_follow SET prev_status = prev_status"
                   " WHERE followee_id = %s")}

    def play(self, cursor):
        # Whoever looks first is the one that is refused: never this one.
        cursor.execute("SET LOCAL deadlock_timeout = '60s'")
        for sql in self.UPDATES[self.kind]:
            for each in reversed(self.ids):
                cursor.execute(sql, (each,))
            self.ended.wait(0.02)


class Holder(Rival):
    """In their order, and keeps them for long."""

    HOLD_S = 1.5
    LOCKS = {
        "like": "SELECT FROM user_like_post WHERE post_id = ANY (%s)"
                " ORDER BY post_id, user_id FOR UPDATE",
        "follow": "SELECT FROM user_follow WHERE followee_id = ANY (%s)"
                  " ORDER BY user_id, followee_id FOR UPDATE"}

    def play(self, cursor):
        cursor.execute(self.LOCKS[self.kind], (self.ids,))
        self.ended.wait(self.HOLD_S)


def rivals(run, what, rival, sign):
    """Until the daemons have met with `sign` a few times, of either kind."""
    for run.load.kind in ("like", "follow") * run.rounds(1):
        run.load.wait_acked(200)
        run.fault(f"{what}, {run.load.kind}s")
        with rival(run) as session:
            sign.wait(3, lambda: session.failure)
            run.load.wait_acked(20)
    run.load.kind = None


@case("deadlock", "a rival takes the same rows in the opposite order", daemons=2,
      daemon={"postgres_lock_timeout_ms": 450, **BIG},
      pg={**LOGGED, "deadlock_timeout": "150ms"})
def deadlock(run):
    rivals(run, "a rival", Opposite, refused(run, "40P01"))


@case("rows_locked", "rows are locked for longer than the lock timeout", daemons=2,
      pg=LOGGED)
def rows_locked(run):
    rivals(run, "rows are locked", Holder, refused(run, "55P03"))


class Deadlines:
    """How often the daemons gave up a connection."""

    def __init__(self, run):
        self.run, self.before = run, self.count(run)

    @staticmethod
    def count(run):
        return sum(daemon.metrics()["likesyncd_postgres_reconnects_total"]
                   for daemon in run.daemons)

    def wait(self, more, failed):
        target = self.before + more
        self.run.until(lambda: failed() or self.count(self.run) >= target,
                       "deadlines to pass")
        self.before = self.count(self.run)


@case("rows_locked_long", "rows are locked for longer than the deadline of a write,"
      " which then commits late", daemons=2,
      daemon={"postgres_lock_timeout_ms": 5000})
def rows_locked_long(run):
    rivals(run, "rows are locked", Holder, Deadlines(run))
    need_writes_again(run)


# ---- poison ----

def flusher(daemon, verb):
    status, text = daemon.ctl(verb)
    if status:
        raise Failed(f"{daemon.dir.name}: {verb}: {text}")


def dirty_rows(run):
    """Of both kinds: how many are not in PostgreSQL yet, of the fewer."""
    with contextlib.closing(run.redis.client()) as keys:
        return min(sum(keys.scard(name) for name in
                       keys.scan_iter(pattern, count=10000))
                   for pattern in ("post_user_like_set_*", "user_follow_set_*"))


def have_big(run):
    """Batches of both kinds that were written, but for some of their rows."""
    return run.pg.value(
        "SELECT count(DISTINCT kind) FROM sync_batch WHERE n_rows >= %s AND"
        " batch_id IN (SELECT batch_id FROM sync_dead_letter)", BIG_ROWS) == 2


def pile_up(run):
    """Nothing is flushed until there is enough for a batch of each kind, which
    one daemon takes alone."""
    for daemon in run.daemons:
        flusher(daemon, "pause")
    run.go()
    run.until(lambda: dirty_rows(run) >= BIG["flush_batch_rows"],
              "rows to pile up", 60)
    flusher(run.daemons[0], "resume")
    run.until(lambda: have_big(run), f"{BIG_ROWS} rows in a batch with poison")
    for daemon in run.daemons[1:]:
        flusher(daemon, "resume")


def poisoned(run, play):
    """Some users' rows are refused, in the middle of big batches, while `play`."""
    users = sorted(run.random.sample(run.load.users(), 8))
    run.poison(users)
    run.fault(f"rows of {users} are refused")
    pile_up(run)
    play()
    for kind in ("like", "follow"):
        run.until(lambda: run.pg.value(
            "SELECT count(*) FROM sync_dead_letter WHERE kind = %s"
            " AND sqlstate = '23514'", kind) >= len(users), f"{kind}s that are refused")


@case("poison", "poison rows in the middle of big batches", daemons=2, daemon=BIG,
      start="held")
def poison(run):
    poisoned(run, lambda: run.load.wait_acked(run.rounds(2000)))


@case("poison_killed", "the same, while PostgreSQL and the daemons are killed and"
      " commits are lost", daemons=2, daemon=BIG, links="pg", start="held")
def poison_killed(run):
    def crash():
        run.fault("PostgreSQL crashes", repair=run.cluster.start)
        run.cluster.stop("immediate")

    def kill():
        daemon = run.random.choice(run.daemons)
        run.fault(f"{daemon.dir.name} is killed",
                  repair=lambda: daemon.start(wait=None))
        daemon.kill9()

    def lose_answer():
        link = run.link("pg", run.random.randrange(len(run.daemons)))
        run.fault("the answer to COMMIT is lost", repair=lambda: link.mode("pass"))
        link.lose_commit_answer(nth=run.random.randint(1, 9))
        run.until(link.fired, "an answer to be lost")

    def play():
        for act in (crash, kill, lose_answer) * run.rounds(3):
            run.load.wait_acked(run.random.randint(1, 200))
            act()
            run.wait(0, 0.3)
            run.mend()
    poisoned(run, play)
