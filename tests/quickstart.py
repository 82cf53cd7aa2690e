# SPDX-License-Identifier: MIT
"""The part of quickstart.sh after the build: servers, streams, checks."""
import argparse
import collections
import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import typing

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "integration"))
import harness  # noqa: E402
from servers import SUPERUSER  # noqa: E402

CONNECTIONS = 4
PIPELINE = 256  # requests that a connection sends before it reads replies
NEW_USER = 1000000  # not in the streams: the first LIKE changes something
RELATIONS = ("none", "the viewer follows them", "they follow the viewer",
             "mutual")


class Stream(typing.NamedTuple):
    """Real events of one kind, and where they must end up."""

    name: str
    verb: str   # what makes a row of status 1
    table: str
    other: str  # column of the post, or of the user who is followed

    def events(self):
        """[(verb, user, other, Unix seconds)], all of them text."""
        text = (TESTS / "data" / f"{self.name}.tsv").read_text()
        return [tuple(line.split("\t")) for line in text.splitlines()]


LIKES = Stream("likes", "LIKE", "user_like_post", "post_id")
FOLLOWS = Stream("follows", "FOLLOW", "user_follow", "followee_id")


def encode(*words):
    parts = [f"*{len(words)}\r\n"]
    parts += [f"${len(word)}\r\n{word}\r\n" for word in words]
    return "".join(parts).encode()


class Player(threading.Thread):
    """Plays its events over one connection; `acked` grows as replies come."""

    def __init__(self, path, events):
        super().__init__(daemon=True)
        self.path = str(path)
        self.requests = [encode(verb, user, other, "AT", at)
                         for verb, user, other, at in events]
        self.acked = 0
        self.error = None

    def run(self):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(30)
                connection.connect(self.path)
                self.play(connection)
        except (OSError, harness.Failed) as error:
            self.error = error

    def play(self, connection):
        replies = connection.makefile("rb")
        for start in range(0, len(self.requests), PIPELINE):
            chunk = self.requests[start:start + PIPELINE]
            connection.sendall(b"".join(chunk))
            for _ in chunk:
                reply = replies.readline()
                if not reply.startswith(b":"):
                    raise harness.Failed("the daemon answered "
                                         f"{reply.decode().strip()!r}")
                self.acked += 1


class Progress:
    """A bar that is drawn over on a terminal; a line now and then elsewhere."""

    def __init__(self, total):
        self.total = total
        self.tty = sys.stdout.isatty()
        self.drawn = 0.0

    def show(self, acked, durable, last=False):
        now = time.monotonic()
        if not last and now - self.drawn < (0.1 if self.tty else 1.0):
            return
        self.drawn = now
        text = f"{acked:6} of {self.total} acked, {durable:6} rows durable"
        if self.tty:
            full = 30 * acked // self.total
            end = "\n" if last else ""
            print(f"\r  [{'#' * full}{'-' * (30 - full)}] {text}", end=end,
                  flush=True)
        else:
            print(f"  {text}", flush=True)


def play(daemon, pg, stream, events):
    """Plays all events; returns the seconds until the last reply."""
    players = [Player(daemon.socket, events[i::CONNECTIONS])
               for i in range(CONNECTIONS)]
    progress = Progress(len(events))
    start = time.monotonic()
    for player in players:
        player.start()
    with contextlib.closing(pg.connect()) as connection:
        cursor = connection.cursor()
        playing = True
        while playing:
            players[0].join(0.05)
            playing = any(player.is_alive() for player in players)
            seconds = time.monotonic() - start
            failed = [p.error for p in players if p.error]
            if failed:
                raise harness.Failed(f"playing the stream: {failed[0]}")
            cursor.execute(f"SELECT count(*) FROM {stream.table}")
            progress.show(sum(p.acked for p in players), cursor.fetchone()[0],
                          last=not playing)
    return seconds


def drain(daemon):
    """By likesyncctl, which draws its own bar."""
    command = [harness.BUILD / "likesyncctl", "-s", daemon.admin_socket,
               "drain"]
    status = subprocess.run(command, timeout=120).returncode
    if status != 0:
        raise harness.Failed(f"likesyncctl drain: exit status {status}")


def play_and_drain(daemon, pg, stream):
    """The events, and how many a second were acked, and were durable."""
    events = stream.events()
    print(f"playing {len(events)} real {stream.name} over {CONNECTIONS} "
          "connections", flush=True)
    start = time.monotonic()
    acked_s = play(daemon, pg, stream, events)
    print("draining", flush=True)
    drain(daemon)
    durable_s = time.monotonic() - start
    return events, (len(events) / acked_s, len(events) / durable_s)


