# SPDX-License-Identifier: MIT
"""One run of one case: servers, load, faults, repair, healing, judgement.

A case is a function that breaks things while the load runs. It is declared so:

    @case("pg_killed", "PostgreSQL crashes", daemons=2)
    def pg_killed(run):
        for _ in range(run.rounds(4)):
            run.load.wait_acked(100)
            run.fault("PostgreSQL crashes", repair=run.cluster.start)
            run.cluster.stop("immediate")
            run.wait(0.1, 0.5)
            run.mend()

What it may declare (see Case): how many daemons and clients, settings of the
three servers, links="redis pg clients" (a fault proxy on each of these, one per
daemon, of every second daemon by TCP), shims={"redis": Clock, "daemons": Nth}
(preloaded, one for each server of that part), a pooler, another way to start a
server, evict, answers, reads, pause and timeout of the clients, whether what they
gave up may still arrive, whether they connect to any daemon each time, errors
that may be answered, and outcomes that more requests may have than elsewhere, a
check of memory.

What a run offers:

    run.redis, run.cluster, run.pg    the servers; run.pg is the database.
                                      run.use_pg(database), run.use_redis(redis)
                                      when another took their place
    run.daemons, run.load, run.bed    run.load.users() are those who act;
                                      run.load.kind = "like": only likes from now on
    run.link(part, n=0)               the proxy.Link of a daemon
    run.shim(part, n=0)               what was preloaded: "redis", "pg", "daemons"
    run.random                        seeded; the only source of chance
    run.rounds(n)                     n, or more where the campaign is long
    run.fault(what, repair=None)      counts and notes a fault, before it is made
    run.mend()                        all repairs that are open, latest first;
                                      done at the end too, when links pass again
    run.mended()                      a case repaired all by itself: the time that
                                      it takes to heal is measured from here
    run.wait(least, most)             lets time go by, for what happens next
    run.until(condition, what)        waits for a condition
    run.lossy(since, until=None)      what was acked in between (time.monotonic),
                                      or sent then, may be lost; until now
    run.poison(users)                 PostgreSQL refuses their rows from now on;
                                      before they acted: see start="held"
    run.others()                      an application that writes the keys itself
    run.note(text)                    a line of what happened
    run.fail(check, text)             a violation that the case found itself

With start="held" the load waits until run.go(). Servers are started from the main
thread only, so a case makes no threads that do."""
import contextlib
import dataclasses
import random
import signal
import time

import psycopg2
import redis as redis_py

import bed  # noqa: F401
import checker
import clients
import harness
import judge
from harness import Failed, wait_for
from others import Others
from pgbouncer import PORT, PgBouncer
from proxy import Link
from record import Record
from servers import DAEMON_ROLE
from stalls import Stalls

HEAL_S = 60
# Several claims for a batch, several calls for an ack, several batches; and
# everything gives up soon.
DAEMON = {"flush_interval_ms": 20, "flush_batch_rows": 20,
          "flush_claim_rows": 7, "flush_lease_ms": 500,
          "postgres_connections": 3, "postgres_connect_timeout_ms": 400,
          "postgres_lookup_timeout_ms": 200,
          "postgres_write_timeout_ms": 500, "postgres_lock_timeout_ms": 200,
          "redis_connect_timeout_ms": 400, "redis_timeout_ms": 400}
REDIS = {"appendfsync": "always"}
PATIENT_MS = 20000      # where no lookup may be given up, however slow all is
CASES = {}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    title: str
    play: object
    daemons: int = 1
    clients: int = 4
    daemon: dict = dataclasses.field(default_factory=dict)  # over DAEMON
    redis: dict = dataclasses.field(default_factory=dict)   # over REDIS
    pg: dict = dataclasses.field(default_factory=dict)      # postgresql.conf
    links: str = ""
    shims: dict = dataclasses.field(default_factory=dict)
    pooler: bool = False        # a PgBouncer in front of PostgreSQL: run.pool
    postgres: object = None     # of the run: starts another one, as start_pg does
    redis_by: object = None     # the same of Redis: start_redis
    start: str = "go"           # or "held"
    evict: bool = True
    reads: bool = True
    pipeline: int = 16
    pause: float = 0.02         # of a client, between pipelines
    timeout: float = 30.0       # of a client: then the outcome is unknown
    late: bool = False          # what clients gave up may still reach a daemon
    roams: bool = False         # clients connect to any daemon, each time
    answers: str = judge.KEPT   # which are judged: of judge.py
    errors: tuple = checker.ERRORS      # replies that are right here begin so
    mostly: tuple = ()          # "refused", "unknown": outcomes of any number
    memory: bool = True         # and the daemons' memory comes back


def case(name, title, **options):
    """Registers a case."""
    def register(play):
        if name in CASES:
            raise ValueError(f"two cases {name}")
        CASES[name] = Case(name, title, play, **options)
        return play
    return register


