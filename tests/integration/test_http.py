# SPDX-License-Identifier: MIT
"""The pages, as a scraper, a load balancer and a program see them."""
import contextlib
import http.client
import json
import math
import os
import random
import re
import signal
import socket
import time

import pytest
import redis as redis_py

import harness
from servers import wait_for

KINDS = ("like", "follow")
NAME = re.compile(r"likesyncd_[a-z_]+$")
ROW = re.compile(r'(likesyncd_[a-z_]+)'
                 r'(?:\{([a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*)\})?'
                 r' (-?[0-9]+(?:\.[0-9]+)?|NaN)$')


def ask(daemon, method, path, body=None, **headers):
    host, _, port = daemon.options["metrics_listen"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
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


def test_a_stall_of_the_loop_is_seen_whenever_it_comes(daemon):
    """Also one that is over before the next second begins."""
    def late():
        return daemon.metrics()["likesyncd_loop_delay_seconds"]

    for _ in range(5):
        wait_for(lambda: late() < 0.1, what="a loop in time")
        time.sleep(random.random())
        daemon.signal(signal.SIGSTOP)
        time.sleep(0.5)
        daemon.signal(signal.SIGCONT)
        end = time.monotonic() + 1.5
        seen = [late()]
        while time.monotonic() < end:
            seen.append(late())
            time.sleep(0.05)
        assert max(seen) >= 0.35, seen


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


def test_ready(bed, redis, pg):
    """Unlike health, of all that it needs; one line for each that is
    missing."""
    def readyz(method="GET"):
        status, headers, text = ask(daemon, method, "/readyz")
        assert headers["Content-Type"].startswith("text/plain")
        return status, text

    daemon = bed.daemon(redis, pg)
    assert readyz() == (200, "ready\n")
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
        assert readyz() == (503, "flusher: paused\n")
        assert readyz("HEAD") == (503, "")
        redis.stop()
        wait_for(lambda: "redis" in readyz()[1], what="Redis to be missed")
        status, text = readyz()
        assert status == 503
        assert re.fullmatch("redis: .+\nflusher: paused\n", text), text
        redis.start()
        wait_for(lambda: readyz() == (503, "flusher: paused\n"),
                 what="Redis to be back")
        admin.execute_command("FLUSHER", "RESUME")
    assert readyz() == (200, "ready\n")


def test_not_ready_without_postgresql(bed, redis):
    cluster = bed.postgres()
    daemon = bed.daemon(redis, cluster.create_database())
    cluster.stop()
    wait_for(lambda: daemon.http("/readyz")[0] == 503, what="it to be missed")
    assert re.fullmatch("postgres: .+\n", daemon.http("/readyz")[1])


def test_not_ready_at_the_end(daemon, client, pg):
    """While it waits for rows that somebody's lock keeps from being written."""
    with contextlib.closing(pg.connect()) as locker:
        locker.autocommit = False
        locker.cursor().execute("LOCK TABLE post_like")
        assert client.execute_command("LIKE", 7, 42) == 1
        daemon.signal(signal.SIGTERM)
        wait_for(lambda: daemon.http("/readyz") == (503, "stopping\n"),
                 what="it to say so")
    assert daemon.wait_exit(20) == 0


def test_not_ready_on_a_replica(bed, redis, pg):
    """Connected, and not to be used."""
    daemon = bed.daemon(redis, pg)
    redis.client().execute_command("REPLICAOF", "127.0.0.1", 1)
    wait_for(lambda: "Redis is a replica" in daemon.http("/readyz")[1],
             what="it to be missed")
    status, text = daemon.http("/readyz")
    assert status == 503
    assert re.fullmatch("redis: .+\n", text), text


def test_status(daemon, client):
    """All of it, as a program reads it, before and after some work."""
    def status():
        code, headers, text = ask(daemon, "GET", "/status.json")
        assert code == 200
        assert headers["Content-Type"] == "application/json"
        return json.loads(text)

    first = status()
    assert first["ready"] and first["missing"] == []
    assert first["redis"] == {"up": True, "state": "connected"}
    assert first["hottest"] == first["flushes"] == []
    wait_for(lambda: status()["dead_letters"]["known"], what="dead letters")
    # Rates are of what comes after the first sample.
    wait_for(lambda: status()["samples"], what="a sample")
    for user in range(3):
        assert client.execute_command("LIKE", user, 42) == 1
    assert client.execute_command("UNLIKE", 0, 42) == 1
    assert client.execute_command("LIKE", 1, 42) == 0
    assert client.execute_command("LIKE", 1, 2**63 - 1) == 1
    assert client.execute_command("FOLLOW", 1, 2) == 1
    daemon.drain()
    now = status()
    assert now.keys() == first.keys()
    assert now["hottest"] == [["42", 5], [str(2**63 - 1), 1]]
    like, follow = now["kinds"]
    assert (like["kind"], like["changed"], like["same"]) == ("like", 5, 1)
    assert (follow["kind"], follow["changed"]) == ("follow", 1)
    assert like["lag_ms"] >= 0 and like["backlog_rows"] == 0
    assert now["clients"]["connected"] >= 1
    flushed = [sum(rows for _, kind, rows, _ in now["flushes"]
                   if kind == name) for name in KINDS]
    assert flushed[1] == 1 and 4 <= flushed[0] <= 5
    assert all(abs(at - now["now_ms"]) < 600_000 and took > 0
               for at, _, _, took in now["flushes"])
    wait_for(lambda: any(sample[1] > 0 for sample in status()["samples"]),
             what="a rate")


def test_nobody_else_runs_in_the_page(daemon):
    """What the browser is told; what it makes of it: test_page.py."""
    code, headers, text = ask(daemon, "GET", "/")
    assert code == 200 and text.startswith("<!DOCTYPE html>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    rules = dict(rule.strip().split(" ", 1) for rule in
                 headers["Content-Security-Policy"].split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    for rule in ("script-src", "style-src"):
        assert re.fullmatch("'sha256-[A-Za-z0-9+/]{43}='", rules[rule])
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    for path in ("/metrics", "/status.json"):
        assert ask(daemon, "GET", path)[1]["Content-Security-Policy"] == \
            "default-src 'none'; frame-ancestors 'none'"


def test_the_queue_is_empty_when_all_is_answered(daemon, client):
    assert client.execute_command("LIKE", 7, 42) == 1
    for kind in KINDS:
        assert daemon.metrics()[
            f'likesyncd_queue_events{{kind="{kind}"}}'] == 0


def test_other_paths_and_methods(daemon):
    for path in ("/index.html", "/metric", "/metrics/", "/Metrics", "/..%2fmetrics"):
        assert ask(daemon, "GET", path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        for path in ("/", "/metrics", "/healthz"):
            status, headers, _ = ask(daemon, method, path, b"x=1")
            assert (status, headers["Allow"]) == (405, "GET, HEAD"), method


DATA = ("/", "/status.json", "/metrics")
OTHERS = ("/healthz", "/readyz")


def test_pages_of_others_cannot_read_it(daemon):
    """Their own name may point at 127.0.0.1, in the browser of whoever runs it."""
    for path in DATA:
        status, headers, text = ask(daemon, "GET", path, Host="evil.example")
        assert status == 421 and headers["Content-Type"].startswith("text/plain")
        assert "expected an IP address or localhost" in text
        for host in ("localhost:9480", "127.0.0.1", "[::1]:80"):
            assert ask(daemon, "GET", path, Host=host)[0] == 200
    for path in OTHERS:
        assert ask(daemon, "GET", path, Host="balanced.example")[0] == 200


def test_the_page_may_be_off(bed, redis, pg):
    daemon = bed.daemon(redis, pg, metrics_page="no",
                        metrics_listen=f"0.0.0.0:{harness.free_port()}")
    for path in DATA[:2]:
        status, headers, text = ask(daemon, "GET", path)
        assert (status, text) == (404, "not here: metrics.page = no\n")
        assert headers["Content-Type"].startswith("text/plain")
    for path in (DATA[2], *OTHERS):
        assert ask(daemon, "GET", path, Host="any.example")[0] == 200
    daemon.write_config(metrics_page="yes")
    daemon.sighup()
    wait_for(lambda: ask(daemon, "GET", "/status.json")[0] == 200,
             what="the page")


OPEN = {"yes": "/ and /status.json, which show ids (unless metrics.page = no), "
               "and /metrics are open to whoever reaches it\n",
        "no": "/metrics is open to whoever reaches it\n"}


@pytest.mark.parametrize("page", OPEN)
def test_it_says_what_is_open_to_others(bed, redis, pg, page):
    port = harness.free_port()
    daemon = bed.daemon(redis, pg, metrics_listen=f"0.0.0.0:{port}",
                        metrics_page=page)
    assert re.search(r" warn +http: " + re.escape(
        f"tcp:0.0.0.0:{port} is not loopback: {OPEN[page]}"),
        daemon.log_text()), daemon.log_text()


def test_nothing_is_open_on_loopback(bed, redis, pg):
    for host in ("127.0.0.1", "localhost", "[::1]"):
        daemon = bed.daemon(redis, pg,
                            metrics_listen=f"{host}:{harness.free_port()}")
        assert "loopback" not in daemon.log_text()


def test_head_is_get_without_its_body(daemon):
    status, headers, text = ask(daemon, "HEAD", "/healthz")
    assert (status, headers["Content-Length"], text) == (200, "3", "")
    for path in ("/", "/readyz"):
        status, headers, text = ask(daemon, "HEAD", path)
        _, _, body = ask(daemon, "GET", path)
        assert (status, headers["Content-Length"], text) == \
            (200, str(len(body.encode())), "")


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


@pytest.mark.parametrize("how", ["stopped", "hung"])
def test_lag_grows_while_redis_is_away(bed, redis, pg, how):
    """Nothing is acked meanwhile, so it is as old as what was acked last."""
    daemon = bed.daemon(redis, pg, flush_interval_ms=100)
    daemon.drain()

    def lags():
        metrics = daemon.metrics()
        shown = json.loads(daemon.http("/status.json")[1])["kinds"]
        admin = daemon.admin().execute_command("FLUSHER", "STATUS")
        told = dict(zip(admin[::2], admin[1::2]))
        return [value for i, kind in enumerate(KINDS) for value in (
            metrics[f'likesyncd_sync_lag_seconds{{kind="{kind}"}}'],
            shown[i]["lag_ms"] / 1000, told[f"{kind}_lag_ms"] / 1000)]

    before = lags()
    assert all(lag >= 0 for lag in before)
    if how == "stopped":
        redis.stop()
    else:
        redis.pause()
    wait_for(lambda: min(lags()) > 1.5 + max(before), what="the lag to grow")
    first = lags()
    wait_for(lambda: all(now > then + 0.5 for now, then in
                         zip(lags(), first)), what="it to grow on")
    if how == "stopped":
        redis.start()
    else:
        redis.resume()
    wait_for(lambda: max(lags()) < 1.5 + max(before), 30, "the lag to go")


def test_what_redis_was_not_asked_is_not_known(bed, redis, pg):
    """Which is not 0."""
    redis.stop()
    daemon = bed.daemon(redis, pg, wait=None)
    daemon.wait_up(lambda: daemon.http("/healthz")[0] == 200)
    gauges = [f'likesyncd_{name}{{kind="{kind}"}}' for kind in KINDS
              for name in ("sync_lag_seconds", "backlog_rows",
                           "backlog_owners", "owners_on_record")]
    fields = ("lag_ms", "rows_dirty", "owners_dirty", "owners_on_record")

    def status():
        code, output = daemon.ctl("status", "--json")
        assert code == 0, output
        return json.loads(output)

    metrics = daemon.metrics()
    assert all(math.isnan(metrics[name]) for name in gauges)
    for kind in json.loads(daemon.http("/status.json")[1])["kinds"]:
        assert kind["lag_ms"] is kind["backlog_rows"] is \
            kind["owners_dirty"] is kind["owners_on_record"] is None
    found = status()
    assert {found[kind + field] for field in fields
            for kind in ("", "like_", "follow_")} == {None}
    _, output = daemon.ctl("status")
    assert ["lag_ms", "unknown"] in map(str.split, output.splitlines())
    redis.start()
    wait_for(lambda: all(not math.isnan(daemon.metrics()[name])
                         for name in gauges), 30, "all to be known")
    assert all(status()[kind + field] >= 0 for field in fields
               for kind in ("", "like_", "follow_"))


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
