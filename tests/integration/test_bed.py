# SPDX-License-Identifier: MIT
"""The test bed itself: that its checks fail when they should."""
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
import redis as redis_py

import harness
import processes

ROW = ("INSERT INTO user_like_post"
       " (post_id, user_id, status, prev_status, ctime, mtime)"
       " VALUES (42, 7, 1, 0, now(), now())")
COUNT = ("INSERT INTO post_like (post_id, like_count, unattributed, mtime)"
         " VALUES (42, 3, 1, now())")


@pytest.fixture
def one_row(pg):
    """One like that no counter counts."""
    pg.query(ROW)
    return pg


def test_check_exact_finds_a_missing_count(one_row):
    with pytest.raises(harness.Failed, match=r"\(42, "):
        harness.check_exact(one_row)


def test_check_exact_finds_a_count_too_high(one_row):
    one_row.query(COUNT)
    with pytest.raises(harness.Failed, match="42"):
        harness.check_exact(one_row)


def test_check_exact_leaves_out_what_has_no_rows(one_row):
    one_row.query(COUNT)
    one_row.query("UPDATE post_like SET unattributed = 2")
    harness.check_exact(one_row)


def test_watcher_finds_a_moment_of_being_wrong(pg):
    with pytest.raises(harness.Failed, match="I1 was broken"):
        with harness.I1Watcher(pg) as watcher:
            pg.query(ROW)
            harness.wait_for(lambda: watcher.violations)
            pg.query("DELETE FROM user_like_post")
    harness.check_exact(pg)


def test_watcher_fails_when_it_cannot_check(cluster):
    empty = cluster.create_database(schema=False)
    with pytest.raises(harness.Failed, match="the watcher broke"):
        with harness.I1Watcher(empty):
            pass


def test_watcher_lives_through_a_crash_of_postgres(bed):
    pg = bed.postgres().create_database()
    with harness.I1Watcher(pg) as watcher:
        pg.cluster.restart("immediate")
        before = watcher.checks
        harness.wait_for(lambda: watcher.checks > before)


def test_databases_are_apart(cluster):
    one, other = cluster.create_database(), cluster.create_database()
    one.query(ROW)
    assert other.value("SELECT count(*) FROM user_like_post") == 0


def test_redis_keeps_what_it_answered(bed):
    redis = bed.redis(appendfsync="always")
    redis.client().set("a", "1")
    redis.kill9()
    redis.start()
    assert redis.client().get("a") == "1"
    redis.restart()
    assert redis.client().get("a") == "1"


def test_a_stopped_redis_does_not_answer(redis):
    redis.pause()
    with pytest.raises(redis_py.TimeoutError):
        redis.client(timeout=0.2).ping()
    redis.resume()
    assert redis.client().ping()


def test_a_reset_is_a_connection_error(tmp_path):
    """A peer that closes with something unread resets the connection."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def close_unread():
            peer = listener.accept()[0]
            select.select([peer], [], [], 10)
            peer.close()

        thread = threading.Thread(target=close_unread)
        thread.start()
        pool = harness.resp_client(path).connection_pool
        with pytest.raises(redis_py.ConnectionError):
            # redis-py 5 and later say who they are, and meet it here.
            connection = pool.get_connection("PING")
            connection.send_command("PING")
            thread.join()
            connection.can_read(10)
        thread.join()


def alive(pid):
    """Not when it only waits for its parent to take notice."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_servers_end_with_the_process_that_started_them(bed):
    """What is left when the tests are killed would disturb the next ones."""
    script = ("import harness, time\n"
              "bed = harness.Bed()\n"
              "print(bed.redis().pid, bed.postgres().pid, bed.dir,"
              " flush=True)\n"
              "time.sleep(600)\n")
    child = subprocess.Popen(
        [sys.executable, "-c", script], text=True,
        stdout=subprocess.PIPE, cwd=os.path.dirname(__file__))
    *pids, directory = child.stdout.readline().split()
    child.kill()
    child.wait()
    for pid in map(int, pids):
        harness.wait_for(lambda: not alive(pid), 10, f"end of {pid}")
    shutil.rmtree(directory)


def test_wait_for_gives_up():
    start = time.monotonic()
    with pytest.raises(harness.Failed, match="the impossible"):
        harness.wait_for(lambda: False, 0.1, "the impossible")
    assert time.monotonic() - start < 5


def test_sanitizer_reports_are_found():
    found = harness.SANITIZER.search
    assert found("==7==ERROR: AddressSanitizer: heap-use-after-free on …")
    assert found("==7==ERROR: LeakSanitizer: detected memory leaks")
    assert found("daemon/core/ids.c:12:5: runtime error: signed integer …")
    assert not found("flusher: batch 7: cause (SQLSTATE 22P02)")


def test_a_free_port_is_nobody_elses(redis):
    """Not even before a server has it, which can all the same."""
    port = harness.free_port()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
    redis.ask("CONFIG", "SET", "port", port)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"


def test_a_child_of_a_dead_parent_ends():
    """The parent may end before its child asks to be told of that."""
    command = processes.wrapped(["true"], death_signal="KILL")
    assert subprocess.run(command).returncode == 0
    command[command.index(str(os.getpid()))] = "1"
    assert subprocess.run(command).returncode == 1
