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
from case import CASES, HEAL_S, Run

# case, runs, faults, acked, refused, unknown, lost, in window, doubled, heal, stall
LINE = "{:<21} {:>4} {:>6} {:>7} {:>7} {:>7} {:>4} {:>9} {:>7} {:>6} {:>8}"
HEAD = ("case", "runs", "faults", "acked", "refused", "unknown", "lost",
        "in window", "doubled", "heal s", "stall ms")
# These fail where a wait ran out or something took long, which a machine that stands
# still brings about, too; all others tell of a fault of the daemon, however seldom.
WAITS = {"case", "heal", "clients", "run", "stall", "served"}
BROKEN_OFF = 130        # as a shell has it for SIGINT
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
    stalls = [each.stall_ms for each in results if each.stall_ms is not None]
    return (results[0].case, len(results), total("faults"), total("acked"),
            total("refused"), total("unknown"), total("lost"),
            window_of(results), total("doubled"),
            f"{max(each.heal_s for each in results):.1f}",
            f"{max(stalls):.0f}" if stalls else "-")


def window_of(results):
    """Of the run that lost most of a window: how many events, and how far back."""
    worst = max(results, key=lambda each: (each.window_s, each.lost_in_window))
    if not worst.lost_in_window:
        return 0
    return f"{worst.lost_in_window}/{worst.window_s:.1f}s"


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


@dataclasses.dataclass
class Outcome:
    results: list
    reasons: list           # why it is not as it should be
    may_retry: bool = False

    @property
    def is_good(self):
        return not self.reasons


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
    variant = variants.VARIANTS.get(options.variant)
    names = options.cases or ([variant.case] if variant else sorted(CASES))
    env = variants.env_of(options.variant) if variant else None
    patience = variants.PATIENCE if variant else HEAL_S
    plain = options.plain or bool(variant and variant.plain)
    try:
        for case, seed, plain in plan(names, options.seed, options.minutes,
                                      plain):
            screen.begin(case, seed)
            run = Run(case, seed, template, options.scale, env, screen.step,
                      patience, plain)
            results.append(run.go_through())
            screen.end(results[-1])
    finally:                            # also when it was broken off
        show(results, options)
    if variant:
        return Outcome(results, missed(variant, results))
    return judge_results(results)


def judge_results(results):
    reasons = [f"{each.case} seed {each.seed}: {check}: {text}"
               for each in results for check, text in each.violations]
    checks = set().union(*(each.checks() for each in results))
    return Outcome(results, reasons, may_retry=checks <= WAITS)


def show(results, options):
    if results:
        print(table(results))
    for result in results:
        if result.violations:
            print("\n" + describe(result, options))


def missed(variant, results):
    """A variant must be caught by what it is here for, in one of the runs."""
    seen = set().union(*(result.checks() for result in results))
    caught = sorted(seen & set(variant.checks))
    verdict = f"caught by {', '.join(caught)}" if caught else \
        f"NOT CAUGHT by {', '.join(variant.checks)}"
    print(f"\n{verdict}")
    return [] if caught else [verdict]


def control(options, template, screen):
    control = variants.Control(template, screen, options.seed, options.scale)
    control.run(variants.of_cases(options.cases))
    return Outcome(control.results, control.missed)


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
                        help="a daemon that is known to be wrong, in its case or "
                        "those named: it must be caught")
    parser.add_argument("--control", action="store_true",
                        help="runs every variant, or those of the cases named: "
                        "each must be caught, and the right daemon must not")
    parser.add_argument("--list", action="store_true", help="names the cases")
    parser.add_argument("--json", metavar="FILE", help="writes the results")
    parser.add_argument("--once", metavar="FILE", type=pathlib.Path,
                        help="a failure that no slow machine explains is kept in "
                        "FILE, and is one again where FILE is there")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="tells each fault")
    options = parser.parse_args(arguments)
    check_options(parser, options)
    return options


def check_options(parser, options):
    """Refuses what would mean nothing."""
    for name in options.cases:
        if name not in CASES:
            parser.error(f"there is no case {name}: see --list")
    if options.scale < 1 or options.minutes < 0:
        parser.error("--scale is 1 or more, --minutes 0 or more")
    if not options.control:
        return
    for name in ("minutes", "plain", "variant"):
        if getattr(options, name):
            parser.error(f"--control plays each variant in its own way: not with"
                         f" --{name}")
    if not variants.of_cases(options.cases):
        parser.error("no variant is played by "
                     f"{', '.join(options.cases)}; these are:"
                     f" {', '.join(variants.cases())}")


def play(options):
    screen = Screen(options.verbose)
    with harness.Bed() as template_bed:
        template = harness.make_pg_template(template_bed)
        act = control if options.control else campaign
        outcome = act(options, template, screen)
    if options.json:
        save(options.json, outcome.results)
    return outcome


def play_once(options):
    """Until it has come to a good end, FILE is there: also when it crashes."""
    kept = options.once
    if kept.exists():
        reason = f"failed before, which counts ({kept}):\n{kept.read_text()}"
        print(reason)
        return Outcome([], [reason])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("it did not come to an end\n")
    try:
        outcome = play(options)
    except KeyboardInterrupt:
        kept.unlink()
        raise
    if outcome.is_good or outcome.may_retry:
        kept.unlink()
    else:
        kept.write_text("\n".join(outcome.reasons) + "\n")
    return outcome


def main(arguments):
    load_cases()
    options = read_options(arguments)
    if options.list:
        for case in CASES.values():
            print(f"{case.name:<24} {case.title}")
        return 0
    if not harness.build_has("LIKESYNCD_FAULTS"):
        sys.exit(f"{harness.BUILD} is built without LIKESYNCD_FAULTS")
    try:
        outcome = play_once(options) if options.once else play(options)
    except KeyboardInterrupt:
        print("\nbroken off", file=sys.stderr)
        return BROKEN_OFF
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