# ---- checks ----

def end_state(stream, events):
    """Each pair occurs once in a stream: what it likes or follows is what must
    be there, {(user, other): time}."""
    return {(int(user), int(other)): int(at)
            for verb, user, other, at in events if verb == stream.verb}


def check_rows(pg, stream, wanted):
    held = {(user, other): at for user, other, at in pg.query(
        f"SELECT user_id, {stream.other}, extract(epoch FROM mtime)::bigint"
        f"  FROM {stream.table} WHERE status = 1")}
    if held != wanted:
        missing = sorted(wanted.items() - held.items())[:5]
        too_many = sorted(held.items() - wanted.items())[:5]
        raise harness.Failed(
            "the tables do not hold the stream's end state: missing "
            f"{missing}, too many {too_many} (user, other, time)")
    print(f"  the stream's {len(wanted)} {stream.name}, with their times, and "
          "no others: yes")


def check_follow_counts(pg, follows):
    following = collections.Counter(user for user, _ in follows)
    followers = collections.Counter(other for _, other in follows)
    wanted = {(user, following[user], followers[user])
              for user in following.keys() | followers.keys()}
    held = set(pg.query(
        "SELECT user_id, following_count, follower_count"
        "  FROM user_follow_count"
        " WHERE following_count <> 0 OR follower_count <> 0"))
    if held != wanted:
        raise harness.Failed(
            f"wrong counts of follows: missing {sorted(wanted - held)[:5]}, "
            f"too many {sorted(held - wanted)[:5]} (user, following, "
            "followers)")
    print("  every user's counts are the numbers of these follows: yes")


def check(pg, like_events, follow_events):
    """The tables against what the streams themselves say they must hold.
    Returns the follows."""
    harness.check_exact(pg)
    print("  every post's count is the number of its rows: yes")
    check_rows(pg, LIKES, end_state(LIKES, like_events))
    follows = end_state(FOLLOWS, follow_events)
    check_rows(pg, FOLLOWS, follows)
    check_follow_counts(pg, follows)
    return follows


# ---- what became of it ----

def show_rows(pg):
    for title, sql in (
            ("user_like_post, the newest rows",
             "SELECT * FROM user_like_post ORDER BY mtime DESC, user_id"
             " LIMIT 5"),
            ("post_like, the most liked",
             "SELECT * FROM post_like ORDER BY like_count DESC, post_id"
             " LIMIT 5"),
            ("user_follow, the newest rows",
             "SELECT * FROM user_follow ORDER BY mtime DESC, user_id"
             " LIMIT 5"),
            ("user_follow_count, the most followed",
             "SELECT * FROM user_follow_count"
             " ORDER BY follower_count DESC, user_id LIMIT 5")):
        print(f"\n{title}")
        print(pg.psql("-P", "footer=off", "-c", sql).rstrip())


def relation(follows, user, other):
    """As RELATION numbers it."""
    return ((user, other) in follows) + 2 * ((other, user) in follows)


def interesting_viewer(follows, users):
    """Who has the most kinds of relation to these users."""
    return max(sorted({user for user, _ in follows} - set(users)),
               key=lambda v: (len({relation(follows, v, u) for u in users}),
                              sum(relation(follows, v, u) for u in users)))


def show_page(daemon, pg, follows):
    """A page of followers as a viewer sees it, checked against the stream."""
    star = pg.value("SELECT user_id FROM user_follow_count"
                    " ORDER BY follower_count DESC, user_id LIMIT 1")
    newest = sorted(((at, user) for (user, other), at in follows.items()
                     if other == star), key=lambda e: (e[0], str(e[1])),
                    reverse=True)[:10]
    viewer = interesting_viewer(follows, [user for _, user in newest])
    with contextlib.closing(daemon.client()) as client:
        command = ("FOLLOWERS", star, "COUNT", 10, "WITHTIMES", "VIEWER",
                   viewer)
        page = client.execute_command(*command)
        wanted = [[str(user), str(at), relation(follows, viewer, user)]
                  for at, user in newest]
        if page != wanted:
            raise harness.Failed(f"{command}: {page}, expected {wanted}")
        print(f"\n{' '.join(map(str, command))}")
        print(" follower |    follows since    | relation to the viewer\n"
              "----------+---------------------+------------------------")
        for user, at, code in page:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(float(at)))
            print(f" {user:>8} | {since} | {RELATIONS[code]}")
        show_numbers(client, follows, star)


