/* SPDX-License-Identifier: MIT */
/* Resolving names on the loop. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "adapters/resolve.h"

static uv_loop_t loop;

struct answer {
    int calls;
    struct resolve_result result;
};

static void on_answer(void *arg, const struct resolve_result *result)
{
    struct answer *a = arg;

    a->calls++;
    a->result = *result;
}

static int setup(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

static int teardown(void **state)
{
    (void)state;
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void resolve_now(const char *host, struct answer *a)
{
    memset(a, 0, sizeof(*a));
    assert_non_null(resolve_start(&loop, host, 6379, 5000, on_answer, a));
    assert_int_equal(a->calls, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a->calls, 1);
}

static void test_numeric(void **state)
{
    const char *hosts[] = {"127.0.0.1", "192.0.2.7", "::1", "2001:db8::2"};
    struct answer a;

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        resolve_now(hosts[i], &a);
        assert_int_equal(a.result.n, 1);
        assert_string_equal(a.result.addresses[0], hosts[i]);
        assert_string_equal(a.result.why, "");
    }
}

static void test_localhost(void **state)
{
    struct answer a;

    (void)state;
    resolve_now("localhost", &a);
    assert_in_range(a.result.n, 1, RESOLVE_MAX);
    for (size_t i = 0; i < a.result.n; i++)
        assert_true(strcmp(a.result.addresses[i], "127.0.0.1") == 0 ||
                    strcmp(a.result.addresses[i], "::1") == 0);
}

/* Names that no server is asked about: an empty label and one too long. */
static void test_bad_names(void **state)
{
    char label[300];
    struct answer a;

    (void)state;
    memset(label, 'a', sizeof(label));
    label[sizeof(label) - 1] = '\0';
    resolve_now("a..b", &a);
    assert_int_equal(a.result.n, 0);
    assert_string_not_equal(a.result.why, "");
    resolve_now(label, &a);
    assert_int_equal(a.result.n, 0);
    assert_string_not_equal(a.result.why, "");
}

static void sleep_in_pool(uv_work_t *work)
{
    (void)work;
    uv_sleep(300);
}

/* All threads of the pool are held: the lookup cannot begin in time. */
static void test_deadline(void **state)
{
    uv_work_t work[16];
    struct answer a = {.calls = 0};

    (void)state;
    for (int i = 0; i < 16; i++)
        assert_int_equal(uv_queue_work(&loop, &work[i], sleep_in_pool, NULL),
                         0);
    assert_non_null(resolve_start(&loop, "localhost", 1, 20, on_answer, &a));
    while (a.calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(a.result.n, 0);
    assert_string_equal(a.result.why, "no answer within 20 ms");
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.calls, 1);
}

static void test_cancel(void **state)
{
    struct answer a = {.calls = 0};

    (void)state;
    resolve_cancel(NULL);
    resolve_cancel(resolve_start(&loop, "127.0.0.1", 1, 1000, on_answer, &a));
    resolve_cancel(resolve_start(&loop, "localhost", 1, 1000, on_answer, &a));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(a.calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numeric, setup, teardown),
        cmocka_unit_test_setup_teardown(test_localhost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
