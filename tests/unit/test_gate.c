/* SPDX-License-Identifier: MIT */
/* Reads wait in order, are let through by what they cost, and are refused when
 * too much waits or for too long. */
#include "services/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/metrics.h"

#define N             8
#define OPEN_BYTES    (GATE_READS.open_bytes)
#define WAITING_BYTES (GATE_READS.waiting_bytes)

struct read {
    struct gate_pass pass;
    int turns;
    char why[64];
    bool leaves; /* from inside its turn */
};

static struct gate *gate;
static int64_t max_wait_ms;
static struct read reads[N];
static int order[N];
static int n_order;

static void on_turn(void *arg, const char *why)
{
    struct read *r = arg;

    r->turns++;
    snprintf(r->why, sizeof(r->why), "%s", why ? why : "");
    if (why)
        return;
    order[n_order++] = (int)(r - reads);
    if (r->leaves)
        gate_leave(gate, &r->pass);
}

static void enter(int i, size_t cost)
{
    gate_enter(gate, &reads[i].pass, cost, on_turn, &reads[i]);
}

static void assert_order(const int *expected, int n)
{
    assert_int_equal(n_order, n);
    assert_memory_equal(order, expected, (size_t)n * sizeof(*expected));
}

static int setup(void **state)
{
    (void)state;
    memset(reads, 0, sizeof(reads));
    n_order = 0;
    max_wait_ms = 60000;
    gate = gate_new(GATE_READS, &max_wait_ms);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate_free(gate);
    return 0;
}

static void test_in_order_by_cost(void **state)
{
    (void)state;
    enter(0, OPEN_BYTES / 2);
    enter(1, OPEN_BYTES / 2);
    enter(2, OPEN_BYTES);
    enter(3, 1); /* would fit sooner, but comes after 2 */
    assert_order((int[]){0, 1}, 2);
    assert_true(metric_get(M_READS_WAITING) == 2);
    gate_leave(gate, &reads[0].pass);
    assert_order((int[]){0, 1}, 2);
    gate_leave(gate, &reads[1].pass);
    assert_order((int[]){0, 1, 2}, 3);
    gate_leave(gate, &reads[2].pass);
    assert_order((int[]){0, 1, 2, 3}, 4);
    assert_true(metric_get(M_READS_WAITING) == 0);
}

static void test_a_big_one_goes_alone(void **state)
{
    (void)state;
    enter(0, 8 * WAITING_BYTES);
    enter(1, 8 * WAITING_BYTES);
    enter(2, 1);
    assert_order((int[]){0}, 1);
    assert_string_equal(reads[2].why, "TRYAGAIN too many reads are waiting");
    gate_leave(gate, &reads[0].pass);
    assert_order((int[]){0, 1}, 2);
}

static void test_no_more_than_may_wait(void **state)
{
    (void)state;
    enter(0, OPEN_BYTES);
    enter(1, WAITING_BYTES);
    enter(2, 1);
    assert_int_equal(reads[1].turns, 0);
    assert_string_equal(reads[2].why, "TRYAGAIN too many reads are waiting");
}

static void test_not_for_ever(void **state)
{
    const struct timespec pause = {.tv_nsec = 20000000};

    (void)state;
    max_wait_ms = 5;
    enter(0, OPEN_BYTES);
    enter(1, OPEN_BYTES);
    nanosleep(&pause, NULL);
    enter(2, 1); /* sees to it */
    assert_string_equal(reads[1].why, "TRYAGAIN too many reads are waiting");
    assert_int_equal(reads[2].turns, 0);
    gate_leave(gate, &reads[0].pass);
    assert_order((int[]){0, 2}, 2);
}

/* When a backend is away, each leaves at once, and brings the next one in. */
static void test_leaving_in_its_turn(void **state)
{
    (void)state;
    enter(0, OPEN_BYTES);
    for (int i = 1; i < N; i++) {
        reads[i].leaves = true;
        enter(i, OPEN_BYTES);
    }
    gate_leave(gate, &reads[0].pass);
    assert_order((int[]){0, 1, 2, 3, 4, 5, 6, 7}, N);
}

static void test_closed(void **state)
{
    (void)state;
    enter(0, OPEN_BYTES);
    enter(1, 1);
    gate_close(gate);
    enter(2, 1);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(reads[i].turns, 1);
        assert_string_equal(reads[i].why, "UNAVAILABLE the daemon stops");
    }
    gate_leave(gate, &reads[0].pass);
    assert_order((int[]){0}, 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_in_order_by_cost),      TEST(test_a_big_one_goes_alone),
        TEST(test_no_more_than_may_wait), TEST(test_not_for_ever),
        TEST(test_leaving_in_its_turn),   TEST(test_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
