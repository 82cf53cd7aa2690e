/* SPDX-License-Identifier: MIT */
/* Who waits for a list and what becomes of its load, against a fake Redis and
 * without PostgreSQL. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_redis.h"
#include "services/engine.h"
#include "services/lists.h"
#include "services/lookup.h"

#define RULES(r)   r, ARRAY_LEN(r)
#define LOADS      4 /* at a time */
#define QUEUED     1000
#define WAITERS    10000
#define ERROR_SIZE 128

/* Replies of list_begin.lua: now, pos, members, unsynced, which load, doubtful;
 * and of list_load.lua: done, now, pos, members. */
#define BEGUN(pos, unsynced)                                                   \
    "*6\r\n$1\r\n5\r\n" pos ":0\r\n:" unsynced "\r\n$2\r\n77\r\n:0\r\n"
#define APPLIED(done, pos) "*4\r\n:" done "\r\n$1\r\n6\r\n" pos ":0\r\n"
#define POS_NONE           "$0\r\n\r\n"
#define POS_OVERLAY        "$1\r\no\r\n"
#define POS_START          "$1\r\ns\r\n"
#define POS_END            "$3\r\nend\r\n"

struct bed {
    struct fixture f;
    struct fake fake;
    struct options options;
    struct list_names names;
    struct engine engine;
    struct redis_info info;                    /* of the engine */
    struct redis_script scripts[SCRIPT_COUNT]; /* of the engine */
    struct lookup *lookup;
    struct lists *lists;
};

struct wish {
    struct bed *bed;
    int answers; /* must become 1 */
    char why[ERROR_SIZE];
    bool in_call;
    bool again; /* asks once more in the callback: */
    int rc;
};

static int wish(struct bed *b, struct wish *w, const char *user, size_t want);

static void on_there(void *arg, const char *why)
{
    struct wish *w = arg;

    assert_false(w->in_call);
    w->answers++;
    snprintf(w->why, sizeof(w->why), "%s", why ? why : "there");
    if (w->again) {
        w->again = false;
        w->rc = wish(w->bed, w, "7", 0);
    }
}

static int wish(struct bed *b, struct wish *w, const char *user, size_t want)
{
    int rc;

    w->bed = b;
    w->in_call = true;
    rc = lists_load(b->lists, LIST_FOLLOW, user, strlen(user), want, on_there,
                    w);
    w->in_call = false;
    return rc;
}

/* Redis answers by the rules; PostgreSQL is nowhere. */
static void start(struct bed *b, const struct fake_rule *rules, size_t n)
{
    const struct pg_config pg = {.conninfo = "host=/nonexistent",
                                 .connections = 1,
                                 .connect_timeout_ms = 1000};
    struct engine *e = &b->engine;

    memset(b, 0, sizeof(*b));
    fixture_init(&b->f);
    fake_start(&b->fake, &b->f, 0, rules, n);
    fixture_connect(&b->f);
    FIXTURE_WAIT(&b->f, b->f.ups == 1);
    list_names_init(&b->names, "{user}:follow", "{user}:fans");
    b->options.pg_lookup_timeout_ms = FIXTURE_PATIENCE_MS;
    e->kind = &edge_follow;
    e->lists = &b->names;
    e->loop = &b->f.loop;
    e->options = &b->options;
    e->redis = b->f.redis;
    e->open = true;
    b->info.is_primary = true;
    e->redis_info = &b->info;
    e->pg = pg_new(&b->f.loop, &pg);
    e->scripts = b->scripts;
    b->scripts[SCRIPT_LIST_BEGIN] = b->f.scripts[0];
    b->scripts[SCRIPT_LIST_LOAD] = b->f.scripts[1];
    b->lookup = lookup_new(e);
    b->lists = lists_new(e, b->lookup);
}

static void end(struct bed *b)
{
    b->engine.redis = NULL;
    fixture_free_redis(&b->f);
    pg_free(b->engine.pg);
    lookup_free(b->lookup);
    lists_free(b->lists);
    list_names_free(&b->names);
    fake_stop(&b->fake);
    fixture_end(&b->f);
}

/* What comes of one wish for the list of user 7. */
static void expect(const struct fake_rule *rules, size_t n, const char *why,
                   int scripts)
{
    struct wish w = {0};
    struct bed b;

    start(&b, rules, n);
    assert_int_equal(wish(&b, &w, "7", 0), 0);
    FIXTURE_WAIT(&b.f, w.answers > 0);
    assert_string_equal(w.why, why);
    assert_int_equal(fake_seen(&b.fake, "EVALSHA"), scripts);
    end(&b);
    assert_int_equal(w.answers, 1);
}

/* ---- what Redis says ---- */

