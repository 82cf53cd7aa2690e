/* SPDX-License-Identifier: MIT */
/* The newest dead letters, kept for whoever looks often, over a PostgreSQL and a
 * clock that do what the test says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "core/metrics.h"
#include "core/pgarray.h"
#include "services/dead_letters.h"
#include "services/engine.h"
#include "fake_clock.h"

/* ---- fake PostgreSQL ---- */

struct row {
    int64_t id;
    const char *kind;
    const char *user;
    const char *other;
    const int64_t *status; /* NULL: NULL */
    const int64_t *delta;
    const char *sqlstate;
    const char *reason;
};

struct pg_result {
    const struct row *rows;
    int n;
    int64_t total;
    const char *message;
};

static const struct pg_job *job; /* NULL: none under way */
static int submitted;
static int refuse; /* what pg_submit returns */
static char number[8];

int pg_submit(struct pg *p, enum pg_lane lane, const struct pg_job *asked)
{
    (void)p;
    assert_int_equal(lane, PG_LANE_LOOKUP);
    if (refuse != 0)
        return refuse;
    assert_null(job);
    job = asked;
    submitted++;
    return 0;
}

int pg_result_rows(const struct pg_result *r, int stmt)
{
    return stmt == 0 ? r->n : 1;
}

static const char *text(const char *s, int *len_r)
{
    *len_r = s ? (int)strlen(s) : 0;
    return s;
}

static const char *binary(int64_t v, int *len_r)
{
    struct buf b = {0};

    buf_put_be64(&b, (uint64_t)v);
    memcpy(number, b.data, sizeof(number));
    buf_free(&b);
    *len_r = (int)sizeof(number);
    return number;
}

const char *pg_result_value(const struct pg_result *r, int stmt, int row,
                            int col, int *len_r)
{
    const struct row *at = &r->rows[row];

    if (stmt == 1)
        return binary(r->total, len_r);
    switch (col) {
    case 0:
        return binary(at->id, len_r);
    case 1:
        return text(at->kind, len_r);
    case 2:
        return text(at->user, len_r);
    case 3:
        return text(at->other, len_r);
    case 4:
        return at->status ? binary(*at->status, len_r) : NULL;
    case 5:
        return at->delta ? binary(*at->delta, len_r) : NULL;
    case 6:
        return NULL;
    case 7:
        return binary(at->id * 1000000 - PG_EPOCH_US, len_r);
    case 8:
        return text(at->sqlstate, len_r);
    default:
        return text(at->reason, len_r);
    }
}

const char *pg_result_message(const struct pg_result *r)
{
    return r->message;
}

static void answer(enum pg_outcome outcome, const struct pg_result *result)
{
    const struct pg_job *asked = job;

    assert_non_null(asked);
    job = NULL;
    asked->cb(asked->arg, outcome, result);
}

/* ---- tests ---- */

static const int64_t zero = 0;
static const int64_t one = 1;
static const int64_t minus = -3;

static const struct row rows[] = {
    {9, "like", "7", "42", &one, NULL, "23514", "no"},
    {8, "follow", "7", "8", &zero, NULL, "23503", "nobody"},
    {7, "like", NULL, "42", NULL, &minus, "22003", "too few"},
    {6, "like", "7", "x", NULL, NULL, NULL, "malformed"},
};

static struct options options = {.pg_lookup_timeout_ms = 500};
static const struct engine engine = {.options = &options};
static struct dead_letters *letters;

