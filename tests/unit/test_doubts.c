/* SPDX-License-Identifier: MIT */
/* Doubts on a real loop: not told too early, all told in the end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <uv.h>

#include "base/clock.h"
#include "services/doubts.h"

#define N 4

struct probe {
    struct doubts *doubts;
    struct doubt doubt[N];
    int ended;
    bool early;
    bool adds; /* another one, from inside the callback */
};

static void on_end(void *arg, struct doubt *d)
{
    struct probe *p = arg;

    assert_ptr_equal(d, &p->doubt[p->ended]);
    p->ended++;
    p->early |= clock_monotonic_ms() < d->until_ms;
    if (p->adds && p->ended < N) {
        p->doubt[p->ended].until_ms = clock_monotonic_ms() + 2;
        doubts_add(p->doubts, &p->doubt[p->ended]);
    }
}

static void begin(struct probe *p, uv_loop_t *loop)
{
    *p = (struct probe){0};
    assert_int_equal(uv_loop_init(loop), 0);
    p->doubts = doubts_new(loop, on_end, p);
}

static void end(struct probe *p, uv_loop_t *loop)
{
    doubts_free(p->doubts);
    assert_int_equal(p->ended, N);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* Two that end together, one that is over already, and a later one. */
static void test_each_in_its_time(void **state)
{
    static const uint64_t after_ms[N] = {0, 20, 20, 35};
    uint64_t now_ms = clock_monotonic_ms();
    struct probe p;
    uv_loop_t loop;

    (void)state;
    begin(&p, &loop);
    for (int i = 0; i < N; i++) {
        p.doubt[i].until_ms = now_ms + after_ms[i];
        doubts_add(p.doubts, &p.doubt[i]);
        assert_int_equal(p.ended, 0);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(p.ended, N);
    assert_false(p.early);
    end(&p, &loop);
}

static void test_added_by_the_last(void **state)
{
    struct probe p;
    uv_loop_t loop;

    (void)state;
    begin(&p, &loop);
    p.adds = true;
    p.doubt[0].until_ms = clock_monotonic_ms() + 2;
    doubts_add(p.doubts, &p.doubt[0]);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(p.ended, N);
    assert_false(p.early);
    end(&p, &loop);
}

/* Who waits is told even so. */
static void test_free_tells_all(void **state)
{
    struct probe p;
    uv_loop_t loop;

    (void)state;
    begin(&p, &loop);
    for (int i = 0; i < N; i++) {
        p.doubt[i].until_ms = clock_monotonic_ms() + 3600000;
        doubts_add(p.doubts, &p.doubt[i]);
    }
    end(&p, &loop);
}

static void test_later_than_the_deadline(void **state)
{
    (void)state;
    assert_true(doubt_until_ms(1000, 400) > 1400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_in_its_time),
        cmocka_unit_test(test_added_by_the_last),
        cmocka_unit_test(test_free_tells_all),
        cmocka_unit_test(test_later_than_the_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
