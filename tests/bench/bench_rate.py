# SPDX-License-Identifier: MIT
"""How long a like takes at half of the most that comes through, its waiting time
included; also while a backlog drains. And what connections cost."""
import resource

import harness
from bench_redis import POSTS
from bench_stage import NEVER, likebench_until

SHARE = 0.5
CONNECTIONS = 64
RSS_CONNECTIONS = (100, 10_000)
RSS_RATE = 2000
OTHER_FILES = 1000


def timed(bench, stage, first, rate, seconds):
    result = stage.load(events=int(rate * seconds), first=first, others=POSTS,
                        rate=rate, connections=CONNECTIONS)
    if result["ones"] != result["events"]:
        raise harness.Failed("a reply was not 1")
    return result


def most(bench):
    """Events a second, with the flusher at work."""
    with bench.stage() as stage:
        result = stage.load(events=NEVER, others=POSTS,
                            seconds=bench.options.seconds)
        stage.daemon.drain(timeout=900)
        stage.check(result["events"], result["events"])
        return result["events"] / result["seconds"]


def fixed(bench):
    rate, seconds = SHARE * most(bench), 2 * bench.options.seconds
    backlog = bench.options.backlog
    bench.note("rate", rate)
    with bench.stage() as stage:
        calm = timed(bench, stage, 0, rate, seconds)["latency_us"]
        for name in ("p50", "p99", "p999"):
            bench.note(f"rate_{name}", calm[name] / 1000)
        stage.daemon.drain(timeout=900)
        first = int(rate * seconds)
        stage.backlog(backlog, POSTS, first=first)
        stage.flusher("RESUME")
        busy = timed(bench, stage, first + backlog, rate, seconds)
        bench.note("drain_p99", busy["latency_us"]["p99"] / 1000)
        if stage.pg.value("SELECT count(*) FROM user_like_post") >= \
                first + backlog:
            bench.note("drain_early", 1)
        stage.daemon.drain(timeout=900)
        total = first + backlog + busy["events"]
        stage.check(total, total)


def memory(bench, connections):
    """Of the daemon, while all of them are there and send something now and then."""
    files, most = connections + OTHER_FILES, resource.getrlimit(
        resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < files:
        bench.not_measured.add(f"memory at {connections:,} connections: it takes"
                               f" {files} open files, of which {most} may be")
        return
    with bench.stage(nofile=files,
                     server_max_clients=connections + 100) as stage:
        with likebench_until(stage.daemon.socket, "event", others=POSTS,
                             connections=connections, rate=RSS_RATE) as result:
            harness.wait_for(
                lambda: stage.daemon.metrics()["likesyncd_clients"] >= connections,
                60, f"{connections} connections")
            harness.wait_for(
                lambda: stage.pg.value("SELECT count(*) FROM user_like_post")
                > 2 * connections, 120, "an event on each")
            bench.note(f"rss_{connections}", stage.daemon.rss_bytes() / 2**20)
        stage.daemon.drain(timeout=900)
        stage.check(result["events"], result["events"])


def steps(bench):
    found = [("a fixed rate, and while a backlog drains", lambda: fixed(bench))]
    for n in RSS_CONNECTIONS if bench.options.long else RSS_CONNECTIONS[:1]:
        found.append((f"memory at {n:,} connections",
                      lambda n=n: memory(bench, n)))
    return tuple(found)
