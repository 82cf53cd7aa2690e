# SPDX-License-Identifier: MIT
"""The campaign's own parts: its options, which failures are tried again, its table,
how it measures the time to heal and the stalls."""
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import pytest

import bed  # noqa: F401
import campaign
import report
from case import CASES, Result
from harness import wait_for
from judge import Repairs
from record import Record
from stalls import LIMIT_S, SHOWN_S, Looker


def outcome(*violations):
    result = Result("calm", 1, violations=list(violations))
    return campaign.judge_results([result])


# ---- options ----

@pytest.fixture(scope="module", autouse=True)
def cases():
    campaign.load_cases()


@pytest.mark.parametrize("arguments", [
    ["no_such_case"], ["--scale", "0"], ["--minutes", "-1"],
    ["--control", "--minutes", "1"], ["--control", "--plain"],
    ["--control", "--variant", "guard_removed"],
    ["--control", "everything"], ["--variant", "no_such_variant"],
    ["--json", "/no/such/directory/file"]])
def test_what_means_nothing_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        campaign.read_options(arguments)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    [], ["calm"], ["--control", "--seed", "7", "--scale", "2", "stale"],
    ["--variant", "guard_removed", "--minutes", "1"]])
def test_what_means_something_is_taken(arguments):
    campaign.read_options(arguments)


