/* SPDX-License-Identifier: MIT */
/* The Redis connection against a peer that takes its time for every answer, as
 * one does that syncs its file in between: all the scripts together take longer
 * than a deadline, each of them does not. A test that is itself held up for long
 * loses the connection all the same, and then tries again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_redis.h"

#define TIMEOUT_MS 600
#define PAUSE_MS   150
#define SCRIPTS    6 /* TIMEOUT_MS is less than what these take */
#define TRIES      10

static void start(struct fixture *f, struct fake *k,
                  struct redis_script scripts[SCRIPTS],
                  const struct fake_rule *rules, size_t n)
{
    fixture_init(f);
    fake_start(k, f, 0, rules, n);
    for (int i = 0; i < SCRIPTS; i++)
        scripts[i] = (struct redis_script){.name = "one", .source = "return 1"};
    f->config.scripts = scripts;
    f->config.n_scripts = SCRIPTS;
    f->config.connect_timeout_ms = TIMEOUT_MS;
    f->config.timeout_ms = TIMEOUT_MS;
    k->slow = true;
}

static void end(struct fixture *f, struct fake *k)
{
    fake_stop(k);
    fixture_end(f);
}

/* How often it came up, once the peer has answered one command more. */
static int ups_later(struct fixture *f, struct fake *k)
{
    fixture_run_ms(f, PAUSE_MS);
    fake_go_on(k);
    return f->ups;
}

static void test_slow_greeting(void **state)
{
    struct redis_script scripts[SCRIPTS];
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, scripts, NULL, 0);
    fixture_connect(&f);
    FIXTURE_WAIT(&f, ups_later(&f, &k) == 1);
    assert_int_equal(fake_seen(&k, "INFO"), k.connections);
    end(&f, &k);
}

/* Loads until it comes up on the connection that it had. */
static void test_slow_reload(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 0, FAKE_ANSWER, "-NOSCRIPT No matching script.\r\n"}};
    struct redis_script scripts[SCRIPTS];
    struct probe p = {0};
    struct fixture f;
    struct fake k;
    int had = 0;

    (void)state;
    start(&f, &k, scripts, rules, ARRAY_LEN(rules));
    k.slow = false;
    fixture_connect(&f);
    FIXTURE_WAIT(&f, f.ups == 1);
    k.slow = true;
    for (int ups = 1; had != k.connections; ups++) {
        assert_in_range(ups, 1, TRIES);
        had = k.connections;
        assert_int_equal(probe_script(&f, &p, 0, "x"), 0);
        FIXTURE_WAIT(&f, ups_later(&f, &k) > ups);
    }
    end(&f, &k);
}

/* An answer now and then does not help who never gets the next one. */
static void test_slow_then_silent(void **state)
{
    const struct fake_rule rules[] = {{"SCRIPT", 4, 4, FAKE_HANG, NULL}};
    struct redis_script scripts[SCRIPTS];
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, scripts, rules, ARRAY_LEN(rules));
    fixture_connect(&f);
    FIXTURE_WAIT(&f, ups_later(&f, &k) == 1);
    assert_true(k.connections > 1);
    end(&f, &k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_greeting),
        cmocka_unit_test(test_slow_reload),
        cmocka_unit_test(test_slow_then_silent),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
