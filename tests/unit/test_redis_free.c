/* SPDX-License-Identifier: MIT */
/* redis_free() in every state and from every callback: each call is answered
 * once, nothing is called afterwards, nothing leaks, the loop closes clean. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_redis.h"

#define RULES(r) r, ARRAY_LEN(r)
#define MANY     5

static void start(struct fixture *f, struct fake *k,
                  const struct fake_rule *rules, size_t n)
{
    fixture_init(f);
    fake_start(k, f, 0, rules, n);
    fixture_connect(f);
}

/* Frees it if that has not happened yet, and looks that all stays quiet. */
static void end(struct fixture *f, struct fake *k)
{
    int ups = f->ups;
    int downs = f->downs;
    int replies;

    fixture_free_redis(f);
    replies = f->replies;
    fixture_run_ms(f, 30);
    assert_int_equal(f->ups, ups);
    assert_int_equal(f->downs, downs);
    assert_int_equal(f->replies, replies);
    fake_stop(k);
    fixture_end(f);
}

static void test_before_the_first_turn(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, NULL, 0);
    end(&f, &k);
    assert_int_equal(k.connections, 0);
    redis_free(NULL);
}

/* At each of the first turns: resolving, connecting and greeting are all passed
 * on the way. */
static void test_on_the_way_up(void **state)
{
    (void)state;
    for (int turns = 1; turns < 12; turns++) {
        struct fixture f;
        struct fake k;

        fixture_init(&f);
        fake_start(&k, &f, 0, NULL, 0);
        snprintf(f.config.address.host, sizeof(f.config.address.host), "%s",
                 turns % 2 ? "localhost" : "127.0.0.1");
        fixture_connect(&f);
        for (int i = 0; i < turns; i++)
            uv_run(&f.loop, UV_RUN_NOWAIT);
        end(&f, &k);
    }
}

static void free_while(const char *command, enum fake_action action)
{
    const struct fake_rule rules[] = {{command, 1, 0, action, NULL}};
    struct fixture f;
    struct fake k;

    fixture_init(&f);
    f.config.password = "secret";
    f.config.db = 1;
    fake_start(&k, &f, 0, RULES(rules));
    fixture_connect(&f);
    FIXTURE_WAIT(&f, fake_seen(&k, command) == 1);
    end(&f, &k);
    assert_int_equal(f.ups, 0);
}

static void test_in_the_greeting(void **state)
{
    (void)state;
    free_while("AUTH", FAKE_HANG);
    free_while("SELECT", FAKE_HANG);
    free_while("INFO", FAKE_HANG);
    free_while("SCRIPT", FAKE_HANG);
    free_while("SCRIPT", FAKE_RESET);
    free_while("INFO", FAKE_PARTIAL);
}

static void test_while_waiting(void **state)
{
    const struct fake_rule rules[] = {
        {"INFO", 1, 0, FAKE_ANSWER, "-ERR no\r\n"}};
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, RULES(rules));
    FIXTURE_WAIT(&f, strstr(redis_state_text(f.redis), "retry in"));
    end(&f, &k);
}

static void test_idle(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, NULL, 0);
    FIXTURE_WAIT(&f, f.ups == 1);
    end(&f, &k);
    assert_int_equal(f.downs, 0);
}

static void test_in_flight(void **state)
{
    const struct fake_rule rules[] = {{"SET", 1, 0, FAKE_HANG, NULL}};

    (void)state;
    for (int sent = 0; sent < 2; sent++) {
        struct probe p[MANY] = {0};
        struct fixture f;
        struct fake k;

        start(&f, &k, RULES(rules));
        FIXTURE_WAIT(&f, f.ups == 1);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(probe_call(&f, &p[i], "SET a b"), 0);
        if (sent)
            FIXTURE_WAIT(&f, fake_seen(&k, "SET") == 1);
        fixture_free_redis(&f);
        assert_int_equal(f.outcomes[REDIS_UNKNOWN], MANY);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(p[i].seq, i + 1);
        end(&f, &k);
    }
}

static void test_while_leaving_or_reloading(void **state)
{
    const char *errors[] = {"-READONLY x\r\n", "-NOSCRIPT x\r\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        const struct fake_rule rules[] = {{"SET", 1, 1, FAKE_ANSWER, errors[i]},
                                          {"SET", 2, 2, FAKE_HANG, NULL}};
        struct probe p[2] = {0};
        struct fixture f;
        struct fake k;

        start(&f, &k, RULES(rules));
        FIXTURE_WAIT(&f, f.ups == 1);
        assert_int_equal(probe_call(&f, &p[0], "SET a b"), 0);
        assert_int_equal(probe_call(&f, &p[1], "SET a b"), 0);
        FIXTURE_WAIT(&f, f.downs == 1);
        end(&f, &k);
        assert_int_equal(p[1].replies, 1);
        assert_int_equal(p[1].outcome, REDIS_UNKNOWN);
    }
}