static void test_nothing_to_do(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 0, FAKE_ANSWER, BEGUN(POS_END, "0")},
    };

    (void)state;
    expect(RULES(rules), "there", 1);
}

static void test_redis_is_busy(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 3, FAKE_ANSWER, "-BUSY a script runs\r\n"},
        {"EVALSHA", 4, 0, FAKE_ANSWER, BEGUN(POS_END, "0")},
    };

    (void)state;
    expect(RULES(rules), "there", 4);
}

static void test_a_plain_set(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 0, FAKE_ANSWER, "-WRONGTYPE Operation against\r\n"},
    };

    (void)state;
    expect(RULES(rules),
           "ERR 7:follow is not a sorted set: run likesyncctl adopt follows",
           1);
}

static void test_refusals(void **state)
{
    static const char *const cases[][2] = {
        {"-OOM command not allowed\r\n",
         "OOM Redis takes no more: the list cannot be loaded"},
        {"-ERR what?\r\n", "UNAVAILABLE Redis did not answer as expected"},
        {"+OK\r\n", "UNAVAILABLE Redis did not answer as expected"},
        {BEGUN("$3\r\n7 x\r\n", "0"),
         "UNAVAILABLE Redis did not answer as expected"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct fake_rule rules[] = {
            {"EVALSHA", 1, 0, FAKE_ANSWER, cases[i][0]},
        };

        expect(RULES(rules), cases[i][1], 1);
    }
}

static void test_redis_goes(void **state)
{
    const struct fake_rule rules[] = {{"EVALSHA", 1, 0, FAKE_CLOSE, NULL}};

    (void)state;
    expect(RULES(rules), "UNAVAILABLE Redis is away", 1);
}

/* After the overlay: with a part of it, and with nothing unsynced. */
static void test_postgres_is_away(void **state)
{
    static const char why[] =
        "UNAVAILABLE PostgreSQL is away and Redis does not have the whole list";
    const struct fake_rule empty[] = {
        {"EVALSHA", 1, 1, FAKE_ANSWER, BEGUN(POS_OVERLAY, "0")},
        {"EVALSHA", 2, 2, FAKE_ANSWER, APPLIED("1", POS_START)},
    };
    const struct fake_rule unsynced[] = {
        {"EVALSHA", 1, 1, FAKE_ANSWER, BEGUN(POS_OVERLAY, "1")},
        {"SSCAN", 0, 0, FAKE_ANSWER,
         "*2\r\n$1\r\n0\r\n*2\r\n$1\r\n8\r\n$3\r\nbad\r\n"},
    };

    (void)state;
    expect(RULES(empty), why, 2);
    expect(RULES(unsynced), why, 1);
}

/* Begin and a refused step, in turn. */
static void test_setbacks_end(void **state)
{
    struct fake_rule rules[20];

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(rules); i++)
        rules[i] = (struct fake_rule){"EVALSHA", i + 1, i + 1, FAKE_ANSWER,
                                      i % 2 ? APPLIED("0", POS_NONE)
                                            : BEGUN(POS_OVERLAY, "0")};
    expect(RULES(rules), "TRYAGAIN the list changes too much to be loaded", 12);
}

/* Another daemon was faster: no setback, however often. */
static void test_others_load_too(void **state)
{
    struct fake_rule rules[21];

    (void)state;
    for (int i = 0; i < 20; i++)
        rules[i] = (struct fake_rule){"EVALSHA", i + 1, i + 1, FAKE_ANSWER,
                                      i % 2 ? APPLIED("0", POS_START)
                                            : BEGUN(POS_OVERLAY, "0")};
    rules[20] =
        (struct fake_rule){"EVALSHA", 21, 21, FAKE_ANSWER, BEGUN(POS_END, "0")};
    expect(RULES(rules), "there", 21);
}

/* ---- the calls ---- */

static void test_the_calls(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 1, FAKE_ANSWER, BEGUN(POS_OVERLAY, "3")},
        {"SSCAN", 0, 0, FAKE_ANSWER, "*2\r\n$1\r\n0\r\n*0\r\n"},
        {"EVALSHA", 2, 2, FAKE_ANSWER, APPLIED("1", POS_END)},
    };
    struct wish w = {0};
    struct bed b;

    (void)state;
    start(&b, RULES(rules));
    b.options.follow_idle_ttl_s = 99;
    assert_int_equal(wish(&b, &w, "7", 0), 0);
    FIXTURE_WAIT(&b.f, w.answers > 0);
    assert_string_equal(w.why, "there");
    assert_non_null(strstr(fake_log(&b.fake),
                           "EVALSHA " FAKE_SHA " 0 0 7 99;"
                           "SSCAN likesync:unsynced:7:follow 0 COUNT 100;"
                           "EVALSHA " FAKE_SHA " 0 0 7 99 77 5 o s;"));
    end(&b);
}

