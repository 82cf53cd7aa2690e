/* SPDX-License-Identifier: MIT */
/* What /readyz and /status.json say of a given state. That the latter is JSON,
 * a real parser checks in tests/integration/test_http.py. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "core/history.h"
#include "core/hottest.h"
#include "core/metrics.h"
#include "services/dead_letters.h"
#include "services/standing.h"
#include "services/status.h"

struct fixture {
    struct status status;
    struct dead_letters_recent letters;
    struct hottest *hottest;
    struct buf out;
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    f->hottest = hottest_new();
    f->status = (struct status){
        .instance = "abc",
        .now_us = 1700000000123456,
        .uptime_s = 61.9,
        .redis_open = true,
        .redis = "connected",
        .pg_up = true,
        .postgres = "connected (2 of 2)",
        .post_type = ID_TEXT,
        .hottest = f->hottest,
        .dead_letters = &f->letters,
    };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    hottest_free(f->hottest);
    buf_free(&f->out);
    free(f);
    return 0;
}

static void check_missing(struct fixture *f, size_t n, const char *lines)
{
    buf_clear(&f->out, SIZE_MAX);
    assert_int_equal(status_missing(&f->status, &f->out), n);
    assert_string_equal(buf_cstr(&f->out), lines);
}

static void check_json(struct fixture *f, const char *holds)
{
    buf_clear(&f->out, SIZE_MAX);
    status_json(&f->status, &f->out);
    if (!strstr(buf_cstr(&f->out), holds))
        fail_msg("no %s in %s", holds, buf_cstr(&f->out));
}

static void check_line(struct fixture *f, const char *line)
{
    buf_clear(&f->out, SIZE_MAX);
    status_line(&f->status, &f->out);
    assert_string_equal(buf_cstr(&f->out), line);
}

static void test_all_is_well(void **state)
{
    struct fixture *f = *state;

    check_missing(f, 0, "");
    check_json(f, "{\"ready\":true,\"missing\":[],\"version\":\"");
    check_json(f, "\"instance\":\"abc\",\"now_ms\":1700000000123,"
                  "\"uptime_s\":61,");
    check_json(f, "\"redis\":{\"up\":true,\"state\":\"connected\"},"
                  "\"postgres\":{\"up\":true,\"state\":\"connected (2 of 2)\"},"
                  "\"flusher\":\"running\",");
    check_json(f, "\"hottest\":[],\"dead_letters\":{\"known\":false,"
                  "\"error\":null,\"total\":0,\"newest\":[]}}\n");
}

static void test_a_line_for_each_thing_missing(void **state)
{
    struct fixture *f = *state;

    f->status.stopping = true;
    check_missing(f, 1, "stopping\n");
    f->status.stopping = false;
    f->status.redis_open = false;
    f->status.redis = "refused, retry in 2 s";
    check_missing(f, 1, "redis: refused, retry in 2 s\n");
    f->status.pg_up = false;
    f->status.postgres = "FATAL:\nno \"likes\"";
    f->status.kinds[EDGE_FOLLOW].paused = true;
    f->status.stopping = true;
    check_missing(f, 4,
                  "stopping\nredis: refused, retry in 2 s\n"
                  "postgres: FATAL: no \"likes\"\nflusher: paused\n");
    check_json(f, "{\"ready\":false,\"missing\":[\"stopping\","
                  "\"redis: refused, retry in 2 s\","
                  "\"postgres: FATAL: no \\\"likes\\\"\","
                  "\"flusher: paused\"],");
    check_json(f, "\"postgres\":{\"up\":false,"
                  "\"state\":\"FATAL:\\nno \\\"likes\\\"\"},"
                  "\"flusher\":\"paused\",");
}

static void test_kinds(void **state)
{
    struct fixture *f = *state;

    metric_set(M_EVENTS_LIKE_CHANGED, 10000000);
    metric_set(M_EVENTS_UNLIKE_CHANGED, 2);
    metric_set(M_EVENTS_FOLLOW_SAME, 3);
    metric_set(M_EVENTS_UNFOLLOW_ERROR, 4);
    f->status.kinds[EDGE_LIKE] = (struct flusher_status){
        .lag_us = 1500999,
        .owners_dirty = 5,
        .rows_dirty = 10000001,
        .owners_on_record = 6,
        .batches = 9,
        .batches_own = 7,
    };
    f->status.kinds[EDGE_FOLLOW].lag_us = -1;
    check_json(f, "\"kinds\":[{\"kind\":\"like\",\"changed\":10000002,"
                  "\"same\":0,\"error\":0,\"backlog_rows\":10000001,"
                  "\"owners_dirty\":5,\"owners_on_record\":6,"
                  "\"batches_in_flight\":7,\"lag_ms\":1500},"
                  "{\"kind\":\"follow\",\"changed\":0,\"same\":3,\"error\":4,");
    check_json(f, "\"lag_ms\":null}],");
}

/* Before the first tick; and the samples of then. */
static void test_what_is_not_known_is_null(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < EDGE_COUNT; i++)
        standing_unknown(&f->status.kinds[i], edge_kinds[i]);
    metric_set(M_SYNC_LAG_FOLLOW, NAN);
    history_tick(1);
    check_json(f, "\"backlog_rows\":null,\"owners_dirty\":null,"
                  "\"owners_on_record\":null,\"batches_in_flight\":0,"
                  "\"lag_ms\":null},");
    check_json(f, "\"samples\":[[1,0.0,0.0,0.0,null,null]],");
    metric_set(M_SYNC_LAG_FOLLOW, 0);
    metric_set(M_BACKLOG_ROWS_FOLLOW, 0);
}

