# SPDX-License-Identifier: MIT
"""/metrics and /healthz, as a scraper sees them."""
import contextlib
import http.client
import os
import re
import socket

import pytest
import redis as redis_py

import harness
from servers import wait_for

KINDS = ("like", "follow")
NAME = re.compile(r"likesyncd_[a-z_]+$")
ROW = re.compile(r'(likesyncd_[a-z_]+)'
                 r'(?:\{([a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*)\})?'
                 r' (-?[0-9]+(?:\.[0-9]+)?)$')


def ask(daemon, method, path, body=None):
    host, _, port = daemon.options["metrics_listen"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()


def parse(text):
    """{name: (type, {labels: value})}; fails on what Prometheus would not
    take, or would take for something else."""
    assert text.endswith("\n")
    families, name = {}, None
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, help_text = line.split(" ", 3)
            assert NAME.match(name) and help_text.endswith("."), line
            assert name not in families, f"{name} comes twice"
            kind = next(lines)
            assert re.match(rf"# TYPE {name} (counter|gauge|histogram)$",
                            kind), kind
            families[name] = (kind.rpartition(" ")[2], {})
            continue
        row = ROW.match(line)
        assert row, line
        own = row[1] if families[name][0] != "histogram" \
            else re.sub("_(bucket|sum|count)$", "", row[1])
        assert own == name, f"{line}: not below its own HELP and TYPE"
        values = families[name][1]
        key = row[1].removeprefix(name) + (row[2] or "")
        assert key not in values, f"{line}: comes twice"
        values[key] = float(row[3])
    assert all(values for _, values in families.values())
    return families


def test_metrics_can_be_parsed(daemon):
    status, headers, text = ask(daemon, "GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"] == \
        "text/plain; version=0.0.4; charset=utf-8"
    families = parse(text)
    assert len(families) > 20
    for name, (kind, values) in families.items():
        # So that people know what to put into rate().
        assert name.endswith("_total") == (kind == "counter"), name
        if kind == "counter":
            assert all(value >= 0 for value in values.values()), name


def test_health(daemon):
    status, headers, text = ask(daemon, "GET", "/healthz")
    assert (status, text) == (200, "ok\n")
    assert headers["Content-Type"].startswith("text/plain")


def test_health_is_the_daemons_own(bed, redis, pg):
    """A load balancer must not take all daemons out when PostgreSQL is away:
    they still take likes."""
    daemon = bed.daemon(redis, pg)
    redis.stop()
    wait_for(lambda: daemon.metrics()["likesyncd_redis_up"] == 0,
             what="Redis to be missed")
    assert ask(daemon, "GET", "/healthz")[0] == 200


def test_the_queue_is_empty_when_all_is_answered(daemon, client):
    assert client.execute_command("LIKE", 7, 42) == 1
    for kind in KINDS:
        assert daemon.metrics()[
            f'likesyncd_queue_events{{kind="{kind}"}}'] == 0


def test_other_paths_and_methods(daemon):
    for path in ("/", "/metric", "/metrics/", "/Metrics", "/..%2fmetrics"):
        assert ask(daemon, "GET", path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        for path in ("/metrics", "/healthz"):
            status, headers, _ = ask(daemon, method, path, b"x=1")
            assert (status, headers["Allow"]) == (405, "GET, HEAD"), method


def test_head_is_get_without_its_body(daemon):
    status, headers, text = ask(daemon, "HEAD", "/healthz")
    assert (status, headers["Content-Length"], text) == (200, "3", "")


def test_a_query_is_ignored(daemon):
    assert ask(daemon, "GET", "/healthz?a=b")[0] == 200


def test_what_is_not_http_does_no_harm(daemon, client):
    host, _, port = daemon.options["metrics_listen"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as wild:
        wild.sendall(b"\0" * 70000 + b"\r\n\r\n")
        with contextlib.suppress(OSError):
            while wild.recv(65536):
                pass
    assert client.execute_command("LIKE", 7, 42) == 1
    assert ask(daemon, "GET", "/healthz")[0] == 200


def test_metrics_move_with_traffic(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    before = daemon.metrics()
    with daemon.client() as client:
        for user in range(5):
            client.execute_command("LIKE", user, 42)
        client.execute_command("LIKE", 0, 42)
        client.execute_command("UNLIKE", 0, 42)
        client.execute_command("UNLIKE", 99, 42)
        with pytest.raises(redis_py.ResponseError):
            client.execute_command("LIKE", 7, 42, "AT", "99999999999")
        assert daemon.metrics()["likesyncd_clients"] >= 1
    daemon.drain()
    after = daemon.metrics()

    def moved(name):
        return after[name] - before[name]

    def events(verb, result):
        return moved(f'likesyncd_events_total{{verb="{verb}",'
                     f'result="{result}"}}')

    assert [events("like", r) for r in ("changed", "same", "error")] == \
        [5, 1, 1]
    assert [events("unlike", r) for r in ("changed", "same", "error")] == \
        [1, 1, 0]
    # Six pairs that Redis did not know; a refused time is no pair of its own.
    assert moved("likesyncd_lookup_pairs_total") >= 6
    assert moved("likesyncd_lookup_queries_total") >= 1
    rows = pg.value("SELECT sum(n_rows) FROM sync_batch")
    for stage in ("claimed", "written", "acked"):
        assert moved(f"likesyncd_rows_{stage}_total") == rows >= 5, stage
    assert moved("likesyncd_batches_written_total") == \
        pg.value("SELECT count(*) FROM sync_batch")
    assert moved("likesyncd_requests_total") >= 10
    for kind in KINDS:
        for name in ("backlog_owners", "owners_on_record",
                     "batches_in_flight"):
            assert after[f'likesyncd_{name}{{kind="{kind}"}}'] == 0, name
    assert after["likesyncd_redis_up"] == after["likesyncd_postgres_up"] == 1
    assert after["likesyncd_uptime_seconds"] >= \
        before["likesyncd_uptime_seconds"]
    # No counter went back.
    for name in before:
        if name.partition("{")[0].endswith("_total"):
            assert moved(name) >= 0, name


def test_metrics_of_bad_clients(bed, redis, pg, tmp_path):
    password = tmp_path / "password"
    password.write_text("good\n")
    daemon = bed.daemon(redis, pg, server_password_file=password, wait=None,
                        server_max_clients=3)
    wait_for(lambda: daemon.http("/healthz")[0] == 200, what="HTTP")
    with contextlib.closing(daemon.raw()) as raw:
        raw.sendall(b"AUTH bad\r\n")
        assert raw.recv(1000).startswith(b"-WRONGPASS")
    for junk in (b"*x\r\n", b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"):
        with contextlib.closing(daemon.raw()) as raw:
            raw.sendall(junk)
            with contextlib.suppress(OSError):
                while raw.recv(1000):
                    pass
    wait_for(lambda: daemon.metrics()["likesyncd_clients"] == 0,
             what="them to be gone")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            raw = stack.enter_context(contextlib.closing(daemon.raw()))
            raw.sendall(b"PING\r\n")
            assert raw.recv(100).startswith(b"-NOAUTH")
        extra = stack.enter_context(contextlib.closing(daemon.raw()))
        with contextlib.suppress(OSError):
            while extra.recv(1000):
                pass
        metrics = daemon.metrics()
    assert metrics["likesyncd_auth_failures_total"] == 1
    for reason in ("protocol", "attack"):
        assert metrics['likesyncd_clients_closed_total'
                       f'{{reason="{reason}"}}'] == 1
    assert metrics["likesyncd_clients"] == 3
    assert metrics["likesyncd_clients_refused_total"] == 1
    assert metrics["likesyncd_clients_accepted_total"] == 6


def test_metrics_tell_what_is_away(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    assert daemon.metrics()["likesyncd_redis_reconnects_total"] == 0
    redis.restart()
    wait_for(lambda: (m := daemon.metrics())["likesyncd_redis_up"] == 1 and
             m["likesyncd_redis_reconnects_total"] == 1,
             what="Redis to be counted as new")
    # Restarted is another generation: what is cached is looked up again.
    assert daemon.metrics()["likesyncd_generation"] >= 1


def test_lag_grows_while_nothing_is_written(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    daemon.drain()
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
    wait_for(lambda: (m := daemon.metrics())[
        'likesyncd_backlog_owners{kind="like"}'] == 1 and
        m['likesyncd_sync_lag_seconds{kind="like"}'] > 1.5, what="the lag")
    assert daemon.metrics()['likesyncd_backlog_owners{kind="follow"}'] == 0
    daemon.admin().execute_command("FLUSHER", "RESUME")
    daemon.drain()
    wait_for(lambda: all(daemon.metrics()[
        f'likesyncd_sync_lag_seconds{{kind="{kind}"}}'] < 1.5
        for kind in KINDS), what="the lag to go")


def test_off(bed, redis, pg):
    daemon = bed.daemon(redis, pg, metrics_listen="")
    assert daemon.answers()
    with open(f"/proc/{daemon.pid}/net/tcp", encoding="ascii") as tcp:
        inodes = {line.split()[9] for line in tcp.readlines()[1:]
                  if line.split()[3] == "0A"}
    assert not inodes & daemon_sockets(daemon.pid)


def daemon_sockets(pid):
    """The inodes of its open sockets."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):    # closed since
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
            found.update(re.findall(r"^socket:\[(\d+)\]$", name))
    return found


def test_a_port_that_is_taken_stops_the_start(bed, redis, pg):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = bed.daemon(redis, pg, wait=None, metrics_listen=address)
        assert daemon.wait_exit() == 1
    log = daemon.log_text()
    assert re.search(rf"metrics\.listen {address}: [^(]*"
                     r"Address already in use$", log, re.M), log
