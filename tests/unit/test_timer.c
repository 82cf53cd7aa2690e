/* SPDX-License-Identifier: MIT */
/* Timers on a real loop, which must close clean at the end of each test. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <uv.h>

#include "adapters/timer.h"
#include "base/clock.h"

struct probe {
    struct timer *timer;
    int fired;
    int stop_at;
    uint64_t again_ms; /* start again with this, UINT64_MAX: no */
    uint64_t fired_us;
};

static int setup(void **state)
{
    uv_loop_t *loop = malloc(sizeof(*loop));

    assert_non_null(loop);
    assert_int_equal(uv_loop_init(loop), 0);
    *state = loop;
    return 0;
}

static int teardown(void **state)
{
    uv_loop_t *loop = *state;

    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
    free(loop);
    return 0;
}

static void on_fire(void *arg)
{
    struct probe *p = arg;

    p->fired++;
    p->fired_us = clock_monotonic_us();
    if (p->fired == p->stop_at) {
        timer_free(p->timer);
        p->timer = NULL;
    } else if (p->again_ms != UINT64_MAX) {
        timer_start(p->timer, p->again_ms, 0);
    }
}

static void test_fires_once_and_not_early(void **state)
{
    struct probe p = {.again_ms = UINT64_MAX};
    uint64_t start;

    p.timer = timer_new(*state, on_fire, &p);
    assert_false(timer_active(p.timer));
    /* The loop's own idea of the time is now 30 ms old. */
    uv_sleep(30);
    start = clock_monotonic_us();
    timer_start(p.timer, 20, 0);
    assert_true(timer_active(p.timer));
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 1);
    assert_true(p.fired_us - start >= 19000);
    assert_false(timer_active(p.timer));
    timer_free(p.timer);
}

static void test_repeats_until_freed_in_its_callback(void **state)
{
    struct probe p = {.again_ms = UINT64_MAX, .stop_at = 3};

    p.timer = timer_new(*state, on_fire, &p);
    timer_start(p.timer, 0, 1);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 3);
    assert_null(p.timer);
}

static void test_stop_and_restart(void **state)
{
    struct probe p = {.again_ms = UINT64_MAX, .stop_at = 1};

    p.timer = timer_new(*state, on_fire, &p);
    timer_start(p.timer, 0, 0);
    timer_stop(p.timer);
    assert_false(timer_active(p.timer));
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 0);
    /* The second setting replaces the first, which would take a day. */
    timer_start(p.timer, 86400000, 0);
    timer_start(p.timer, 1, 0);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 1);
}

static void on_idle(uv_idle_t *idle)
{
    int *turns = idle->data;

    ++*turns;
}

/* A timer that always asks for 0 must leave the loop its other work. */
static void test_restart_at_zero_lets_the_loop_turn(void **state)
{
    struct probe p = {.again_ms = 0, .stop_at = 5};
    uv_idle_t idle;
    int turns = 0;

    uv_idle_init(*state, &idle);
    idle.data = &turns;
    uv_idle_start(&idle, on_idle);
    uv_unref((uv_handle_t *)&idle);
    p.timer = timer_new(*state, on_fire, &p);
    timer_start(p.timer, 0, 0);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 5);
    assert_true(turns >= 4);
    uv_close((uv_handle_t *)&idle, NULL);
    uv_run(*state, UV_RUN_DEFAULT);
}

static void test_free_null_and_while_active(void **state)
{
    struct probe p = {.again_ms = UINT64_MAX};

    timer_free(NULL);
    p.timer = timer_new(*state, on_fire, &p);
    timer_start(p.timer, 0, 0);
    timer_free(p.timer);
    uv_run(*state, UV_RUN_DEFAULT);
    assert_int_equal(p.fired, 0);
}

#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_fires_once_and_not_early),
        LOOP_TEST(test_repeats_until_freed_in_its_callback),
        LOOP_TEST(test_stop_and_restart),
        LOOP_TEST(test_restart_at_zero_lets_the_loop_turn),
        LOOP_TEST(test_free_null_and_while_active),
    };

    return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