/* Shown as their clients spell them, not as they stand in keys. */
static void test_ids_are_escaped(void **state)
{
    static const char key[] = "</script>\"\\%00%25%0A";
    struct fixture *f = *state;

    hottest_add(f->hottest, key, strlen(key));
    check_json(f, "\"hottest\":[[\"</script>\\\"\\\\\\u0000%\\n\",1]],");
}

static void test_dead_letters(void **state)
{
    struct fixture *f = *state;
    char why[] = "permission\ndenied";

    f->letters = (struct dead_letters_recent){
        .known = true,
        .why = why,
        .total = 3,
        .n = 2,
        .items =
            {{.id = 3,
              .refused_us = 1700000000000999,
              .what = "LIKE \"7\" 42",
              .sqlstate = "23514",
              .reason = "new row\nviolates"},
             {.id = 2, .what = "COUNT +5 42", .sqlstate = "", .reason = ""}},
    };
    check_json(f, "\"dead_letters\":{\"known\":true,\"error\":"
                  "\"permission\\ndenied\",\"total\":3,\"newest\":["
                  "{\"id\":3,\"what\":\"LIKE \\\"7\\\" 42\","
                  "\"sqlstate\":\"23514\","
                  "\"reason\":\"new row\\nviolates\",\"at_ms\":1700000000000},"
                  "{\"id\":2,\"what\":\"COUNT +5 42\",\"sqlstate\":\"\","
                  "\"reason\":\"\",\"at_ms\":0}]}}\n");
}

static void fill_history(void)
{
    const struct history_flush flush = {
        .at_ms = 1700000000000, .rows = 1000000000, .us = 3600000000};

    metric_set(M_BACKLOG_ROWS_LIKE, 1e12);
    metric_set(M_SYNC_LAG_LIKE, 1e9);
    for (int i = 0; i <= HISTORY_SAMPLES; i++) {
        metric_add(M_REQUESTS, 100000000);
        metric_add(M_EVENTS_LIKE_CHANGED, 50000000);
        metric_add(M_ROWS_WRITTEN, 50000000);
        history_tick(1700000000000 + (int64_t)i * HISTORY_STEP_MS);
    }
    for (int i = 0; i < HISTORY_FLUSHES; i++)
        history_flushed(&flush);
}

/* Rings, sketch and letters are full, of texts that grow most in JSON. */
static void test_it_is_bounded(void **state)
{
    struct fixture *f = *state;
    char key[ID_KEY_MAX];
    char text[20000];

    memset(text, 1, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < ID_TEXT_MAX; j++)
            memcpy(key + 3 * j, "%01", 3);
        key[1] = (char)('0' + i / 10);
        key[2] = (char)('0' + i % 10);
        hottest_add(f->hottest, key, sizeof(key));
    }
    fill_history();
    f->status.redis = text;
    f->status.postgres = text;
    f->letters.why = text;
    f->letters.n = DEAD_LETTERS_RECENT;
    for (int i = 0; i < DEAD_LETTERS_RECENT; i++)
        f->letters.items[i] = (struct dead_letter){.id = INT64_MAX,
                                                   .refused_us = INT64_MAX,
                                                   .what = text,
                                                   .sqlstate = "23514",
                                                   .reason = text};
    status_json(&f->status, &f->out);
    assert_in_range(f->out.len, STATUS_JSON_MAX / 2, STATUS_JSON_MAX);
}

#define STATUS_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

/* ---- the line for systemd ---- */

