# SPDX-License-Identifier: MIT
"""SIGHUP: what it applies, what it leaves for a restart, what it refuses."""
import contextlib
import re

import pytest
import redis as redis_py

import harness
from servers import ROOT, run, wait_for

NEVER = 3600000

# Options that only go with a tls: address.
TLS_ONLY = ["redis.tls_ca", "redis.tls_cert", "redis.tls_key",
            "redis.tls_server_name"]
# Another good value for every option: a new option needs a row here.
OTHER = {
    "server.listen": None, "server.admin_listen": None,  # set in the test
    "server.password_file": None, "server.auth_delay_ms": "400",
    "server.max_clients": "11000", "server.max_pipeline": "1000",
    "server.max_client_memory": "134217728",
    "server.max_requests_before_auth": "50", "server.auth_timeout": "30",
    "server.auth_delay_ms": "100",
    "server.max_args": "512", "server.max_arg_bytes": "32768",
    "server.output_soft_bytes": "524288",
    "server.output_hard_bytes": "8388608",
    "server.idle_timeout": "600", "server.socket_mode": "0600",
    "server.admin_socket_mode": "0640", "server.socket_group": "www-data",
    "server.admin_socket_group": "0",
    "ids.user": "uuid", "ids.post": "text",
    "redis.address": "tcp:127.0.0.1:1", "redis.username": "somebody",
    "redis.password_file": None, "redis.db": "3",
    **dict.fromkeys(TLS_ONLY),
    "redis.connect_timeout_ms": "4000", "redis.timeout_ms": "3000",
    "redis.max_queue": "50000",
    "postgres.conninfo": "host=/nowhere password=hidden",
    "postgres.connections": "3", "postgres.connect_timeout_ms": "4000",
    "postgres.lookup_timeout_ms": "3000",
    "postgres.write_timeout_ms": "20000", "postgres.lock_timeout_ms": "4000",
    "keys.follow": "follow:{user}", "keys.fans": "fans:{user}",
    "like.lookup": "optimistic", "like.lists": "yes",
    "like.page_max": "900",
    "follow.lookup": "optimistic", "follow.max_following": "5000",
    "follow.idle_ttl": "0", "follow.page_max": "1000",
    "cache.ttl": "1800",
    "flush.interval_ms": "70", "flush.batch_rows": "4000",
    "flush.claim_rows": "400", "flush.lease_ms": "14000",
    "flush.ledger_keep": "7200", "metrics.listen": None,
    "metrics.page": "no",
    "log.level": "debug",
}


def reload(daemon, **changes):
    """Writes the file, sends SIGHUP, and returns what was logged about it."""
    daemon.write_config(**changes)
    return hup(daemon)


def hup(daemon):
    seen = len(daemon.log_text())
    daemon.sighup()
    return wait_for(
        lambda: ended(daemon.log_text()[seen:]), what="the reload's end")


def ended(text):
    return text if re.search(r"config: (re|not re)loaded", text) else None


def config_lines(log):
    """What it said, without time and level."""
    return [re.sub(r"^\S+ \w+ +config: ", "", line)
            for line in log.splitlines() if " config: " in line]


def marked_reload():
    """The options that etc/likesyncd.ini tells people they can reload."""
    section, comment, names = "", "", set()
    for line in (ROOT / "etc/likesyncd.ini").read_text().splitlines():
        if line.startswith("#"):
            comment += " " + line[1:].strip()
            continue
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and re.search(r"\breload\)$", comment):
            names.add(f"{section}.{line.split('=')[0].strip()}")
        comment = ""
    return names


# ---- applied ----

def test_log_level(bed, redis, pg):
    daemon = bed.daemon(redis, pg, log_level="error")
    assert " info " not in daemon.log_text()
    assert config_lines(reload(daemon, log_level="info")) == \
        ["reloaded: 1 options changed"]
    # And back: that it was applied shows elsewhere, since nothing is logged.
    seen = len(daemon.log_text())
    daemon.write_config(log_level="error", cache_ttl=120)
    daemon.sighup()
    with daemon.client() as client:
        for user in range(1000):
            client.execute_command("LIKE", user, 42)
            daemon.drain()
            if redis.client().ttl(f"post_user_like_42_{user}") <= 120:
                break
        else:
            raise harness.Failed("the TTL is the old one")
    assert daemon.log_text()[seen:] == ""


def test_flush_interval(bed, redis, pg):
    daemon = bed.daemon(redis, pg, flush_interval_ms=NEVER)
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        # The pass of the start is over when a drain is.
        daemon.drain()
        client.execute_command("LIKE", 8, 42)
    assert pg.value("SELECT count(*) FROM user_like_post") == 1
    reload(daemon, flush_interval_ms=20)
    wait_for(lambda: pg.value("SELECT count(*) FROM user_like_post") == 2,
             what="the row")


