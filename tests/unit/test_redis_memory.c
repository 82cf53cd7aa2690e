/* SPDX-License-Identifier: MIT */
/* hiredis 0.14 takes a new buffer after each write and looks into it whether or not
 * it is there. While there is no memory for one, commands go out all the same
 * (redis_link.c). hiredis finds sdsempty() here, before its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_redis.h"

#include <hiredis/hiredis.h>
#undef REDIS_OK /* of hiredis; ours is an outcome */

#if HIREDIS_MAJOR < 1
#include <hiredis/sds.h>

static int memory = 1000; /* for so many */
static int asked;

sds sdsempty(void)
{
    asked++;
    return memory-- > 0 ? sdsnewlen("", 0) : NULL;
}

static void test_no_buffer_after_a_write(void **state)
{
    const struct fake_rule rules[] = {
        {"GET", 1, 0, FAKE_ANSWER, "$1\r\nx\r\n"}};
    struct probe probes[20] = {{0}};
    struct fixture f;
    struct fake k;

    (void)state;
    fixture_init(&f);
    fake_start(&k, &f, 0, rules, ARRAY_LEN(rules));
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_true(asked > 0); /* so hiredis does find it here */
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        memory = 1; /* for the command itself, before it is written */
        assert_int_equal(probe_call(&f, &probes[i], "GET x"), 0);
        FIXTURE_WAIT(&f, probes[i].replies == 1);
        assert_int_equal(probes[i].outcome, REDIS_OK);
    }
    memory = 1000;
    assert_int_equal(f.ups, 1);
    fake_stop(&k);
    fixture_end(&f);
}
#else
static void test_no_buffer_after_a_write(void **state)
{
    (void)state;
    skip(); /* 1.x looks before */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_buffer_after_a_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
