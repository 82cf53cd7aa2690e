# SPDX-License-Identifier: MIT
"""What clients read meanwhile is taken in, and judged."""
import types

import pytest

import bed  # noqa: F401
import checker
from clients import Client, counted
from reads import Question, judge_totals
from record import UNKNOWN, Total
from story import ORDERED, TIMED, Story


@pytest.fixture
def story():
    return Story()


def read(story, key, value, behind=lambda: None):
    """One of a pipeline, in which others come behind it."""
    verb, bit = {"like": ("LIKED", value), "follow": ("RELATION", value + 2)}[key[0]]
    question = Question((verb, *key[1]), story.record)
    behind()
    question.pipelined()
    question.answer(b"*1\r\n:%d\r\n" % bit)


@pytest.mark.parametrize("key", [TIMED, ORDERED, ("follow", (1, 10))])
@pytest.mark.parametrize("value", [0, 1])
def test_read(story, key, value):
    story.write(story.ask(key, 1, 1))
    read(story, key, value)
    assert story.checks() == (set() if value else {"read"})


@pytest.mark.parametrize("key", [TIMED, ORDERED])
def test_read_of_what_is_not_known(story, key):
    for value in (0, 1):
        read(story, key, value, lambda: story.write(story.ask(key, 1, 1)))
    story.write(story.ask(key, 0, None))
    for value in (0, 1):
        read(story, key, value)
    assert story.checks() <= {"time"}       # two made it 1, in one row
    story.write(story.ask(key, 0, 1))
    read(story, key, 1)
    assert "read" in story.checks()


def test_read_behind_an_older_one(story):
    """It changes nothing, though it comes later."""
    old = story.record.event(0, *TIMED, 0, True)
    story.write(story.ask(TIMED, 1, 1))
    story.ask(TIMED, 0, 0, event=old)
    read(story, TIMED, 0)
    assert story.checks() == {"read"}


def test_read_of_a_newer_unknown_one(story):
    old, new = (story.record.event(0, *TIMED, want, True) for want in (1, 0))
    story.ask(TIMED, 0, None, event=new)
    story.write(story.ask(TIMED, 1, 1, event=old))
    for value in (0, 1):
        read(story, TIMED, value)
    assert story.checks() == set()


def test_read_of_what_may_be_lost(story):
    event = story.ask(ORDERED, 1, 1)
    story.write(event)
    read(story, ORDERED, 0)
    story.record.lossy(100, story.clock)
    assert story.checks() == set()


def total(story, value, sent, answered):
    story.record.totals.append(Total(10, value, sent, answered))
    verdict = checker.Verdict()
    judge_totals(verdict, story.record)
    story.record.totals.clear()
    return verdict.checks()


def test_a_total(story):
    """Of two likes, the second acked while it was asked for, and a third that is
    unknown."""
    for user, answer in ((1, 1), (2, 1), (3, None)):
        story.ask(("like", (user, 10)), 1, answer)
    story.ask(("like", (4, 10)), 1, "TRYAGAIN too much")
    story.ask(("like", (1, 11)), 1, 1)
    during, behind = (101.5, 101.7), (110, 111)
    assert [total(story, n, *during) for n in range(4)] == \
        [{"read"}, set(), set(), {"read"}]
    assert [total(story, n, *behind) for n in range(1, 5)] == \
        [{"read"}, set(), set(), {"read"}]


@pytest.mark.parametrize("timed", [False, True])
def test_a_total_behind_an_end(story, timed):
    key = TIMED if timed else ("like", (1, 10))
    for want in (1, 0):
        story.ask(key, want, 1)
    assert total(story, 0, 110, 111) == set()
    assert total(story, 1, 110, 111) == {"read"}
    assert total(story, -1, 110, 111) == {"read"}


def test_answers_are_taken_in(story):
    """Of a read with several, and of a like that asks for the total."""
    question = Question(("LIKECOUNT", 10, 11), story.record)
    question.pipelined()
    question.answer(b"*2\r\n:3\r\n:-1\r\n")
    assert [(t.post, t.value) for t in story.record.totals] == [(10, 3), (11, -1)]
    request = story.record.send(story.record.event(0, *TIMED, 1, True))
    assert counted(story.record, request, b"*2\r\n:1\r\n:25\r\n") == b":1\r\n"
    assert counted(story.record, request, b"*2\r\n:0\r\n$-1\r\n") == b":0\r\n"
    assert [(t.post, t.value) for t in story.record.totals[2:]] == [(10, 25)]
    assert counted(story.record, request, b"*1\r\n:1\r\n") is None


@pytest.mark.parametrize("reply", [b":2\r\n", b"+OK\r\n", b"$1\r\n1\r\n", b"*1\r\n:1\r\n"])
def test_what_is_no_answer(story, reply):
    """To a like; no case explains it."""
    request = story.record.send(story.record.event(0, *TIMED, 1, False))
    again = []
    client = types.SimpleNamespace(record=story.record, unknown=again.append, acked=0)
    Client.answered(client, request, reply)
    assert request.outcome == UNKNOWN and again == [request.event]
    assert story.checks() == {"answer"}
