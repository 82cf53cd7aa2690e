# SPDX-License-Identifier: MIT
"""The daemon is killed with a PgBouncer in transaction mode in front of
PostgreSQL, whose connections outlive it. Likes alone: what a kill leaves there
does not depend on the kind."""
import pytest

import test_crash
from edges import LIKES
from pgbouncer import bed, pg, pool
from test_crash import CHAINS, needs_faults, test_killed_after_a_dead_letter


@needs_faults
@pytest.mark.parametrize("chain", CHAINS)
def test_killed_at(bed, redis, pg, chain):
    test_crash.test_killed_at(bed, redis, pg, LIKES, chain)


def test_killed_100_times_at_random(bed, pg):
    test_crash.test_killed_100_times_at_random(bed, pg, LIKES)
