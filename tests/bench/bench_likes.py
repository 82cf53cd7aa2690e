# SPDX-License-Identifier: MIT
"""Events through the daemon, the flusher paused: nothing flushes what goes straight
to Redis, beside which they are measured."""
import harness
from bench_redis import POSTS
from bench_stage import NEVER

MANY_POSTS = 1_000_000
CHURN = 4


def servers(stage):
    return {"redis": stage.redis, "daemon": stage.daemon}


def share(bench, figure, key):
    """The daemon's processor time of an event to that of Redis."""
    bench.note(figure, bench.details[f"{key}.daemon_us"][-1]
               / max(bench.details[f"{key}.redis_us"][-1], 0.01))


def spread(bench):
    seconds = bench.options.seconds
    with bench.stage() as stage:
        stage.flusher("PAUSE")
        first = bench.measured("like_first", lambda: stage.load(
            events=NEVER, others=POSTS, seconds=seconds), **servers(stage))
        n = first["events"]
        known = bench.measured("like_known", lambda: stage.load(
            verb="UNLIKE", events=n, others=POSTS, seconds=seconds),
            **servers(stage))
        back = known["events"]
        again = bench.measured("like_repeat", lambda: stage.load(
            verb="UNLIKE", events=back, others=POSTS, seconds=seconds),
            **servers(stage))
        if (first["ones"], known["ones"], again["ones"]) != (n, back, 0):
            raise harness.Failed("a reply was not what it must be")
        share(bench, "cpu_share", "like_first")
        share(bench, "cpu_share_known", "like_known")
        stage.flush()
        stage.check(n, n - back)


def new_likes(bench, key, mode=None, **options):
    """First likes of one kind."""
    with bench.stage(like_lookup=mode) as stage:
        stage.flusher("PAUSE")
        result = bench.measured(key, lambda: stage.load(
            events=NEVER, seconds=bench.options.seconds, **options),
            **servers(stage))
        if result["ones"] != result["events"]:
            raise harness.Failed("a reply was not 1")
        stage.flush()
        stage.check(result["events"], result["ones"])


def churn(bench):
    """Each pair is liked and unliked in turns, and is off in the end."""
    with bench.stage() as stage:
        stage.flusher("PAUSE")
        result = bench.measured("like_churn", lambda: stage.load(
            events=NEVER, seconds=bench.options.seconds, others=POSTS,
            churn=CHURN), **servers(stage))
        if result["ones"] != result["events"]:
            raise harness.Failed("a reply was not 1")
        stage.flush()
        stage.check(result["events"] // CHURN, 0)


def mix(bench):
    """One in ten is a like; the rest are pages of posts, of pairs that are known. The
    second time Redis is empty."""
    n = bench.options.events
    with bench.stage() as stage:
        stage.load(events=n, others=POSTS)
        stage.daemon.drain(timeout=900)
        written = n
        for key in "mix_warm", "mix_cold":
            if key == "mix_cold":
                stage.redis.ask("FLUSHALL")
                harness.wait_for(stage.daemon.ready, what="the daemon")
            result = bench.measured(key, lambda first=written: stage.run(
                "mix", events=NEVER, seconds=bench.options.seconds, others=POSTS,
                first=first - first % 10, known=n), **servers(stage))
            written += result["ones"]
            stage.daemon.drain(timeout=900)
            stage.check(written, written)


def steps(bench):
    return (
        ("LIKE, spread", lambda: spread(bench)),
        ("LIKE, optimistic", lambda: new_likes(bench, "like_optimistic",
                                               "optimistic", others=POSTS)),
        ("LIKE, hot post", lambda: new_likes(bench, "like_hot", others=1)),
        ("LIKE, Zipf", lambda: new_likes(bench, "like_zipf", others=MANY_POSTS,
                                         zipf=1.1)),
        ("LIKE and UNLIKE by turns", lambda: churn(bench)),
        ("one like and nine pages", lambda: mix(bench)),
    )
