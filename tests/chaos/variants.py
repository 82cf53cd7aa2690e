# SPDX-License-Identifier: MIT
"""The negative control: daemons that are known to be wrong. Each must be caught
by the checks that it is here for; a campaign that cannot fail proves nothing.

Most are the right daemon with another text in one script or statement, which the
daemon puts there itself (base/fault.h: LIKESYNCD_EDIT); the rest are in its code
(fault_variant)."""
import dataclasses
import sys

from case import CASES, Run
from servers import ROOT

EDGE = "daemon/core/edge.c"
SQL = "daemon/services/sql.c"
TRIES = 6
PATIENCE = 6            # what never heals is judged as it is by then


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
    "clean_for_ever": Variant(
        "calm", ("left",), "daemon/lua/ack.lua",
        "  call('EXPIRE', key, ttl)\n", ""),
    "through_stands_still": Variant(
        "calm", ("through",), SQL,
        "greatest(s.synced_through, excluded.synced_through)",
        "s.synced_through"),
    "descriptor_leaked": Variant("calm", ("fds",)),
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


def play(name, template, screen, seed):
    """A run of this variant: its result, and by which checks it was caught."""
    variant = VARIANTS[name]
    case = CASES[variant.case]
    screen.begin(case, seed)
    result = Run(case, seed, template, 1, env_of(name), screen.step,
                 PATIENCE, variant.plain).go_through()
    return result, result.checks() & set(variant.checks)


def judge(name, template, screen, seed):
    """(results, verdict). What is wrong only when two things meet may go well
    by chance in a run, so there are several."""
    variant = VARIANTS[name]
    if not is_there(variant):
        return [], "NOT THERE: its text is gone from " + variant.file
    results = []
    for run in range(TRIES):
        result, caught = play(name, template, screen, seed + run)
        results.append(result)
        if caught:
            return results, f"caught by {', '.join(sorted(caught))}" \
                f" in run {run + 1}"
    seen = sorted(set().union(*(result.checks() for result in results)))
    return results, f"NOT CAUGHT by {', '.join(variant.checks)} in {TRIES} " \
        f"runs; only by {', '.join(seen) or 'nothing'}"


def control(template, screen, seed=1):
    """(results, whether each variant was caught)."""
    results, is_good = [], True
    for name, variant in VARIANTS.items():
        more, verdict = judge(name, template, screen, seed)
        results += more
        is_good = is_good and verdict.startswith("caught")
        print(f"{name:<24} {variant.case:<16} {verdict}", flush=True)
    if not is_good:
        print("the campaign can fail to see this", file=sys.stderr)
    return results, is_good
