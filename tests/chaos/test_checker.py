# SPDX-License-Identifier: MIT
"""Every check of the checker fails when it should, and only then: records and
facts made by hand (story.py). (chaos.control asks the same of wrong daemons.)"""
import pytest

import bed  # noqa: F401
import checker
from checker import Change
from story import ORDERED, POISON, TIMED, Story
from through import Look, judge_through


@pytest.fixture
def story():
    return Story()


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_all_is_well(story, key):
    for want in (1, 0, 1):
        story.write(story.ask(key, want, 1))
    story.ask(key, 1, 0)
    story.ask(key, 0, "TRYAGAIN too much")
    assert story.judge().violations == []
    assert story.judge().lost == story.judge().doubled == 0


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_lost(story, key):
    story.write(story.ask(key, 1, 1))
    story.ask(key, 0, 1)
    verdict = story.judge()
    assert verdict.checks() == {"lost"} and verdict.lost == 1


def test_lost_though_the_state_is_right(story):
    """Its time tells that another event made it."""
    story.write(story.ask(TIMED, 1, 1))
    story.ask(TIMED, 0, 1)
    story.ask(TIMED, 1, 1)
    verdict = story.judge()
    assert verdict.checks() == {"lost"} and verdict.lost == 2


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_nothing_of_it_is_there(story, key):
    story.ask(key, 1, 1)
    assert story.checks() == {"lost"}


@pytest.mark.parametrize("key", [TIMED, ORDERED])
@pytest.mark.parametrize("answer", [None, "UNKNOWN try again"])
@pytest.mark.parametrize("is_there", [False, True])
def test_unknown_is_either(story, key, answer, is_there):
    story.write(story.ask(key, 1, 1))
    event = story.ask(key, 0, answer)
    if is_there:
        story.write(event)
    assert story.judge().violations == []


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_unknown_does_not_outlive_what_was_acked_later(story, key):
    first = story.ask(key, 1, None)
    story.ask(key, 0, 0)
    story.write(first)
    assert "lost" in story.checks()


def test_an_older_unknown_one_sent_again_changes_nothing(story):
    first = story.ask(TIMED, 0, None)
    story.write(story.ask(TIMED, 1, 1))
    story.ask(TIMED, 0, 0, event=first)
    assert story.judge().violations == []


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_refused_changes_nothing(story, key):
    story.write(story.ask(key, 1, 1))
    event = story.ask(key, 0, "UNAVAILABLE not recorded")
    story.write(event)
    assert "lost" in story.checks()
    if key == TIMED:
        assert "refused" in story.checks()


@pytest.mark.parametrize("late, checks", [(True, set()), (False, {"lost"})])
def test_late_behind_what_changed_nothing(story, late, checks):
    """The newest event found the state and left its time, which is older than that
    of the one that came late."""
    story.record.late = late
    story.write(story.ask(TIMED, 1, 1))
    given_up = story.ask(TIMED, 0, None)
    story.ask(TIMED, 1, 0)
    story.write(given_up)
    assert story.checks() == checks


def test_refused_and_overwritten(story):
    """Only the audit tells."""
    story.write(story.ask(TIMED, 1, "UNAVAILABLE not recorded"))
    story.write(story.ask(TIMED, 0, 1))
    assert story.checks() == {"refused"}


def test_refused_and_in_redis(story):
    event = story.ask(TIMED, 1, "UNAVAILABLE not recorded")
    story.facts.hashes[TIMED] = event.t
    assert story.checks() == {"refused"}


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_doubled(story, key):
    like = story.ask(key, 1, 1)
    story.write(like)
    story.write(story.ask(key, 0, 1))
    story.write(like)
    story.write(story.ask(key, 0, 0))
    verdict = story.judge()
    assert "doubled" in verdict.checks() and verdict.doubled == 1


def test_a_repeated_write_is_not_doubled(story):
    event = story.ask(TIMED, 1, 1)
    story.write(event)
    story.write(event)
    assert story.judge().violations == []


