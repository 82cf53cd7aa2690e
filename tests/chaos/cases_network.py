# SPDX-License-Identifier: MIT
"""Cases of the links between the programs: to Redis, to PostgreSQL, and of the
clients. Of two daemons, the first has unix sockets and the second TCP."""
from case import case

WAYS = ("both", "up", "down")
ALL = "redis pg clients"


def blackhole(run, link):
    """Also in one direction, of all connections, or of those that are there: then
    a new one overtakes what is stuck in the old."""
    which = run.random.choice(["all", "old"])
    return {"which": which, "direction": run.random.choice(WAYS)}


def delay(run, link):
    """Shorter and longer than the deadlines of the daemon."""
    return {"seconds": run.random.choice([0.02, 0.2, 0.6]),
            "jitter": run.random.uniform(0, 0.2),
            "direction": run.random.choice(WAYS)}


def cut(run, link):
    return {"nbytes": run.random.choice([1, 7, 50, 400, 3000]),
            "times": run.random.randint(1, 3),
            "direction": run.random.choice(WAYS)}


def trickle(run, link):
    return {"size": 1, "direction": run.random.choice(WAYS)}


def flap(run, link):
    return {"period": run.random.uniform(0.05, 0.4),
            "bad": run.random.choice(["reset", "refuse", "blackhole",
                                      "half_open"])}


def nothing_to_draw(run, link):
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
        args = MODES[mode](self.run, link)
        self.run.fault(f"{name}: {mode} {args or ''}")
        link.mode(mode, **args)
        self.broken[name] = mode
        self.run.until(link.fired, f"{name}: {mode} to take place")

    def mend(self):
        for name, mode in sorted(self.broken.items()):
            fired = self.run.links[name].mode("pass")
            self.run.note(f"{name}: well again, {mode} took place {fired} times")
        self.broken = {}


def play(run):
    Breaker(run).play(run.rounds(len(MODES)))


@case("links_redis", "what may happen to the links to Redis", daemons=2,
      links="redis")
def links_redis(run):
    play(run)


@case("links_postgres", "what may happen to the links to PostgreSQL", daemons=2,
      links="pg")
def links_postgres(run):
    play(run)


@case("links_clients", "what may happen to the links of the clients, which give"
      " up after a while", daemons=2, links="clients", timeout=0.8, late=True)
def links_clients(run):
    play(run)


@case("links_all", "what may happen to all links, several at a time", daemons=2,
      links=ALL, timeout=3, late=True)
def links_all(run):
    play(run)