@dataclasses.dataclass
class Result:
    case: str
    seed: int
    plain: bool = False
    faults: int = 0
    acked: int = 0
    refused: int = 0
    unknown: int = 0
    lost: int = 0
    lost_in_window: int = 0
    window_s: float = 0.0       # how far back these reached
    bound_s: float = 0.0        # and might have
    doubled: int = 0
    heal_s: float = 0.0         # after the last repair, or another one
    stall_ms: float | None = None       # None: none was looked at
    grown: int = 0              # bytes of the daemon that grew most
    seconds: float = 0.0
    violations: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    logs: list = dataclasses.field(default_factory=list, repr=False)
    kept: str = ""              # its files

    def checks(self):
        return {check for check, _ in self.violations}


class Run:
    """See above. `env` is what the daemons get besides: a variant; `patience`,
    how long they may take to heal; `plain`: they have no sanitizers, which hide
    how much memory they take; `keep`: the files of a run that failed stay."""

    def __init__(self, case, seed, template=None, scale=1, env=None,
                 show=None, patience=HEAL_S, plain=False, keep=False):
        self.case, self.seed, self.scale = case, seed, scale
        self.plain, self.keep = plain, keep
        self.patience = patience
        self.env, self.show = env or {}, show
        self.random = random.Random(f"{case.name}/{seed}")
        self.record = Record(late=case.late)
        self.result = Result(case.name, seed, plain)
        self.begun = time.monotonic()
        self.bed = harness.Bed(template=template)
        self.repairs, self.links, self.shims = [], {}, {}
        self.apps = False
        self.load = self.watcher = self.pool = None
        self.daemons, self.healed = [], judge.Repairs()

    # ---- what cases use ----

    def rounds(self, n):
        return n * self.scale

    def note(self, text):
        at = f"{time.monotonic() - self.begun:7.2f} s  {text}"
        self.result.notes.append(at)
        if self.show:
            self.show(at)

    def fail(self, check, text):
        self.result.violations.append((check, text))

    def fault(self, what, repair=None):
        self.result.faults += 1
        self.note(what)
        self.healed.mark(time.monotonic(), False)
        if repair:
            self.repairs.append((what, repair))

    def mend(self):
        while self.repairs:
            what, repair = self.repairs.pop()
            self.note(f"mended: {what}")
            repair()
            if not self.repairs:
                self.mended()

    def mended(self):
        """Clients that are told to wait are not waited for."""
        if not self.load.held.is_set():
            self.healed.mark(time.monotonic(), True)

    def wait(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def until(self, condition, what, timeout=30.0):
        """Fails when the load has failed, too."""
        def done():
            self.load.check()
            return condition()
        return wait_for(done, timeout, what)

    def lossy(self, since, until=None):
        self.record.lossy(since, until or time.monotonic())

    def poison(self, users):
        for user in users:
            self.record.poison.add(user)
            for table in ("user_like_post", "user_follow"):
                self.pg.query(f"ALTER TABLE {table} ADD CHECK"
                              f" (user_id <> {int(user)})")

    def others(self):
        self.apps = True
        return Others(self)

    def link(self, part, n=0):
        """part: "redis", "pg" or "clients"."""
        return self.links[part, n]

    def shim(self, part, n=0):
        return self.shims[part, n]

    def go(self):
        self.load.held.clear()

    def use_pg(self, database):
        self.pg = self.watcher.pg = database
        self.cluster = database.cluster

    def use_redis(self, redis):
        self.redis = redis
        for client in self.load.clients:
            if client.keys:
                client.keys = redis.client(timeout=1)

    # ---- the life of a run ----

    def start(self):
        case = self.case
        self.redis = (case.redis_by or Run.start_redis)(self)
        self.pg = (case.postgres or Run.start_pg)(self)
        self.pg.psql("-f", bed.HERE / "audit.sql")
        self.pg.query("ALTER ROLE likesyncd SET"
                      " idle_in_transaction_session_timeout = '300ms'")
        if case.pooler:
            self.pool = PgBouncer(self.bed, self.cluster)
        for n in range(case.daemons):
            self.daemons.append(self.start_daemon(n))
        self.through = checker.read_through(self.pg)
        addresses = [self.client_address(n, daemon)
                     for n, daemon in enumerate(self.daemons)]
        self.load = clients.Load(
            self.record, addresses, seed=self.seed, clients=case.clients,
            pipeline=case.pipeline, pause=case.pause, timeout=case.timeout,
            late=case.late, evict=self.redis if case.evict else None,
            reads=case.reads, roams=case.roams)
        self.watcher = harness.I1Watcher(self.pg, pause=0.05)

    def start_redis(self, **more):
        return self.bed.redis(**{"preload": self.put_shims("redis"), **REDIS,
                                 **self.case.redis, **more})

    def start_pg(self):
        """Sets `cluster`, and returns the database."""
        self.cluster = self.bed.postgres(preload=self.put_shims("pg"),
                                         **self.case.pg)
        return self.cluster.create_database()

    def start_daemon(self, n):
        options = {**DAEMON, **self.case.daemon}
        if self.case.answers == judge.ALL:
            options["postgres_lookup_timeout_ms"] = PATIENT_MS
        redis = self.put_link("redis", n, self.redis.socket)
        options["redis_address"] = (redis or self.redis).address
        if self.case.pooler or "pg" in self.case.links.split():
            front, port = (self.pool, PORT) if self.case.pooler else \
                (self.cluster, self.cluster.port)
            pg = self.put_link("pg", n, front.dir / f".s.PGSQL.{port}")
            options["postgres_conninfo"] = pg.conninfo(self.pg.name) if pg \
                else f"host={front.dir} port={port} dbname={self.pg.name} " \
                f"user={DAEMON_ROLE}"
        return self.bed.daemon(self.redis, self.pg, env=self.env,
                               plain=self.plain,
                               preload=self.put_shims("daemons", n), **options)

    def put_shims(self, part, n=0):
        """A shim of its own for a server."""
        if part not in self.case.shims:
            return ()
        self.shims[part, n] = self.case.shims[part](self.bed)
        return (self.shims[part, n],)

    def client_address(self, n, daemon):
        link = self.put_link("clients", n, daemon.socket)
        if not link:
            return daemon.socket
        return link.socket or ("127.0.0.1", link.port)

    def put_link(self, part, n, target):
        """What is to be connected to instead of `target`; None: itself."""
        if part not in self.case.links.split():
            return None
        link = Link(self.bed, f"unix:{target}", tcp=n % 2 == 1, seed=self.seed)
        self.links[part, n] = link
        return link

    def play(self):
        """The load, the faults, the healing; a fault that nobody expected does
        not keep the rest from being looked at."""
        if self.case.start == "held":
            self.load.held.set()
        self.watcher.start()
        stalls = Stalls(self.daemons)
        try:
            with self.load, stalls:
                with self.failing("case"):
                    if self.case.start != "held":
                        self.load.wait_each()
                    self.case.play(self)
                with self.failing("heal"):
                    self.start_dead()
                    self.heal()
        finally:
            self.watcher.ended.set()
            self.watcher.join(60)
        self.result.stall_ms = stalls.longest_ms()
        for text in stalls.found():
            self.fail("stall", text)
        with self.failing("clients"):
            self.load.check()

    @contextlib.contextmanager
    def failing(self, check):
        try:
            yield
        except (Failed, OSError, redis_py.RedisError, psycopg2.Error) as error:
            self.fail(check, f"{type(error).__name__}: {error}")
            self.note(f"failed: {check}")

    def start_dead(self):
        """A case that broke off has left some, whose rows would be missing."""
        for daemon in self.daemons:
            if not daemon.running():
                status = daemon.wait_exit()
                if status not in (0, -signal.SIGKILL):
                    self.fail("end", f"{daemon.dir.name}: {status}")
                daemon.start(wait=None)

    def heal(self):
        """From the last repair on, unaided: every client is served again, and
        all is in PostgreSQL."""
        self.mend()
        for link in self.links.values():
            link.mode("pass")
        self.go()
        since = time.monotonic()
        self.healed.mark(since, True)
        try:
            self.load.wait_each(10, self.patience)
        finally:
            self.load.ended.set()
            self.result.heal_s = self.healed.longest_s(
                self.record, self.case.clients, time.monotonic())
        wait_for(self.is_clean,
                 max(since + self.patience - time.monotonic(), 1),
                 f"all to be clean {self.patience} s after the last fault")
        self.result.heal_s = max(self.result.heal_s, time.monotonic() - since)
        if self.result.heal_s > self.patience:
            raise Failed(f"{self.result.heal_s:.1f} s after a repair until"
                         " every client was served")
        self.note("healed")

    def is_clean(self):
        if any(client.is_alive() for client in self.load.clients):
            return False
        with contextlib.suppress(redis_py.RedisError, psycopg2.Error):
            return not checker.dirty_keys(self.redis) and self.has_moved()
        return False

    def has_moved(self):
        now = checker.read_through(self.pg)
        return all(now.get(kind, 0) > self.through.get(kind, 0)
                   for kind in ("like", "follow"))

    def go_through(self):
        try:
            with self.failing("run"):
                self.start()
                before = [judge.measure(daemon) for daemon in self.daemons]
                self.play()
                judge.judge(self, before)
        finally:
            self.close()
        tally = self.record.tally()
        for name in ("acked", "refused", "unknown"):
            setattr(self.result, name, tally[name])
        self.result.seconds = time.monotonic() - self.begun
        return self.result

    def close(self):
        """Daemons must end well, and no sanitizer may have said a word."""
        self.result.logs = self.bed.logs(25)
        with self.failing("end"):
            self.bed.close(remove=False)
        if self.keep and self.result.violations:
            self.result.kept = str(self.bed.dir)
        else:
            self.bed.remove()
        for link in self.links.values():
            link.close()
