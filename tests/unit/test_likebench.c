/* SPDX-License-Identifier: MIT */
/* The parts of the load generator: what its figures rest on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "histogram.h"
#include "pairs.h"
#include "replies.h"
#include "workload.h"

/* ---- histogram ---- */

static void test_hist_is_exact_below_2048(void **state)
{
    static struct hist h;

    (void)state;
    memset(&h, 0, sizeof(h));
    assert_int_equal(hist_quantile(&h, 0.5), 0);
    for (uint64_t us = 1; us <= 1000; us++)
        hist_add(&h, us);
    assert_int_equal(hist_quantile(&h, 0.5), 500);
    assert_int_equal(hist_quantile(&h, 0.99), 990);
    assert_int_equal(hist_quantile(&h, 0.999), 999);
    assert_int_equal(hist_quantile(&h, 1), 1000);
    assert_int_equal(h.sum, 500500);
}

/* Never less than what was added, and at most a thousandth more. */
static void test_hist_has_three_digits(void **state)
{
    static struct hist h;

    (void)state;
    for (uint64_t us = 1; us < 130000000; us = us * 3 / 2 + 1) {
        uint64_t got;

        memset(&h, 0, sizeof(h));
        hist_add(&h, us);
        hist_add(&h, 10 * us);
        got = hist_quantile(&h, 0.5);
        assert_true(got >= us && got - us <= us / 1000);
    }
}

static void test_hist_holds_the_longest(void **state)
{
    static struct hist h;

    (void)state;
    memset(&h, 0, sizeof(h));
    hist_add(&h, 5);
    hist_add(&h, UINT64_MAX / 2);
    assert_int_equal(hist_quantile(&h, 0.5), 5);
    assert_true(hist_quantile(&h, 1) <= h.max);
    assert_int_equal(h.max, UINT64_MAX / 2);
}

/* ---- replies ---- */

struct seen {
    char kinds[32];
    size_t n;
    char error[64];
};

static bool on_reply(void *arg, enum reply reply, const char *line)
{
    struct seen *seen = arg;

    seen->kinds[seen->n++] = "01oE"[reply];
    if (reply == REPLY_ERROR)
        snprintf(seen->error, sizeof(seen->error), "%s", line);
    return true;
}

static void test_replies_in_pieces(void **state)
{
    static const char stream[] =
        ":1\r\n:0\r\n:15\r\n+OK\r\n-ERR no\r\n*2\r\n:1\r\n:0\r\n*0\r\n$-1\r\n"
        "$5\r\n:1\r\n:\r\n*2\r\n$2\r\nab\r\n*1\r\n:1\r\n*-1\r\n:1\r\n";
    size_t len = sizeof(stream) - 1;

    (void)state;
    for (size_t piece = 1; piece <= len; piece++) {
        struct replies r = {0};
        struct seen seen = {0};

        for (size_t at = 0; at < len; at += piece)
            replies_read(&r, stream + at, len - at < piece ? len - at : piece,
                         on_reply, &seen);
        assert_string_equal(seen.kinds, "10ooEoooooo1");
        assert_string_equal(seen.error, "-ERR no");
    }
}

/* ---- pairs and requests ---- */

static void test_pairs_come_again(void **state)
{
    struct options o = {.others = 1000, .zipf = 1.1};
    struct pair a = pair_of(&o, 77);
    struct pair b = pair_of(&o, 77);

    (void)state;
    assert_int_equal(a.user, ID_BASE + 77);
    assert_int_equal(a.other, b.other);
    o.zipf = 0;
    for (uint64_t i = 0; i < 5000; i++)
        assert_true(pair_of(&o, i).other < ID_BASE + 1000);
    o.others = 0;
    assert_int_equal(pair_of(&o, 5).other, ID_BASE + 5);
}

/* P(1) = 1 / (1 + 2^-s + ... + n^-s) */
static void test_zipf_is_as_it_says(void **state)
{
    struct options o = {.others = 3, .zipf = 2};
    unsigned seen[4] = {0};

    (void)state;
    for (uint64_t i = 0; i < 100000; i++)
        seen[pair_of(&o, i).other - ID_BASE]++;
    assert_int_equal(seen[0], 0);
    assert_in_range(seen[1], 73469 - 1000, 73469 + 1000);
    assert_in_range(seen[2], 18367 - 1000, 18367 + 1000);
    assert_in_range(seen[3], 8163 - 1000, 8163 + 1000);
}

static void test_churn_goes_on_and_off(void **state)
{
    struct options o = {.churn = 2, .verb = "LIKE"};
    const struct workload *w = workload_find("event");
    char bytes[EVENT_MAX];

    (void)state;
    bytes[w->put(&o, bytes, 6)] = '\0';
    assert_string_equal(
        bytes,
        "*3\r\n$4\r\nLIKE\r\n$10\r\n1000000003\r\n$10\r\n1000000003\r\n");
    bytes[w->put(&o, bytes, 7)] = '\0';
    assert_string_equal(
        bytes,
        "*3\r\n$6\r\nUNLIKE\r\n$10\r\n1000000003\r\n$10\r\n1000000003\r\n");
}

/* So many requests as it says, each whole, and within EVENT_MAX. */
static void test_workloads_are_resp(void **state)
{
    struct options o = {.verb = "UNFOLLOW", .sha = "0123456789", .known = 50};

    (void)state;
    for (size_t i = 0; i < workload_count; i++)
        for (uint64_t event = 0; event < 40; event++) {
            struct replies r = {0};
            struct seen seen = {0};
            char bytes[EVENT_MAX + 1];
            size_t len = workloads[i].put(&o, bytes, event);

            assert_true(len <= EVENT_MAX);
            replies_read(&r, bytes, len, on_reply, &seen);
            assert_int_equal(seen.n, workloads[i].replies);
            assert_int_equal(r.open, 0);
            assert_int_equal(r.skip, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hist_is_exact_below_2048),
        cmocka_unit_test(test_hist_has_three_digits),
        cmocka_unit_test(test_hist_holds_the_longest),
        cmocka_unit_test(test_replies_in_pieces),
        cmocka_unit_test(test_pairs_come_again),
        cmocka_unit_test(test_zipf_is_as_it_says),
        cmocka_unit_test(test_churn_goes_on_and_off),
        cmocka_unit_test(test_workloads_are_resp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
