# SPDX-License-Identifier: MIT
"""A real Prometheus reads the daemon, and everything that names a metric names
one that there is."""
import json
import pathlib
import re
import subprocess
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

    def value(self, query):
        """Of the one series that the query gives, or None."""
        found = json.loads(self.get("/api/v1/query", query=query))
        assert found["status"] == "success", found
        results = found["data"]["result"]
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
    for title, query in dashboard_queries():
        found = json.loads(prometheus.get("/api/v1/query", query=query))
        assert found["status"] == "success", (title, query, found)
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


ALERTS = {  # what makes each of them fire, and for how long
    "LikesyncdDown": ('up{job="likesyncd",instance="a"}', "0x20", "2m"),
    "LikesyncdRedisDown": ('likesyncd_redis_up{instance="a"}', "0x20", "2m"),
    "LikesyncdPostgresDown":
        ('likesyncd_postgres_up{instance="a"}', "0x20", "6m"),
    "LikesyncdLag":
        ('likesyncd_sync_lag_seconds{kind="like"}', "61+60x20", "6m"),
    "LikesyncdBacklogGrows":
        ('likesyncd_backlog_rows{kind="like"}', "20000+100x40", "30m"),
    "LikesyncdFlusherPaused":
        ('likesyncd_flusher_paused{instance="a"}', "1x80", "61m"),
    "LikesyncdDeadLetters":
        ('likesyncd_dead_letters_total{instance="a"}', "0 0 1 1 1", "3m"),
    "LikesyncdDrift":
        ('likesyncd_drift_found_total{of="lists"}', "0 0 1 1 1", "3m"),
    "LikesyncdEventErrors":
        ('likesyncd_events_total{result="error",verb="like",instance="a"}',
         "0+120x20", "10m"),
    "LikesyncdClientsRefused":
        ('likesyncd_clients_refused_total{instance="a"}', "0 0 1 1 1", "3m"),
    "LikesyncdLoopDelay":
        ('likesyncd_loop_delay_seconds{instance="a"}', "0.2x20", "6m"),
    "LikesyncdRedisMemory": (None, None, "6m"),  # two series: see below
    "LikesyncdRedisMayEvict": (None, None, "6m"),
    "LikesyncdRedisNotDurable": (None, None, "6m"),
}
MORE_SERIES = {
    "LikesyncdRedisMemory": [
        ('likesyncd_redis_memory_used_bytes{instance="a"}', "95x20"),
        ('likesyncd_redis_memory_max_bytes{instance="a"}', "100x20")],
    "LikesyncdRedisMayEvict": [
        ('likesyncd_redis_may_evict{instance="a"}', "1x20"),
        ('likesyncd_redis_up{instance="a"}', "1x20")],
    "LikesyncdRedisNotDurable": [
        ('likesyncd_redis_aof{instance="a"}', "0x20"),
        ('likesyncd_redis_up{instance="a"}', "1x20")],
}


def test_each_alert_is_tried():
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires(alert, tmp_path):
    series, values, when = ALERTS[alert]
    inputs = MORE_SERIES.get(alert) or [(series, values)]
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    test = {
        "rule_files": [str(RULES)], "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in inputs],
            "promql_expr_test": [
                {"expr": query, "eval_time": when,
                 "exp_samples": [{"labels": "{}", "value": 1}]},
                # Not yet at the start.
                {"expr": query, "eval_time": "0m", "exp_samples": []}]}]}
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(test))
    output = run(["promtool", "test", "rules", str(path)])
    assert "SUCCESS" in output


def test_rows_that_wait_are_counted(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    daemon.ctl("pause")
    client = daemon.client()

    def rows():
        return daemon.metrics()['likesyncd_backlog_rows{kind="like"}']

    for user in range(1, 41):
        client.execute_command("LIKE", user, user % 3)
    wait_for(lambda: rows() == 40, what="40 rows in three sets")
    pipe = client.pipeline(transaction=False)
    for post in range(1000, 1500):  # more owners than are asked for
        pipe.execute_command("LIKE", 1, post)
    pipe.execute()
    wait_for(lambda: 500 <= rows() <= 700, what="about 540 rows")
    assert daemon.metrics()["likesyncd_flusher_paused"] == 1
    daemon.ctl("resume")
    wait_for(lambda: rows() == 0, what="nothing to wait")
    assert daemon.metrics()["likesyncd_flusher_paused"] == 0
