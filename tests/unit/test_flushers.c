/* SPDX-License-Identifier: MIT */
/* The flushers of all kinds as one, over flushers that do what the test says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "services/flushers.h"
#include "services/service.h"

/* ---- fake flushers ---- */

struct flusher {
    struct flusher_status status;
    int64_t floor_us;
    int opened;
    int closed;
    int pg_up;
    int paused;
    int resumed;
    int released;
    int reconfigured;
    uint64_t drain_ms;
    drain_on_done on_drained; /* NULL: none asked for */
    void *arg;
};

void flusher_open(struct flusher *f)
{
    f->opened++;
}

void flusher_close(struct flusher *f)
{
    f->closed++;
}

void flusher_pg_up(struct flusher *f)
{
    f->pg_up++;
}

int64_t flusher_floor(const struct flusher *f)
{
    return f->floor_us;
}

void flusher_raise_floor(struct flusher *f, int64_t floor_us)
{
    if (floor_us > f->floor_us)
        f->floor_us = floor_us;
}

void flusher_pause(struct flusher *f)
{
    f->paused++;
}

void flusher_resume(struct flusher *f)
{
    f->resumed++;
}

void flusher_status(const struct flusher *f, struct flusher_status *st_r)
{
    *st_r = f->status;
}

void flusher_drain(struct flusher *f, uint64_t timeout_ms, drain_on_done cb,
                   void *arg)
{
    assert_null(f->on_drained);
    f->drain_ms = timeout_ms;
    f->on_drained = cb;
    f->arg = arg;
}

void flusher_release(struct flusher *f)
{
    f->released++;
}

void flusher_reconfigure(struct flusher *f)
{
    f->reconfigured++;
}

static struct flusher fakes[EDGE_COUNT];
static struct service services[EDGE_COUNT];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < EDGE_COUNT; i++) {
        fakes[i] = (struct flusher){0};
        services[i].flusher = &fakes[i];
    }
    return 0;
}

/* ---- all at once ---- */

static void test_all_are_told(void **state)
{
    (void)state;
    flushers_open(services);
    flushers_close(services);
    flushers_pg_up(services);
    flushers_pause(services);
    flushers_resume(services);
    flushers_release(services);
    flushers_reconfigure(services);
    for (int i = 0; i < EDGE_COUNT; i++) {
        assert_int_equal(fakes[i].opened, 1);
        assert_int_equal(fakes[i].closed, 1);
        assert_int_equal(fakes[i].pg_up, 1);
        assert_int_equal(fakes[i].paused, 1);
        assert_int_equal(fakes[i].resumed, 1);
        assert_int_equal(fakes[i].released, 1);
        assert_int_equal(fakes[i].reconfigured, 1);
    }
}

static void test_the_floor_is_the_highest(void **state)
{
    (void)state;
    assert_int_equal(flushers_floor(services), 0);
    for (int i = 0; i < EDGE_COUNT; i++) {
        fakes[i].floor_us = 100 + i;
        assert_int_equal(flushers_floor(services), 100 + i);
    }
    fakes[0].floor_us = 500;
    assert_int_equal(flushers_floor(services), 500);
    flushers_raise_floor(services, 300);
    assert_int_equal(fakes[0].floor_us, 500);
    for (int i = 1; i < EDGE_COUNT; i++)
        assert_int_equal(fakes[i].floor_us, 300);
}

/* ---- status ---- */

static void test_status(void **state)
{
    struct flusher_status st;

    (void)state;
    for (int i = 0; i < EDGE_COUNT; i++)
        fakes[i].status.lag_us = -1;
    fakes[EDGE_LIKE].status = (struct flusher_status){
        .paused = true,
        .redis_now_us = 1000,
        .through_us = 990,
        .lag_us = 10,
        .stored_us = 980,
        .owners_dirty = 1,
        .owners_on_record = 2,
        .batches = 3,
        .batches_own = 4,
    };
    fakes[EDGE_FOLLOW].status = (struct flusher_status){
        .paused = true,
        .redis_now_us = 1005,
        .through_us = 905,
        .lag_us = 100,
        .stored_us = 900,
        .owners_dirty = 10,
        .owners_on_record = 20,
        .batches = 30,
        .batches_own = 40,
        .second_look = 1,
    };
    flushers_status(services, &st);
    assert_true(st.paused);
    assert_int_equal(st.redis_now_us, 1005);
    assert_int_equal(st.through_us, 905);
    assert_int_equal(st.lag_us, 100);
    assert_int_equal(st.stored_us, 900);
    assert_int_equal(st.owners_dirty, 11);
    assert_int_equal(st.owners_on_record, 22);
    assert_int_equal(st.batches, 33);
    assert_int_equal(st.batches_own, 44);
    assert_int_equal(st.second_look, 1);
}

