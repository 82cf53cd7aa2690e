/* SPDX-License-Identifier: MIT */
/* Reads wait for their client's turn, in order, are let through by what they
 * cost, and are refused when too much waits, or for too long, or for nobody. */
#include "services/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "adapters/server.h"
#include "core/metrics.h"

#define N             64
#define CLIENTS       4
#define OPEN_BYTES    (GATE_READS.open_bytes)
#define WAITING_BYTES (GATE_READS.waiting_bytes)

/* In place of the server's: all of a client is which one it is. */
struct request {
    struct session session;
    bool gone;
};

struct session *request_session(struct request *rq)
{
    return rq->gone ? NULL : &rq->session;
}

struct read {
    struct gate_pass pass;
    int turns;
    char why[64];
    bool leaves; /* from inside its turn */
};

static struct gate *gate;
static int64_t max_wait_ms;
static struct request clients[CLIENTS];
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

static void enter_for(int client, int i, size_t cost)
{
    gate_enter(gate, &reads[i].pass, &clients[client], cost, on_turn,
               &reads[i]);
}

static void enter(int i, size_t cost)
{
    enter_for(0, i, cost);
}

static void leave(int i)
{
    gate_leave(gate, &reads[i].pass);
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
    memset(clients, 0, sizeof(clients));
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i].session.id = i + 1;
    n_order = 0;
    max_wait_ms = 60000;
    gate = gate_new(GATE_READS, &max_wait_ms);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate_close(gate);
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
    leave(0);
    assert_order((int[]){0, 1}, 2);
    leave(1);
    assert_order((int[]){0, 1, 2}, 3);
    leave(2);
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
    leave(0);
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
    leave(0);
    assert_order((int[]){0, 2}, 2);
}

/* When a backend is away, each leaves at once, and brings the next one in. */
static void test_leaving_in_its_turn(void **state)
{
    (void)state;
    enter(0, OPEN_BYTES);
    for (int i = 1; i < 8; i++) {
        reads[i].leaves = true;
        enter_for(i % 3, i, OPEN_BYTES);
    }
    leave(0);
    assert_order((int[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
}

/* Whoever comes waits for one read of each other client at most, however many
 * these have sent, and its own come in order. */
static void test_clients_take_turns(void **state)
{
    (void)state;
    enter_for(0, 0, OPEN_BYTES);
    for (int i = 1; i <= 20; i++)
        enter_for(0, i, OPEN_BYTES);
    for (int i = 21; i <= 30; i++)
        enter_for(1, i, OPEN_BYTES);
    enter_for(2, 40, OPEN_BYTES);
    enter_for(2, 41, OPEN_BYTES);
    leave(0);
    leave(1);
    leave(21);
    leave(40);
    enter_for(3, 50, OPEN_BYTES);
    leave(2);
    leave(22);
    leave(41);
    leave(3);
    leave(50);
    assert_order((int[]){0, 1, 21, 40, 2, 22, 41, 3, 50, 23}, 10);
}

/* Whoever's turn it is. */
static void test_the_oldest_is_late_first(void **state)
{
    const struct timespec pause = {.tv_nsec = 20000000};

    (void)state;
    enter_for(0, 0, OPEN_BYTES);
    enter_for(0, 1, OPEN_BYTES);
    enter_for(1, 2, OPEN_BYTES);
    leave(0); /* client 1 is next */
    enter_for(0, 3, OPEN_BYTES);
    enter_for(1, 4, OPEN_BYTES);
    nanosleep(&pause, NULL);
    max_wait_ms = 5;
    enter_for(0, 5, OPEN_BYTES);
    for (int i = 2; i <= 4; i++)
        assert_string_equal(reads[i].why,
                            "TRYAGAIN too many reads are waiting");
    leave(1);
    assert_order((int[]){0, 1, 5}, 3);
}

/* One gets half of the room, and the next half of the rest. */
static void test_nobody_takes_all_room(void **state)
{
    const size_t eighth = WAITING_BYTES / 8;
    int n = 1;

    (void)state;
    enter_for(0, 0, OPEN_BYTES);
    for (int i = 0; i < 8; i++)
        enter_for(0, n++, eighth);
    assert_true(metric_get(M_READS_WAITING) == 4);
    for (int i = 0; i < 8; i++)
        enter_for(1, n++, eighth);
    assert_true(metric_get(M_READS_WAITING) == 6);
    for (int i = 0; i < 8; i++)
        enter_for(2, n++, eighth);
    assert_true(metric_get(M_READS_WAITING) == 7);
    enter_for(3, n, eighth);
    assert_int_equal(reads[n].turns, 0);
    assert_string_equal(reads[n - 1].why,
                        "TRYAGAIN too many reads are waiting");
}

/* What a client left takes neither time nor room when it is its turn. */
static void test_gone_clients(void **state)
{
    (void)state;
    enter_for(0, 0, OPEN_BYTES);
    for (int i = 1; i <= 8; i++)
        enter_for(1, i, OPEN_BYTES);
    enter_for(2, 9, OPEN_BYTES);
    clients[1].gone = true;
    enter_for(1, 10, 1);
    assert_string_equal(reads[10].why, "UNAVAILABLE the client has gone");
    leave(0);
    assert_order((int[]){0, 9}, 2);
    for (int i = 1; i <= 8; i++) {
        assert_int_equal(reads[i].turns, 1);
        assert_string_equal(reads[i].why, "UNAVAILABLE the client has gone");
    }
    assert_true(metric_get(M_READS_WAITING) == 0);
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
    leave(0);
    assert_order((int[]){0}, 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_in_order_by_cost),
        TEST(test_a_big_one_goes_alone),
        TEST(test_no_more_than_may_wait),
        TEST(test_not_for_ever),
        TEST(test_leaving_in_its_turn),
        TEST(test_clients_take_turns),
        TEST(test_the_oldest_is_late_first),
        TEST(test_nobody_takes_all_room),
        TEST(test_gone_clients),
        TEST(test_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