/* ---- who waits ---- */

static void test_others_join(void **state)
{
    const struct fake_rule rules[] = {
        {"EVALSHA", 1, 0, FAKE_ANSWER, BEGUN(POS_END, "0")},
    };
    struct wish w[3] = {{.again = true}};
    struct bed b;

    (void)state;
    start(&b, RULES(rules));
    for (int i = 0; i < 3; i++)
        assert_int_equal(wish(&b, &w[i], "7", (size_t)i), 0);
    FIXTURE_WAIT(&b.f, w[0].answers == 2);
    assert_int_equal(w[1].answers, 1);
    assert_int_equal(w[2].answers, 1);
    assert_int_equal(fake_seen(&b.fake, "EVALSHA"), 2);
    end(&b);
}

static void test_deadline(void **state)
{
    const struct fake_rule rules[] = {{"EVALSHA", 1, 0, FAKE_HANG, NULL}};
    struct wish w[2] = {{.again = true}};
    struct bed b;

    (void)state;
    start(&b, RULES(rules));
    b.options.pg_lookup_timeout_ms = 20;
    for (int i = 0; i < 2; i++)
        assert_int_equal(wish(&b, &w[i], "7", 0), 0);
    FIXTURE_WAIT(&b.f, w[0].answers == 2 && w[1].answers == 1);
    assert_string_equal(w[0].why,
                        "TRYAGAIN the list is being loaded: 0 entries so far");
    assert_int_equal(fake_seen(&b.fake, "EVALSHA"), 1);
    end(&b);
}

/* Of a Redis that is there: whether it may be used soon. */
static void test_closed(void **state)
{
    static const char *const why[] = {"TRYAGAIN Redis is being made ready",
                                      "UNAVAILABLE Redis is away"};
    struct bed b;

    (void)state;
    start(&b, NULL, 0);
    b.engine.open = false;
    for (size_t i = 0; i < ARRAY_LEN(why); i++) {
        struct wish w = {0};

        b.info.is_primary = i == 0;
        assert_int_equal(wish(&b, &w, "7", 0), 0);
        FIXTURE_WAIT(&b.f, w.answers > 0);
        assert_string_equal(w.why, why[i]);
    }
    assert_int_equal(fake_seen(&b.fake, "EVALSHA"), 0);
    end(&b);
}

/* ---- limits ---- */

static void test_many_lists(void **state)
{
    const struct fake_rule rules[] = {{"EVALSHA", 1, 0, FAKE_HANG, NULL}};
    struct wish w = {0};
    struct bed b;
    char user[16];

    (void)state;
    start(&b, RULES(rules));
    for (int i = 0; i < LOADS + QUEUED; i++) {
        snprintf(user, sizeof(user), "%d", i);
        assert_int_equal(wish(&b, &w, user, 0), 0);
    }
    assert_int_equal(wish(&b, &w, "9999", 0), LISTS_FULL);
    assert_int_equal(wish(&b, &w, "0", 0), 0);
    FIXTURE_WAIT(&b.f, fake_seen(&b.fake, "EVALSHA") > 0);
    fixture_run_ms(&b.f, 20);
    assert_int_equal(redis_in_flight(b.f.redis), LOADS);
    end(&b);
    assert_int_equal(w.answers, LOADS + QUEUED + 1);
}

static void test_many_waiters(void **state)
{
    struct wish w = {0};
    struct bed b;

    (void)state;
    start(&b, NULL, 0);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(wish(&b, &w, "7", 0), 0);
    assert_int_equal(wish(&b, &w, "7", 0), LISTS_FULL);
    end(&b);
    assert_int_equal(w.answers, WAITERS);
    assert_string_equal(w.why, "UNAVAILABLE the daemon stops");
}

static void test_asked_again_while_it_ends(void **state)
{
    struct wish w = {.again = true};
    struct bed b;

    (void)state;
    start(&b, NULL, 0);
    assert_int_equal(wish(&b, &w, "7", 0), 0);
    end(&b);
    assert_int_equal(w.answers, 1);
    assert_int_equal(w.rc, LISTS_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_redis_is_busy),
        cmocka_unit_test(test_a_plain_set),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_redis_goes),
        cmocka_unit_test(test_postgres_is_away),
        cmocka_unit_test(test_setbacks_end),
        cmocka_unit_test(test_others_load_too),
        cmocka_unit_test(test_the_calls),
        cmocka_unit_test(test_others_join),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_many_lists),
        cmocka_unit_test(test_many_waiters),
        cmocka_unit_test(test_asked_again_while_it_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