def show_numbers(client, follows, star):
    (following, followers), = client.execute_command("FOLLOWCOUNT", star)
    print(f"\nFOLLOWCOUNT {star}: follows {following}, is followed by "
          f"{followers}")
    mutuals = client.execute_command("MUTUALS", star)
    wanted = {str(other) for user, other in follows
              if user == star and (other, user) in follows}
    if set(mutuals) != wanted:
        raise harness.Failed(f"MUTUALS {star}: {mutuals}, expected {wanted}")
    print(f"MUTUALS {star}: {len(mutuals)}, the newest of them "
          f"{', '.join(mutuals[:8])}")


def show_rates(rates):
    print("\nrates (one run, this machine, with everything else on it)")
    for stream, (acked, durable) in rates.items():
        print(f"  {stream.name:8} acked   {acked:9,.0f} events/s")
        print(f"  {stream.name:8} durable {durable:9,.0f} events/s, until the "
              "end of the drain")


def show_use(bed, daemon, pg, keep):
    """Real paths only if they are still there when somebody reads them."""
    if keep:
        print("\nhow to talk to it")
        show_commands(daemon.socket, daemon.admin_socket, pg.cluster.dir,
                      daemon.options["metrics_listen"])
        print("\nstill running")
        for server in bed.servers:
            print(f"  {server.dir.name:9} pid {server.pid:<8}{server.dir}")
        print(f"to stop it and remove {bed.dir}:\n  sh {write_stop(bed)}")
    else:
        print("\nhow to talk to it: sh tests/quickstart.sh --keep leaves it "
              "running, and says where")
        show_commands("SOCKET", "ADMIN_SOCKET", "DIRECTORY", "HOST:PORT")


def show_commands(client_socket, admin_socket, pg_directory, http):
    ctl = harness.BUILD / "likesyncctl"
    with contextlib.suppress(ValueError):
        ctl = ctl.relative_to(pathlib.Path.cwd())
    print(f"  redis-cli -s {client_socket} LIKE {NEW_USER} 42")
    print(f"  redis-cli -s {client_socket} LIKECOUNT 42")
    print(f"  redis-cli -s {client_socket} FOLLOW {NEW_USER} 7")
    print(f"  redis-cli -s {client_socket} FOLLOWERS 7 COUNT 10 WITHTIMES")
    print(f"  {ctl} -s {admin_socket} status")
    print(f"  psql -h {pg_directory} -U {SUPERUSER} -d likesync")
    print(f"  curl http://{http}/metrics")


def write_stop(bed):
    """A script that does for --keep what otherwise happens at the end."""
    stops = "\n".join(f"stop {server.pid} {server.stop_signal.name[3:]}"
                      for server in reversed(bed.servers))
    script = bed.dir / "stop.sh"
    script.write_text(f"""#!/bin/sh
# Stops what quickstart.sh --keep left running, and removes its directory.
stop() {{
    kill -s "$2" "$1" 2>/dev/null
    n=0
    while kill -0 "$1" 2>/dev/null && [ "$n" -lt 150 ]; do
        sleep 0.1
        n=$((n + 1))
    done
}}
{stops}
rm -rf {bed.dir}
echo "stopped, and removed {bed.dir}"
""")
    return script


def quickstart(bed, keep):
    print("starting Redis, PostgreSQL and likesyncd", flush=True)
    redis = bed.redis()
    cluster = bed.postgres(fsync="on")
    pg = cluster.create_database("likesync")
    # None: as it comes, not as the tests have it.
    daemon = bed.daemon(redis, pg, flush_interval_ms=None)
    for what, where in (("Redis", redis.socket), ("PostgreSQL", cluster.dir),
                        ("likesyncd", daemon.socket)):
        print(f"  {what:11}{where}")

    likes, like_rates = play_and_drain(daemon, pg, LIKES)
    follows, follow_rates = play_and_drain(daemon, pg, FOLLOWS)
    show_rows(pg)
    print("\nchecks")
    show_page(daemon, pg, check(pg, likes, follows))
    show_rates({LIKES: like_rates, FOLLOWS: follow_rates})
    show_use(bed, daemon, pg, keep)


def stop_on_signal(number, frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(prog="quickstart.sh")
    parser.add_argument("--keep", action="store_true")
    keep = parser.parse_args().keep
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    bed = harness.Bed(keep=keep)
    try:
        quickstart(bed, keep)
        if not keep:
            bed.close()
            print("\nstopped, and removed " + str(bed.dir))
        return 0
    except KeyboardInterrupt:
        bed.close(check=False)
        print("\ninterrupted; everything is stopped and removed",
              file=sys.stderr)
        return 130
    except Exception as error:
        for server in bed.daemons() or bed.servers:
            print(f"--- the end of the log of {server.dir.name}\n"
                  f"{server.log_tail(40)}", file=sys.stderr)
        bed.close(check=False)
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
