# SPDX-License-Identifier: MIT
"""redis-py, in the protocol given (2 or 3): see README.md."""
import os
import sys

import redis

PIPELINE = 1000


def connect():
    settings = {"decode_responses": True,
                "password": os.environ["PASSWORD"] or None}
    # Before 5.0 it speaks RESP2 only, and has no such setting.
    if sys.argv[1] == "3":
        settings["protocol"] = 3
    if os.environ["SOCKET"]:
        return redis.Redis(unix_socket_path=os.environ["SOCKET"], **settings)
    return redis.Redis(port=int(os.environ["PORT"]), **settings)


def main():
    print("version", redis.__version__)
    client = connect()
    print("ping", "PONG" if client.ping() else "no")
    pipeline = client.pipeline(transaction=False)
    for user in range(1, PIPELINE + 1):
        pipeline.execute_command("LIKE", user, 42)
    print("pipeline", pipeline.execute().count(1))
    liked = client.execute_command("LIKED", 7, 42, 43)
    print("array", ",".join(map(str, liked)))
    try:
        print("reply", client.execute_command("LIKE", 7, "nobody"))
    except redis.ResponseError as error:
        # It takes "ERR" away.
        print("error ERR", error)
    print("restart", flush=True)
    sys.stdin.readline()
    print("again", client.execute_command("LIKE", 1001, 42))


main()
