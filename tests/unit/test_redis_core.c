/* SPDX-License-Identifier: MIT */
/* The pure parts of the Redis connection: INFO, error words, calls under way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapters/redis_calls.h"
#include "core/redis_error.h"
#include "core/redis_info.h"

static const char whole[] =
    "# Server\r\nredis_version:7.0.15\r\n"
    "run_id:0123456789abcdef0123456789abcdef01234567\r\n"
    "redis_mode:standalone\r\n\r\n"
    "# Memory\r\nmaxmemory_policy:allkeys-lru\r\n\r\n"
    "# Persistence\r\nloading:0\r\nasync_loading:1\r\naof_enabled:1\r\n\r\n"
    "# Replication\r\nrole:master\r\n"
    "master_replid:76543210fedcba9876543210fedcba9876543210\r\n"
    "master_replid2:0000000000000000000000000000000000000000\r\n";

static int parse(const char *text, struct redis_info *info)
{
    return redis_parse_info(text, strlen(text), info);
}

static void test_info(void **state)
{
    struct redis_info i;

    (void)state;
    assert_int_equal(parse(whole, &i), 0);
    assert_string_equal(i.run_id, "0123456789abcdef0123456789abcdef01234567");
    assert_string_equal(i.replid, "76543210fedcba9876543210fedcba9876543210");
    assert_string_equal(i.version, "7.0.15");
    assert_string_equal(i.maxmemory_policy, "allkeys-lru");
    assert_true(i.is_primary);
    assert_true(i.aof_enabled);
    assert_false(i.loading);
}

static void test_info_variants(void **state)
{
    struct redis_info i;

    (void)state;
    assert_int_equal(
        parse("run_id:a\nredis_version:8\nrole:slave\nloading:1", &i), 0);
    assert_string_equal(i.run_id, "a");
    assert_string_equal(i.maxmemory_policy, "");
    assert_false(i.is_primary);
    assert_false(i.aof_enabled);
    assert_true(i.loading);
    assert_int_equal(parse("run_id:a\nredis_version:8\nrole:masterful\n", &i),
                     0);
    assert_false(i.is_primary);
}

static void test_info_broken(void **state)
{
    const char *texts[] = {
        "",
        "OK",
        ":",
        "run_id:a\nredis_version:8\n",
        "run_id:a\nrole:master\n",
        "redis_version:8\nrole:master\n",
        "run_id:\nredis_version:8\nrole:master\n",
        "run_id:a\nredis_version:8\nrole:master\nloading:2\n",
        "run_id:a\nredis_version:8\nrole:master\nloading:\n",
        "run_id:a\nredis_version:8\nrole:master\naof_enabled:yes\n",
        ("run_id:0123456789012345678901234567890123456789012345678901234567\n"
         "redis_version:8\nrole:master\n"),
    };
    const struct redis_info zero = {.run_id = ""};
    struct redis_info i;

    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(texts); n++) {
        memset(&i, 0xff, sizeof(i));
        assert_int_equal(parse(texts[n], &i), -1);
        assert_memory_equal(&i, &zero, sizeof(i));
    }
}

/* Every prefix is refused or read, never read beyond: each is given in memory
 * of its own size. */
static void test_info_prefixes(void **state)
{
    struct redis_info i;
    int good = 0;

    (void)state;
    for (size_t len = 0; len < sizeof(whole); len++) {
        char *copy = malloc(len ? len : 1);

        memcpy(copy, whole, len);
        good += redis_parse_info(copy, len, &i) == 0;
        free(copy);
    }
    assert_in_range(good, 1, sizeof(whole) - 1);
}

static void test_objections(void **state)
{
    struct redis_info i;

    (void)state;
    assert_int_equal(parse(whole, &i), 0);
    assert_non_null(strstr(redis_info_objection(&i), "allkeys-*"));
    memcpy(i.maxmemory_policy, "volatile-lru", sizeof("volatile-lru"));
    assert_null(redis_info_objection(&i));
    i.maxmemory_policy[0] = '\0';
    assert_null(redis_info_objection(&i));
    i.is_primary = false;
    assert_string_equal(redis_info_objection(&i), "Redis is a replica");
}