/* ---- from inside callbacks ---- */

static void then_free(struct probe *p)
{
    p->then = NULL;
    fixture_free_redis(p->f);
}

/* In the callback of the second of five calls. */
static void free_in_reply(enum fake_action action, const char *text,
                          enum redis_outcome outcome)
{
    const struct fake_rule rules[] = {{"SET", 2, 2, action, text}};
    struct probe p[MANY] = {[1] = {.then = then_free}};
    struct fixture f;
    struct fake k;

    start(&f, &k, RULES(rules));
    FIXTURE_WAIT(&f, f.ups == 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(probe_call(&f, &p[i], "SET a b"), 0);
    FIXTURE_WAIT(&f, !f.redis);
    assert_int_equal(p[1].outcome, outcome);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(p[i].replies, 1);
        assert_int_equal(p[i].seq, i + 1);
    }
    assert_int_equal(p[MANY - 1].outcome, REDIS_UNKNOWN);
    assert_int_equal(f.downs, 0);
    end(&f, &k);
}

static void test_in_replies(void **state)
{
    (void)state;
    free_in_reply(FAKE_ANSWER, "+OK\r\n", REDIS_OK);
    free_in_reply(FAKE_ANSWER, "-ERR x\r\n", REDIS_ERROR);
    free_in_reply(FAKE_ANSWER, "-NOSCRIPT x\r\n", REDIS_RETRY);
    free_in_reply(FAKE_ANSWER, "-READONLY x\r\n", REDIS_AWAY);
    free_in_reply(FAKE_CLOSE, NULL, REDIS_UNKNOWN);
    free_in_reply(FAKE_RESET, NULL, REDIS_UNKNOWN);
}

static void call_some(struct fixture *f)
{
    static struct probe p[MANY];

    memset(p, 0, sizeof(p));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(probe_call(f, &p[i], "SET a b"), 0);
}

static void test_in_on_up(void **state)
{
    (void)state;
    for (int refuse = 0; refuse < 2; refuse++) {
        struct fixture f;
        struct fake k;

        start(&f, &k, NULL, 0);
        f.free_in_up = true;
        f.in_up = call_some;
        f.refuse = refuse;
        FIXTURE_WAIT(&f, f.ups == 1);
        assert_null(f.redis);
        assert_int_equal(f.outcomes[REDIS_UNKNOWN], MANY);
        end(&f, &k);
    }
}

/* Calls made by on_up go out, and are lost if it refuses after all. */
static void test_calls_in_on_up(void **state)
{
    struct fixture f;
    struct fake k;

    (void)state;
    start(&f, &k, NULL, 0);
    f.in_up = call_some;
    f.refuse = true;
    FIXTURE_WAIT(&f, f.ups == 1);
    assert_int_equal(f.outcomes[REDIS_UNKNOWN], MANY);
    f.refuse = false;
    FIXTURE_WAIT(&f, f.outcomes[REDIS_OK] == MANY);
    assert_int_equal(f.downs, 0);
    end(&f, &k);
}

static void test_in_on_down(void **state)
{
    const char *errors[] = {NULL, "-READONLY x\r\n", "-NOSCRIPT x\r\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        const struct fake_rule rules[] = {
            {"SET", 1, 1, errors[i] ? FAKE_ANSWER : FAKE_CLOSE, errors[i]}};
        struct probe p[2] = {0};
        struct fixture f;
        struct fake k;

        start(&f, &k, RULES(rules));
        f.free_in_down = true;
        FIXTURE_WAIT(&f, f.ups == 1);
        assert_int_equal(probe_call(&f, &p[0], "SET a b"), 0);
        assert_int_equal(probe_call(&f, &p[1], "SET a b"), 0);
        FIXTURE_WAIT(&f, f.downs == 1);
        assert_null(f.redis);
        assert_int_equal(p[0].replies, 1);
        assert_int_equal(p[1].replies, 1);
        end(&f, &k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_first_turn),
        cmocka_unit_test(test_on_the_way_up),
        cmocka_unit_test(test_in_the_greeting),
        cmocka_unit_test(test_while_waiting),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_while_leaving_or_reloading),
        cmocka_unit_test(test_in_replies),
        cmocka_unit_test(test_in_on_up),
        cmocka_unit_test(test_calls_in_on_up),
        cmocka_unit_test(test_in_on_down),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
