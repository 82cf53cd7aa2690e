# SPDX-License-Identifier: MIT
"""A real Prometheus reads the daemon, and everything that names a metric names
one that there is."""
import json
import pathlib
import random
import re
import subprocess
import time
import typing
import urllib.parse
import urllib.request

import pytest

from harness import free_port
from servers import Server, run, run_status, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "etc/prometheus-rules.yml"
DASHBOARD = ROOT / "etc/grafana-dashboard.json"
NAME = re.compile(r"likesyncd_[a-z_]+")


class Prometheus(Server):
    """Reads one daemon each second, with the rules that are installed."""

    def __init__(self, bed, target):
        super().__init__(bed, "prometheus")
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "likesyncd", "static_configs":
                                [{"targets": [target]}]}]}
        (self.dir / "config.yml").write_text(json.dumps(config))
        self.spawn(["prometheus", f"--config.file={self.dir}/config.yml",
                    f"--storage.tsdb.path={self.dir}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}"])
        self.wait_up(self.answers, 60)

    def get(self, path, **arguments):
        url = f"http://127.0.0.1:{self.port}{path}"
        if arguments:
            url += "?" + urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.read()

    def answers(self):
        try:
            return self.get("/-/ready")
        except OSError:
            return False

    def series(self, query):
        found = json.loads(self.get("/api/v1/query", query=query))
        assert found["status"] == "success", (query, found)
        return found["data"]["result"]

    def value(self, query):
        """Of the one series that the query gives, or None."""
        results = self.series(query)
        assert len(results) <= 1, results
        return float(results[0]["value"][1]) if results else None


def metric_names(daemon):
    """As the daemon has them, and as those of histograms are asked for."""
    status, text = daemon.http("/metrics")
    assert status == 200
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    return set(types) | {name + end for name, kind in types.items()
                         if kind == "histogram"
                         for end in ("_bucket", "_sum", "_count")}