CAMPAIGN = pathlib.Path(campaign.__file__)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_broken_off(number, tmp_path):
    """It shows what it has, and leaves nothing behind."""
    kept = tmp_path / "results"
    process = subprocess.Popen(
        [sys.executable, CAMPAIGN, "--minutes", "60", "--json", kept, "calm", "killed"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        # A shell without job control has it ignored in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_for(lambda: kept.exists() and json.loads(kept.read_text()), 120,
             "a first run")
    beds = wait_for(lambda: beds_of(process.pid), 60, "a second one")
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert re.search(r"^calm +1 +0 ", out, re.M)
    assert not any(bed.exists() for bed in beds)


def beds_of(pid):
    """The directories of the servers that a process has started."""
    children = subprocess.run(["ps", "-o", "args=", "--ppid", str(pid)],
                              capture_output=True, text=True).stdout
    return {pathlib.Path(path) for path in re.findall(r"/tmp/lsd-\w+", children)}


def test_what_is_ignored_stays_so():
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        campaign.break_off_by(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, was)


# ---- which cases come by ----

def planned(minutes, names=("calm", "killed"), n=5, plain=False):
    plan = campaign.Plan(list(names), 7, minutes, plain)
    return plan, [(case.name, seed, bool(plain), plan.place) for case, seed, plain
                  in itertools.islice(plan, n)]


def test_each_once():
    assert planned(0) == (planned(0)[0], [("calm", 7, False, "1/2"),
                                          ("killed", 7, False, "2/2")])


def test_round_and_round():
    assert planned(60, n=3)[1] == [("calm", 7, False, "round 1 1/2"),
                                   ("killed", 7, False, "round 1 2/2"),
                                   ("calm", 8, True, "round 2 1/2")]


def test_the_time_was_too_short(capsys):
    plan, done = planned(1e-9)
    assert len(done) == 1 and plan.left_out() == ["killed"]
    options = campaign.read_options([])
    campaign.show([Result("calm", 7)], options, plan.left_out())
    assert "not reached: 1 cases: killed" in capsys.readouterr().out


# ---- tried again, or not ----

def play_once(monkeypatch, kept, end):
    monkeypatch.setattr(campaign, "play", lambda _options: end)
    return campaign.play_once(types.SimpleNamespace(once=kept))


def test_what_is_found_is_not_tried_again(monkeypatch, tmp_path, capsys):
    kept = tmp_path / "new" / "calm"
    bad = outcome(("case", "too slow"), ("lost", "one is missing"))
    assert not play_once(monkeypatch, kept, bad).is_good
    assert not play_once(monkeypatch, kept, outcome()).is_good
    assert "one is missing" in capsys.readouterr().out


@pytest.mark.parametrize("check", sorted(campaign.WAITS))
def test_what_was_too_slow_is_tried_again(monkeypatch, tmp_path, check):
    kept = tmp_path / "calm"
    assert not play_once(monkeypatch, kept, outcome((check, "slow"))).is_good
    assert play_once(monkeypatch, kept, outcome()).is_good


def test_a_crash_is_not_tried_again(monkeypatch, tmp_path):
    kept = tmp_path / "calm"
    monkeypatch.setattr(campaign, "play", lambda _options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        campaign.play_once(types.SimpleNamespace(once=kept))
    assert not play_once(monkeypatch, kept, outcome()).is_good


# ---- what is shown ----

def test_window_is_that_of_one_run():
    results = [Result("calm", 1, lost_in_window=9, window_s=0.5, bound_s=2),
               Result("calm", 2, lost_in_window=3, window_s=1.25, bound_s=1.5)]
    assert report.window_of(results) == "3: 1.2 of 1.5 s"
    assert report.window_of([Result("calm", 1)]) == 0


def test_no_stall_was_seen():
    line = report.table([Result("calm", 1, refused=5)]).splitlines()[1]
    assert line.split()[5] == "5" and line.split()[-1] == "-"


def test_what_failed_is_seen_in_the_table():
    lines = report.table([Result("calm", 1, violations=[("lost", "one")]),
                          Result("calm", 2), Result("killed", 1)]).splitlines()
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["2", "1"], ["1", "0"], ["3", "1"]]


def test_what_failed_is_explained():
    text = report.describe(Result("calm", 1, violations=[("lost", "one")]), "calm")
    assert "(lost: an acked event is not in PostgreSQL" in text


def test_each_check_is_explained():
    """Whatever may be named where something is found."""
    names = set()
    for path in CAMPAIGN.parent.glob("*.py"):
        names |= set(re.findall(r'(?:\.fail|verdict\.add|failing)\(\s*"([a-z-]+)"',
                                path.read_text()))
    assert names == set(report.CHECKS)


def test_results_are_written_whole(tmp_path):
    file = tmp_path / "results"
    report.save(file, [Result("calm", 1)])
    assert [each["case"] for each in json.loads(file.read_text())] == ["calm"]
    assert list(tmp_path.iterdir()) == [file]


# ---- time to heal ----

def ask(record, client, sent, answered, answer=1):
    request = record.send(record.event(client, "like", (client, 1), 1, False))
    record.answer(request, answer)
    request.sent, request.answered = sent, answered


def test_heal_is_until_each_client_was_acked():
    record, repairs = Record(), Repairs()
    repairs.mark(10, False)
    repairs.mark(20, True)
    ask(record, 0, 20.5, 21)
    ask(record, 1, 19, 21)              # was asked before
    ask(record, 1, 22, 22.5, "UNAVAILABLE")
    ask(record, 1, 23, 24)
    assert repairs.longest_s(record, 2, end=50) == 4


def test_heal_counts_up_to_the_next_fault():
    record, repairs = Record(), Repairs()
    for at, is_well in ((10, False), (20, True), (23, False), (30, True)):
        repairs.mark(at, is_well)
    ask(record, 0, 31, 32)
    assert repairs.longest_s(record, 1, end=50) == 3


def test_a_client_is_never_acked_again():
    repairs = Repairs()
    repairs.mark(20, True)
    assert repairs.longest_s(Record(), 1, end=50) == 30


# ---- stalls ----

class Shown:
    """A daemon that shows a delay, and the machine that was late by so much."""

    pid, resumed_at = 1, -SHOWN_S

    def __init__(self, late_s, machine_s=0.0):
        self.late_s, self.machine_s = late_s, machine_s

    def metrics(self):
        return {"likesyncd_loop_delay_seconds": self.late_s}

    def longest_s(self, _since):
        return self.machine_s


def look(shown):
    looker = Looker(shown, shown)
    looker.look()
    return looker


def test_a_stall_is_its_own():
    assert look(Shown(0.3)).own_s > LIMIT_S
    busy = look(Shown(0.3, machine_s=0.25))
    assert busy.own_s < LIMIT_S and busy.longest_s == 0.3


def test_one_that_was_stopped_is_not_judged():
    shown = Shown(0.3)
    shown.resumed_at = float("inf")
    assert look(shown).longest_s is None
