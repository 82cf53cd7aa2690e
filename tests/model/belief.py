#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Random-walk model of the flush protocol: what the Lua scripts and the SQL do,
small enough to walk at random.

Steps: events (also with client times, looked up, assumed, or with a lookup that
is old when it arrives), events by other writers (no `synced`, whole seconds),
counters that others moved, claims, writes (of the claimed state, or of the state
as it is when somebody takes the batch over), acks in any order and in parts,
killed daemons, rows that PostgreSQL refuses, Redis rolled back to an older copy
with its clock behind.

h: one hash. st, m: status and mtime. syn, sm: what PostgreSQL is believed to
hold; syn None: written by others. g: generation, a: assumed.

Checked: I1 after every write; after the drain counters are 0, Redis and
PostgreSQL agree, every last answer is kept, nothing is unattributed but what
others added without a row.

    belief.py [WALKS]            all combinations, WALKS walks each
    BREAK=rule belief.py WALKS   leave one rule out: must be caught
    belief.py --test WALKS       both: exit status 0 when all hold and each rule
                                 that is left out is caught
"""
import copy
import os
import random
import sys

BREAK = os.environ.get("BREAK", "")
RULES = ("skip-assumed no-ack-guard ack-own-claim no-floor no-generation "
         "no-adopt no-bump").split()
SECOND = 4
PAIRS = [(po, u) for po in (1, 2) for u in (1, 2, 3)]


class Redis:
    def __init__(self):
        self.h, self.dirty, self.counter, self.rec = {}, set(), {}, {}
        self.floor = 0


class Postgres:
    def __init__(self):
        self.row, self.count, self.un, self.led = {}, {}, {}, set()
        self.dead = set()


class Walk:
    def __init__(self, seed, rollback, optimistic, foreign, poison):
        self.rnd = random.Random(seed)
        self.rollback, self.optimistic = rollback, optimistic
        self.foreign, self.poison = foreign, poison
        self.r, self.p = Redis(), Postgres()
        self.clock, self.gen, self.batches = 1, 0, 0
        self.floor = 0
        self.behind = 0          # of Redis' clock to that of the applications
        self.written = []        # (batch, {pair: (st, m, ps, pm, d, dead)})
        self.lookups = {}        # pair -> base, read from PostgreSQL a while ago
        self.snaps = []
        self.told = {}
        self.truth = {}
        self.mixed = set()       # pairs that others wrote, too
        self.extern = 0
        self.lost_ok = False

    # ---- the event script ----
    def event(self, pair, want, at=None):
        r, rnd = self.r, self.rnd
        self.clock += 1
        h = r.h.get(pair)
        stale = h is not None and h["g"] != self.gen and BREAK != "no-generation"
        base = None                                       # assume
        if h is None or stale or h["syn"] is None:
            if not (self.optimistic and rnd.random() < .5):
                base = self.lookups.pop(pair, self.p.row.get(pair, (0, 0)))[:2]
        if h is None:
            b = base or (0, 0)
            h = dict(st=b[0], m=b[1], syn=b[0], sm=b[1], g=self.gen, a=base is None)
        elif base is not None:
            self.merge(pair, h, base)
            h = dict(h)
        else:
            h = dict(h)
            if stale or h["syn"] is None:
                h.update(g=self.gen, a=True)
        now = max(self.clock, 0 if BREAK == "no-floor" else r.floor + 1)
        last = h["m"]
        if h.get("others"):
            last = max(last, h["sm"], h.get("cl", 0))
        if at is not None and at <= last:
            return                # ignored: nothing is written, nothing assumed
        if at is not None:
            self.told[pair] = None
        if h["st"] == want and (not h["a"] or BREAK == "skip-assumed"):
            r.h[pair] = h
            self.told[pair] = (want, self.gen)
            return
        r.h[pair] = h
        old = h["st"]
        h["st"] = want
        h["others"] = False
        h["m"] = at if at is not None else max(now, last + 1)
        if at is None and h["m"] % SECOND == 0:
            h["m"] += 1                   # whole seconds are for others
        if at is None and now > self.clock:         # the clock is behind
            r.floor = max(r.floor, h["m"])
        self.mark(pair, want - old)
        self.told[pair] = (want, self.gen) if at is None else None
        if h["m"] >= self.truth.get(pair, (-1, 0))[0]:
            self.truth[pair] = (h["m"], want)

    def look_up(self, pair):
        """For an event that is sent again some time later. LOOKUP_MAX: not as
        late as to find that the hash came and its TTL ran out meanwhile."""
        h = self.r.h.get(pair)
        if h is None or h["g"] != self.gen or h["syn"] is None:
            self.lookups[pair] = self.p.row.get(pair, (0, 0))

    def merge(self, pair, h, base):
        """A hash from before a rollback, or one that others wrote: the newer of
        it and PostgreSQL. The counter holds what others added, so belief is
        only moved where there was one."""
        ps, pm = base
        before = h["st"] - (ps if h["syn"] is None else h["syn"])
        if pm > h["m"] or (pm == h["m"] and h["syn"] is not None):
            h["st"], h["m"] = ps, pm
        h.update(syn=ps, sm=pm, g=self.gen, a=False)
        self.add(pair[0], h["st"] - h["syn"] - before)

    def add(self, post, delta):
        self.r.counter[post] = self.r.counter.get(post, 0) + delta

    def mark(self, pair, delta):
        self.r.dirty.add(pair)
        self.add(pair[0], delta)

    # ---- an application that writes the keys itself ----
    def others(self, pair, want):
        self.clock += 1
        h = self.r.h.get(pair)
        if h and h["g"] != self.gen:
            return                       # it does not know what Redis lost
        was = h["st"] if h else self.p.row.get(pair, (0, 0))[0]
        if was == want:
            return
        m = (self.clock + self.behind) // SECOND * SECOND                               # whole seconds
        if h is None:
            row = self.p.row.get(pair, (0, 0))
            if row[1] >= m:
                return                   # the clean hash would still be there
            h = dict(syn=None, sm=0, a=False)
        self.r.h[pair] = dict(h, st=want, m=m, g=self.gen, others=True)
        self.mark(pair, want - was)
        self.told[pair] = None
        self.mixed.add(pair)

    # ---- claim, write, ack ----
    def claimed(self, h):
        """What is remembered of a claim. cl: the highest time that was claimed
        since others wrote the hash."""
        if h.get("others") and BREAK != "no-bump":
            self.bump(h)
        elif "cl" in h:
            h["cl"] = max(h["cl"], h["m"])

    def bump(self, h):
        """A time in whole seconds may not be above that of a state which this
        hash had before and which was claimed or acked since."""
        last = h.get("cl", 0)
        if h["syn"] is not None and h["g"] == self.gen:
            if "cl" not in h or h["sm"] % SECOND or not h["sm"]:
                h["m"] += SECOND - 1       # the end of it: after our own event
            if h["st"] != h["syn"]:
                last = max(last, h["sm"])
        h["m"] = h["cl"] = max(h["m"], last + 1)
        h["others"] = False

    def claim(self):
        r = self.r
        take = {}
        for x in sorted(r.dirty):
            if self.rnd.random() < .6:
                h = r.h[x]
                self.claimed(h)
                take[x] = (h["st"], h["m"])
        orphans = {}
        for po in (1, 2):
            busy = (any(x[0] == po for x in r.dirty)
                    or any(x[0] == po for b in r.rec.values() for x in b["rows"])
                    or any(po in b["orph"] for b in r.rec.values()))
            if not busy and r.counter.get(po, 0):
                orphans[po] = r.counter[po]
        if not take and not orphans:
            return
        self.batches += 1
        r.dirty -= set(take)
        r.rec[self.batches] = dict(rows=take, orph=orphans,
                                   at=self.high(take))

    def high(self, rows):
        """What the ledger keeps as the floor for a Redis with a clock behind."""
        return max([self.clock, self.r.floor] + [v[1] for v in rows.values()])

    def write(self, b, takeover):
        r, p = self.r, self.p
        if b not in r.rec:
            return
        rec = r.rec[b]
        rows = dict(rec["rows"])
        at = rec["at"]
        for x in rows:                 # others' rows are looked up first
            h = r.h.get(x)
            if h and h["syn"] is None and BREAK != "no-adopt":
                self.merge(x, h, p.row.get(x, (0, 0))[:2])
                rows[x] = (h["st"], h["m"])
            elif h and takeover:
                self.claimed(h)
                rows[x] = (h["st"], h["m"])
        if takeover:
            at = self.high(rows)
        self.floor = max(self.floor, at)
        result = {}
        for x, (st, m) in rows.items():
            old = p.row.get(x)
            dead = self.poison and x == (1, 1) and st == 1
            d = 0
            if dead:
                p.dead.add(x)
            elif old is None:
                p.row[x] = (st, m)
                d = st
            elif m > old[1] or (m == old[1] and st != old[0]):
                p.row[x] = (st, m)
                d = st - old[0]
            p.count[x[0]] = p.count.get(x[0], 0) + d
            row = p.row.get(x, (0, 0))
            result[x] = (st, m, row[0], row[1], dead)
        if b not in p.led:
            for po, d in rec["orph"].items():
                p.count[po] = p.count.get(po, 0) + d
                p.un[po] = p.un.get(po, 0) + d
        p.led.add(b)
        self.written.append((b, result))
        self.check_i1()

    def ack(self, i, part):
        r = self.r
        b, result = self.written[i]
        rec = r.rec.get(b, dict(rows={}, orph={}))
        for x, (st, m, ps, pm, dead) in result.items():
            if part and self.rnd.random() < .5:
                continue
            if x not in rec["rows"]:
                self.ack_lost(x, pm)
                continue
            del rec["rows"][x]
            if BREAK == "ack-own-claim":
                ps, pm = st, m
            h = r.h.get(x)
            if h is None or h["syn"] is None:
                continue
            if pm < h["sm"] and BREAK != "no-ack-guard":
                if not dead:
                    continue
                ps, pm = h["syn"], h["sm"]
            before = h["st"] - h["syn"]
            newer = h["m"] > (max(m, pm) if dead else pm)
            if not newer and not h.get("others"):
                h.update(st=ps, m=pm, g=self.gen)     # nothing newer here
            h.update(syn=ps, sm=pm, a=False)
            self.add(x[0], h["st"] - h["syn"] - before)
            held = any(x in q["rows"] for q in r.rec.values())
            clean = h["m"] == pm and h["st"] == ps
            if x not in r.dirty and not held and clean and self.rnd.random() < .4:
                del r.h[x]                                     # its TTL ran out
                self.lookups.pop(x, None)
        if not part:
            for po, d in rec["orph"].items():
                self.add(po, -d)
        if not rec["rows"] and not part:
            r.rec.pop(b, None)
            self.written.pop(i)

    def ack_lost(self, x, pm):
        """Acked already, or Redis has lost the record: then what is clean and
        older was looked up before this write."""
        h = self.r.h.get(x)
        if h and h["syn"] is not None and h["m"] == h["sm"] < pm \
                and h["st"] == h["syn"] and x not in self.r.dirty:
            del self.r.h[x]
            self.lookups.pop(x, None)

    def check_i1(self):
        for po in (1, 2):
            n = sum(1 for x, v in self.p.row.items() if x[0] == po and v[0])
            got = self.p.count.get(po, 0) - self.p.un.get(po, 0)
            assert got == n, f"I1 post {po}: {got} and {n} rows"

    def step(self):
        rnd = self.rnd
        k = rnd.random()
        if k < .05:
            self.look_up(rnd.choice(PAIRS))
        elif k < .40:
            at = rnd.random() * self.clock if rnd.random() < .3 else None
            self.event(rnd.choice(PAIRS), rnd.randint(0, 1), at)
        elif k < .45:
            if self.foreign:
                self.others(rnd.choice(PAIRS), rnd.randint(0, 1))
        elif k < .6:
            self.claim()
        elif k < .75 and self.r.rec:
            self.write(rnd.choice(list(self.r.rec)), rnd.random() < .3)
        elif k < .9 and self.written:
            self.ack(rnd.randrange(len(self.written)), rnd.random() < .3)
        elif k < .93:
            self.written.clear()                              # daemon killed
        elif k < .95 and self.foreign:
            d = rnd.choice((2, -1))
            self.add(1, d)
            self.extern += d
        elif k < .97:
            self.snaps.append(copy.deepcopy(self.r))
        elif self.rollback and self.snaps:
            self.r = copy.deepcopy(self.snaps[-1])
            self.written.clear()
            if BREAK != "old-lookup":    # it was for another Redis
                self.lookups.clear()
            self.lost_ok = True
            self.gen += 1
            back = rnd.randint(0, min(20, self.clock - 1))
            self.clock -= back
            self.behind += back
            self.r.floor = max(self.r.floor, self.floor)

    def drain(self):
        for _ in range(60):
            self.claim()
            for b in list(self.r.rec):
                self.write(b, self.rnd.random() < .3)
                self.ack(len(self.written) - 1, False)

    def run(self):
        for _ in range(120):
            self.step()
        self.drain()
        self.check_i1()
        r, p = self.r, self.p
        assert not r.dirty and not r.rec, "not drained"
        for po, c in r.counter.items():
            assert c == 0, f"counter {po} = {c}"
        for x, h in r.h.items():
            if h["g"] == self.gen:
                assert p.row.get(x, (0,))[0] == h["st"], f"{x}: Redis, PostgreSQL differ"
        for x, t in self.truth.items():
            if not self.lost_ok and x not in p.dead and x not in self.mixed:
                assert p.row.get(x, (0,))[0] == t[1], f"lost {x}"
        for x, t in self.told.items():
            # Others' whole seconds, a Redis rolled back and pairs that were never
            # looked up, all three together: the one stated limit.
            mixed = self.rollback and self.optimistic and x in self.mixed
            if t and t[1] == self.gen and x not in p.dead and not mixed:
                assert p.row.get(x, (0,))[0] == t[0], f"{x}: promised {t[0]}"
        if not self.rollback and not (self.foreign and self.poison):
            un = sum(p.un.values())
            assert un == self.extern, f"unattributed {p.un} want {self.extern}"
        elif not self.foreign:
            assert not any(p.un.values()), f"unattributed {p.un}"


def walk_all(walks, verbose):
    """All 16 combinations; returns how many walks were broken."""
    broken = 0
    for combo in range(16):
        flags = [combo >> i & 1 for i in range(4)]
        bad, first = 0, None
        for seed in range(walks):
            try:
                Walk(seed, *flags).run()
            except AssertionError as e:
                bad += 1
                first = first or (seed, str(e))
        broken += bad
        names = ("rollback", "optimistic", "foreign", "poison")
        if verbose or bad and not BREAK:
            print(" ".join(f"{n}={f}" for n, f in zip(names, flags)),
                  f"{bad}/{walks} broken {first or ''}", flush=True)
    return broken


def main():
    global BREAK
    if sys.argv[1:2] != ["--test"]:
        walks = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
        sys.exit(1 if walk_all(walks, True) else 0)
    walks = int(sys.argv[2])
    failed = walk_all(walks, False)
    print(f"all rules: {failed} of {16 * walks} walks broken (seeds 0 to "
          f"{walks - 1})")
    for BREAK in RULES:
        caught = walk_all(walks, False)
        print(f"without {BREAK}: caught {caught} times", flush=True)
        failed += caught == 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
