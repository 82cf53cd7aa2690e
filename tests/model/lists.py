#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Random-walk model of the follow lists: two sorted sets a user, changed with the
edge hashes, loaded from PostgreSQL in steps that may come late or never.

Steps: FOLLOW and UNFOLLOW (also with client times, looked up, or assumed), an
application that writes the keys itself in five steps, claim, lookup, adopt,
commit and ack in any order, killed daemons, batches taken over, clean hashes
that expire, lists that expire, are evicted or deleted, Redis rolled back or
emptied, and loads by several loaders at once: begin; overlay (read the unsynced
members, look them up, apply); chunks (read PostgreSQL, apply). This is belief.py
(where the clock is the point) with one clock that only goes forward.

An edge is (status, mtime, ctime); a list's score is ctime, the follow's time.
h: a hash. syn, sm: what PostgreSQL is believed to hold (syn None: written by
others), g: generation, a: "a" assumed, ctime may be older in PostgreSQL; "b"
assumed, but ctime is right; cl: others wrote it, and the lists with it.

Checked whenever a list is answered, complete or above the position up to which
it is loaded: it holds exactly those whose newest acked event is a FOLLOW, and
the times at which they began. Not checked: a pair while the five steps of an
application are torn, the time of an assumed pair, and a pair that an
application wrote and nobody claimed before Redis lost the list.

    lists.py [WALKS]             all combinations, WALKS walks each
    BREAK=rule lists.py WALKS    leave one rule out: must be caught
    SEED=n FLAGS=n lists.py      one walk again, step by step
    lists.py --test WALKS        all hold, and each rule that is left out is
                                 caught: exit status 0

