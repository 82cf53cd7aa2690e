# SPDX-License-Identifier: MIT
"""Cases of the links between the programs: to Redis, to PostgreSQL, and of the
clients. Of two daemons, the first has unix sockets and the second TCP."""
import bed  # noqa: F401
from case import case
from clients import Client
from judge import ALL
from record import ACKED, REFUSED, UNKNOWN
from wire import Wire

WAYS = ("both", "up", "down")
LINKS = "redis pg clients"


def blackhole(random, is_well):
    """Also in one direction, of all connections, or of those that are there: then
    a new one overtakes what is stuck in the old."""
    which = random.choice(["all", "old", "old"]) if is_well else "all"
    return {"which": which, "direction": random.choice(WAYS)}


def delay(random, _):
    """Shorter and longer than the deadlines of the daemon."""
    return {"seconds": random.choice([0.02, 0.2, 0.6]),
            "jitter": random.uniform(0, 0.2),
            "direction": random.choice(WAYS)}


def cut(random, _):
    return {"nbytes": random.choice([1, 7, 50, 400, 3000]),
            "times": random.randint(1, 3),
            "direction": random.choice(WAYS)}


def trickle(random, _):
    return {"size": 1, "direction": random.choice(WAYS)}


def flap(random, _):
    return {"period": random.uniform(0.05, 0.4),
            "bad": random.choice(["reset", "refuse", "blackhole",
                                      "half_open"])}


def nothing_to_draw(random, _):
    return {}


MODES = {"blackhole": blackhole, "half_open": nothing_to_draw,
         "refuse": nothing_to_draw, "reset": nothing_to_draw, "cut": cut,
         "trickle": trickle, "delay": delay, "flap": flap}


class Breaker:
    """Breaks one link after another, each mode in its turn; some stay broken
    while the next ones are. Every fault must have met bytes or connections."""

    def __init__(self, run):
        self.run, self.random = run, run.random
        self.modes = []         # those still to come
        self.broken = {}        # link: what is wrong with it

    def next_mode(self):
        if not self.modes:
            self.modes = sorted(MODES)
            self.random.shuffle(self.modes)
        return self.modes.pop()

    def play(self, rounds):
        for _ in range(rounds):
            link = self.random.choice(sorted(self.run.links))
            self.spoil(link)
            self.run.wait(0.3, 1.2)     # around all deadlines and the lease
            if self.random.random() < 0.6:
                self.mend()
                self.run.load.wait_acked(self.random.randint(1, 100))
        self.mend()
        self.run.load.wait_each()

    def spoil(self, name):
        link, mode = self.run.links[name], self.next_mode()
        if name[0] == "pg" and ("redis", name[1]) in self.broken:
            self.mend()     # nothing would go to PostgreSQL
        if mode == "refuse":
            self.mend()     # it is seen by the connections that there are
        is_well = not self.broken
        if is_well:
            before = link.stats()
            self.run.until(lambda: all(link.stats()[way] > before[way]
                                       for way in ("up", "down")),
                           f"{name} to be in use")
        args = MODES[mode](self.random, is_well)
        self.run.fault(f"{name}: {mode} {args or ''}")
        link.mode(mode, **args)
        self.broken[name] = mode
        self.run.until(link.fired, f"{name}: {mode} to take place")

    def mend(self):
        for name, mode in sorted(self.broken.items()):
            fired = self.run.links[name].mode("pass")
            self.run.note(f"{name}: well again, {mode} took place {fired} times")
        self.broken = {}
        self.run.mended()


def play(run):
    Breaker(run).play(run.rounds(len(MODES)))


@case("links_redis", "what may happen to the links to Redis", daemons=2,
      links="redis", answers=ALL, mostly=(REFUSED,))
def links_redis(run):
    play(run)


@case("links_postgres", "what may happen to the links to PostgreSQL", daemons=2,
      links="pg")
def links_postgres(run):
    play(run)


@case("links_clients", "what may happen to the links of the clients, which give"
      " up after a while", daemons=2, links="clients", timeout=0.8, late=True,
      answers=ALL, mostly=(UNKNOWN,))
def links_clients(run):
    play(run)


@case("links_all", "what may happen to all links, several at a time", daemons=2,
      links=LINKS, timeout=3, late=True, mostly=(REFUSED, UNKNOWN))
def links_all(run):
    play(run)


class Asker(Client):
    """A client that asks what it is told to, of pairs without times."""

    def __init__(self, run, n):
        super().__init__(run.load, run.load.clients[n].address,
                         run.case.clients + n)
        self.pairs = [pair for pair in self.pairs if pair not in self.timed]

    def ask(self, wants):
        """{pair: wanted}; returns those that were not acked."""
        events = [self.record.event(self.number, *pair, want, False)
                  for pair, want in wants.items()]
        with Wire(self.address, self.load.timeout) as wire:
            self.exchange(wire, events)
        return {(e.kind, e.pair): e.want for e in events
                if e.outcome() != ACKED}


@case("links_overtaken", "what is stuck on its way to Redis arrives when the"
      " daemon has given it up, and another connection was told the contrary",
      daemons=2, links="redis", answers=ALL, mostly=(REFUSED,))
def links_overtaken(run):
    askers, stuck = [Asker(run, n) for n in range(2)], 0
    for _ in range(run.rounds(6)):
        n = run.random.randrange(2)
        link, asker = run.link("redis", n), askers[n]
        pairs = run.random.sample(asker.pairs, 40)
        run.until(lambda: not asker.ask({pair: 0 for pair in pairs}),
                  "known states")
        run.fault(f"redis {n}: what is under way gets stuck",
                  repair=lambda: link.mode("pass"))
        link.mode("blackhole", which="old", direction="up")
        stuck += len(asker.ask({pair: 1 for pair in pairs}))
        run.until(link.fired, "something to get stuck")
        left = {pair: 0 for pair in pairs}

        def ask_again():
            nonlocal left
            left = asker.ask(left)
            return not left
        run.until(ask_again, "the contrary to be acked")
        run.mend()
        run.wait(0, 0.2)
    run.note(f"{stuck} events got stuck")
    if not stuck:
        run.fail("case", "no events got stuck")
