/* SPDX-License-Identifier: MIT */
/* A loop with one connection under test and what its owner saw. Tests wait for
 * conditions: FIXTURE_WAIT runs the loop until one holds, and fails the test
 * when it takes too long. */
#ifndef TESTS_REDIS_FIXTURE_H
#define TESTS_REDIS_FIXTURE_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "adapters/redis.h"
#include "base/clock.h"
#include "base/mem.h"

#define FIXTURE_PATIENCE_MS 15000

struct fixture {
    uv_loop_t loop;
    struct redis *redis; /* owned */
    struct redis_config config;
    struct redis_script scripts[2];
    struct redis_info info;
    int ups;
    int downs;
    char down_why[256];
    int replies;     /* to calls, of any kind */
    int outcomes[8]; /* of these, by enum redis_outcome */
    bool refuse;     /* on_up says no */
    bool free_in_up; /* each frees the connection */
    bool free_in_down;
    void (*in_up)(struct fixture *f); /* NULL or what to do */
    void (*in_down)(struct fixture *f);
};

/* One call and what came of it. */
struct probe {
    struct fixture *f;
    int replies; /* must become 1 */
    int seq;     /* the fixture's count of replies at that time */
    enum redis_outcome outcome;
    enum redis_type type;
    int64_t number;
    char text[128];
    bool in_call;                  /* redis_call has not returned */
    void (*then)(struct probe *p); /* NULL or what to do in the callback */
};

static void fixture_free_redis(struct fixture *f)
{
    redis_free(f->redis);
    f->redis = NULL;
}

static const char *fixture_on_up(void *arg, const struct redis_info *info)
{
    struct fixture *f = arg;

    f->ups++;
    f->info = *info;
    if (f->in_up)
        f->in_up(f);
    if (f->free_in_up)
        fixture_free_redis(f);
    return f->refuse ? "not wanted" : NULL;
}

static void fixture_on_down(void *arg, const char *why)
{
    struct fixture *f = arg;

    f->downs++;
    snprintf(f->down_why, sizeof(f->down_why), "%s", why);
    if (f->in_down)
        f->in_down(f);
    if (f->free_in_down)
        fixture_free_redis(f);
}

static void probe_on_reply(void *arg, enum redis_outcome outcome,
                           const struct redis_value *value)
{
    struct probe *p = arg;
    size_t len;
    const char *text = redis_value_str(value, &len);

    assert_false(p->in_call);
    p->replies++;
    p->seq = ++p->f->replies;
    p->outcome = outcome;
    p->type = redis_value_type(value);
    p->number = redis_value_int(value);
    snprintf(p->text, sizeof(p->text), "%.*s", (int)len, text);
    p->f->outcomes[outcome]++;
    if (p->then)
        p->then(p);
}

/* Sends the words of a command line. */
static inline int probe_call(struct fixture *f, struct probe *p,
                             const char *line)
{
    char words[256];
    const char *argv[16];
    size_t len[16];
    int argc = 0;
    int rc;

    snprintf(words, sizeof(words), "%s", line);
    for (char *save = NULL, *w = strtok_r(words, " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        argv[argc] = w;
        len[argc++] = strlen(w);
    }
    p->f = f;
    p->in_call = true;
    rc = redis_call(f->redis, argc, argv, len, probe_on_reply, p);
    p->in_call = false;
    return rc;
}

static inline int probe_script(struct fixture *f, struct probe *p, int script,
                               const char *arg)
{
    const size_t len = strlen(arg);

    p->f = f;
    return redis_script(f->redis, &f->scripts[script], 1, &arg, &len,
                        probe_on_reply, p);
}

#define FIXTURE_WAIT(f, condition)                                             \
    do {                                                                       \
        uint64_t until_us_ =                                                   \
            clock_monotonic_us() + FIXTURE_PATIENCE_MS * 1000u;                \
        while (!(condition)) {                                                 \
            if (clock_monotonic_us() > until_us_)                              \
                fail_msg("in vain: %s (%s)", #condition,                       \
                         (f)->redis ? redis_state_text((f)->redis) : "freed"); \
            fixture_turn(f);                                                   \
        }                                                                      \
    } while (0)

static void fixture_turn(struct fixture *f);

static void fixture_on_tick(uv_timer_t *t)
{
    uv_close((uv_handle_t *)t, NULL);
}

/* One turn of the loop, of at most 10 ms. */
static void fixture_turn(struct fixture *f)
{
    uv_timer_t tick;

    uv_timer_init(&f->loop, &tick);
    uv_timer_start(&tick, fixture_on_tick, 10, 0);
    uv_run(&f->loop, UV_RUN_ONCE);
    if (!uv_is_closing((uv_handle_t *)&tick))
        uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static inline void fixture_run_ms(struct fixture *f, unsigned ms)
{
    uint64_t until_us = clock_monotonic_us() + ms * 1000u;

    while (clock_monotonic_us() < until_us)
        fixture_turn(f);
}

static inline void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->scripts[0] =
        (struct redis_script){.name = "push",
                              .source = "return redis.call('RPUSH', "
                                        "'list', ARGV[1])"};
    f->scripts[1] = (struct redis_script){.name = "one", .source = "return 1"};
    f->config = (struct redis_config){
        .username = "",
        .password = "",
        .connect_timeout_ms = 3000,
        .timeout_ms = 3000,
        .scripts = f->scripts,
        .n_scripts = 2,
        .on_up = fixture_on_up,
        .on_down = fixture_on_down,
        .arg = f,
    };
}

static inline void fixture_connect(struct fixture *f)
{
    f->redis = redis_new(&f->loop, &f->config);
    assert_int_equal(f->ups + f->downs, 0);
}

/* Whatever the test left behind: all of it goes, and the loop closes clean. */
static inline void fixture_end(struct fixture *f)
{
    fixture_free_redis(f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* What a state's text says: "…, retry in 40 ms", "…, retry in 2 s". */
static inline unsigned fixture_retry_ms(const struct redis *redis)
{
    const char *text = strstr(redis_state_text(redis), "retry in ");
    unsigned n = 0;
    char unit[3] = "";

    assert_non_null(text);
    assert_int_equal(sscanf(text, "retry in %u %2s", &n, unit), 2);
    return strcmp(unit, "s") == 0 ? n * 1000 : n;
}

#endif
