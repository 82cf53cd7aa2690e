# SPDX-License-Identifier: MIT
"""One like, from a client to the tables, and the command line."""
import signal
import time

import pytest
import redis as redis_py

import harness

DAEMON = harness.BUILD / "likesyncd"


def test_answers_ping(client):
    assert client.execute_command("PING") is True


def test_like_and_unlike_say_what_changed(client):
    assert client.execute_command("LIKE", 7, 42) == 1
    assert client.execute_command("LIKE", 7, 42) == 0
    assert client.execute_command("UNLIKE", 7, 42) == 1
    assert client.execute_command("UNLIKE", 7, 42) == 0
    assert client.execute_command("LIKE", 7, 42) == 1


def test_with_count_and_reads(client):
    assert client.execute_command("LIKE", 7, 42, "WITHCOUNT") == [1, 1]
    assert client.execute_command("LIKE", 8, 42, "WITHCOUNT") == [1, 2]
    assert client.execute_command("UNLIKE", 7, 42, "WITHCOUNT") == [1, 1]
    assert client.execute_command("LIKED", 8, 42, 43) == [1, 0]
    assert client.execute_command("LIKED", 7, 42) == [0]
    assert client.execute_command("LIKECOUNT", 42, 43) == [1, 0]


def test_keys_after_a_like(bed, redis, pg):
    """The flusher is paused, so that they stay as the event left them."""
    daemon = bed.daemon(redis, pg)
    assert daemon.admin().execute_command("FLUSHER", "PAUSE")
    before = time.time()
    assert daemon.client().execute_command("LIKE", 7, 42) == 1
    keys = redis.client()
    assert keys.smembers("post_set") == {"42"}
    assert keys.smembers("post_user_like_set_42") == {"7"}
    assert keys.get("post_42_counter") == "1"
    edge = keys.hgetall("post_user_like_42_7")
    assert edge["status"] == "1"
    assert edge["post_id"] == "42"
    assert edge["user_id"] == "7"
    assert before - 1 <= float(edge["ctime"]) <= time.time() + 1
    assert before - 1 <= float(edge["mtime"]) <= time.time() + 1
    for key in ("post_set", "post_user_like_set_42", "post_42_counter",
                "post_user_like_42_7"):
        assert keys.ttl(key) == -1, key


