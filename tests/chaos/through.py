# SPDX-License-Identifier: MIT
"""Whether synced_through told the truth whenever it was written: every event that was
answered before it had a row by then which is not older (DESIGN, section 4)."""
import collections

import bed  # noqa: F401
from record import ACKED

SLACK_US = 1000         # between two clocks of one machine
SHOWN = 3
# At each change of it: the rows that were committed (audit.sql).
LOOKS_SQL = """
SELECT t.seq, t.kind, t.us, a.actor, a.object, max(a.new_us)
  FROM chaos_through t
  LEFT JOIN chaos_audit a ON a.kind = t.kind
   AND (a.xid = t.xid OR pg_visible_in_snapshot(a.xid, t.visible))
 GROUP BY t.seq, a.actor, a.object"""


class Look:
    """What was there by one change of synced_through."""

    def __init__(self, kind, us):
        self.kind, self.us = kind, us
        self.rows = {}          # (kind, pair): us


def read_looks(pg):
    looks = {}
    for seq, kind, us, actor, obj, row_us in pg.query(LOOKS_SQL):
        look = looks.setdefault(seq, Look(kind, us))
        look.rows[kind, (actor, obj)] = row_us
    return list(looks.values())


def due_by(record, real_s):
    """{pair: [(answered, time that its row must have)]}, in us of the real time. (What
    applications write in whole seconds has another.)"""
    due = collections.defaultdict(list)
    for key, requests in record.requests.items():
        if key[1][0] in record.poison:
            continue
        for request in requests:
            if request.outcome == ACKED and request.answer == 1 and \
                    request.event.client >= 0 and not record.may_be_lost(request):
                sent = int((request.sent + real_s) * 1e6) - SLACK_US
                due[key].append(((request.answered + real_s) * 1e6 + SLACK_US,
                                 request.event.t or sent))
    return due


def judge_through(verdict, record, looks, real_s):
    """`real_s`: the real time less the monotonic one, of which the record is."""
    due, wrong = due_by(record, real_s), []
    for look in looks:
        for key, events in due.items():
            us = look.rows.get(key, -1)
            ahead = [row_us for answered, row_us in events
                     if key[0] == look.kind and answered < look.us and us < row_us]
            if ahead:
                wrong.append(f"{key}: {us}, and {ahead[-1]} before {look.us}")
    if wrong:
        verdict.add("through", f"{len(wrong)} rows of {len(looks)} times were "
                    f"behind it: {wrong[:SHOWN]}")