/* Nothing is said to be synced that may not be, and what is not known of one kind
 * is not hidden by what is known of the other. */
static void test_status_where_one_kind_is_not_known(void **state)
{
    struct flusher_status st;

    (void)state;
    for (int i = 0; i < EDGE_COUNT; i++)
        fakes[i].status.lag_us = -1;
    flushers_status(services, &st);
    assert_int_equal(st.lag_us, -1);
    for (int i = 0; i < EDGE_COUNT; i++) {
        struct flusher_status *known = &fakes[i].status;

        *known = (struct flusher_status){
            .through_us = 990, .stored_us = 980, .lag_us = 10};
        flushers_status(services, &st);
        assert_int_equal(st.lag_us, -1);
        assert_int_equal(st.through_us, 0);
        assert_int_equal(st.stored_us, 0);
        *known = (struct flusher_status){.lag_us = -1};
    }
}

static void test_sums_of_what_is_not_known(void **state)
{
    struct flusher_status st;

    (void)state;
    for (int i = 0; i < EDGE_COUNT; i++) {
        for (int j = 0; j < EDGE_COUNT; j++)
            fakes[j].status = (struct flusher_status){.rows_dirty = 5,
                                                      .owners_dirty = 5,
                                                      .owners_on_record = 5,
                                                      .batches = 5};
        fakes[i].status.rows_dirty = fakes[i].status.owners_dirty = -1;
        fakes[i].status.owners_on_record = fakes[i].status.batches = -1;
        flushers_status(services, &st);
        assert_int_equal(st.rows_dirty, -1);
        assert_int_equal(st.owners_dirty, -1);
        assert_int_equal(st.owners_on_record, -1);
        assert_int_equal(st.batches, -1);
    }
}

/* ---- drain ---- */

struct answer {
    int n;
    enum drain_result result;
};

static void on_answer(void *arg, enum drain_result result)
{
    struct answer *a = arg;

    a->n++;
    a->result = result;
}

static void finish(int kind, enum drain_result result)
{
    drain_on_done cb = fakes[kind].on_drained;

    fakes[kind].on_drained = NULL;
    cb(fakes[kind].arg, result);
}

static void drain(struct answer *a)
{
    flushers_drain(services, 700, on_answer, a);
    assert_int_equal(a->n, 0);
    for (int i = 0; i < EDGE_COUNT; i++) {
        assert_non_null(fakes[i].on_drained);
        assert_int_equal(fakes[i].drain_ms, 700);
    }
}

static void test_a_drain_is_done_when_all_are(void **state)
{
    (void)state;
    for (int last = 0; last < EDGE_COUNT; last++) {
        struct answer a = {0};

        drain(&a);
        for (int i = 0; i < EDGE_COUNT; i++)
            if (i != last)
                finish(i, DRAIN_DONE);
        assert_int_equal(a.n, 0);
        finish(last, DRAIN_DONE);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.result, DRAIN_DONE);
    }
}

static void test_the_first_failure_is_the_answer(void **state)
{
    static const enum drain_result later[] = {DRAIN_DONE, DRAIN_TIMEOUT,
                                              DRAIN_ABORTED};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        struct answer a = {0};

        drain(&a);
        finish(EDGE_FOLLOW, DRAIN_PAUSED);
        assert_int_equal(a.n, 1);
        finish(EDGE_LIKE, later[i]);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.result, DRAIN_PAUSED);
    }
}

static void test_a_failure_after_the_others_were_done(void **state)
{
    struct answer a = {0};

    (void)state;
    drain(&a);
    finish(EDGE_LIKE, DRAIN_DONE);
    finish(EDGE_FOLLOW, DRAIN_TIMEOUT);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.result, DRAIN_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_are_told, setup),
        cmocka_unit_test_setup(test_the_floor_is_the_highest, setup),
        cmocka_unit_test_setup(test_status, setup),
        cmocka_unit_test_setup(test_status_where_one_kind_is_not_known, setup),
        cmocka_unit_test_setup(test_sums_of_what_is_not_known, setup),
        cmocka_unit_test_setup(test_a_drain_is_done_when_all_are, setup),
        cmocka_unit_test_setup(test_the_first_failure_is_the_answer, setup),
        cmocka_unit_test_setup(test_a_failure_after_the_others_were_done,
                               setup),
    };
    return cmocka_run_group_tests_name("flushers", tests, NULL, NULL);
}
