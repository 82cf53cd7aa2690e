# SPDX-License-Identifier: MIT
"""Tests of other files, through a PgBouncer in transaction mode: the fixtures
below put it between the daemons and PostgreSQL. Those of test_crash.py are in
test_pgbouncer_crash.py."""
from pgbouncer import bed, pg, pool
from test_adopt import (test_events_go_on_meanwhile, test_likes,
                        test_sets_and_sorted_sets)
from test_backends import (test_a_backend_hangs_in_its_transaction,
                           test_a_row_is_locked_for_long,
                           test_backends_are_terminated, test_backends_hang,
                           test_postgres_crashes_in_commit,
                           test_postgres_stopped_for_a_while,
                           test_role_without_synchronous_commit,
                           test_started_without_postgres)
from test_smoke import (
    test_a_dirty_hash_has_no_ttl_even_if_it_had_one,
    test_an_unlike_is_durable_after_a_drain, test_ctl, test_keys_after_a_like,
    test_like_and_unlike_say_what_changed, test_restart_goes_on_where_it_was,
    test_sigterm_makes_all_durable_and_exits_with_0,
    test_the_client_time_is_kept, test_the_like_is_durable_after_a_drain,
    test_what_redis_forgot_postgres_knows, test_with_count_and_reads)
from test_two_daemons import (test_both_work,
                              test_killed_one_by_one_and_both, two)
from test_verify import (test_counts_of_follows, test_counts_of_likes,
                         test_healthy, test_under_load, world)
