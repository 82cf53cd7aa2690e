# SPDX-License-Identifier: MIT
"""What an application would do otherwise, straight into Redis: the commands of an
event, pipelined; or one script for each event."""
import harness
from bench_stage import ID_BASE, NEVER, likebench

POSTS = 100_000   # of the spread loads
USERS = 100_000
# What the four commands do, and only when something changes.
SCRIPT = """
local user, post, on, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = 'post_user_like_' .. post .. '_' .. user
if (redis.call('HGET', key, 'status') or '0') == on then
  return 0
end
redis.call('SADD', 'post_set', post)
redis.call('SADD', 'post_user_like_set_' .. post, user)
redis.call('HSET', key, 'status', on, 'post_id', post, 'user_id', user,
           'ctime', now, 'mtime', now)
redis.call('INCRBY', 'post_' .. post .. '_counter', on == '1' and 1 or -1)
return 1
"""


def run(bench, key, workload, others, **options):
    redis = bench.make_redis()
    if workload == "evalsha":
        options["sha"] = redis.ask("SCRIPT", "LOAD", SCRIPT)
    result = bench.measured(key, lambda: likebench(
        redis.socket, workload, events=NEVER, seconds=bench.options.seconds,
        others=others, **options), redis=redis)
    if others == 1:
        got = redis.ask("SCARD", f"post_user_like_set_{ID_BASE}")
        if got != result["events"]:
            raise harness.Failed(f"{got} members in the hot post's set")
    redis.stop()


def steps(bench):
    return (
        ("straight Redis, spread",
         lambda: run(bench, "four_spread", "four", POSTS)),
        ("straight Redis, hot post", lambda: run(bench, "four_hot", "four", 1)),
        ("a script for each event, into Redis",
         lambda: run(bench, "evalsha", "evalsha", POSTS)),
        ("straight Redis, follows",
         lambda: run(bench, "five_spread", "five", USERS, verb="FOLLOW",
                     first=USERS)),
    )