static void check_error(const char *text, enum redis_outcome outcome,
                        enum redis_remedy remedy)
{
    const struct redis_error *e = redis_error_find(text, strlen(text));

    if (e->outcome != outcome || e->remedy != remedy)
        fail_msg("%s: outcome %d, remedy %d", text, e->outcome, e->remedy);
}

static void test_errors(void **state)
{
    (void)state;
    check_error("NOSCRIPT No matching script. Please use EVAL.", REDIS_RETRY,
                REDIS_REMEDY_RELOAD);
    check_error("LOADING Redis is loading", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("BUSY Redis is busy", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("BUSY", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("UNKILLABLE Sorry", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("MASTERDOWN Link", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("TRYAGAIN x", REDIS_RETRY, REDIS_REMEDY_NONE);
    check_error("OOM command not allowed", REDIS_FULL, REDIS_REMEDY_NONE);
    check_error("MISCONF Redis is", REDIS_FULL, REDIS_REMEDY_NONE);
    check_error("NOREPLICAS Not", REDIS_FULL, REDIS_REMEDY_NONE);
    check_error("READONLY You", REDIS_AWAY, REDIS_REMEDY_RECONNECT);
    check_error("NOAUTH x", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW);
    check_error("WRONGPASS x", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW);
    check_error("NOPERM x", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW);
    check_error("ERR max number of clients reached", REDIS_RETRY,
                REDIS_REMEDY_NONE);
}

static void test_other_errors(void **state)
{
    const char *texts[] = {"",      "ERR x",     "WRONGTYPE x",   "MOVED 1",
                           "ASK 1", "BUSYKEY x", "BUS",           "CROSSSLOT x",
                           "OOMPH", "oom x",     "BUSYGROUP busy"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        check_error(texts[i], REDIS_ERROR, REDIS_REMEDY_NONE);
}

static void on_reply(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    (void)arg;
    (void)outcome;
    (void)v;
}

static void test_calls(void **state)
{
    struct redis_calls q;
    int args[3];

    (void)state;
    redis_calls_init(&q);
    redis_calls_push(&q, 10, 100, on_reply, &args[0]);
    redis_calls_push(&q, 20, 200, NULL, NULL);
    redis_calls_push(&q, 30, 300, on_reply, &args[2]);
    assert_int_equal(q.n, 3);
    assert_int_equal(q.bytes, 60);
    assert_int_equal(redis_calls_owners(&q), 2);
    assert_int_equal(redis_calls_oldest_ms(&q), 100);
    assert_ptr_equal(redis_calls_pop(&q).arg, &args[0]);
    assert_int_equal(redis_calls_oldest_ms(&q), 200);
    assert_null(redis_calls_pop(&q).cb);
    assert_ptr_equal(redis_calls_pop(&q).arg, &args[2]);
    assert_int_equal(q.n + q.bytes, 0);
}

static void test_caps(void **state)
{
    struct redis_calls q;

    (void)state;
    redis_calls_init(&q);
    assert_false(redis_calls_full(&q, REDIS_MAX_BYTES + 1));
    redis_calls_push(&q, REDIS_MAX_BYTES - 10, 0, on_reply, NULL);
    assert_false(redis_calls_full(&q, 10));
    assert_true(redis_calls_full(&q, 11));
    redis_calls_pop(&q);
    for (size_t i = 0; i < REDIS_MAX_CALLS; i++) {
        assert_false(redis_calls_full(&q, 1));
        redis_calls_push(&q, 1, 0, on_reply, NULL);
    }
    assert_true(redis_calls_full(&q, 1));
    while (q.n > 0)
        redis_calls_pop(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_info_variants),
        cmocka_unit_test(test_info_broken),
        cmocka_unit_test(test_info_prefixes),
        cmocka_unit_test(test_objections),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_other_errors),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_caps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