static void test_line(void **state)
{
    struct fixture *f = *state;
    struct status *s = &f->status;

    s->all.lag_us = 90000;
    check_line(f, "redis: connected; postgres: connected (2 of 2); "
                  "backlog 0 rows, 0.1 s");
    s->all = (struct flusher_status){
        .lag_us = -1, .rows_dirty = 1, .batches = 1, .paused = true};
    check_line(f, "redis: connected; postgres: connected (2 of 2); backlog 1 "
                  "row, age unknown; 1 batch under way; flusher paused");
    s->all = (struct flusher_status){
        .lag_us = 3600000000, .rows_dirty = 1204, .batches = 2};
    s->stopping = true;
    check_line(f, "stopping; redis: connected; postgres: connected (2 of 2); "
                  "backlog 1,204 rows, 3,600 s; 2 batches under way");
}

static void test_line_of_what_is_not_known(void **state)
{
    struct fixture *f = *state;

    f->status.all = (struct flusher_status){
        .lag_us = -1, .rows_dirty = -1, .batches = -1, .paused = true};
    check_line(f, "redis: connected; postgres: connected (2 of 2); backlog "
                  "unknown; flusher paused");
}

/* A connection to Redis that may not be used does not put PostgreSQL first. */
static void test_line_begins_with_what_is_away(void **state)
{
    struct fixture *f = *state;
    struct status *s = &f->status;

    s->pg_up = false;
    s->postgres = "refused";
    check_line(f, "postgres: refused; redis: connected; backlog 0 rows, 0.0 s");
    s->redis_open = false;
    s->redis = "its policy evicts";
    check_line(f, "redis: its policy evicts; postgres: refused; "
                  "backlog 0 rows, 0.0 s");
}

static void test_line_has_the_dead_letters_of_the_table(void **state)
{
    struct fixture *f = *state;

#define START                                                                  \
    "redis: connected; postgres: connected (2 of 2); "                         \
    "backlog 0 rows, 0.0 s"
    metric_set(M_DEAD_LETTERS, 2);
    check_line(f, START "; 2 dead letters since the start");
    f->letters.known = true;
    check_line(f, START);
    f->letters.total = 1;
    check_line(f, START "; 1 dead letter");
    f->letters.total = DEAD_LETTERS_COUNTED + 1;
    check_line(f, START "; more than 10,000 dead letters");
    metric_set(M_DEAD_LETTERS, 0);
#undef START
}

/* However much the backends say, the rest is there, and it is UTF-8. */
static void test_line_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct status *s = &f->status;
    char text[2000];

    for (size_t i = 0; i < sizeof(text); i += 2)
        memcpy(text + i, i % 6 ? "\xc3\xa9" : "x\n", 2);
    text[sizeof(text) - 1] = '\0';
    s->redis = text;
    s->postgres = text;
    s->stopping = true;
    s->all = (struct flusher_status){.lag_us = INT64_MAX,
                                     .rows_dirty = INT64_MAX,
                                     .batches = INT64_MAX,
                                     .paused = true};
    f->letters =
        (struct dead_letters_recent){.known = true, .total = INT64_MAX};
    status_line(s, &f->out);
    assert_true(f->out.len > 400 && f->out.len <= STATUS_LINE_MAX);
    for (size_t at = 0; at < f->out.len;) {
        size_t n = utf8_char_len(f->out.data + at, f->out.len - at);

        assert_true(n > 0 && (unsigned char)f->out.data[at] >= ' ');
        at += n;
    }
    assert_non_null(strstr(buf_cstr(&f->out), "stopping; redis: x"));
    assert_non_null(strstr(buf_cstr(&f->out), "...; postgres: x"));
    assert_non_null(strstr(buf_cstr(&f->out),
                           "...; backlog 9,223,372,036,854,775,807 rows, "
                           "9,223,372,036,854 s; 9,223,372,036,854,775,807 "
                           "batches under way; flusher paused; more than "
                           "10,000 dead letters"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STATUS_TEST(test_all_is_well),
        STATUS_TEST(test_line),
        STATUS_TEST(test_line_of_what_is_not_known),
        STATUS_TEST(test_line_begins_with_what_is_away),
        STATUS_TEST(test_line_has_the_dead_letters_of_the_table),
        STATUS_TEST(test_line_is_bounded),
        STATUS_TEST(test_a_line_for_each_thing_missing),
        STATUS_TEST(test_kinds),
        STATUS_TEST(test_what_is_not_known_is_null),
        STATUS_TEST(test_ids_are_escaped),
        STATUS_TEST(test_dead_letters),
        STATUS_TEST(test_it_is_bounded),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
