# SPDX-License-Identifier: MIT
"""The fault campaign's command line: see tests/chaos.sh --help."""
import argparse
import contextlib
import dataclasses
import glob
import importlib
import itertools
import pathlib
import signal
import subprocess
import sys
import time

import bed
import harness
import report
import variants
from case import CASES, HEAL_S, Run

# These fail where a wait ran out or something took long, which a machine that stands
# still brings about, too; all others tell of a fault of the daemon, however seldom.
WAITS = {"case", "heal", "clients", "run", "stall", "served"}


class BrokenOff(KeyboardInterrupt):
    """By a signal; the exit status is that of a shell for it."""

    def __init__(self, number):
        super().__init__(number)
        self.status = 128 + number


def break_off_by(*numbers):
    """A signal that is ignored (nohup) stays so. The first one counts: the next are
    not to keep servers from being stopped."""
    def on_signal(number, _frame):
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise BrokenOff(number)
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, on_signal)


def load_cases():
    for path in sorted(glob.glob(str(bed.HERE / "cases_*.py"))):
        importlib.import_module(pathlib.Path(path).stem)


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


@dataclasses.dataclass
class Outcome:
    results: list
    reasons: list           # why it is not as it should be
    may_retry: bool = False

    @property
    def is_good(self):
        return not self.reasons


@dataclasses.dataclass
class Plan:
    """(case, seed, plain): each once; or round and round until the time is over,
    with sanitizers and without in turns."""

    names: list
    seed: int
    minutes: float
    plain: bool
    reached: set = dataclasses.field(default_factory=set)
    place: str = ""             # of the one under way

    def __iter__(self):
        deadline = time.monotonic() + self.minutes * 60
        for done in itertools.count():
            for n, name in enumerate(self.names, 1):
                self.reached.add(name)
                self.place = f"{n}/{len(self.names)}" if len(self.names) > 1 else ""
                if self.minutes:
                    self.place = f"round {done + 1} {self.place}".strip()
                yield CASES[name], self.seed + done, self.plain ^ done % 2
                if self.minutes and time.monotonic() > deadline:
                    return
            if not self.minutes:
                return

    def left_out(self):
        return [name for name in self.names if name not in self.reached]


def campaign(options, template, screen):
    results = []
    variant = variants.VARIANTS.get(options.variant)
    names = options.cases or ([variant.case] if variant else sorted(CASES))
    env = variants.env_of(options.variant) if variant else None
    patience = variants.PATIENCE if variant else HEAL_S
    cases = Plan(names, options.seed, options.minutes,
                 options.plain or bool(variant and variant.plain))
    try:
        for case, seed, plain in cases:
            screen.begin(case, seed, cases.place)
            run = Run(case, seed, template, options.scale, env, screen.step,
                      patience, bool(plain), options.keep)
            results.append(run.go_through())
            screen.end(results[-1])
            keep_json(options, results)
    finally:                            # also when it was broken off
        show(results, options, cases.left_out())
    if variant:
        return Outcome(results, missed(variant, results))
    return judge_results(results)


def judge_results(results):
    reasons = [f"{each.case} seed {each.seed}: {check}: {text}"
               for each in results for check, text in each.violations]
    checks = set().union(*(each.checks() for each in results))
    return Outcome(results, reasons, may_retry=checks <= WAITS)


def show(results, options, left_out):
    if results:
        print(report.table(results))
    if left_out:
        print(f"not reached: {len(left_out)} cases: {' '.join(left_out)}")
    for result in results:
        if result.violations:
            print("\n" + report.describe(result, again(result, options)))


def keep_json(options, results):
    if options.json:
        report.save(options.json, results)


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
    parser.add_argument("--json", metavar="FILE",
                        help="writes the results, anew after each run")
    parser.add_argument("--keep", action="store_true",
                        help="keeps the files of what failed, all logs among them")
    parser.add_argument("--build", metavar="SCRIPT", help=argparse.SUPPRESS)
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
    if options.json and not options.list:
        try:
            report.save(options.json, [])
        except OSError as error:
            parser.error(f"--json: {options.json} cannot be written: "
                         f"{error.strerror}")
    if not options.control:
        return
    for name in ("minutes", "plain", "variant", "keep"):
        if getattr(options, name):
            parser.error(f"--control plays each variant in its own way: not with"
                         f" --{name}")
    if not variants.of_cases(options.cases):
        parser.error("no variant is played by "
                     f"{', '.join(options.cases)}; these are:"
                     f" {', '.join(variants.cases())}")


def play(options):
    screen = report.Screen(options.verbose)
    with harness.Bed() as template_bed:
        template = harness.make_pg_template(template_bed)
        act = control if options.control else campaign
        outcome = act(options, template, screen)
    keep_json(options, outcome.results)
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


def list_cases():
    # Whoever reads it may have seen enough (head).
    with contextlib.suppress(BrokenPipeError):
        for case in CASES.values():
            print(f"{case.name:<24} {case.title}", flush=True)


def main(arguments):
    load_cases()
    options = read_options(arguments)
    if options.list:
        list_cases()
        return 0
    break_off_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        if options.build and subprocess.call(["sh", options.build]) != 0:
            return 1
        if not harness.build_has("LIKESYNCD_FAULTS"):
            sys.exit(f"{harness.BUILD} is built without LIKESYNCD_FAULTS")
        outcome = play_once(options) if options.once else play(options)
    except BrokenOff as end:
        print("\nbroken off", file=sys.stderr)
        return end.status
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