Limits, not checked: the time of a FOLLOW assumed with a client's time or over a
hash from before a rollback, until PostgreSQL has decided; a list deleted by hand
into which an application put others before anything looked at it.
"""
import copy
import os
import random
import sys

BREAK = os.environ.get("BREAK", "")
RULES = ("no-overlay no-hash-check no-generation no-n no-ttl-witness no-load-id "
         "no-unlink no-walk-of-others late-chunk unsynced-at-commit "
         "no-unsynced-of-others claim-applies no-ack-repair no-assumed-ctime "
         "ack-clears-assumed no-repeat").split()
FLAGS = ("rollback", "optimistic", "others", "by_hand")
USERS = (1, 2, 3)
PAIRS = [(u, v) for u in USERS for v in USERS if u != v]
LISTS = [(side, u) for side in ("follow", "fans") for u in USERS]
APPLY_WITHIN = 20        # of what PostgreSQL read
TTL = 22                 # of a clean hash, from its ack
CHUNK = 1
PATIENCE = 10            # so many times the walks to catch what is left out
NOTHING = (0, 0, 0)


def lists_of(pair):
    """The lists that a pair is in, each with its member."""
    return (("follow", pair[0]), pair[1]), (("fans", pair[1]), pair[0])


def pair_of(key, member):
    return (key[1], member) if key[0] == "follow" else (member, key[1])


def edge(h):
    return h["st"], h["m"], h["c"]


def newest(h, row):
    """The newer of hash and row, None for none."""
    if h is None or row is None:
        return row if h is None else edge(h)
    if row[1] > h["m"] or (row[1] == h["m"] and h["syn"] is not None):
        return row
    if h["a"] == "a" and h["st"] == row[0] == 1 and BREAK != "no-assumed-ctime":
        return h["st"], h["m"], row[2]
    return edge(h)


class Redis:
    def __init__(self):
        self.h, self.dirty, self.rec, self.gen = {}, set(), {}, 0
        self.z, self.mark, self.ttl = {}, {}, set()
        self.unsynced = {k: set() for k in LISTS}


class Lists:
    """What the scripts do with the lists."""

    def __init__(self, walk):
        self.walk = walk

    @property
    def r(self):
        return self.walk.r

    def card(self, key):
        return len(self.r.z.get(key, ()))

    def drop(self, key):
        """The sorted set is gone, however; with it what others put there and
        nobody claimed."""
        self.r.z.pop(key, None)
        self.r.ttl.discard(key)
        for x, h in self.r.h.items():
            if key in dict(lists_of(x)) and (h["others"] or h["syn"] is None):
                self.walk.lost.add(x)

    def vanished(self, key):
        """Fewer than there must be; or it had a TTL, and this one has none: it
        went, and others began it anew."""
        r, mark = self.r, self.r.mark[key]
        if self.card(key) < mark["n"] and BREAK != "no-n":
            return True
        return (self.walk.idle and mark["own"] and BREAK != "no-ttl-witness"
                and key in r.z and not r.unsynced[key] and key not in r.ttl)

    def check(self, key):
        """Before any change: what would hide that the list vanished."""
        r = self.r
        if key in r.mark and self.vanished(key):
            r.mark[key].update(pos="gone", n=0)
        if key not in r.mark and key not in r.z:
            self.begin(key)

    def count(self, key):
        """After a check, or a load that began anew."""
        mark = self.r.mark.get(key)
        if mark and mark["pos"] != "gone":
            mark["n"] = self.card(key)

    def put(self, key, member, st, c):
        z = self.r.z.setdefault(key, {})
        if st:
            z[member] = c
        else:
            z.pop(member, None)
        if not z:
            self.drop(key)

    def put_pair(self, pair, st, c):
        for key, member in lists_of(pair):
            self.check(key)
            self.put(key, member, st, c)
            self.settle(key)

    def unsynced(self, pair):
        for key, member in lists_of(pair):
            self.check(key)
            self.r.unsynced[key].add(member)
            self.r.ttl.discard(key)
            self.count(key)

    def synced(self, pair):
        for key, member in lists_of(pair):
            self.check(key)
            self.r.unsynced[key].discard(member)
            self.settle(key)

    def settle(self, key):
        """A TTL only where all can be loaded again."""
        r = self.r
        self.count(key)
        mine = key in r.mark and r.mark[key]["own"]
        if self.walk.idle and mine and key in r.z and not r.unsynced[key]:
            r.ttl.add(key)

    def good(self, key):
        mark = self.r.mark.get(key)
        if mark is None or mark["pos"] == "gone" or self.vanished(key):
            return False
        return mark["gen"] == self.r.gen or BREAK == "no-generation"

    def begin(self, key):
        r = self.r
        mark = r.mark.get(key, {"gen": r.gen, "own": 0})
        if mark["gen"] != r.gen and mark["own"] and BREAK != "no-unlink":
            self.drop(key)
        own = mark["own"] or key not in r.z
        pos = "start" if BREAK == "no-overlay" else "overlay"
        r.mark[key] = dict(gen=r.gen, pos=pos, n=self.card(key), own=own,
                           id=self.walk.next_id())
        self.settle(key)
        self.walk.deleted.discard(key)
        self.walk.blind.discard(key)

    def overlay(self, key):
        """What PostgreSQL may not have; and, after a rollback, what it may have
        taken away from a list that is not all ours."""
        r = self.r
        members = set(r.unsynced[key])
        if r.gen and not r.mark[key]["own"] and BREAK != "no-walk-of-others":
            members |= set(r.z.get(key, ()))
        return members

    def apply(self, key, rows):
        for member, row in rows.items():
            h = self.r.h.get(pair_of(key, member))
            best = row if BREAK == "no-hash-check" and row else newest(h, row)
            if best:
                self.put(key, member, best[0], best[2])
        self.settle(key)


class Walk:
    def __init__(self, seed, rollback, optimistic, others, by_hand, trace=False):
        self.rnd = random.Random(seed)
        self.rollback, self.optimistic = rollback, optimistic
        self.others, self.by_hand = others, by_hand
        self.trace = trace
        self.idle = self.rnd.random() < .7     # idle_ttl is not 0
        self.r, self.row = Redis(), {}
        self.lists = Lists(self)
        self.hot = self.rnd.choice(LISTS)      # most of what happens
        self.now = 1
        self.batches = self.ids = 0
        self.held = []           # batches in the daemons: {b, rows, stage, ...}
        self.loads = []          # loads in the daemons
        self.lookups = {}        # pair -> (row, since)
        self.acked = {}          # pair -> when it became clean
        self.apps_state = {}     # pair -> what an application put in its hash
        self.apps = {}           # pair -> steps left, each (what, argument)
        self.torn = set()        # pairs whose five steps others came between
        self.lost = set()        # pairs of others that a list lost unclaimed
        self.deleted = set()     # lists deleted by hand, not loaded since
        self.blind = set()       # of these, others then put something in
        self.vague = set()       # PostgreSQL decides (account)
        self.truth = {}
        self.snaps = []
        if self.others:
            self.adopted()
        self.snapshot()

    def next_id(self):
        self.ids += 1
        return self.ids

    def log(self, *what):
        if self.trace:
            print(self.now, *what)

    def adopted(self):
        """Lists that an application had; its edges are in PostgreSQL."""
        for i, x in enumerate(PAIRS):
            if self.chance(.4):
                self.row[x] = self.truth[x] = (1, -i - 1, -i - 1)
                for key, member in lists_of(x):
                    self.r.z.setdefault(key, {})[member] = -i - 1

    def a_list(self):
        return self.hot if self.chance(.6) else self.rnd.choice(LISTS)

    def a_pair(self):
        if self.chance(.6):
            return pair_of(self.hot, self.rnd.choice(
                [u for u in USERS if u != self.hot[1]]))
        return self.rnd.choice(PAIRS)

    def chance(self, p):
        return self.rnd.random() < p

    # ---- the event script ----
    def known(self, pair, assume):
        """What is known of a pair, as a hash; None: must be looked up."""
        r = self.r
        h = r.h.get(pair)
        if h and h["g"] == r.gen and h["syn"] is not None:
            return dict(h)
        if assume:
            if h is None:
                return dict(st=0, m=0, c=0, syn=0, sm=0, g=r.gen, a="a",
                            others=False)
            sure = h["syn"] is None or not h["st"] and h["m"] > h["sm"]
            return dict(h, g=r.gen, a="b" if sure else "a")
        row, since = self.lookups.pop(pair, (None, None))
        if since is None or self.now - since > APPLY_WITHIN:
            self.lookups[pair] = (self.row.get(pair, NOTHING), self.now)
            return None
        if h is None:
            return dict(st=row[0], m=row[1], c=row[2], syn=row[0], sm=row[1],
                        g=r.gen, a="", others=False)
        h = dict(h)
        self.merge(h, row)
        return h

    def merge(self, h, row):
        h["st"], h["m"], h["c"] = newest(h, row)
        h.update(syn=row[0], sm=row[1], g=self.r.gen, a="")

    def event(self, pair, want, at, assume):
        before = self.r.h.get(pair)
        h = self.known(pair, assume and self.optimistic)
        if h is None:
            return
        if h["others"]:
            self.theirs(h)
        reply = self.judge(pair, h, want, at)
        self.log("event", pair, want, at, h["a"], "->", reply)
        self.account(pair, want, at, before, h, reply)
        if reply or before or not h["a"]:
            self.r.h[pair] = h
        if reply or (h["syn"], h["sm"]) != (h["st"], h["m"]):
            self.r.dirty.add(pair)
            self.acked.pop(pair, None)
            self.lists.unsynced(pair)
            self.lists.put_pair(pair, h["st"], h["c"])
        elif before is None:
            self.acked[pair] = self.now
        if pair in self.apps:
            self.torn.add(pair)

    @staticmethod
    def theirs(h):
        """Others wrote it, its ctime too. That is remembered until the ack."""
        h.update(others=False, cl=h["m"], a=h["a"] and "b")

    def judge(self, pair, h, want, at):
        """Changes the hash; whether it took the event."""
        if at is not None and at <= h["m"]:
            return False
        if h["st"] == want and not h["a"] and BREAK != "no-repeat":
            return False
        m = at if at is not None else self.now
        if want and (not h["st"] or BREAK == "no-repeat"):
            h["c"] = m
        h["st"], h["m"] = want, m
        if not want and h["a"]:
            h["a"] = "b"
        return True

    def account(self, pair, want, at, before, h, reply):
        """The serial history of what was acked, without Redis and PostgreSQL."""
        st, m, c = self.truth.get(pair, NOTHING)
        if h["a"] and (at is not None or before and before["g"] != h["g"]):
            self.vague.add(pair)
        if pair in self.vague:
            return
        changes = (at is None or at > m) and (st != want or bool(h["a"]))
        assert reply == changes, f"{pair} answered {reply}, not {changes}"
        if changes:
            m = at if at is not None else self.now
            self.truth[pair] = (want, m, c if st == want == 1 else m)

    # ---- an application that writes the keys itself ----
    def app_begin(self, pair, want):
        h = self.r.h.get(pair)
        if pair in self.apps or pair in self.vague or h and h["g"] != self.r.gen:
            return                       # it does not know what Redis lost
        if self.state(pair)[0] == want:
            return
        self.log("app", pair, want)
        self.apps[pair] = [("dirty", 0), ("registry", 0), ("hash", want),
                           ("list", 0), ("list", 1)]

    def state(self, pair):
        h = self.r.h.get(pair)
        return edge(h) if h else self.row.get(pair, NOTHING)

    def app_step(self, pair):
        what, arg = self.apps[pair].pop(0)
        self.log("app", pair, what, arg)
        if self.chance(.2):
            self.snapshot()
        if what == "registry":
            self.r.dirty.add(pair)
        elif what == "hash":
            self.app_hash(pair, arg)
        elif what == "list":
            h = self.apps_state[pair]
            key, member = lists_of(pair)[arg]
            z = self.r.z.setdefault(key, {})
            if h[0] and key in self.deleted:
                self.blind.add(key)
            if h[0]:
                z[member] = h[2]
            else:
                z.pop(member, None)
            if not z:
                self.r.z.pop(key)
                self.r.ttl.discard(key)
            if self.chance(.3):
                self.read(key)
        if pair in self.apps and not self.apps[pair]:
            del self.apps[pair]

    def app_hash(self, pair, want):
        h = self.r.h.get(pair)
        st, _, c = self.state(pair)
        if st == want or pair in self.vague or h and h["g"] != self.r.gen:
            del self.apps[pair]          # others were faster
            if not h:
                self.r.dirty.discard(pair)
            return
        m = self.now
        h = h or dict(syn=None, sm=0, g=self.r.gen, a="")
        self.r.h[pair] = dict(h, st=want, m=m, c=m if want else c, others=True)
        self.r.dirty.add(pair)
        self.acked.pop(pair, None)
        self.apps_state[pair] = self.truth[pair] = edge(self.r.h[pair])

    # ---- claim, lookup, adopt, commit, ack ----
    def claim(self):
        r, take = self.r, {}
        for x in sorted(r.dirty):
            if x in r.h and self.chance(.6):
                take[x] = self.claimed(x)
        if take:
            self.batches += 1
            r.dirty -= set(take)
            r.rec[self.batches] = set(take)
            self.hold(self.batches, take)

    def claimed(self, x):
        h = self.r.h[x]
        if h["others"]:
            self.theirs(h)
            if BREAK != "no-unsynced-of-others":
                self.lists.unsynced(x)
            if BREAK == "claim-applies":
                self.lists.put_pair(x, h["st"], h["c"])
        return edge(h)

    def hold(self, b, rows):
        self.log("claim", b, rows)
        look = [x for x in rows if self.unsure(self.r.h[x])]
        self.held.append(dict(b=b, rows=rows, look=look, stage="look"))

    def take_over(self, b):
        record = self.r.rec[b]
        record &= set(self.r.h)          # acked with another batch, and expired
        self.hold(b, {x: self.claimed(x) for x in sorted(record)})

    def flush_step(self, t):
        stage = t["stage"]
        self.log(stage, t["b"], t["rows"])
        if stage == "look":
            t["since"] = self.now
            t["base"] = {x: self.row.get(x, NOTHING) for x in t["look"]}
            t["stage"] = "adopt"
        elif stage == "adopt" and self.now - t["since"] > APPLY_WITHIN:
            t["stage"] = "look"
        elif stage == "adopt":
            for x, row in t["base"].items():
                self.adopt(t, x, row)
            t["stage"] = "commit"
        elif stage == "commit":
            self.commit(t)
            t["stage"] = "ack"
        else:
            self.ack(t, self.chance(.3))
            if not t["rows"] or self.chance(.5):
                self.held.remove(t)

    @staticmethod
    def unsure(h):
        return h["syn"] is None or (h["a"] == "a" and h["st"] == 1
                                    and BREAK != "no-assumed-ctime")

    def adopt(self, t, x, row):
        h = self.r.h.get(x)
        if h is None:
            del t["rows"][x]
            return
        if h["syn"] is None:
            self.merge(h, row)
            self.lists.unsynced(x)
            self.lists.put_pair(x, h["st"], h["c"])
        elif h["a"] == "a" and h["st"] == 1:
            if row[0] == 1:
                h["c"] = row[2]
            h["a"] = "b"
            if row[1] <= h["m"]:      # else the load has it already
                self.lists.put_pair(x, h["st"], h["c"])
        t["rows"][x] = edge(h)

    def commit(self, t):
        t["result"] = {}
        for x, (st, m, c) in t["rows"].items():
            old = self.row.get(x)
            if old is None or m > old[1] or (m == old[1] and st != old[0]):
                self.row[x] = (st, m, c)
            t["result"][x] = self.row[x]
            if BREAK == "unsynced-at-commit":
                self.lists.synced(x)

    def ack(self, t, part):
        record = self.r.rec.get(t["b"], set())
        for x, row in list(t["result"].items()):
            if x in record and not (part and self.chance(.5)):
                record.discard(x)
                self.ack_edge(x, row)
        if not record:
            self.r.rec.pop(t["b"], None)

    def ack_edge(self, x, row):
        h = self.r.h.get(x)
        if h is None or h["syn"] is None or row[1] < h["sm"]:
            return
        moved = False
        if row[1] >= h["m"] and not h["others"]:
            moved = edge(h) != row
            h["st"], h["m"], h["c"] = row
            h["g"] = self.r.gen
        h.update(syn=row[0], sm=row[1])
        if h["m"] <= row[1] or BREAK == "ack-clears-assumed":
            h["a"] = ""
        if (moved or "cl" in h) and BREAK != "no-ack-repair":
            self.lists.put_pair(x, h["st"], h["c"])
        if edge(h) != row:
            return
        if BREAK != "unsynced-at-commit":
            self.lists.synced(x)
        if x in self.vague:
            self.truth[x] = row
            self.vague.discard(x)
        if x in self.apps:
            self.torn.add(x)
        elif "cl" in h:
            self.torn.discard(x)
            self.lost.discard(x)
        if x not in self.r.dirty:
            self.acked[x] = self.now

    # ---- loads ----
    def load_begin(self):
        key = self.a_list()
        if not self.lists.good(key):
            self.log("begin", key, self.r.mark.get(key))
            self.lists.begin(key)
        if self.r.mark[key]["pos"] != "end":
            self.loads.append(dict(key=key, slow=self.chance(.3)))

    def load_step(self, t):
        """Either reads what is to be looked up, or looks it up, or applies it."""
        key = t["key"]
        if "since" not in t:
            if not self.lists.good(key) or self.r.mark[key]["pos"] == "end":
                self.loads.remove(t)
                return
            mark = self.r.mark[key]
            t.update(since=self.now, id=mark["id"], pos=mark["pos"],
                     gen=mark["gen"])
            if t["pos"] == "overlay":
                t["todo"] = sorted(self.lists.overlay(key))
        elif "rows" not in t:
            t["rows"], t["next"] = self.load_read(t)
        else:
            self.load_apply(t)
        self.log("load", t)

    def load_read(self, t):
        key = t["key"]
        if t["pos"] == "overlay":
            return {v: self.row.get(pair_of(key, v)) for v in t["todo"]}, "start"
        rows = sorted(((self.row[x][2], v, self.row[x]) for x in self.row
                       for k, v in lists_of(x) if k == key and self.row[x][0]),
                      reverse=True)
        if t["pos"] != "start":
            rows = [e for e in rows if e[:2] < t["pos"]]
        rows = rows[:CHUNK]
        done = len(rows) < CHUNK
        return ({v: row for _, v, row in rows},
                "end" if done else rows[-1][:2])

    def load_apply(self, t):
        key, mark = t["key"], self.r.mark.get(t["key"])
        late = self.now - t["since"] > APPLY_WITHIN and BREAK != "late-chunk"
        same = mark and mark["pos"] == t["pos"] and (
            mark["id"] == t["id"] or BREAK == "no-load-id")
        if same and not late and self.lists.good(key):
            self.lists.apply(key, t["rows"])
            mark["pos"] = t["next"]
        for field in ("since", "rows", "todo"):
            t.pop(field, None)

    # ---- what goes ----
    def expire(self):
        for x, at in list(self.acked.items()):
            if self.now - at > TTL and x not in self.r.dirty and self.chance(.7):
                self.log("expired", x)
                del self.r.h[x], self.acked[x]
        for key in sorted(self.r.ttl):
            if self.chance(.4 if key == self.hot else .1):
                self.log("list expired", key)
                if self.chance(.8):
                    self.lists.drop(key)
                if self.chance(.3):
                    self.r.mark.pop(key, None)

    def delete(self):
        key = self.a_list()
        self.log("deleted", key)
        if self.chance(.8):
            self.lists.drop(key)
            self.deleted.add(key)
        if self.chance(.3):
            self.r.mark.pop(key, None)

    def lose_daemons(self, emptied):
        self.held.clear()
        self.lookups.clear()
        self.apps.clear()
        self.torn.clear()
        if not emptied:
            self.loads.clear()           # they see that the connection is new

    def roll_back(self):
        self.log("rolled back")
        self.lose_daemons(False)
        snap = copy.deepcopy(self.rnd.choice(self.snaps[-4:]))
        (self.r, self.acked, self.torn, self.lost, self.deleted,
         self.blind) = snap
        self.r.gen += 1
        self.vague.clear()
        self.restate()

    def restate(self):
        """What Redis and PostgreSQL have between them is the truth now."""
        for x in PAIRS:
            h = self.r.h.get(x)
            self.truth[x] = newest(h, self.row.get(x)) or NOTHING
            if h and h["a"]:
                self.vague.add(x)

    def empty(self):
        self.log("emptied")
        self.lose_daemons(True)
        self.r = Redis()
        self.acked.clear()
        self.lost.clear()
        self.deleted.clear()
        self.blind.clear()
        self.vague.clear()
        self.restate()

    def snapshot(self):
        self.snaps.append(copy.deepcopy(
            (self.r, self.acked, self.torn | set(self.apps), self.lost,
             self.deleted, self.blind)))

    # ---- the answers ----
    def read(self, key):
        if not self.lists.good(key):
            return False
        pos = self.r.mark[key]["pos"]
        if pos not in ("overlay", "start"):
            self.check(key, -9 if pos == "end" else pos[0])
        self.lists.settle(key)
        return pos == "end"

    def check(self, key, above):
        if key in self.blind:
            return
        got = {v: c for v, c in self.r.z.get(key, {}).items() if c > above}
        for v in USERS:
            x = pair_of(key, v)
            if x[0] == x[1] or x in self.vague or self.exempt(x):
                continue
            st, _, c = self.truth.get(x, NOTHING)
            want = c if st and c > above else None
            have = got.get(v)
            if self.r.h.get(x, {}).get("a") == "a":
                continue
            assert have == want, f"{key}: {v} has {have}, not {want}"

    def exempt(self, x):
        return x in self.apps or x in self.torn or x in self.lost

    def step(self):
        rnd = self.rnd
        self.now += 1
        k = rnd.random()
        if k < .20:
            at = None if self.chance(.7) else rnd.random() * self.now
            self.event(self.a_pair(), rnd.randint(0, 1), at, self.chance(.4))
        elif k < .24:
            if self.others:
                self.app_begin(self.a_pair(), rnd.randint(0, 1))
        elif k < .34:
            if self.apps:
                self.app_step(rnd.choice(sorted(self.apps)))
        elif k < .39:
            self.claim()
        elif k < .41:
            if self.r.rec:
                self.take_over(rnd.choice(sorted(self.r.rec)))
        elif k < .55:
            if self.held:
                self.flush_step(rnd.choice(self.held))
        elif k < .60:
            self.load_begin()
        elif k < .80:
            if self.loads:
                t = rnd.choice(self.loads)
                if not t["slow"] or "rows" not in t or self.chance(.2):
                    self.load_step(t)
        elif k < .88:
            self.read(self.a_list())
        elif k < .91:
            self.expire()
        elif k < .93:
            self.now += rnd.choice((5, 25))
        elif k < .95:
            self.killed(rnd)
        elif k < .97:
            if self.by_hand:
                self.delete()
        elif k < .98:
            self.snapshot()
        elif k < .99 and self.rollback and self.snaps:
            self.roll_back()
        elif k < .993 and self.rollback:
            self.empty()
        if self.chance(.04):
            self.flush_now()
        if self.chance(.04):
            self.load_now(self.hot)
        if self.chance(.02):
            rnd.choice((self.stale_load, self.claimed_late, self.lost_end,
                        self.late_chunk))()

    # ---- orders that chance alone would take long to find ----
    def stale_load(self):
        """An overlay that belongs to the load before this one."""
        key = self.hot
        if self.by_hand and self.lists.good(key):
            self.lists.drop(key)
            self.lists.begin(key)
            t = dict(key=key, slow=True)
            self.loads.append(t)
            self.load_step(t)
            self.load_step(t)
            self.now += 1
            self.event(self.a_pair(), 1, None, False)
            self.lists.drop(key)
            self.lists.begin(key)
            self.load_step(t)
            self.load_now(key)
            self.read(key)

    def late_chunk(self):
        """What a chunk holds ends, and is forgotten, before it is applied."""
        key = self.hot
        if self.lists.good(key) and self.r.mark[key]["pos"] != "end":
            t = dict(key=key, slow=True)
            self.loads.append(t)
            self.load_step(t)
            self.load_step(t)
            self.now += 1
            for member in t["rows"]:
                self.event(pair_of(key, member), 0, None, False)
            self.flush_now()
            self.now += TTL + 1
            self.expire()
            self.load_step(t)
            self.load_now(key)
            self.read(key)

    def app_now(self, want):
        pair = self.a_pair()
        self.now += 1
        if self.others and pair in self.r.h:
            self.app_begin(pair, want)
            while pair in self.apps:
                self.app_step(pair)

    def claimed_late(self):
        """The list goes between claim and commit of what others wrote."""
        self.app_now(1)
        self.claim()
        if self.hot in self.r.ttl:
            self.lists.drop(self.hot)
        self.load_now(self.hot)
        self.read(self.hot)

    def lost_end(self):
        """Redis forgets how what others wrote, or it assumed, ended."""
        if self.rollback:
            self.app_now(self.rnd.randint(0, 1))
            self.now += 1
            self.event(self.a_pair(), 1, None, True)
            self.snapshot()
            self.flush_now()
            self.now += 1
            for x in PAIRS:
                self.event(x, 1 - self.state(x)[0], None, False)
            self.flush_now()
            self.flush_now()
            self.roll_back()
            self.load_now(self.hot)
            self.claim()
            self.read(self.hot)
            for t in self.held[-1:]:
                self.flush_step(t)
                self.flush_step(t)
                self.read(self.hot)

    def flush_now(self):
        """A flush that nothing comes between."""
        self.claim()
        if self.held:
            t = self.held[-1]
            for _ in range(4):
                if t in self.held:
                    self.flush_step(t)

    def load_now(self, key):
        """A load that nothing comes between."""
        if not self.lists.good(key):
            self.lists.begin(key)
        t = dict(key=key, slow=False)
        self.loads.append(t)
        for _ in range(12):
            if t in self.loads:
                self.load_step(t)
        if t in self.loads:
            self.loads.remove(t)

    def killed(self, rnd):
        for them in (self.held, self.loads):
            if them:
                them.pop(rnd.randrange(len(them)))

    def drain(self):
        while self.apps:
            self.app_step(min(self.apps))
        for _ in range(40):
            self.now += 1
            self.claim()
            for b in sorted(self.r.rec):
                self.take_over(b)
            while self.held:
                self.flush_step(self.held[0])

    def load_all(self):
        for key in LISTS:
            self.now += 1
            self.load_now(key)
            assert self.read(key), f"{key} does not load"

    def run(self):
        for _ in range(200):
            self.step()
        self.drain()
        assert not self.r.rec and not self.r.dirty & set(self.r.h), "not drained"
        for key, members in self.r.unsynced.items():
            assert not members, f"{key}: unsynced {members}"
        self.load_all()
        for x in PAIRS:
            want = self.truth.get(x, NOTHING)
            assert self.row.get(x, NOTHING)[0] == want[0], f"{x} lost"


def walk_one(seed, combo, trace=False):
    """None, or what was wrong."""
    flags = [combo >> i & 1 for i in range(len(FLAGS))]
    try:
        Walk(seed, *flags, trace=trace).run()
    except AssertionError as e:
        return f"SEED={seed} FLAGS={combo}: {e}"
    return None


def walk_all(walks, verbose):
    """All combinations; returns how many walks were broken, and the first."""
    broken, first = 0, None
    for combo in range(1 << len(FLAGS)):
        found = [w for w in (walk_one(s, combo) for s in range(walks)) if w]
        broken += len(found)
        here = found[0] if found else ""
        first = first or here
        if verbose:
            print(" ".join(f"{n}={combo >> i & 1}" for i, n in enumerate(FLAGS)),
                  f"{len(found)}/{walks} broken {here}", flush=True)
    return broken, first


def catch(walks):
    """The first walk that is broken, and how many were walked until then."""
    for n in range(walks << len(FLAGS)):
        wrong = walk_one(*divmod(n, 1 << len(FLAGS)))
        if wrong:
            return n + 1, wrong
    return walks << len(FLAGS), None


def main():
    global BREAK
    if "SEED" in os.environ:
        wrong = walk_one(int(os.environ["SEED"]), int(os.environ.get("FLAGS", "0")),
                         True)
        sys.exit(wrong)
    if sys.argv[1:2] != ["--test"]:
        walks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        sys.exit(1 if walk_all(walks, True)[0] else 0)
    walks = int(sys.argv[2])
    failed, first = walk_all(walks, False)
    print(f"all rules: {failed} of {walks << len(FLAGS)} walks broken (seeds 0 to "
          f"{walks - 1}) {first}", flush=True)
    for BREAK in RULES:
        n, wrong = catch(PATIENCE * walks)
        print(f"without {BREAK}: {'caught' if wrong else 'NOT CAUGHT'} after {n} "
              f"walks {wrong or ''}", flush=True)
        failed += wrong is None
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
