# SPDX-License-Identifier: MIT
"""The fault campaign's command line: see tests/chaos.sh --help."""
import argparse
import collections
import dataclasses
import glob
import importlib
import json
import pathlib
import shutil
import sys
import time

import bed
import harness
import variants
from case import CASES, Run

# CASE, runs, faults, acked, lost, doubled, heal, stall
LINE = "{:<24} {:>4} {:>6} {:>8} {:>5} {:>9} {:>7} {:>7} {:>8}"
HEAD = ("case", "runs", "faults", "acked", "lost", "in window", "doubled",
        "heal s", "stall ms")
SHOWN = 8               # violations of a run


def load_cases():
    for path in sorted(glob.glob(str(bed.HERE / "cases_*.py"))):
        importlib.import_module(pathlib.Path(path).stem)


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

    def begin(self, case, seed):
        self.doing = f"{case.name}  seed {seed}"
        if self.is_terminal:
            self.put(self.doing)
        else:
            self.tell(f"{self.doing}  {case.title}")

    def end(self, result):
        if self.is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        mark = "FAILED" if result.violations else "ok"
        self.tell(f"{mark:<6} {self.doing:<32} {result.faults:>4} faults "
                  f"{result.acked:>6} acked  healed in {result.heal_s:.1f} s "
                  f"({result.seconds:.0f} s)")
        for check, text in result.violations[:2]:
            self.tell(f"       {check}: {text}")

    @staticmethod
    def tell(text):
        print(text[:300], file=sys.stderr, flush=True)


def sums(results):
    """One line of the table."""
    def total(name):
        return sum(getattr(each, name) for each in results)

    def most(name):
        return max(getattr(each, name) for each in results)
    window = total("lost_in_window")
    window = f"{window}/{most('window_s'):.1f}s" if window else 0
    return (results[0].case, len(results), total("faults"), total("acked"),
            total("lost"), window, total("doubled"), f"{most('heal_s'):.1f}",
            f"{most('stall_ms'):.0f}")


def table(results):
    by_case = collections.defaultdict(list)
    for result in results:
        by_case[result.case].append(result)
    lines = [LINE.format(*HEAD)]
    lines += [LINE.format(*sums(each)) for each in by_case.values()]
    if len(by_case) > 1:
        lines.append(LINE.format("all", *sums(results)[1:]))
    return "\n".join(line.rstrip() for line in lines)


def again(result, options):
    """The arguments that play it again."""
    words = ["--seed", result.seed, result.case]
    if options.variant:
        words[:0] = ["--variant", options.variant]
    elif result.plain:
        words[:0] = ["--plain"]
    if options.scale > 1:
        words[:0] = ["--scale", options.scale]
    return " ".join(map(str, words))


def describe(result, options):
    """What failed, and how to see it again."""
    lines = [f"FAILED {result.case} seed {result.seed}; again: "
             f"sh tests/chaos.sh {again(result, options)}"]
    lines += [f"  {check}: {text}" for check, text
              in result.violations[:SHOWN]]
    if len(result.violations) > SHOWN:
        lines.append(f"  and {len(result.violations) - SHOWN} more")
    lines += [f"  | {note}" for note in result.notes[-30:]]
    for name, text in result.logs:
        lines += [f"  --- {name}", *(f"  {line}" for line
                                     in text.splitlines()[-12:])]
    return "\n".join(lines)


def plan(names, seed, minutes, plain):
    """(case, seed, plain): each once; or round and round until the time is over,
    with sanitizers and without in turns."""
    deadline = time.monotonic() + minutes * 60
    while True:
        for name in names:
            yield CASES[name], seed, plain
            if minutes and time.monotonic() > deadline:
                return
        if not minutes:
            return
        seed, plain = seed + 1, not plain


def campaign(options, template, screen):
    results = []
    names = options.cases or sorted(CASES)
    variant = variants.VARIANTS.get(options.variant)
    env = variants.env_of(options.variant) if variant else None
    plain = options.plain or bool(variant and variant.plain)
    try:
        for case, seed, plain in plan(names, options.seed, options.minutes,
                                      plain):
            screen.begin(case, seed)
            run = Run(case, seed, template, options.scale, env, screen.step,
                      plain=plain)
            results.append(run.go_through())
            screen.end(results[-1])
    except KeyboardInterrupt:
        print("\nbroken off", file=sys.stderr)
    if not results:
        return results
    print(table(results))
    for result in results:
        if result.violations:
            print("\n" + describe(result, options))
    return results


def save(path, results):
    def plain(result):
        fields = dataclasses.asdict(result)
        fields.pop("logs")
        return fields
    pathlib.Path(path).write_text(
        json.dumps([plain(each) for each in results], indent=1) + "\n")


def read_options(arguments):
    parser = argparse.ArgumentParser(
        prog="tests/chaos.sh", description="Breaks every part of likesyncd and "
        "counts what is lost.")
    parser.add_argument("cases", nargs="*", metavar="case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, metavar="M",
                        help="go round the cases, with seeds counted up, for "
                        "so long; without it each case is run once")
    parser.add_argument("--scale", type=int, default=1, metavar="N",
                        help="N times the rounds of each case")
    parser.add_argument("--plain", action="store_true",
                        help="daemons without sanitizers, of which the memory is "
                        "looked at; with --minutes, every second round")
    parser.add_argument("--variant", choices=sorted(variants.VARIANTS),
                        help="a daemon that is known to be wrong")
    parser.add_argument("--control", action="store_true",
                        help="runs every variant: each must be caught")
    parser.add_argument("--list", action="store_true", help="names the cases")
    parser.add_argument("--json", metavar="FILE", help="writes the results")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="tells each fault")
    options = parser.parse_args(arguments)
    for name in options.cases:
        if name not in CASES:
            parser.error(f"there is no case {name}: see --list")
    return options


def main(arguments):
    load_cases()
    options = read_options(arguments)
    if options.list:
        for case in CASES.values():
            print(f"{case.name:<24} {case.title}")
        return 0
    if not harness.build_has("LIKESYNCD_FAULTS"):
        sys.exit(f"{harness.BUILD} is built without LIKESYNCD_FAULTS")
    screen = Screen(options.verbose)
    with harness.Bed() as template_bed:
        template = harness.make_pg_template(template_bed)
        if options.control:
            results, is_good = variants.control(template, screen)
        else:
            results = campaign(options, template, screen)
            is_good = results and not any(r.violations for r in results)
    if options.json:
        save(options.json, results)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