def test_promtool_finds_no_fault_with_the_metrics(daemon):
    _, text = daemon.http("/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text,
                             capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_promtool_finds_no_fault_with_the_rules():
    code, output = run_status(["promtool", "check", "rules", str(RULES)])
    assert code == 0 and "SUCCESS" in output, output


@pytest.mark.parametrize("file", ["etc/prometheus-rules.yml",
                                  "etc/grafana-dashboard.json", "README.md"])
def test_metrics_that_are_named_are_there(daemon, file):
    names = set(NAME.findall((ROOT / file).read_text()))
    assert len(names) > 5
    # "likesyncd_version" is a field of INFO, other names end in a wildcard.
    missing = {name for name in names - metric_names(daemon)
               if not name.endswith("_") and name != "likesyncd_version"}
    assert not missing


def dashboard_queries():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield (panel["title"], target["expr"].replace("$instance", ".*")
                   .replace("$__rate_interval", "5s"))


def test_a_prometheus_reads_rates_and_times(bed, redis, pg):
    daemon = bed.daemon(redis, pg, flush_interval_ms=50)
    prometheus = Prometheus(bed, daemon.options["metrics_listen"])
    sent = iter(range(1, 1000000))

    def rate_is_seen():
        client = daemon.client()
        for _ in range(50):
            client.execute_command("LIKE", next(sent), 1)
        rate = prometheus.value('sum(rate(likesyncd_events_total'
                                '{verb="like",result="changed"}[10s]))')
        return rate is not None and rate > 0

    wait_for(rate_is_seen, 60, "a rate")
    assert prometheus.value("likesyncd_redis_up") == 1
    p99 = 'histogram_quantile(0.99, rate(likesyncd_request_seconds_bucket' \
          '{class="event"}[10s]))'
    wait_for(lambda: (prometheus.value(p99) or 0) > 0, 60, "a quantile")
    # Each query of the dashboard finds something under load.
    redis.client().config_set("maxmemory", "1gb")  # or there is none to show
    for title, query in dashboard_queries():
        wait_for(lambda: rate_is_seen() and prometheus.series(query), 60,
                 f"{title}: {query}")
    # Its rules are loaded, and none of them is broken.
    groups = json.loads(prometheus.get("/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 10
    wait_for(lambda: all(
        rule["health"] == "ok" for group in
        json.loads(prometheus.get("/api/v1/rules"))["data"]["groups"]
        for rule in group["rules"]), 60, "all rules to be evaluated")


def test_a_lost_backend_makes_its_alert_pending(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    prometheus = Prometheus(bed, daemon.options["metrics_listen"])
    redis.stop()
    wait_for(lambda: prometheus.value(
        'ALERTS{alertname="LikesyncdRedisDown",alertstate="pending"}') == 1,
        60, "the alert")


# ---- alerts ----

A = 'instance="a"'
REDIS_UP = f"redis_up{{{A}}}"


class Alert(typing.NamedTuple):
    """Series as promtool takes them, one value each 15 s."""

    fires: dict   # those that make it fire
    when: int     # and by which minute, but not at the start
    silent: list  # of those near by that must not


def one(series, values):
    return {f"likesyncd_{series}": values}


def noise(seed, mean, spread, n):
    """Values around mean, with a few that are far off."""
    made = random.Random(seed)
    print("seed", seed)
    return " ".join(
        str(round(mean * (10 if made.random() < 0.05 else
                          made.uniform(1 - spread, 1 + spread))))
        for _ in range(n))


def memory(used, most="100x960"):
    return one(f"redis_memory_used_bytes{{{A}}}", used) | \
        one(f"redis_memory_max_bytes{{{A}}}", most)


def redis_is(name, values, up="1x960"):
    return one(f"redis_{name}{{{A}}}", values) | \
        one(REDIS_UP, up)


LAG = f'sync_lag_seconds{{kind="like",{A}}}'
BACKLOG = f'backlog_rows{{kind="like",{A}}}'
ERRORS = f'events_total{{result="error",verb="like",{A}}}'
REFUSED = f"clients_refused_total{{{A}}}"
DEAD = f"dead_letters{{{A}}}"
DRIFT = 'drift_found_total{of="lists"}'
LOOP = f"loop_delay_seconds{{{A}}}"
UP = f'up{{job="likesyncd",{A}}}'
MINUTES = 240
LONG = f"x{4 * MINUTES}"


def unknown(samples):
    """(promtool takes no NaN with a count.)"""
    return "NaN " * samples



ALERTS = {
    "LikesyncdDown": Alert({UP: "0x80"}, 2, [
        {UP: "1" + LONG}, {UP: "1 1 0 0 0 1 0 0 0 1" + LONG},
        {'up{job="other",instance="a"}': "0" + LONG, UP: "1" + LONG},
        # One of two that is not to be read any more, or another name.
        {UP: "1" + LONG, UP.replace('"a"', '"b"'): "1x80"},
        {'up{job="other",instance="a"}': "1" + LONG} |
        one(f'uptime_seconds{{job="other",{A}}}', "0+15" + LONG)]),
    "LikesyncdRedisDown": Alert(one(REDIS_UP, "0x80"), 2, [
        one(REDIS_UP, "1" + LONG),
        one(REDIS_UP, "1 0 0 0 1 0 0 0 1x20")]),
    "LikesyncdPostgresDown": Alert(one(f"postgres_up{{{A}}}", "0x80"), 6, [
        one(f"postgres_up{{{A}}}", "1" + LONG),
        one(f"postgres_up{{{A}}}", "1 0x17 1x4 0x17 1x20")]),
    "LikesyncdLag": Alert(one(LAG, "61+15x80"), 6, [
        one(LAG, "60" + LONG), one(LAG, unknown(4 * MINUTES)),
        one(LAG, "1 100x16 1 100x16 1x80")]),
    "LikesyncdLagUnknown": Alert(
        one(LAG, unknown(80)) | one(REDIS_UP, "1" + LONG), 11, [
            one(LAG, "0" + LONG) | one(REDIS_UP, "1" + LONG),
            one(LAG, unknown(36) + "1x80") | one(REDIS_UP, "1" + LONG),
            one(LAG, unknown(4 * MINUTES)) | one(REDIS_UP, "0" + LONG)]),
    "LikesyncdBacklogGrows": Alert(one(BACKLOG, "1000x120 1000+500x240"), 60, [
        one(BACKLOG, "0+9" + LONG),               # grows, and is small
        one(BACKLOG, "1000000-1000" + LONG),      # is large, and shrinks
        one(BACKLOG, "1000000" + LONG), one(BACKLOG, unknown(4 * MINUTES)),
        one(BACKLOG, "0x240 1000000x15 0x240"),   # one burst
        one(BACKLOG, noise(1, 50000, 0.2, 4 * MINUTES)),
        one(BACKLOG, noise(2, 8000, 0.5, 4 * MINUTES))]),
    "LikesyncdFlusherPaused": Alert(
        one(f"flusher_paused{{{A}}}", "1x300"), 61, [
            one(f"flusher_paused{{{A}}}", "0" + LONG),
            one(f"flusher_paused{{{A}}}", "1x230 0x4 1x230 0x4")]),
    "LikesyncdDeadLetters": Alert(one(DEAD, "0x4 1x20"), 3, [
        one(DEAD, "0" + LONG), one(DEAD, unknown(4 * MINUTES)),
        one(f"dead_letters_total{{{A}}}", "7+1" + LONG)]),
    "LikesyncdDrift": Alert(one(DRIFT, "0x4 1x20"), 3, [
        one(DRIFT, "7" + LONG), one(DRIFT, "7x80 0x80")]),
    "LikesyncdEventErrors": Alert(one(ERRORS, "0+30x80"), 11, [
        one(ERRORS, "0+14" + LONG), one(ERRORS, "0x20 250" + LONG),
        one(ERRORS.replace("error", "changed"), "0+6000x240")]),
    "LikesyncdClientsRefused": Alert(one(REFUSED, "0x4 1x20"), 3, [
        one(REFUSED, "7" + LONG), one(REFUSED, "7x80 0x80")]),
    "LikesyncdLoopDelay": Alert(one(LOOP, "0.2x80"), 6, [
        one(LOOP, "0.09" + LONG), one(LOOP, "0 1x16 0x4 1x16 0x20")]),
    "LikesyncdRedisMemory": Alert(memory("95x80"), 6, [
        memory("89" + LONG), memory("95x80", "0x80"),
        memory("95x16 80x4 95x16 80x4")]),
    "LikesyncdRedisMayEvict": Alert(redis_is("may_evict", "1x80"), 6, [
        redis_is("may_evict", "0x80"), redis_is("may_evict", "1x80", "0x80")]),
    "LikesyncdRedisNotDurable": Alert(redis_is("aof", "0x80"), 6, [
        redis_is("aof", "1x80"), redis_is("aof", "0x80", "0x80")]),
}


def promtool_tests(tmp_path, alert, series, expected):
    """expected: {minute: whether it fires then}."""
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    test = {
        "rule_files": [str(RULES)], "evaluation_interval": "15s",
        "tests": [{
            "interval": "15s",
            "input_series": [{"series": s, "values": v}
                             for s, v in series.items()],
            "promql_expr_test": [
                {"expr": query, "eval_time": f"{minute}m", "exp_samples":
                 [{"labels": "{}", "value": 1}] if fires else []}
                for minute, fires in expected.items()]}]}
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(test))
    output = run(["promtool", "test", "rules", str(path)])
    assert "SUCCESS" in output


def test_each_alert_is_tried():
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires(alert, tmp_path):
    case = ALERTS[alert]
    promtool_tests(tmp_path, alert, case.fires, {0: False, case.when: True})


@pytest.mark.parametrize("alert,series", [
    pytest.param(name, series, id=f"{name}-{i}")
    for name, case in ALERTS.items() for i, series in enumerate(case.silent)])
def test_an_alert_stays_silent(alert, series, tmp_path):
    promtool_tests(tmp_path, alert, series,
                   {minute: False for minute in range(MINUTES + 1)})


@pytest.mark.parametrize("series", [
    {UP: "1x39 stale"}, {'up{job="other",instance="a"}': "0" + LONG},
    {'up{job="other",instance="a"}': "1x39 0x200"} |
    one(f'uptime_seconds{{job="other",{A}}}', "0+15x39 stale")],
    ids=["its-target", "none-of-the-name", "another-name"])
def test_the_down_alert_misses_what_vanished(series, tmp_path):
    promtool_tests(tmp_path, "LikesyncdDown", series, {12: True, 60: True})


def test_the_dead_letter_alert_stays_while_there_are_any(tmp_path):
    """Over a restart, too; and goes within minutes after the last of them."""
    promtool_tests(
        tmp_path, "LikesyncdDeadLetters",
        one(DEAD, "0x19 3x99 " + unknown(4) + "3x99 1x79 0x60"),
        {minute: 5 <= minute < 76 for minute in range(90)
         if not 75 < minute < 82})


def test_the_lag_alert_does_not_flap(tmp_path):
    """Where the lag is not known for a while, it stays; once it is known to be
    gone, it goes."""
    promtool_tests(
        tmp_path, "LikesyncdLag",
        one(LAG, "100x79 " + unknown(12) + "100x39 _x8 100x39 1x80"),
        {minute: 1 <= minute < 45 for minute in range(60)})


def test_the_backlog_alert_stands_noise(tmp_path):
    """Rows that grow, as estimated: 30 % off either way, and some far off. It
    comes once, stays, and goes when they get fewer."""
    made = random.Random(3)
    rows = [500] * 120 + [500 + 100 * i for i in range(600)] + \
        [60500 - 300 * i for i in range(200)]
    values = " ".join(str(round(
        n * (5 if made.random() < 0.05 else made.uniform(0.7, 1.3))))
        for n in rows)
    promtool_tests(tmp_path, "LikesyncdBacklogGrows", one(BACKLOG, values),
                   {minute: 75 <= minute <= 180 for minute in range(0, 210, 5)
                    if not 55 < minute < 75 and not 180 < minute < 200})


# ---- rows that wait ----

ROWS = 'likesyncd_backlog_rows{kind="%s"}'
HOT, COLD = 5000, 2000  # pairs of one owner, and owners of one pair


def paused(bed, redis, pg):
    daemon = bed.daemon(redis, pg, flush_interval_ms=50)
    daemon.ctl("pause")
    return daemon


def rows_at_ticks(daemon, redis, kind, n):
    """What was shown until so many ticks more were answered: nothing else
    calls scripts meanwhile, each kind one in each interval."""
    def calls():
        return redis.client().info("commandstats")["cmdstat_evalsha"]["calls"]

    seen, end = [], calls() + 2 * n
    while calls() < end:
        seen.append(daemon.metrics()[ROWS % kind])
        time.sleep(0.02)
    return seen


def send(client, commands):
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    pipe.execute()


def test_rows_that_wait_are_counted(bed, redis, pg):
    daemon = paused(bed, redis, pg)

    def rows():
        return daemon.metrics()[ROWS % "like"]

    send(daemon.client(), (("LIKE", user, user % 3) for user in range(1, 41)))
    wait_for(lambda: rows() == 40, what="40 rows in three sets")
    # An owner that is dirty again while the pass has it is still one, and what
    # the pass has left of a big set is counted, too.
    keys = redis.client()
    keys.sadd("likesync:pass:like", 1)
    keys.sadd("likesync:parts:like", 2)
    keys.sadd("likesync:part:like:2", 1001, 1002)
    wait_for(lambda: rows() == 42, what="42 rows")
    assert set(rows_at_ticks(daemon, redis, "like", 5)) == {42}
    keys.delete("likesync:pass:like", "likesync:parts:like",
                "likesync:part:like:2")
    assert daemon.metrics()["likesyncd_flusher_paused"] == 1
    daemon.ctl("resume")
    wait_for(lambda: rows() == 0, what="nothing to wait")
    assert daemon.metrics()["likesyncd_flusher_paused"] == 0


@pytest.mark.parametrize("kind", ["like", "follow"])
def test_one_hot_owner_among_thousands(bed, redis, pg, kind):
    def event(owner, member):
        return ("LIKE", member, owner) if kind == "like" else \
            ("FOLLOW", owner, member)

    daemon = paused(bed, redis, pg)
    client = daemon.client()
    send(client, (event(owner, 1) for owner in range(10, 10 + COLD)))
    send(client, (event(1, member) for member in range(2, 2 + HOT)))
    wait_for(lambda: daemon.metrics()[
        f'likesyncd_backlog_owners{{kind="{kind}"}}'] == COLD + 1,
        what="all owners")
    rows_at_ticks(daemon, redis, kind, 2)  # one that began before is over
    seen = rows_at_ticks(daemon, redis, kind, 20)
    assert len(seen) > 5
    assert all(abs(rows / (HOT + COLD) - 1) < 0.03 for rows in seen), seen


def test_a_hot_owner_of_others_is_found(bed, redis, pg):
    """Their events do not pass through the daemon; a sample meets it once, and
    from then on it is known."""
    daemon = paused(bed, redis, pg)
    keys = redis.client()
    pipe = keys.pipeline(transaction=False)
    pipe.sadd("post_user_like_set_1", *range(1, HOT + 1))
    for post in range(10, 10 + COLD):
        pipe.sadd(f"post_user_like_set_{post}", 1)
    pipe.sadd("post_set", 1, *range(10, 10 + COLD))
    pipe.execute()

    def is_right():
        return abs(daemon.metrics()[ROWS % "like"] / (HOT + COLD) - 1) < 0.03

    wait_for(lambda: is_right() and
             keys.smembers("likesync:big:like") == {"1"}, 60,
             what="the hot one to be known")
    seen = rows_at_ticks(daemon, redis, "like", 20)
    assert all(abs(rows / (HOT + COLD) - 1) < 0.03 for rows in seen), seen
    keys.delete("post_set")
    wait_for(lambda: not keys.exists("likesync:big:like"),
             what="nothing to be kept")