def test_the_like_is_durable_after_a_drain(daemon, client, redis, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    assert pg.query("SELECT post_id, user_id, status, prev_status"
                    " FROM user_like_post") == [(42, 7, 1, 0)]
    assert pg.query("SELECT post_id, like_count, unattributed"
                    " FROM post_like") == [(42, 1, 0)]
    assert pg.value("SELECT count(*) FROM sync_batch") == 1
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 0
    harness.check_exact(pg)
    keys = redis.client()
    # All is clean: what tells of work to do is gone, what is cached goes.
    for key in ("post_set", "post_user_like_set_42", "post_42_counter"):
        assert not keys.exists(key), key
    assert keys.hget("post_user_like_42_7", "status") == "1"
    assert 0 < keys.ttl("post_user_like_42_7") <= 3600


def test_an_unlike_is_durable_after_a_drain(daemon, client, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    client.execute_command("UNLIKE", 7, 42)
    daemon.drain()
    assert pg.query("SELECT status, prev_status FROM user_like_post") == \
        [(0, 1)]
    assert pg.query("SELECT like_count, unattributed FROM post_like") == \
        [(0, 0)]
    harness.check_exact(pg)


def test_a_dirty_hash_has_no_ttl_even_if_it_had_one(daemon, client, redis):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    assert redis.client().ttl("post_user_like_42_7") > 0
    client.execute_command("UNLIKE", 7, 42)
    assert redis.client().ttl("post_user_like_42_7") == -1


def test_the_client_time_is_kept(daemon, client, pg):
    then = 1289192400
    assert client.execute_command("LIKE", 7, 42, "AT", then) == 1
    assert client.execute_command("UNLIKE", 7, 42, "AT", then - 1) == 0
    daemon.drain()
    assert pg.query("SELECT status, extract(epoch FROM mtime)::bigint"
                    " FROM user_like_post") == [(1, then)]


def test_what_redis_forgot_postgres_knows(daemon, client, redis, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    redis.client().delete("post_user_like_42_7")
    assert client.execute_command("LIKE", 7, 42) == 0
    assert client.execute_command("UNLIKE", 7, 42) == 1
    daemon.drain()
    assert pg.value("SELECT like_count FROM post_like") == 0
    harness.check_exact(pg)


def test_metrics_and_health(daemon, client):
    client.execute_command("LIKE", 7, 42)
    client.execute_command("LIKE", 7, 42)
    metrics = daemon.metrics()
    events = 'likesyncd_events_total{verb="like",result="%s"}'
    assert metrics[events % "changed"] == 1
    assert metrics[events % "same"] == 1
    assert metrics["likesyncd_clients"] >= 1
    assert daemon.http("/healthz")[0] == 200
    assert daemon.http("/nothing")[0] == 404


def test_flusher_commands_are_for_the_admin_listener_only(daemon, client):
    with pytest.raises(redis_py.ResponseError):
        client.execute_command("FLUSHER", "STATUS")
    assert daemon.admin().execute_command("FLUSHER", "STATUS")


def test_ctl(daemon, client, pg):
    client.execute_command("LIKE", 7, 42)
    assert daemon.ctl("ping")[0] == 0
    status, output = daemon.ctl("drain")
    assert status == 0, output
    assert pg.value("SELECT count(*) FROM user_like_post") == 1
    assert daemon.ctl("pause")[0] == 0
    assert daemon.ctl("resume")[0] == 0
    assert daemon.ctl("status")[0] == 0
    assert daemon.ctl("nonsense")[0] != 0
    daemon.term()
    assert daemon.ctl("ping")[0] != 0


def test_sigterm_makes_all_durable_and_exits_with_0(daemon, client, pg):
    for user in range(500):
        client.execute_command("LIKE", user, user % 7)
    daemon.term(timeout=10)
    assert pg.value("SELECT count(*) FROM user_like_post") == 500
    assert not daemon.socket.exists()
    harness.check_exact(pg)


def test_a_broken_pipe_is_no_signal(daemon, client):
    """hiredis and libpq write without MSG_NOSIGNAL."""
    daemon.signal(signal.SIGPIPE)
    assert client.ping()


def test_restart_goes_on_where_it_was(daemon, client, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.kill9()
    daemon.start()
    with daemon.client() as again:
        assert again.execute_command("LIKE", 7, 42) == 0
        assert again.execute_command("LIKE", 8, 42) == 1
    daemon.drain()
    assert pg.value("SELECT like_count FROM post_like") == 2
    harness.check_exact(pg)


@pytest.fixture
def config(tmp_path):
    """Writes a configuration file and returns its path."""
    def write(text):
        path = tmp_path / "likesyncd.conf"
        path.write_text(text)
        return path
    return write


def run_daemon(*arguments):
    return harness.run_status([DAEMON, *arguments])


def test_version():
    status, output = run_daemon("--version")
    assert (status, output.split()[0]) == (0, "likesyncd")


def test_help_names_every_option():
    status, output = run_daemon("--help")
    assert status == 0
    for option in ("-c", "--check-config", "--print-config", "--version"):
        assert option in output


def test_an_unknown_option_is_refused():
    status, output = run_daemon("--nonsense")
    assert status == 2 and "nonsense" in output


@pytest.mark.parametrize("arguments", [
    (), ("--check-config",), ("-c", "a.ini", "b.ini")])
def test_wrong_usage_is_explained_in_few_lines(arguments):
    status, output = run_daemon(*arguments)
    assert status == 2 and len(output.splitlines()) == 2
    assert "-c FILE" in output and "--help" in output


def test_check_config_accepts_a_good_file(config):
    path = config("[redis]\naddress = unix:/run/redis/redis.sock\n"
                  "[postgres]\nconninfo = \"host=/tmp password='a;b c'\"\n")
    status, output = run_daemon("--check-config", "-c", path)
    assert status == 0, output


@pytest.mark.parametrize("text, line, words", [
    ("[redis]\nadress = unix:/a\n", 2, ["adress"]),
    ("[flush]\n\ninterval_ms = soon\n", 3, ["interval_ms", "soon"]),
    ("[ids]\nuser = int\n", 2, ["user", "int", "bigint"]),
    ("[nothing]\na = 1\n", 1, ["nothing"]),
    ("[server]\nlisten = tcp:127.0.0.1:99999\n", 2, ["listen", "99999"]),
    ("[flush]\ninterval_ms = 1\ninterval_ms\n", 3, []),
])
def test_check_config_says_where_and_what(config, text, line, words):
    path = config(text)
    status, output = run_daemon("--check-config", "-c", path)
    assert status != 0
    assert f"{path}:{line}" in output
    for word in words:
        assert word in output


@pytest.mark.parametrize("conninfo, words", [
    ("host=/tmp hots=a", 'invalid connection option "hots"'),
    ("host=/tmp password=my secret", "expected name=value pairs"),
])
def test_a_conninfo_that_cannot_be_understood(config, conninfo, words):
    path = config(f"[postgres]\nconninfo = {conninfo}\n")
    for arguments in (("--check-config", "-c", path), ("-c", path)):
        status, output = run_daemon(*arguments)
        assert status == 1, output
        assert f"{path}: postgres.conninfo: " in output and words in output
        assert "secret" not in output


def test_a_password_file_that_is_not_there_is_named_with_its_option(config):
    for section in ("server", "redis"):
        path = config(f"[{section}]\npassword_file = /nowhere/secret\n")
        status, output = run_daemon("-c", path)
        assert status == 1
        assert f"{section}.password_file: /nowhere/secret: No such" in output
        assert run_daemon("--check-config", "-c", path) == (
            1, f"{path}: {section}.password_file: /nowhere/secret: "
            "No such file or directory\n")


def test_check_config_reads_passwords(config, tmp_path):
    """Both, as a start would. What systemd hands over is not there."""
    secret = tmp_path / "secret"
    path = config(f"[server]\npassword_file = {secret}\n"
                  f"[redis]\npassword_file = {secret}\n")
    secret.touch(0o600)
    for text, fault in (("", "it is empty"),
                        ("a\nb\n", "it has more than one line")):
        secret.write_text(text)
        assert run_daemon("--check-config", "-c", path) == (
            1, "".join(f"{path}: {section}.password_file: {secret}: {fault}\n"
                       for section in ("server", "redis")))
    secret.write_text("good\n")
    assert run_daemon("--check-config", "-c", path) == (0, f"{path}: good\n")
    secret.chmod(0o644)
    status, output = run_daemon("--check-config", "-c", path)
    assert status == 0 and output.count("every user of this machine") == 2
    path = config("[server]\npassword_file = credential:clients\n")
    assert run_daemon("--check-config", "-c", path) == (0, f"{path}: good\n")


def test_check_config_reports_every_fault(config):
    path = config("[flush]\ninterval_ms = soon\nbatch_rows = many\n")
    output = run_daemon("--check-config", "-c", path)[1]
    assert "soon" in output and "many" in output


def test_a_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none.conf"
    for arguments in (("--check-config", "-c", path), ("-c", path)):
        status, output = run_daemon(*arguments)
        assert status != 0 and str(path) in output


def test_print_config_reads_back_to_the_same(config):
    path = config("[server]\nlisten = unix:/tmp/a.sock tcp:[::1]:6480\n"
                  "[postgres]\nconninfo = \"host=/tmp password='a;b c'\"\n"
                  "[like]\nlookup = optimistic\n")
    status, printed = run_daemon("--print-config", "-c", path)
    assert status == 0, printed
    assert "optimistic" in printed and "a;b c" in printed
    assert run_daemon("--print-config", "-c", config(printed)) == (0, printed)