def test_made_up(story):
    story.facts.rows["like", (7, 7)] = 1, 5
    story.facts.audit["like", (7, 7)] = [Change(None, 1, None, 5)]
    assert "made-up" in story.checks()


@pytest.mark.parametrize("us, status", [(5, None), (None, 0)])
def test_made_up_event(story, us, status):
    """A time that no event has; or an event's with another state."""
    story.write(story.ask(TIMED, 1, None), status, us)
    assert "made-up" in story.checks()


def test_time_went_back(story):
    old, new = story.ask(TIMED, 1, 1), story.ask(TIMED, 0, 1)
    story.write(new)
    story.write(old)
    assert {"time", "lost"} <= story.checks()


def test_deleted(story):
    event = story.ask(ORDERED, 1, 1)
    story.write(event)
    story.facts.audit[ORDERED].append(Change(1, None, 5, None))
    assert "time" in story.checks()


@pytest.mark.parametrize("row, more", [
    ((10, 1, 2), 0), ((10, 3, 1), 2), ((3, 1, 2, 2, 1), 1), ((3, 2, None, 0, 0), 2)])
def test_inexact(story, row, more):
    """A post; or a user, with those who are followed and those who follow."""
    story.facts.inexact = [row]
    verdict = story.judge()
    assert verdict.checks() == {"exact", *(["doubled"] if more else [])}
    assert verdict.doubled == more


def test_left(story):
    story.facts.left = ["post_set"]
    assert story.checks() == {"left"}


@pytest.mark.parametrize("there, check", [(5, "lost"), (15, "doubled")])
def test_unattributed(story, there, check):
    story.record.unattributed = 10
    story.facts.unattributed = there
    assert story.checks() == {check}


def test_through_stands_still(story):
    story.write(story.ask(TIMED, 1, 1))
    story.facts.through = dict(story.before)
    assert story.checks() == {"through"}


def test_a_relayed_error(story):
    story.ask(TIMED, 1, "LOADING Redis is loading the dataset in memory")
    assert story.checks() == {"answer"}


@pytest.mark.parametrize("errors, checks", [
    (checker.ERRORS, {"answer"}), (checker.FULL, set()), ((), {"answer"})])
def test_an_error_that_the_case_does_not_explain(story, errors, checks):
    story.write(story.ask(TIMED, 1, 1))
    story.ask(TIMED, 1, "OOM not recorded")
    assert story.judge(errors, ("refused",)).checks() == checks


@pytest.mark.parametrize("outcome, answer, most", [
    ("refused", "TRYAGAIN", 0), ("unknown", None, 3), ("unknown", "UNKNOWN", 3)])
def test_too_little_is_served(story, outcome, answer, most):
    """Of three that are acked there may be so many others."""
    for want in (1, 0, 1):
        story.write(story.ask(TIMED, want, 1))
    for _ in range(most):
        story.ask(TIMED, 1, answer)
    assert story.judge(mostly=()).checks() == set()
    story.ask(TIMED, 1, answer)
    assert story.judge(mostly=()).checks() == {"served"}
    assert story.judge(mostly=(outcome,)).checks() == set()


@pytest.mark.parametrize("key", [TIMED, ORDERED])
@pytest.mark.parametrize("answers", [(0,), (1, 1), (1, 0, 0)])
def test_a_wrong_answer(story, key, answers):
    """To a like, a like again, an end: the last one is wrong."""
    wants = (1, 1, 0)
    for want, answer in zip(wants, answers):
        story.ask(key, want, answer)
    verdict = checker.Verdict()
    checker.judge_answers(verdict, story.record)
    assert len(verdict.violations) == 1


