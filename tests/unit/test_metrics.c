/* SPDX-License-Identifier: MIT */
/* The rules that every row of the metrics table keeps, and the text made of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "core/edge.h"
#include "core/metrics.h"

struct row {
    const char *name;
    const char *labels;
    const char *help;
    enum metric_kind kind;
};

static const struct row rows[] = {
#define X(id, kind, name, labels, help) {name, labels, help, METRIC_##kind},
    METRICS_TABLE(X)
#undef X
};

static bool is_first(int i)
{
    return i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    size_t m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < M_COUNT; i++) {
        size_t good = strspn(rows[i].name, "abcdefghijklmnopqrstuvwxyz_:");
        assert_int_equal(good, strlen(rows[i].name));
        assert_int_equal(strncmp(rows[i].name, "likesyncd_", 10), 0);
        if (ends_with(rows[i].name, "_total") !=
            (rows[i].kind == METRIC_COUNTER))
            fail_msg("%s: counters, and only they, end in _total",
                     rows[i].name);
    }
}

static void test_rows_of_one_name_stand_together(void **state)
{
    (void)state;
    for (int i = 0; i < M_COUNT; i++) {
        for (int j = 0; is_first(i) && j < i; j++)
            assert_string_not_equal(rows[i].name, rows[j].name);
        for (int j = 0; j < i; j++) {
            if (strcmp(rows[i].name, rows[j].name) != 0)
                continue;
            assert_string_not_equal(rows[i].labels, rows[j].labels);
            assert_int_equal(rows[i].kind, rows[j].kind);
        }
    }
}

/* metric_of finds the row of each kind; all such rows are checked here. */
static void test_rows_by_kind(void **state)
{
    static const enum metric_id firsts[] = {
        M_QUEUE_EVENTS_LIKE,      M_OWNERS_ON_RECORD_LIKE,
        M_BATCHES_IN_FLIGHT_LIKE, M_BACKLOG_OWNERS_LIKE,
        M_SYNC_LAG_LIKE,          M_RECALL_ENTRIES_LIKE,
        M_BACKLOG_ROWS_LIKE,
    };
    char labels[64];
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        for (int kind = 0; kind < EDGE_COUNT; kind++) {
            const struct row *row = &rows[metric_of(firsts[i], kind)];
            snprintf(labels, sizeof(labels), "kind=\"%s\"",
                     edge_kinds[kind]->name);
            assert_string_equal(row->labels, labels);
            assert_string_equal(row->name, rows[firsts[i]].name);
        }
    }
    for (int i = 0; i < M_COUNT; i++)
        n += strncmp(rows[i].labels, "kind=", 5) == 0 ? 1 : 0;
    assert_int_equal(n, ARRAY_LEN(firsts) * EDGE_COUNT);
}

/* They are written as they stand. */
static void test_texts_need_no_escape(void **state)
{
    (void)state;
    for (int i = 0; i < M_COUNT; i++) {
        assert_null(strpbrk(rows[i].help, "\\\n"));
        assert_null(strpbrk(rows[i].labels, "\\\n{}"));
        if (is_first(i))
            assert_true(ends_with(rows[i].help, "."));
        else
            assert_string_equal(rows[i].help, "");
    }
}

static void reset(void)
{
    for (int i = 0; i < M_COUNT; i++)
        metric_set((enum metric_id)i, 0);
}

static void render(struct buf *out)
{
    buf_clear(out, 0);
    metrics_render(out);
    buf_cstr(out);
}

static void assert_line(struct buf *text, const char *line)
{
    struct buf wanted = {0};
    buf_printf(&wanted, "\n%s\n", line);
    if (strstr(buf_cstr(text), buf_cstr(&wanted)) == NULL)
        fail_msg("no line %s in:\n%s", line, text->data);
    buf_free(&wanted);
}

static void assert_value(double v, const char *line)
{
    struct buf out = {0};
    metric_set(M_UPTIME, v);
    render(&out);
    assert_line(&out, line);
    buf_free(&out);
}

static void test_values(void **state)
{
    (void)state;
    assert_value(0, "likesyncd_uptime_seconds 0");
    assert_value(-3, "likesyncd_uptime_seconds -3");
    assert_value(0.25, "likesyncd_uptime_seconds 0.250000");
    assert_value(123456789012345, "likesyncd_uptime_seconds 123456789012345");
    assert_value(9007199254740992, "likesyncd_uptime_seconds 9007199254740992");
    assert_value(1e18, "likesyncd_uptime_seconds 1000000000000000000.000000");
    assert_value(NAN, "likesyncd_uptime_seconds NaN");
    assert_value(INFINITY, "likesyncd_uptime_seconds +Inf");
    assert_value(-INFINITY, "likesyncd_uptime_seconds -Inf");
}

static void test_storage(void **state)
{
    (void)state;
    reset();
    metric_add(M_REQUESTS, 1);
    metric_add(M_REQUESTS, UINT64_C(1) << 40);
    assert_true(metric_get(M_REQUESTS) == 1099511627777.0);
    assert_true(metric_get(M_CLIENTS_CLOSED_PROTOCOL) == 0);
    metric_set(M_CLIENTS, 5);
    metric_set(M_CLIENTS, 4);
    assert_true(metric_get(M_CLIENTS) == 4);
}

static void test_text(void **state)
{
    struct buf out = {0};
    (void)state;
    reset();
    metric_add(M_EVENTS_LIKE_SAME, 1234567);
    metric_set(M_REDIS_UP, 1);
    render(&out);
    const char *start = "# HELP likesyncd_events_total Events by verb and "
                        "result.\n"
                        "# TYPE likesyncd_events_total counter\n"
                        "likesyncd_events_total{verb=\"like\",result="
                        "\"changed\"} 0\n"
                        "likesyncd_events_total{verb=\"like\",result=\"same\"} "
                        "1234567\n";
    assert_memory_equal(out.data, start, strlen(start));
    assert_line(&out, "# TYPE likesyncd_redis_up gauge");
    assert_line(&out, "likesyncd_redis_up 1");
    assert_int_equal(out.data[out.len - 1], '\n');
    buf_free(&out);
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word))
        n++;
    return n;
}

static void test_help_and_type_once_per_name(void **state)
{
    struct buf out = {0};
    int names = 0;
    int lines = 0;
    (void)state;
    render(&out);
    for (int i = 0; i < M_COUNT; i++)
        names += is_first(i) ? 1 : 0;
    for (size_t i = 0; i < out.len; i++)
        lines += out.data[i] == '\n' ? 1 : 0;
    assert_int_equal(count_of(out.data, "# HELP "), names);
    assert_int_equal(count_of(out.data, "# TYPE "), names);
    assert_int_equal(lines, M_COUNT + 2 * names);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_rows_of_one_name_stand_together),
        cmocka_unit_test(test_rows_by_kind),
        cmocka_unit_test(test_texts_need_no_escape),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_storage),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_help_and_type_once_per_name),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
