# SPDX-License-Identifier: MIT
"""What the cases of Redis ask the Redis of a run."""
import contextlib
import re

STATES = ("likesync:state:like", "likesync:state:follow")


def ask(run, *command):
    with contextlib.closing(run.redis.client()) as keys:
        return keys.execute_command(*command)


def setting(run, name, value):
    ask(run, "CONFIG", "SET", name, value)


def refused(run, word):
    """How often Redis has refused something so since it was started."""
    stats = ask(run, "INFO", "errorstats")
    # "count=3", or what a newer redis-py makes of it
    return int(re.search(r"\d+|$", str(stats.get(f"errorstat_{word}")))[0] or 0)


def lives(run):
    """When the present history of Redis began, for either kind."""
    with contextlib.closing(run.redis.client()) as keys:
        return [keys.hget(state, "life") for state in STATES]


def wait_raised(run, before):
    """The daemons have seen that it is not what it was."""
    run.until(lambda: not set(lives(run)) & set(before),
              "the generation to be raised")


def pause_flushers(run, paused):
    for daemon in run.daemons:
        with contextlib.closing(daemon.admin()) as admin:
            admin.execute_command("FLUSHER", "PAUSE" if paused else "RESUME")
