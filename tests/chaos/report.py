# SPDX-License-Identifier: MIT
"""What the fault campaign shows: progress, its table, what failed, a JSON file."""
import collections
import dataclasses
import json
import os
import pathlib
import shutil
import sys

SHOWN = 8               # violations of a run
NOTES = 30              # and the latest of what happened in it
# heading, width: of the table; the first is left-justified.
COLUMNS = (("case", 21), ("runs", 4), ("failed", 6), ("faults", 6), ("acked", 7),
           ("refused", 7), ("unknown", 7), ("lost", 4), ("in window", 15),
           ("doubled", 7), ("heal s", 6), ("stall ms", 8))
# check: what it means that it failed; those of the checker, then those of a run.
CHECKS = {
    "exact": "counts in PostgreSQL were not those of their rows (I1)",
    "lost": "an acked event is not in PostgreSQL, and no stated limit explains it",
    "doubled": "an event changed a row twice, or a count is more than its rows",
    "refused": "an event that was refused is there",
    "made-up": "a row that nobody asked for, or with another state",
    "time": "a row's time went back, or a row was deleted",
    "letters": "a dead letter that is not the poison's, or none for the poison",
    "left": "in Redis something is dirty, in flight, or not what PostgreSQL holds",
    "through": "sync_state.synced_through did not move on, or was ahead of the rows",
    "read": "a read did not show what was answered before it",
    "answer": "an error that the case does not explain, or a wrong 0 or 1",
    "served": "more requests were refused or unknown than the case explains",
    "answers": "at the end a daemon does not answer what PostgreSQL holds",
    "watcher": "nobody could look at the counts during the load",
    "stall": "a daemon's event loop stood still for more than 100 ms",
    "fds": "file descriptors did not come back to where they were",
    "memory": "a daemon's memory did not come back to where it was",
    "heal": "not all was well again within 60 s of the last repair",
    "clients": "a client could not go on with its load",
    "end": "a daemon did not end well, or a sanitizer has found something",
    "case": "the faults could not be played as the case has them",
    "run": "the run could not be started or judged",
}


class Screen:
    """Progress on a line that is written again, where there is a terminal; a
    line for each run otherwise. All on stderr; the table goes to stdout."""

    def __init__(self, verbose):
        self.verbose = verbose
        self.is_terminal = sys.stderr.isatty() and not verbose
        self.doing = ""

    def step(self, text):
        if self.verbose:
            self.tell(f"  {text}")
        elif self.is_terminal:
            self.put(f"{self.doing}  {text.strip()}")

    def put(self, text):
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def begin(self, case, seed, place=""):
        """`place`: which of how many it is."""
        self.doing = f"{place} {case.name}  seed {seed}".strip()
        if self.is_terminal:
            self.put(self.doing)
        else:
            self.tell(f"{self.doing}  {case.title}")

    def end(self, result):
        if self.is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        mark = "FAILED" if result.violations else "ok"
        self.tell(f"{mark:<6} {self.doing:<40} {result.faults:>4} faults "
                  f"{result.acked:>6} acked  healed in {result.heal_s:.1f} s "
                  f"({result.seconds:.0f} s)")
        for check, text in result.violations[:2]:
            self.tell(f"       {check}: {text}")

    @staticmethod
    def tell(text):
        print(text[:300], file=sys.stderr, flush=True)


# ---- the table ----

def line(cells):
    (_, first), *others = COLUMNS
    cells = list(cells)
    return " ".join([f"{cells[0]:<{first}}", *(f"{cell:>{width}}" for cell, (_, width)
                                               in zip(cells[1:], others))]).rstrip()


def sums(results, name=None):
    def total(field):
        return sum(getattr(each, field) for each in results)
    stalls = [each.stall_ms for each in results if each.stall_ms is not None]
    failed = sum(1 for each in results if each.violations)
    return (name or results[0].case, len(results), failed, total("faults"),
            total("acked"), total("refused"), total("unknown"), total("lost"),
            window_of(results), total("doubled"),
            f"{max(each.heal_s for each in results):.1f}",
            f"{max(stalls):.0f}" if stalls else "-")


def window_of(results):
    """Of the run that lost most of a window: how many events, how far back, and
    how far it might have been."""
    worst = max(results, key=lambda each: (each.window_s, each.lost_in_window))
    if not worst.lost_in_window:
        return 0
    return f"{worst.lost_in_window}: {worst.window_s:.1f} of {worst.bound_s:.1f} s"


def table(results):
    by_case = collections.defaultdict(list)
    for result in results:
        by_case[result.case].append(result)
    lines = [line(heading for heading, _ in COLUMNS)]
    lines += [line(sums(each)) for each in by_case.values()]
    if len(by_case) > 1:
        lines.append(line(sums(results, "all")))
    return "\n".join(lines)


# ---- what failed ----

def describe(result, again):
    """What failed, what that means, and how to see it again."""
    lines = [f"FAILED {result.case} seed {result.seed}; again: "
             f"sh tests/chaos.sh {again}"]
    lines += [f"  {check}: {text}" for check, text
              in result.violations[:SHOWN]]
    if len(result.violations) > SHOWN:
        lines.append(f"  and {len(result.violations) - SHOWN} more")
    lines += [f"  ({check}: {CHECKS[check]})" for check in CHECKS
              if check in result.checks()]
    lines.append("  What happened, in seconds since the start of the run:")
    lines += [f"  | {note}" for note in result.notes[-NOTES:]]
    if result.kept:
        lines.append(f"  Its files, with all logs: {result.kept}")
    for name, text in result.logs:
        lines += [f"  --- the end of the log of {name}",
                  *(f"  {each}" for each in text.splitlines()[-12:])]
    return "\n".join(lines)


# ---- JSON ----

def save(path, results):
    """The whole file or none of it."""
    def plain(result):
        fields = dataclasses.asdict(result)
        fields.pop("logs")
        return fields
    path = pathlib.Path(path)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps([plain(each) for each in results], indent=1) + "\n")
    os.replace(new, path)
