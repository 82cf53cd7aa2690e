# SPDX-License-Identifier: MIT
"""The status page in a real browser: that of a daemon under load, and the same
page with a status.json that is made up here."""
import contextlib
import http.server
import json
import threading
import time
import urllib.request

import pytest

from browser import chromium
from servers import wait_for

DEADLINE = 60
# What a page must show as it stands.
HOSTILE = ['<img src=x onerror="document.title=1">', "</script><b>x</b>",
           "<script>document.title=1</script>", "\"'`&amp;&#60;", "${1+1}",
           "\u202egnp.exe", "x" * 128, "javascript:alert(1)", "\u00fc\U0001f600"]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser, bed):
    """The browser, empty; after the test its complaints and what it asked for
    are looked at, before the servers end."""
    browser.open("about:blank")
    browser.console(), browser.hosts()
    browser.allowed = set()
    browser.resize(1280)
    yield browser
    browser.open("about:blank")
    assert browser.console() == []
    assert browser.hosts() == browser.allowed


def show(tab, address):
    tab.allowed.add(address)
    tab.open(f"http://{address}/")
    wait_for(lambda: tab.text("state") != "loading", DEADLINE, "a status")


def number(text):
    return float(text.replace(",", ""))


# ---- of a daemon ----

class Load(threading.Thread):
    """Likes of few posts by many users, and some reads, until it is stopped."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_client = daemon.client()
        self.ended = threading.Event()
        self.sent = 0

    def run(self):
        with contextlib.closing(self.daemon_client) as client:
            while not self.ended.is_set():
                pipeline = client.pipeline(transaction=False)
                for _ in range(20):
                    self.sent += 1
                    pipeline.execute_command("LIKE", self.sent,
                                             100 + self.sent % 3)
                pipeline.execute_command("FOLLOW", self.sent, 1)
                pipeline.execute_command("LIKECOUNT", 100)
                pipeline.execute()
                time.sleep(0.02)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(30)
        assert not self.is_alive()


def test_values_change_under_load(tab, daemon):
    def seen():
        kinds = tab.cells("kinds")
        return {
            "rate": number(tab.text("events")),
            "likes": number(kinds[0][1]), "follows": number(kinds[1][1]),
            "hottest": sum(number(row[-1]) for row in tab.cells("hottest")
                           if len(row) == 3),
            "points": tab.run("return document.querySelectorAll("
                              "'#plot-rates polyline')[0].points.length"),
            "bars": tab.run(
                "return document.querySelectorAll('rect').length")}

    show(tab, daemon.options["metrics_listen"])
    assert tab.text("state") == "serving"
    before = seen()
    assert before["likes"] == before["hottest"] == before["bars"] == 0
    assert tab.cells("hottest") == [["No likes yet"]]
    with Load(daemon):
        for _ in range(2):
            wait_for(lambda: all(value > before[name]
                                 for name, value in seen().items()
                                 if name not in ("rate", "bars")),
                     DEADLINE, f"more than {before}")
            wait_for(lambda: seen()["rate"] > 0, DEADLINE, "a rate")
            before = seen()
    assert before["bars"] > 0
    assert tab.text("flushes-more").startswith("Last: ")
    assert sorted(row[0] for row in tab.cells("hottest")) == \
        ["100", "101", "102"]
    assert tab.cells("backends") == [["Redis", "connected"],
                                     ["PostgreSQL", "connected (2 of 2)"]]


def test_what_is_missing_is_shown(tab, bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    show(tab, daemon.options["metrics_listen"])
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "PAUSE")
    redis.stop()
    wait_for(lambda: "redis: " in tab.text("missing")
             and "flusher: paused" in tab.text("missing"), DEADLINE,
             "what is missing")
    assert tab.text("state") == "not ready"
    assert tab.text("lag-more") == "flushing is paused"
    redis.start()
    with contextlib.closing(daemon.admin()) as admin:
        admin.execute_command("FLUSHER", "RESUME")
    wait_for(lambda: tab.text("state") == "serving", DEADLINE, "all to be well")
    assert tab.text("missing") == ""


def test_hostile_ids_are_text(tab, bed, redis, cluster):
    pg = cluster.create_database(variables={"user_id_type": "text",
                                            "post_id_type": "text"})
    bed.databases.append(pg)
    daemon = bed.daemon(redis, pg, ids_user="text", ids_post="text")
    with contextlib.closing(daemon.client()) as client:
        for i, post in enumerate(HOSTILE):
            for user in range(i + 1):
                client.execute_command("LIKE", f"user-{user}", post)
    show(tab, daemon.options["metrics_listen"])
    assert [row[0] for row in tab.cells("hottest")] == HOSTILE[::-1]
    assert tab.run("return document.title") == "likesyncd"
    assert tab.run("return document.querySelectorAll('img, b, tbody script')"
                   ".length") == 0
    assert tab.run("return document.scripts.length") == 1


def test_a_dead_letter_is_shown(tab, bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    pg.query("ALTER TABLE user_like_post ADD CONSTRAINT refused"
             " CHECK (user_id <> 7) NOT VALID")
    with contextlib.closing(daemon.client()) as client:
        client.execute_command("LIKE", 7, 42)
    daemon.drain()
    show(tab, daemon.options["metrics_listen"])
    wait_for(lambda: len(tab.cells("dead")[0]) == 4, DEADLINE, "the letter")
    (_, _, what, why), = tab.cells("dead")
    assert what == "LIKE 7 42"
    assert why.startswith("23514 ") and '"refused"' in why


def test_why_dead_letters_cannot_be_read(tab, bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    pg.query("ALTER TABLE sync_dead_letter RENAME TO elsewhere")
    show(tab, daemon.options["metrics_listen"])
    wait_for(lambda: "sync_dead_letter" in tab.text("dead-more"), DEADLINE,
             "the reason")
    assert tab.text("dead-more").startswith("Cannot be read: ")
    assert tab.cells("dead") == [["Not known"]]
    pg.query("ALTER TABLE elsewhere RENAME TO sync_dead_letter")
    wait_for(lambda: tab.cells("dead") == [["None"]], DEADLINE, "an answer")
    assert tab.text("dead-more") == ""


def test_no_answer(browser, bed, redis, pg):
    """(Chromium itself complains of what it could not fetch.)"""
    daemon = bed.daemon(redis, pg)
    browser.allowed = set()
    show(browser, daemon.options["metrics_listen"])
    daemon.term()
    wait_for(lambda: browser.text("state") == "no answer", DEADLINE,
             "it to be missed")
    daemon.start()
    wait_for(lambda: browser.text("state") == "serving", DEADLINE,
             "it to be back")


# ---- with a status that is made up ----

class Pages(http.server.ThreadingHTTPServer):
    """The page of a daemon as it serves it, and a status.json."""

    daemon_threads = True

    def __init__(self, page, policy):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page, self.policy = page, policy
        self.status = {}
        self.address = f"127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body, kind = self.server.page, "text/html; charset=utf-8"
        if self.path == "/status.json":
            body, kind = json.dumps(self.server.status).encode(), \
                "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.server.policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def pages(daemon):
    url = f"http://{daemon.options['metrics_listen']}/"
    with urllib.request.urlopen(url, timeout=10) as response:
        page = response.read()
        policy = response.headers["Content-Security-Policy"]
    with Pages(page, policy) as pages:
        # All that the page uses must be what a daemon sends.
        pages.like = json.loads(daemon.http("/status.json")[1])
        thread = threading.Thread(target=pages.serve_forever, daemon=True)
        thread.start()
        yield pages
        pages.shutdown()
        thread.join()


def made_up(like, events):
    """A status of the same form, after so many events."""
    now = 1_700_000_000_000
    n = min(events, 180)
    kinds = [{**kind, "changed": events, "same": events // 3,
              "error": events // 1000, "backlog_rows": events,
              "owners_dirty": events // 2, "owners_on_record": n,
              "batches_in_flight": n, "lag_ms": events // 3 or None}
             for kind in like["kinds"]]
    assert all(kind.keys() == old.keys()
               for kind, old in zip(kinds, like["kinds"]))
    return {
        **like, "now_ms": now, "kinds": kinds,
        "samples": [[now - 5000 * (n - i), events * i / n, events / 7,
                     events / 9, events * i, events * i / 1000]
                    for i in range(n)],
        "flushes": [[now - 1000 * (n - i), ("like", "follow")[i % 2],
                     events // (1 + i % 7), events / 1000]
                    for i in range(min(n, 60))],
        "hottest": [[post, events // (i + 1)]
                    for i, post in enumerate(HOSTILE) if events],
        "dead_letters": {"known": True, "error": None, "total": events,
                         "newest": [{"id": events - i, "at_ms": now,
                                     "sqlstate": "23514", "reason": text,
                                     "what": f"LIKE {text} {text}"}
                                    for i, text in enumerate(HOSTILE[:5])
                                    if events]}}


@pytest.mark.parametrize("events", [0, 1, 10_000_000])
def test_few_and_many_events_at_any_width(pages, tab, events):
    pages.status = made_up(pages.like, events)
    for width in (360, 390, 700, 1280, 2000):
        for dark in (False, True):
            tab.resize(width, dark=dark)
            show(tab, pages.address)
            assert tab.run("return document.documentElement.scrollWidth") <= \
                width, f"scrolls at {width}"
            # Nor does anything stand out of its box.
            assert tab.run("""return [...document.querySelectorAll('section')]
                .filter((box) => [...box.querySelectorAll('*')].some((e) =>
                    e.getBoundingClientRect().right >
                    box.getBoundingClientRect().right - 8))
                .map((box) => box.textContent)""") == [], width
            dark_now = tab.run("return getComputedStyle(document.body)"
                               ".backgroundColor") != "rgb(244, 245, 247)"
            assert dark_now == dark
    shown = tab.run("return document.body.innerText")
    for word in ("NaN", "undefined", "Infinity", "null"):
        assert word not in shown
    assert tab.text("state") == "serving"
    if events == 10_000_000:
        assert [row[1] for row in tab.cells("kinds")] == ["10M", "10M"]
        assert [row[2] for row in tab.cells("kinds")] == ["3.333M"] * 2
        assert [row[0] for row in tab.cells("hottest")] == HOSTILE
        assert tab.text("lag") == "55 min"
        assert tab.text("dead-more") == "10M in all; the newest:"
        assert [row[3] for row in tab.cells("dead")] == \
            [f"23514 {text}" for text in HOSTILE[:5]]
    elif events == 0:
        assert tab.text("lag") == "–"
        assert [row[5] for row in tab.cells("kinds")] == ["–"] * 2
        assert tab.cells("dead") == [["None"]]
        assert tab.cells("hottest") == [["No likes yet"]]


def test_what_is_not_known_is_a_dash(pages, tab):
    """And not a 0, nor the value of the other kind."""
    pages.status = made_up(pages.like, 1000)
    like, follow = pages.status["kinds"]
    like["lag_ms"] = like["backlog_rows"] = like["owners_dirty"] = None
    samples = pages.status["samples"]
    for i in (0, 50, 51, 179):
        samples[i][4] = samples[i][5] = None
    samples[53][5] = None
    show(tab, pages.address)
    assert tab.text("lag") == tab.text("backlog") == "–"
    assert tab.text("backlog-more") == "of – posts and users"
    assert [row[4:] for row in tab.cells("kinds")] == [["–", "–"],
                                                      ["1,000", "0.3 s"]]
    # The lines are broken where nothing is known; one sample alone is a dot.
    for plot, parts in (("backlog", [49, 127]), ("lag", [49, 2, 125])):
        assert tab.run(f"return [...document.querySelectorAll("
                       f"'#plot-{plot} polyline')]"
                       f".map((line) => line.points.length)") == parts
    assert "null" not in tab.run("return document.querySelector('.grid')"
                                 ".innerHTML")


@pytest.mark.parametrize("known", [False, True])
def test_dead_letters_that_cannot_be_read(pages, tab, known):
    pages.status = made_up(pages.like, 3)
    dead = pages.status["dead_letters"]
    dead.update(error="<b>permission denied</b>", known=known)
    if not known:
        dead.update(total=0, newest=[])
    show(tab, pages.address)
    said = tab.text("dead-more")
    assert said.startswith("Cannot be read: <b>permission denied</b>")
    assert ("as they were before" in said) == known
    assert tab.cells("dead") == [["Not known"]] if not known else \
        len(tab.cells("dead")) == 5


def test_plots_follow_the_width(pages, tab):
    def scale():
        return tab.run("""
            const svg = document.querySelector('#plot-lag svg');
            return svg.viewBox.baseVal.width /
                   svg.getBoundingClientRect().width""")

    pages.status = made_up(pages.like, 1000)
    show(tab, pages.address)
    for width in (390, 1280):
        tab.resize(width)
        wait_for(lambda: abs(scale() - 1) < 0.01, DEADLINE, "new plots")
