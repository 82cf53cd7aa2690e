# SPDX-License-Identifier: MIT
"""The part of bench.sh after the build: loads, checks, and the table.

Only ratios within one run mean something: all sides share the machine. Each
workload has a Redis and a database of its own, and ends with I1 and the number
of rows checked; one that fails ends the run without figures."""
import argparse
import contextlib
import pathlib
import signal
import sys

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "bench")]
import bench_durable  # noqa: E402
import bench_follows  # noqa: E402
import bench_growth  # noqa: E402
import bench_hostile  # noqa: E402
import bench_likers  # noqa: E402
import bench_likes  # noqa: E402
import bench_rate  # noqa: E402
import bench_redis  # noqa: E402
import bench_svg  # noqa: E402
import bench_table  # noqa: E402
import harness  # noqa: E402
from bench_stage import Stage, cpu_s  # noqa: E402

GROUPS = (bench_redis, bench_likes, bench_follows, bench_durable, bench_rate,
          bench_likers, bench_growth, bench_hostile)


class Progress:
    """What is being measured: drawn over on a terminal, else a line each."""

    def __init__(self, total):
        self.total = total
        self.done = 0
        self.tty = sys.stderr.isatty()

    def step(self, text):
        if self.tty:
            full = 24 * self.done // self.total
            print(f"\r\033[K  [{'#' * full}{'-' * (24 - full)}] {text}",
                  end="", file=sys.stderr, flush=True)
        else:
            print(f"  {self.done + 1}/{self.total} {text}", file=sys.stderr,
                  flush=True)
        self.done += 1

    def end(self):
        if self.tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, bed, options):
        self.bed, self.options = bed, options
        self.figures = {}       # key: [value of each round]
        self.details = {}
        self.growth = {}        # (what grows, what of): {size: [value]}
        self.not_measured = set()       # and why
        self.progress = Progress(options.rounds * len(self.steps()))
        self.cluster = bed.postgres(fsync="on", shared_buffers="128MB",
                                    max_wal_size="4GB")
        self.versions = {
            "postgresql": self.cluster.psql("postgres", "-At", "-c",
                                            "SHOW server_version").strip(),
            "redis": harness.run_status(["redis-server", "--version"])[1].strip()}

    def make_redis(self):
        # A rewrite of the file would hit one workload and spare another.
        return self.bed.redis(auto_aof_rewrite_percentage="0",
                              slowlog_max_len="100000")

    def note(self, key, value):
        self.figures.setdefault(key, []).append(value)

    def detail(self, key, value):
        self.details.setdefault(key, []).append(value)

    def grown(self, kind, name, size, value):
        self.growth.setdefault((kind, name), {}).setdefault(size, []).append(value)

    @staticmethod
    def cpu_of(**servers):
        return {name: (server, cpu_s(server)) for name, server in servers.items()}

    def note_cpu(self, key, before, events):
        """What an event took of the processors since."""
        for name, (server, then) in before.items():
            self.detail(f"{key}.{name}_us", (cpu_s(server) - then) * 1e6 / events)

    def measured(self, key, run, **servers):
        """Notes the rate of a load, and what it took of the processors."""
        before = self.cpu_of(**servers)
        result = run()
        self.note(key, result["events"] / result["seconds"])
        self.note_cpu(key, before, result["events"])
        self.detail(f"{key}.load_us", result["cpu_seconds"] * 1e6
                    / result["events"])
        return result

    @contextlib.contextmanager
    def stage(self, **options):
        stage = Stage(self, **options)
        yield stage
        stage.close()

    def steps(self):
        """[(what it measures, how)]"""
        return [(text, run) for group in GROUPS for text, run in group.steps(self)
                if self.options.only in text]

    def round(self, number):
        """Every second one the other way round: what comes first is not favoured."""
        for text, run in self.steps()[::1 if number % 2 else -1]:
            self.progress.step(f"round {number} of {self.options.rounds}: {text}")
            run()


def write_all(bench):
    options = bench.options
    if options.json:
        bench_table.write_json(bench, options.json)
    if options.svg:
        pathlib.Path(options.svg).write_text(bench_svg.draw(bench))


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return value


def read_options():
    parser = argparse.ArgumentParser(prog="bench.sh")
    for name, value in (("rounds", 3), ("seconds", 3), ("events", 200_000),
                        ("followers", 1_000_000), ("backlog", 200_000),
                        ("backlog-max", 5_000_000)):
        parser.add_argument(f"--{name}", type=positive, default=value)
    parser.add_argument("--only", default="")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    options = parser.parse_args()
    for path in filter(None, (options.json, options.svg)):
        try:
            open(path, "a").close()
        except OSError as error:
            parser.error(f"{path}: {error.strerror}")
    return options


def stop_on_signal(number, frame):
    raise KeyboardInterrupt


def main():
    options = read_options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    bed = harness.Bed()
    try:
        bench = Bench(bed, options)
        if not bench.steps():
            raise harness.Failed(f"no workload is like '{options.only}'")
        for number in range(1, options.rounds + 1):
            bench.round(number)
        bench.progress.end()
        bed.close()
        bench_table.show(bench)
        bench_growth.show(bench)
        write_all(bench)
        return 0
    except KeyboardInterrupt:
        bed.close(check=False)
        print("\ninterrupted", file=sys.stderr)
        return 130
    except Exception as error:
        bed.close(check=False)
        print(f"\nerror: {error}\nno figures: this run is not a good one",
              file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