def test_a_wrong_answer_of_what_was_evicted(story):
    story.ask(ORDERED, 1, 1)
    story.ask(ORDERED, 1, 1)
    for but, checks in (([ORDERED], set()), ([TIMED], {"answer"})):
        verdict = checker.Verdict()
        checker.judge_answers(verdict, story.record, but)
        assert verdict.checks() == checks


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_right_answers(story, key):
    for want, answer in ((1, 1), (1, 0), (0, "TRYAGAIN"), (0, None), (1, 0),
                         (0, 1)):
        story.ask(key, want, answer)
    old = story.ask(TIMED, 1, None)
    story.ask(TIMED, 0, 1)
    story.ask(TIMED, 1, 0, event=old)
    verdict = checker.Verdict()
    checker.judge_answers(verdict, story.record)
    assert verdict.violations == []


# ---- dead letters ----

def test_poison(story):
    story.record.poison.add(13)
    story.ask(POISON, 1, 1)
    story.facts.letters = [POISON]
    assert story.judge().violations == []


def test_poison_without_a_letter(story):
    story.record.poison.add(13)
    story.ask(POISON, 1, 1)
    assert story.checks() == {"lost"} and story.judge().lost == 1


def test_poison_with_a_row(story):
    story.record.poison.add(13)
    story.write(story.ask(POISON, 1, 1))
    story.facts.letters = [POISON]
    assert story.checks() == {"letters"}


def test_a_letter_of_another(story):
    event = story.ask(ORDERED, 1, 1)
    story.write(event)
    story.facts.letters = [ORDERED]
    assert story.checks() == {"letters"}


# ---- windows ----

@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_lost_in_a_window(story, key):
    story.write(story.ask(key, 1, 1))
    story.clock += 10
    story.ask(key, 0, 1)
    story.record.lossy(story.clock - 1, story.clock + 2)
    verdict = story.judge()
    assert verdict.violations == [] and verdict.lost == 0
    assert verdict.lost_in_window == 1 and verdict.window_s == 2


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_lost_outside_the_window(story, key):
    story.write(story.ask(key, 1, 1))
    story.ask(key, 0, 1)
    story.record.lossy(story.clock + 1, story.clock + 2)
    assert story.checks() == {"lost"} and story.judge().lost_in_window == 0


def test_lost_with_its_answer_on_its_way(story):
    """Sent in the window, and acked behind it."""
    story.write(story.ask(TIMED, 1, 1))
    story.clock += 10
    story.ask(TIMED, 0, 1)
    story.record.lossy(story.clock - 5, story.clock - 1)
    verdict = story.judge()
    assert verdict.violations == [] and verdict.lost_in_window == 1
    assert verdict.window_s == 0
    story.record.windows.clear()
    story.record.lossy(story.clock - 5, story.clock - 2)
    assert story.checks() == {"lost"}


def test_lost_before_and_in_the_window(story):
    story.write(story.ask(TIMED, 0, 1))
    story.ask(TIMED, 1, 1)
    story.clock += 10
    story.ask(TIMED, 0, 1)
    story.record.lossy(story.clock - 1, story.clock)
    verdict = story.judge()
    assert verdict.checks() == {"lost"}
    assert verdict.lost == 1 and verdict.lost_in_window == 1


# ---- synced_through, in the middle of it all ----

def look(through_us, row_us):
    found = Look("like", through_us)
    found.rows[ORDERED] = row_us
    return found


@pytest.mark.parametrize("through_us, row_us, good", [
    (2_000_000, 5_000_000, True),       # not answered by then
    (9_000_000, 5_000_000, True),
    (9_000_000, 3_000_000, False),      # answered, and not there
    (9_000_000, 4_000_000, True)])
def test_through_is_not_ahead(story, through_us, row_us, good):
    request = story.record.send(story.record.event(0, *ORDERED, 1, False))
    story.record.answer(request, 1)
    request.sent, request.answered = 4, 5
    verdict = checker.Verdict()
    judge_through(verdict, story.record, [look(through_us, row_us)], 0)
    assert verdict.checks() == (set() if good else {"through"})
