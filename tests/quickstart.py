# SPDX-License-Identifier: MIT
"""The part of quickstart.sh after the build: servers, stream, checks."""
import argparse
import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "integration"))
import harness  # noqa: E402
from servers import SUPERUSER  # noqa: E402

STREAM = TESTS / "data" / "likes.tsv"
CONNECTIONS = 4
PIPELINE = 256  # requests that a connection sends before it reads replies
NEW_USER = 1000000  # not in the stream: the first LIKE changes something


def read_stream():
    """[(verb, user, post, Unix seconds)], all of them text."""
    return [tuple(line.split("\t")) for line in STREAM.read_text().splitlines()]


def encode(*words):
    parts = [f"*{len(words)}\r\n"]
    parts += [f"${len(word)}\r\n{word}\r\n" for word in words]
    return "".join(parts).encode()


class Player(threading.Thread):
    """Plays its events over one connection; `acked` grows as replies come."""

    def __init__(self, path, events):
        super().__init__(daemon=True)
        self.path = str(path)
        self.requests = [encode(verb, user, post, "AT", at)
                         for verb, user, post, at in events]
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


def play(daemon, pg, events):
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
            cursor.execute("SELECT count(*) FROM user_like_post")
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


def check(pg, events):
    """The tables against what the stream itself says they must hold."""
    harness.check_exact(pg)
    print("  every post's count is the number of its rows: yes")
    # Each pair occurs once in the stream: what it likes is what must be there.
    wanted = {(int(user), int(post), int(at))
              for verb, user, post, at in events if verb == "LIKE"}
    held = set(pg.query(
        "SELECT user_id, post_id, extract(epoch FROM mtime)::bigint"
        "  FROM user_like_post WHERE status = 1"))
    if held != wanted:
        raise harness.Failed(
            "the tables do not hold the stream's end state: missing "
            f"{sorted(wanted - held)[:5]}, too many {sorted(held - wanted)[:5]}"
            " (user, post, time)")
    print(f"  the stream's {len(wanted)} likes, with their times, and no "
          "others: yes")


def show_rows(pg):
    for title, sql in (
            ("user_like_post, the newest rows",
             "SELECT * FROM user_like_post ORDER BY mtime DESC, user_id"
             " LIMIT 5"),
            ("post_like, the most liked",
             "SELECT * FROM post_like ORDER BY like_count DESC, post_id"
             " LIMIT 5")):
        print(f"\n{title}")
        print(pg.psql("-P", "footer=off", "-c", sql).rstrip())


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
    events = read_stream()
    print("starting Redis, PostgreSQL and likesyncd", flush=True)
    redis = bed.redis()
    cluster = bed.postgres(fsync="on")
    pg = cluster.create_database("likesync")
    # None: as it comes, not as the tests have it.
    daemon = bed.daemon(redis, pg, flush_interval_ms=None)
    for what, where in (("Redis", redis.socket), ("PostgreSQL", cluster.dir),
                        ("likesyncd", daemon.socket)):
        print(f"  {what:11}{where}")

    print(f"playing {len(events)} real events over {CONNECTIONS} connections",
          flush=True)
    start = time.monotonic()
    acked_s = play(daemon, pg, events)
    print("draining", flush=True)
    drain(daemon)
    durable_s = time.monotonic() - start

    show_rows(pg)
    print("\nchecks")
    check(pg, events)
    print("\nrates (one run, this machine, with everything else on it)")
    print(f"  acked    {len(events) / acked_s:9,.0f} events/s")
    print(f"  durable  {len(events) / durable_s:9,.0f} events/s, until the end "
          "of the drain")
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