static int setup(void **state)
{
    (void)state;
    job = NULL;
    submitted = refuse = 0;
    now_ms = 5;
    letters = dead_letters_new(&engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (job)
        answer(PG_AWAY, NULL); /* as pg_free does */
    dead_letters_free(letters);
    return 0;
}

static void test_in_words(void **state)
{
    static const char *const what[] = {"LIKE 7 42", "UNFOLLOW 7 8",
                                       "COUNT -3 42", "MALFORMED like 7 x"};
    const struct pg_result result = {rows, 4, 4, NULL};
    const struct dead_letters_recent *recent = dead_letters_recent(letters);

    (void)state;
    assert_false(recent->known);
    assert_int_equal(recent->n, 0);
    assert_int_equal(job->timeout_ms, 500);
    answer(PG_DONE, &result);
    recent = dead_letters_recent(letters);
    assert_true(recent->known);
    assert_int_equal(recent->total, 4);
    assert_int_equal(recent->n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(recent->items[i].id, rows[i].id);
        assert_int_equal(recent->items[i].refused_us, rows[i].id * 1000000);
        assert_string_equal(recent->items[i].what, what[i]);
        assert_string_equal(recent->items[i].reason, rows[i].reason);
    }
    assert_string_equal(recent->items[0].sqlstate, "23514");
    assert_string_equal(recent->items[3].sqlstate, "");
}

static void test_at_most_every_10_s(void **state)
{
    const struct pg_result four = {rows, 4, 4, NULL};
    const struct pg_result none = {rows, 0, 0, NULL};

    (void)state;
    assert_int_equal(submitted, 0); /* nobody looks */
    dead_letters_recent(letters);
    now_ms += 60000;
    dead_letters_recent(letters); /* still under way */
    assert_int_equal(submitted, 1);
    answer(PG_DONE, &four);
    dead_letters_recent(letters);
    assert_int_equal(submitted, 2);
    answer(PG_DONE, &four);
    now_ms += 9999;
    assert_int_equal(dead_letters_recent(letters)->n, 4);
    assert_int_equal(submitted, 2);
    now_ms += 1;
    assert_int_equal(dead_letters_recent(letters)->n, 4);
    assert_int_equal(submitted, 3);
    answer(PG_DONE, &none);
    assert_true(metric_get(M_DEAD_LETTERS_LEFT) == 0);
    assert_int_equal(dead_letters_recent(letters)->n, 0);
    assert_true(dead_letters_recent(letters)->known);
}

static void check_why(const char *holds)
{
    const char *why = dead_letters_recent(letters)->why;

    if (!why || !strstr(why, holds))
        fail_msg("no %s in %s", holds, why ? why : "(nothing)");
}

/* What was known stays, and the next who looks has it asked again. */
static void test_postgres_away(void **state)
{
    const struct pg_result four = {rows, 4, 4, NULL};

    (void)state;
    assert_true(isnan(metric_get(M_DEAD_LETTERS_LEFT)));
    refuse = PG_NOT_CONNECTED;
    assert_false(dead_letters_recent(letters)->known);
    check_why("away");
    refuse = PG_BUSY;
    assert_false(dead_letters_recent(letters)->known);
    check_why("too much");
    assert_true(isnan(metric_get(M_DEAD_LETTERS_LEFT)));
    refuse = 0;
    dead_letters_recent(letters);
    answer(PG_DONE, &four);
    assert_null(dead_letters_recent(letters)->why);
    now_ms += 10000;
    dead_letters_recent(letters);
    answer(PG_UNKNOWN, NULL);
    check_why("did not answer");
    assert_int_equal(dead_letters_recent(letters)->n, 4);
    assert_true(metric_get(M_DEAD_LETTERS_LEFT) == 4);
    assert_int_equal(submitted, 2);
    now_ms += 10000;
    dead_letters_recent(letters);
    assert_int_equal(submitted, 3);
}

static void test_the_question_is_refused(void **state)
{
    const struct pg_result denied = {.message = "permission denied"};
    const struct pg_result none = {rows, 0, 0, NULL};

    (void)state;
    dead_letters_recent(letters);
    answer(PG_FAILED, &denied);
    assert_false(dead_letters_recent(letters)->known);
    check_why("permission denied");
    now_ms += 10000;
    dead_letters_recent(letters);
    answer(PG_DONE, &none);
    assert_true(dead_letters_recent(letters)->known);
    assert_null(dead_letters_recent(letters)->why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_at_most_every_10_s, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_postgres_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_question_is_refused, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
