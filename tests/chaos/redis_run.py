# SPDX-License-Identifier: MIT
"""What the cases of Redis ask the Redis of a run."""
import contextlib
import re

import redis as redis_py

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
    """Waits for a daemon that has just been started."""
    for daemon in run.daemons:
        run.until(lambda d=daemon: take_verb(d, "PAUSE" if paused else "RESUME"),
                  "the admin socket")


def take_verb(daemon, verb):
    with contextlib.suppress(redis_py.ConnectionError), \
         contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", verb)
        return True
