/* SPDX-License-Identifier: MIT */
/* The rules that every row of the histograms keeps, and the text made of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "core/edge.h"
#include "core/histogram.h"

struct row {
    const char *name;
    const char *labels;
    const char *help;
};

static const struct row rows[] = {
#define X(id, name, labels, help) {name, labels, help},
    HISTOGRAMS_TABLE(X)
#undef X
};

static void test_rows(void **state)
{
    (void)state;
    for (int i = 0; i < H_COUNT; i++) {
        size_t len = strlen(rows[i].name);

        assert_int_equal(strncmp(rows[i].name, "likesyncd_", 10), 0);
        assert_string_equal(rows[i].name + len - 8, "_seconds");
        assert_int_not_equal(strlen(rows[i].labels), 0);
        if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
            assert_int_not_equal(strlen(rows[i].help), 0);
        else
            assert_string_equal(rows[i].help, "");
    }
}

static void test_rows_by_kind(void **state)
{
    static const enum histogram_id firsts[] = {H_LOOKUP_LIKE, H_CLAIM_LIKE,
                                               H_WRITE_LIKE, H_ACK_LIKE};
    char labels[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        for (int kind = 0; kind < EDGE_COUNT; kind++) {
            const struct row *row = &rows[histogram_of(firsts[i], kind)];

            snprintf(labels, sizeof(labels), "kind=\"%s\"",
                     edge_kinds[kind]->name);
            assert_string_equal(row->labels, labels);
            assert_string_equal(row->name, rows[firsts[i]].name);
        }
    }
}

/* A time at a bound belongs below it; what is above all bounds is counted in
 * +Inf, the sum and the count only. */
static void test_buckets_are_cumulative(void **state)
{
    struct buf text = {0};

    (void)state;
    histogram_observe(H_CLAIM_FOLLOW, 1000);
    histogram_observe(H_CLAIM_FOLLOW, 1001);
    histogram_observe(H_CLAIM_FOLLOW, 11000000);
    histograms_render(&text);
#define LINE(s) assert_non_null(strstr(buf_cstr(&text), "\nlikesyncd_claim_" s))
    LINE("seconds_bucket{kind=\"follow\",le=\"0.0005\"} 0\n");
    LINE("seconds_bucket{kind=\"follow\",le=\"0.001\"} 1\n");
    LINE("seconds_bucket{kind=\"follow\",le=\"0.0025\"} 2\n");
    LINE("seconds_bucket{kind=\"follow\",le=\"10\"} 2\n");
    LINE("seconds_bucket{kind=\"follow\",le=\"+Inf\"} 3\n");
    LINE("seconds_sum{kind=\"follow\"} 11.002001\n");
    LINE("seconds_count{kind=\"follow\"} 3\n");
    LINE("seconds_count{kind=\"like\"} 0\n");
#undef LINE
    buf_free(&text);
}

static void test_each_name_has_one_head(void **state)
{
    static const char head[] = "# TYPE likesyncd_ack_seconds histogram\n";
    struct buf text = {0};
    const char *first;

    (void)state;
    histograms_render(&text);
    first = strstr(buf_cstr(&text), head);
    assert_non_null(first);
    assert_null(strstr(first + 1, head));
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_by_kind),
        cmocka_unit_test(test_buckets_are_cumulative),
        cmocka_unit_test(test_each_name_has_one_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
