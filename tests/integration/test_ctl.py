# SPDX-License-Identifier: MIT
"""likesyncctl: each verb, each way in which it can fail, and its bar."""
import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import harness
from servers import run_status, unprivileged_user, wait_for, wrapped

CTL = harness.BUILD / "likesyncctl"
POSTS = 40


def run_ctl(*arguments):
    """(exit status, stdout, stderr): Daemon.ctl() mixes the two."""
    done = subprocess.run([str(a) for a in (CTL, *arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def status_of(daemon):
    code, out, _ = run_ctl("-s", daemon.admin_socket, "status")
    assert code == 0
    return dict(line.split(None, 1) for line in out.splitlines())


@contextlib.contextmanager
def writes_held_up(pg):
    """No batch can be written meanwhile, for as long as the test likes."""
    with contextlib.closing(pg.connect()) as connection:
        connection.autocommit = False
        connection.cursor().execute(
            "LOCK TABLE user_like_post IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


def like_posts(client):
    for post in range(POSTS):
        assert client.execute_command("LIKE", 7, post) == 1


class Terminal:
    """A likesyncctl whose standard error is a terminal."""

    def __init__(self, *arguments):
        self.fd, slave = pty.openpty()
        self.process = subprocess.Popen(
            [str(a) for a in (CTL, *arguments)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        self.text = ""

    def read(self):
        """What it has shown so far."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:     # EIO: it has ended
                break
            if not data:
                break
            self.text += data.decode()
        return self.text

    def end(self):
        """(exit status, stdout, what the terminal got)."""
        out = self.process.communicate(timeout=60)[0].decode()
        self.read()
        os.close(self.fd)
        return self.process.returncode, out, self.text


@pytest.fixture
def slow_daemon(bed, redis, pg):
    """Its flusher does nothing in a test unless it is asked to."""
    return bed.daemon(redis, pg, flush_interval_ms=3600000)


# ---- verbs ----

def test_ping_says_pong(daemon):
    assert run_ctl("-s", daemon.admin_socket, "ping") == (0, "PONG\n", "")


def test_an_address_may_be_written_in_three_ways(daemon, monkeypatch):
    monkeypatch.chdir(daemon.dir)
    for address in (daemon.admin_socket, f"unix:{daemon.admin_socket}",
                    "./admin"):
        assert run_ctl("--socket", address, "ping")[0] == 0, address


def test_status_tells_how_things_stand(slow_daemon, redis):
    daemon = slow_daemon
    like_posts(daemon.client())
    assert daemon.client().execute_command("FOLLOW", 7, 8) == 1
    before = wait_for(
        lambda: (s := status_of(daemon))["owners_dirty"] == str(POSTS + 1)
        and s, what="the events to show")
    assert before["like_owners_dirty"] == str(POSTS)
    assert before["follow_owners_dirty"] == "1"
    assert before["flusher"] == "running"
    assert before["redis"] == "connected"
    assert before["postgres"].startswith("connected")
    daemon.drain()
    after = status_of(daemon)
    assert after["owners_dirty"] == after["owners_on_record"] == "0"
    # A time that people can read, of today in UTC.
    for kind in ("", "like_", "follow_"):
        text, _, zone = after[kind + "synced_through"].rpartition(" ")
        assert zone == "UTC"
        ago = time.time() - time.mktime(time.strptime(
            text + " GMT", "%Y-%m-%d %H:%M:%S %Z")) + time.timezone
        assert -5 < ago < 60
    daemon.term()


def test_status_sums_up_the_kinds(slow_daemon):
    """Sums, the longest lag, and the oldest time that is synced."""
    like_posts(slow_daemon.client())
    slow_daemon.drain()
    flat = slow_daemon.admin().execute_command("FLUSHER", "STATUS")
    status = dict(zip(flat[::2], flat[1::2]))
    for name, of in (("owners_dirty", sum), ("owners_on_record", sum),
                     ("batches_on_record", sum), ("lag_ms", max),
                     ("synced_through_us", min)):
        kinds = [status[f"{kind}_{name}"] for kind in ("like", "follow")]
        assert status[name] == of(kinds), name
    assert status["synced_through_us"] > 0


def test_status_names_what_is_away(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    redis.stop()
    wait_for(lambda: "connected" != status_of(daemon)["redis"],
             what="Redis to be missed")
    # The daemon itself is there.
    assert run_ctl("-s", daemon.admin_socket, "ping")[0] == 0
    wait_for(lambda: re.search(r"refused|No such file",
                               status_of(daemon)["redis"]),
             what="the reason")


def test_pause_keeps_events_from_the_tables_until_resume(daemon, client, pg):
    assert run_ctl("-s", daemon.admin_socket, "pause") == (0, "OK\n", "")
    assert status_of(daemon)["flusher"] == "paused"
    assert client.execute_command("LIKE", 7, 42) == 1
    # The flusher has looked, and took nothing.
    wait_for(lambda: status_of(daemon)["owners_dirty"] == "1",
             what="a tick that sees the post")
    assert pg.value("SELECT count(*) FROM user_like_post") == 0
    assert run_ctl("-s", daemon.admin_socket, "resume") == (0, "OK\n", "")
    assert status_of(daemon)["flusher"] == "running"
    wait_for(lambda: pg.value("SELECT count(*) FROM user_like_post") == 1,
             what="the row")


# ---- drain ----

def test_drain_returns_when_all_is_durable(slow_daemon, pg):
    like_posts(slow_daemon.client())
    assert slow_daemon.client().execute_command("FOLLOW", 7, 8) == 1
    for table in ("user_like_post", "user_follow"):
        assert pg.value(f"SELECT count(*) FROM {table}") == 0
    code, out, err = run_ctl("-s", slow_daemon.admin_socket, "drain")
    assert (code, out) == (0, "all is durable\n")
    assert pg.value("SELECT count(*) FROM user_like_post") == POSTS
    assert pg.value("SELECT count(*) FROM user_follow") == 1
    # Not a terminal: no bar, nothing at all.
    assert err == ""


def test_drain_draws_a_bar_on_a_terminal(slow_daemon, pg):
    like_posts(slow_daemon.client())
    with writes_held_up(pg):
        drain = Terminal("-s", slow_daemon.admin_socket, "drain")
        wait_for(lambda: f"{POSTS} posts and users left" in drain.read(),
                 what="the bar")
        assert drain.process.poll() is None
    code, out, shown = drain.end()
    assert (code, out) == (0, "all is durable\n")
    bars = re.findall(r"\rdraining \[(#*)( *)\] (\d+) posts and users left\x1b\[K",
                      shown)
    assert all(len(full) + len(empty) == 30 for full, empty, _ in bars)
    assert ("", " " * 30, str(POSTS)) in bars
    assert bars[-1] == ("#" * 30, "", "0")
    # Drawn over itself, on one line, which is ended.
    assert shown.count("\n") == 1 and shown.endswith("\n")


def test_drain_says_when_its_time_is_over(slow_daemon, pg):
    like_posts(slow_daemon.client())
    with writes_held_up(pg):
        code, out, err = run_ctl("-s", slow_daemon.admin_socket, "-t", "300",
                                 "drain")
        assert (code, out) == (1, "")
        assert re.match(r"likesyncctl: TIMEOUT .*not all is durable", err)
    # Asked again, it goes on.
    assert run_ctl("-s", slow_daemon.admin_socket, "drain")[0] == 0
    assert pg.value("SELECT count(*) FROM user_like_post") == POSTS


def test_drain_on_a_terminal_ends_its_line_when_it_fails(slow_daemon, pg):
    like_posts(slow_daemon.client())
    with writes_held_up(pg):
        drain = Terminal("-s", slow_daemon.admin_socket, "-t", "500", "drain")
        code, out, shown = drain.end()
    assert (code, out) == (1, "")
    assert re.search(r"posts and users left\x1b\[K\r\nlikesyncctl: TIMEOUT", shown)
    # No full bar for what is not done.
    assert "#" * 30 not in shown


def test_drain_while_paused_is_refused_at_once(daemon, client):
    client.execute_command("LIKE", 7, 42)
    run_ctl("-s", daemon.admin_socket, "pause")
    code, out, err = run_ctl("-s", daemon.admin_socket, "-t", "3600000",
                             "drain")
    assert (code, out) == (1, "")
    assert "paused" in err and "RESUME" in err


def test_drain_says_when_the_daemon_goes_away(slow_daemon, pg):
    like_posts(slow_daemon.client())
    with writes_held_up(pg):
        drain = Terminal("-s", slow_daemon.admin_socket, "drain")
        wait_for(lambda: f"{POSTS} posts and users left" in drain.read(),
                 what="the bar")
        slow_daemon.kill9()
        code, out, shown = drain.end()
    assert (code, out) == (1, "")
    assert re.search(r"\r\nlikesyncctl: .*(closed the connection|reset|pipe)",
                     shown)


# ---- what fails ----

@pytest.mark.parametrize("arguments, words", [
    ((), "expected one verb"),
    (("ping", "ping"), "expected one verb"),
    (("nonsense",), "unknown verb 'nonsense'"),
    (("--nonsense", "ping"), "--nonsense"),
    (("-s",), "requires an argument"),
    (("-t", "0", "drain"), "from 1 to 3600000"),
    (("-t", "3600001", "drain"), "from 1 to 3600000"),
    (("-t", "1s", "drain"), "from 1 to 3600000"),
])
def test_wrong_usage_is_explained(arguments, words):
    code, out, err = run_ctl(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) <= 2, "what is wrong must not scroll away"


def test_help_names_every_verb_and_the_exit_statuses():
    code, out, err = run_ctl("--help")
    assert (code, err) == (0, "")
    for word in ("status", "drain", "pause", "resume", "ping", "-s, --socket",
                 "-t, --timeout", "Exit status"):
        assert word in out
    assert run_ctl("--version")[1].startswith("likesyncctl ")


def test_nobody_listens(tmp_path):
    """A reason for each, with the address that was tried."""
    for address, reason in (
            (f"{tmp_path}/none", "No such file"),
            (f"tcp:127.0.0.1:{harness.free_port()}", "Connection refused"),
            ("tcp:127.0.0.1", "expected"),
            ("somewhere", "expected")):
        for verb in ("ping", "status", "drain", "pause", "resume"):
            code, out, err = run_ctl("-s", address, verb)
            assert (code, out) == (1, ""), (address, verb)
            assert address in err and reason in err, err


def test_a_file_that_was_left_behind(daemon):
    daemon.kill9()
    assert daemon.admin_socket.exists()
    code, _, err = run_ctl("-s", daemon.admin_socket, "ping")
    assert code == 1
    assert "Connection refused" in err and "is likesyncd running?" in err


def test_without_the_rights_to_the_socket(bed, daemon):
    # A copy: the build may be where that user cannot go.
    copy = bed.dir / "ctl"
    shutil.copy(CTL, copy)
    daemon.admin_socket.chmod(0)
    code, text = run_status(wrapped(
        [copy, "-s", daemon.admin_socket, "ping"], unprivileged_user()))
    assert code == 1
    assert "Permission denied (are you in the group" in text


def test_the_listener_of_clients_is_the_wrong_one(daemon):
    code, _, err = run_ctl("-s", daemon.socket, "status")
    assert code == 1
    assert "admin listener" in err


def test_what_answers_is_not_likesyncd(redis):
    code, _, err = run_ctl("-s", redis.socket, "status")
    assert code == 1
    assert "unknown command" in err


def test_a_daemon_that_hangs_is_not_waited_for_for_ever(daemon):
    """Nor is it a failure without a reason. Both of drain's connections."""
    daemon.pause()
    pings = [subprocess.Popen([str(CTL), "-s", str(daemon.admin_socket), verb],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for verb in ("ping", "drain")]
    for process in pings:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, b"")
        assert err == b"likesyncctl: no answer within 10 s\n"
    daemon.resume()
