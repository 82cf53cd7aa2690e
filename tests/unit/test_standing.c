/* SPDX-License-Identifier: MIT */
/* What the ticks tell: that what is not known is not 0, and that the lag does not
 * stand still while nothing is told. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "core/edge.h"
#include "core/metrics.h"
#include "services/flusher.h"
#include "services/standing.h"
#include "fake_clock.h"

#define PERIOD_MS 1000

/* ---- tests ---- */

static const int64_t fields[TICK_FIELDS] = {
    [TICK_NOW] = 9000000, [TICK_THROUGH] = 7500000, [TICK_REGISTRY] = 3,
    [TICK_PASS] = 4,      [TICK_OLDEST_LOOK] = 8,   [TICK_BATCHES] = 2,
    [TICK_ON_RECORD] = 5, [TICK_WAITING] = 60,
};

static struct flusher_status st;

static int setup(void **state)
{
    (void)state;
    now_ms = 100000;
    standing_unknown(&st, edge_kinds[EDGE_FOLLOW]);
    return 0;
}

static int64_t lag_us(bool is_open)
{
    return standing_lag_us(&st, is_open, PERIOD_MS);
}

static void test_nothing_was_told(void **state)
{
    (void)state;
    now_ms += 3600000;
    assert_int_equal(lag_us(true), -1);
    assert_int_equal(lag_us(false), -1);
    assert_int_equal(st.rows_dirty, -1);
    assert_true(isnan(metric_get(M_BACKLOG_ROWS_FOLLOW)));
    assert_true(isnan(metric_get(M_BACKLOG_OWNERS_FOLLOW)));
    assert_true(isnan(metric_get(M_OWNERS_ON_RECORD_FOLLOW)));
    assert_true(metric_get(M_BACKLOG_ROWS_LIKE) == 0);
}

static void test_what_was_told(void **state)
{
    (void)state;
    standing_told(&st, edge_kinds[EDGE_FOLLOW], fields);
    assert_int_equal(st.redis_now_us, 9000000);
    assert_int_equal(st.through_us, 7500000);
    assert_int_equal(st.lag_us, 1500000);
    assert_int_equal(st.owners_dirty, 7);
    assert_int_equal(st.rows_dirty, 60);
    assert_int_equal(st.owners_on_record, 5);
    assert_int_equal(st.batches, 2);
    assert_int_equal(st.second_look, 1);
    assert_true(metric_get(M_BACKLOG_ROWS_FOLLOW) == 60);
    assert_true(metric_get(M_BACKLOG_OWNERS_FOLLOW) == 7);
    assert_true(metric_get(M_OWNERS_ON_RECORD_FOLLOW) == 5);
}

static void test_the_lag_is_counted_on(void **state)
{
    (void)state;
    standing_told(&st, edge_kinds[EDGE_FOLLOW], fields);
    now_ms += 2 * PERIOD_MS;
    assert_int_equal(lag_us(true), 1500000); /* ticks come */
    assert_int_equal(lag_us(false), 3500000);
    now_ms += 1; /* no tick was answered */
    assert_int_equal(lag_us(true), 3501000);
    now_ms += 3600000;
    assert_int_equal(lag_us(true), 3603501000);
    standing_told(&st, edge_kinds[EDGE_FOLLOW], fields);
    assert_int_equal(lag_us(true), 1500000);
    assert_int_equal(lag_us(false), 1500000);
}

/* A Redis that lost all has no watermark. */
static void test_it_is_not_known_any_more(void **state)
{
    int64_t none[TICK_FIELDS] = {[TICK_NOW] = 9000000};

    (void)state;
    standing_told(&st, edge_kinds[EDGE_FOLLOW], fields);
    standing_told(&st, edge_kinds[EDGE_FOLLOW], none);
    now_ms += 3600000;
    assert_int_equal(lag_us(false), -1);
    assert_int_equal(st.rows_dirty, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing_was_told, setup),
        cmocka_unit_test_setup(test_what_was_told, setup),
        cmocka_unit_test_setup(test_the_lag_is_counted_on, setup),
        cmocka_unit_test_setup(test_it_is_not_known_any_more, setup),
    };

    return cmocka_run_group_tests_name("standing", tests, NULL, NULL);
}