def test_max_clients(bed, redis, pg):
    daemon = bed.daemon(redis, pg, server_max_clients=2)
    wait_for(lambda: daemon.metrics()["likesyncd_clients"] == 0,
             what="the test bed's own clients to be gone")
    with contextlib.ExitStack() as stack:
        def connect():
            client = stack.enter_context(daemon.client())
            return client.execute_command("PING")

        assert connect() and connect()
        with pytest.raises(redis_py.RedisError):
            connect()
        reload(daemon, server_max_clients=3)
        assert connect()
        with pytest.raises(redis_py.RedisError):
            connect()
        # Lowered: those that are in stay in.
        reload(daemon, server_max_clients=1)
        with pytest.raises(redis_py.RedisError):
            connect()
        assert daemon.metrics()["likesyncd_clients"] == 3


def test_idle_timeout(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with contextlib.closing(daemon.raw()) as idle:
        idle.sendall(b"PING\r\n")
        assert idle.recv(100) == b"+PONG\r\n"
        reload(daemon, server_idle_timeout=1)
        assert idle.recv(100) == b""


def test_lookup_mode(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        daemon.drain()
        redis.client().delete("post_user_like_42_7")
        assert client.execute_command("LIKE", 7, 42) == 0
        reload(daemon, like_lookup="optimistic")
        redis.client().delete("post_user_like_42_7")
        # A guess, and wrong; the tables are right all the same.
        assert client.execute_command("LIKE", 7, 42) == 1
    daemon.drain()
    assert pg.query("SELECT like_count FROM post_like") == [(1,)]
    harness.check_exact(pg)


def test_cache_ttl(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        daemon.drain()
        assert redis.client().ttl("post_user_like_42_7") > 120
        reload(daemon, cache_ttl=120)
        client.execute_command("LIKE", 8, 42)
        daemon.drain()
    assert 0 < redis.client().ttl("post_user_like_42_8") <= 120


def test_batch_and_claim_rows(bed, redis, pg):
    daemon = bed.daemon(redis, pg, flush_interval_ms=NEVER)
    with daemon.client() as client:
        for user in range(10):
            client.execute_command("LIKE", user, 42)
        reload(daemon, flush_batch_rows=2, flush_claim_rows=2)
        daemon.drain()
    assert pg.query("SELECT max(n_rows), sum(n_rows) FROM sync_batch") == \
        [(2, 10)]


# ---- left for a restart ----

def test_the_others_wait_for_a_restart_and_are_named(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    log = reload(daemon, redis_db=3, postgres_lock_timeout_ms=4000,
                 flush_interval_ms=60)
    assert config_lines(log) == [
        "redis.db changed: takes effect after a restart",
        "postgres.lock_timeout_ms changed: takes effect after a restart",
        "reloaded: 1 options changed"]
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
    daemon.drain()
    keys = redis.client()
    assert keys.exists("post_user_like_42_7")
    daemon.restart()
    with daemon.client() as client:
        client.execute_command("LIKE", 8, 42)
    daemon.drain()
    assert not keys.exists("post_user_like_42_8")
    keys.select(3)
    assert keys.exists("post_user_like_42_8")


def test_every_option_is_either_applied_or_named(bed, redis, pg, tmp_path):
    daemon = bed.daemon(redis, pg)
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    other = {**OTHER,
             "server.listen": f"unix:{tmp_path}/s",
             "server.admin_listen": f"unix:{tmp_path}/a",
             "server.password_file": secret, "redis.password_file": secret,
             "metrics.listen": f"127.0.0.1:{harness.free_port()}"}
    if harness.build_has("HIREDIS_SSL_FOUND"):
        other.update(dict.fromkeys(TLS_ONLY, "other"))
        other["redis.address"] = "tls:127.0.0.1:1"
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    known, section = set(), ""
    for line in printed.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif re.match(r"\w+ =", line):
            known.add(f"{section}.{line.split()[0]}")
    assert known == set(other)
    log = reload(daemon, **{k.replace(".", "_", 1): v
                            for k, v in other.items()})
    lines = config_lines(log)
    named = {line.split()[0] for line in lines if "restart" in line}
    given = {key for key, value in other.items() if value is not None}
    assert given >= known - set(TLS_ONLY)
    assert named == given - marked_reload()
    assert lines[-1] == f"reloaded: {len(marked_reload())} options changed"
    assert "hidden" not in log
    # It goes on as it was, on its old sockets.
    with contextlib.closing(harness.resp_client(daemon.socket)) as client:
        assert client.execute_command("LIKE", 7, 42) == 1


# ---- refused ----

def test_a_bad_file_changes_nothing_and_every_fault_is_logged(bed, redis, pg):
    daemon = bed.daemon(redis, pg, server_max_clients=2)
    wait_for(lambda: daemon.metrics()["likesyncd_clients"] == 0,
             what="the test bed's own clients to be gone")
    good = daemon.config.read_text()
    daemon.config.write_text(
        good.replace("max_clients = 2", "max_clients = 3") +
        "[cache]\nttl = soon\n[redis]\nadress = unix:/a\n[nothing]\na = 1\n")
    lines = config_lines(hup(daemon))
    first = len(good.splitlines()) + 2
    assert len(lines) == 4, lines
    for line, number, words in zip(
            lines, (first, first + 2, first + 3),
            (["cache", "ttl", "soon"], ["adress", "redis.address"],
             ["nothing"])):
        assert line.startswith(f"{daemon.config}:{number}: "), line
        for word in words:
            assert word in line
    assert lines[-1] == "not reloaded: the old values stay"
    # Not even what was good in it.
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(daemon.client()) for _ in range(3)]
        assert clients[0].ping() and clients[1].ping()
        with pytest.raises(redis_py.RedisError):
            clients[2].ping()
    # A good one is taken again.
    daemon.config.write_text(good.replace("max_clients = 2",
                                          "max_clients = 4"))
    assert config_lines(hup(daemon)) == ["reloaded: 1 options changed"]


def test_values_that_do_not_fit_together_are_refused(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    lines = config_lines(reload(daemon, flush_batch_rows=10,
                                flush_claim_rows=20))
    assert "batch_rows" in lines[0] and "claim_rows" in lines[0]
    assert lines[-1] == "not reloaded: the old values stay"


def test_a_file_that_is_gone(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    text = daemon.config.read_text()
    daemon.config.unlink()
    lines = config_lines(hup(daemon))
    assert str(daemon.config) in lines[0] and "No such file" in lines[0]
    assert lines[-1] == "not reloaded: the old values stay"
    assert daemon.answers()
    daemon.config.write_text(text)
    assert config_lines(hup(daemon)) == ["reloaded: 0 options changed"]


# ---- under way ----

def test_no_request_suffers_from_a_reload(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    with daemon.client() as client:
        for turn in range(10):
            pipe = client.pipeline(transaction=False)
            for user in range(200):
                pipe.execute_command("LIKE", user, turn)
            daemon.write_config(flush_claim_rows=100 + turn)
            daemon.sighup()
            assert pipe.execute() == [1] * 200
    daemon.drain()
    assert pg.value("SELECT sum(like_count) FROM post_like") == 2000
    harness.check_exact(pg)


# ---- SETTINGS ----

def settings(daemon):
    """(the reply without its options, {name: option})"""
    def as_map(flat):
        return dict(zip(flat[::2], flat[1::2]))
    with contextlib.closing(daemon.admin()) as admin:
        reply = as_map(admin.execute_command("SETTINGS"))
    options = [as_map(flat) for flat in reply.pop("options")]
    return reply, {option.pop("name"): option for option in options}


def test_settings_are_those_of_print_config(bed, redis, pg):
    daemon = bed.daemon(redis, pg, cache_ttl=1234)
    reply, options = settings(daemon)
    assert reply["file"] == str(daemon.config) and reply["fault"] == ""
    section, printed = "", {}
    for line in run([harness.BUILD / "likesyncd", "--print-config", "-c",
                     daemon.config]).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            printed[f"{section}.{name.strip()}"] = value.strip()
    conninfo = printed.pop("postgres.conninfo")
    assert options.pop("postgres.conninfo")["value"] == "(hidden)"
    assert conninfo == pg.conninfo() and conninfo not in str(options)
    assert {name: option["value"] for name, option in options.items()} == \
        printed
    assert options["cache.ttl"]["value"] == "1234"
    assert {name for name, option in options.items()
            if option["reloadable"]} == marked_reload()
    assert not any(option["differs"] for option in options.values())


def test_settings_tell_what_the_file_changes(bed, redis, pg):
    daemon = bed.daemon(redis, pg, cache_ttl=600)
    daemon.write_config(cache_ttl=700, postgres_connections=3,
                        postgres_conninfo=pg.conninfo() + " connect_timeout=9")

    def differing():
        return {name for name, option in settings(daemon)[1].items()
                if option["differs"]}
    assert differing() == {"cache.ttl", "postgres.connections",
                           "postgres.conninfo"}
    assert settings(daemon)[1]["cache.ttl"]["value"] == "600"
    hup(daemon)
    assert differing() == {"postgres.connections", "postgres.conninfo"}
    assert settings(daemon)[1]["cache.ttl"]["value"] == "700"
    # A file with faults: the first is told, and the values are still the old ones.
    daemon.write_config(cache_ttl="x", flush_batch_rows="y")
    reply, options = settings(daemon)
    assert re.fullmatch(re.escape(str(daemon.config)) +
                        r":\d+: cache.ttl = \"x\": expected [^\n]*",
                        reply["fault"])
    assert options["cache.ttl"]["value"] == "700" and differing() == set()


def test_settings_are_not_for_clients(daemon, client):
    with pytest.raises(redis_py.exceptions.NoPermissionError):
        client.execute_command("SETTINGS")
    # CONFIG GET tells nothing of them.
    assert "cache.ttl" not in str(client.execute_command("CONFIG GET", "*"))
