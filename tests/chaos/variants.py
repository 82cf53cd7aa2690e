# SPDX-License-Identifier: MIT
"""The negative control: daemons that are known to be wrong. Each must be caught
by the checks that it is here for; a campaign that cannot fail proves nothing.

Most are the right daemon with another text in one script or statement, which the
daemon puts there itself (base/fault.h: LIKESYNCD_EDIT); the rest are in its code
(fault_variant)."""
import dataclasses
import sys

from case import CASES, HEAL_S, Run
from servers import ROOT

EDGE = "daemon/core/edge.c"
SQL = "daemon/services/sql.c"
TRIES = 12
# What never heals is judged as it is by then; or when the right daemon would have
# healed so many times over.
PATIENCE = 6
TIMES = 3


@dataclasses.dataclass(frozen=True)
class Variant:
    case: str
    checks: tuple           # at least one of these has to catch it
    file: str = ""          # which holds `text`, with `edit` in its place
    text: str = ""
    edit: str = ""
    plain: bool = False     # without sanitizers


VARIANTS = {
    "ack_before_commit": Variant("pg_killed", ("lost",)),
    "refused_recorded:5": Variant("calm", ("refused",)),
    "commit_not_durable": Variant(
        "pg_async_role", ("lost",), "daemon/adapters/pg_pool.c",
        "'synchronous_commit', 'on'", "'synchronous_commit', 'off'"),
    "pop_without_record": Variant(
        "killed", ("lost", "left"), "daemon/lua/claim.lua",
        "if n_rows > 0 then\n  put_on_record(batch, record)",
        "if n_rows > 0 then\n  call('HINCRBY', STATE, 'epoch', 1)"),
    "guard_removed": Variant(
        "stale", ("time",), EDGE, "excluded.mtime > t.mtime", "true"),
    "counter_twice": Variant(
        "calm", ("doubled",), EDGE, "p.like_count + excluded.like_count",
        "p.like_count + 2 * excluded.like_count"),
    "follow_counter_twice": Variant(
        "calm", ("doubled",), EDGE,
        "c.following_count + excluded.following_count",
        "c.following_count + 2 * excluded.following_count"),
    "ack_over_newer": Variant(
        "calm", ("lost",), "daemon/lua/ack.lua",
        "if not newer and not h.others then", "if not h.others then"),
    "older_ack_taken": Variant(
        "late_ack", ("lost", "doubled", "left"), "daemon/lua/ack.lua",
        "if pm < h.sm then", "if false then"),
    "event_unregistered": Variant(
        "calm", ("lost", "left"), "daemon/lua/event.lua",
        "call('SADD', REGISTRY, unpack(marked))", ""),
    "event_unwritten": Variant(
        "calm", ("lost",), "daemon/lua/event.lua",
        "    call('HSET', key, 'status', TEXT[h.st], 'mtime', time_text(h.m))\n"
        "  end\n  if LISTS", "  end\n  if LISTS"),
    "late_is_taken": Variant(
        "links_overtaken", ("lost",), "daemon/lua/event.lua",
        "if now > ARGV[3] + 0 then", "if false then"),
    "unfollow_listed": Variant(
        "calm", ("left", "answers"), "daemon/lua/event.lua",
        "    lists_set(owner, member, status, ctime)\n", ""),
    "answer_always_1": Variant(
        "calm", ("answer",), "daemon/lua/event.lua",
        "  elseif st == op then\n", "  elseif st == op and CHANGED then\n"
        "    if LISTS then return CHANGED end\n"),
    "total_stands_still": Variant(
        "calm", ("left", "answers"), "daemon/lua/common.lua",
        "call('INCRBY', keys[i], moves[i])", ""),
    "synced_state_read": Variant(
        "calm", ("read",), "daemon/lua/state.lua",
        "if is_known then\n    out[#out + 1] = h.st",
        "if is_known then\n    out[#out + 1] = h.syn"),
    "mostly_refused": Variant(
        "pg_killed", ("served",), "daemon/lua/event.lua",
        "  if held[key] then\n",
        "  if now % 3 > 0 then\n    err_text = 'a variant of tests'\n"
        "    return REFUSED\n  elseif held[key] then\n"),
    "clean_for_ever": Variant(
        "calm", ("left",), "daemon/lua/ack.lua",
        "  call('EXPIRE', key, ttl)\n", ""),
    "through_stands_still": Variant(
        "calm", ("through",), SQL,
        "greatest(s.synced_through, excluded.synced_through)",
        "s.synced_through"),
    "through_lies": Variant(
        "calm", ("through",), SQL,
        "greatest(s.synced_through, excluded.synced_through)", "now()"),
    "loop_blocked:200": Variant("calm", ("stall",)),
    "descriptor_leaked:150": Variant("pg_killed", ("fds",)),
    "memory_leaked": Variant("calm", ("memory",), plain=True),
}


def env_of(name):
    """What a daemon gets to be this variant."""
    variant = VARIANTS[name]
    if not variant.file:
        return {"LIKESYNCD_VARIANT": name}
    return {"LIKESYNCD_EDIT": variant.text, "LIKESYNCD_EDIT_TO": variant.edit}


def is_there(variant):
    """The source still has the text, so the edit does something."""
    return not variant.file or \
        variant.text in (ROOT / variant.file).read_text()


def of_cases(names):
    """The variants that these cases play; all, of no case."""
    return [name for name, variant in VARIANTS.items()
            if not names or variant.case in names]


def cases():
    return sorted({variant.case for variant in VARIANTS.values()})


@dataclasses.dataclass
class Control:
    """Plays each variant, and first, once for each case that they have, the right
    daemon, which tells how long the case takes to heal, and in which there must be
    nothing to find."""

    template: object
    screen: object
    seed: int = 1
    scale: int = 1
    results: list = dataclasses.field(default_factory=list)
    healed: dict = dataclasses.field(default_factory=dict)
    # (case, plain): s
    missed: list = dataclasses.field(default_factory=list)  # texts

    def run(self, names):
        for name in names:
            variant = VARIANTS[name]
            if (variant.case, variant.plain) not in self.healed:
                self.judge_right(variant)
            self.tell(name, variant, *self.judge(name, variant))
        if self.missed:
            print("the campaign can fail to see this, or sees what is not there",
                  file=sys.stderr)

    def tell(self, name, variant, is_good, verdict):
        line = f"{name:<24} {variant.case:<16} {verdict}"
        print(line, flush=True)
        if not is_good:
            self.missed.append(line)

    def play(self, variant, seed, env, patience):
        case = CASES[variant.case]
        self.screen.begin(case, seed)
        result = Run(case, seed, self.template, self.scale, env,
                     self.screen.step, patience, variant.plain).go_through()
        self.results.append(result)
        return result

    def judge_right(self, variant):
        result = self.play(variant, self.seed, None, HEAL_S)
        self.screen.end(result)
        self.healed[variant.case, variant.plain] = result.heal_s
        name = "(none, plain)" if variant.plain else "(none)"
        self.tell(name, variant, not result.violations,
                  f"healed in {result.heal_s:.1f} s" if not result.violations
                  else f"ACCUSED by {', '.join(sorted(result.checks()))}")

    def judge(self, name, variant):
        """(is_good, verdict). What is wrong only when two things meet may go well
        by chance in a run, so there are several."""
        if not is_there(variant):
            return False, "NOT THERE: its text is gone from " + variant.file
        patience = max(PATIENCE,
                       TIMES * self.healed[variant.case, variant.plain])
        seen = set()
        for run in range(TRIES):
            result = self.play(variant, self.seed + run, env_of(name), patience)
            caught = result.checks() & set(variant.checks)
            if caught:
                return True, f"caught by {', '.join(sorted(caught))}" \
                    f" in run {run + 1}"
            seen |= result.checks()
        return False, f"NOT CAUGHT by {', '.join(variant.checks)} in {TRIES}" \
            f" runs; only by {', '.join(sorted(seen)) or 'nothing'}"
