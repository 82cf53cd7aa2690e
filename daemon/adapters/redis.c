/* SPDX-License-Identifier: MIT */
/* The connection to Redis as a state machine over redis_link.
 *
 *   WAITING ─retry timer→ RESOLVING → CONNECTING → GREETING ─all answered→ UP
 *      ↑                      (a unix socket needs no resolving)          │ │
 *      ├──────────── lose(): any failure, any deadline, any state ────────┤ │
 *      │                                                                  │ │
 *      ├── LEAVING: not up, waits for what is under way ←─ READONLY, NOAUTH │
 *      │                                                                    │
 *      └── RELOADING: as GREETING, but only the scripts ←─ NOSCRIPT ────────┘
 *                                     └─ all answered → UP
 *
 * Calls under way are a list, oldest first; replies come in its order. Two
 * timers: `retry` ends the backoff; `deadline` guards the way up to the first
 * answer and to each one after it, and from then on the oldest call. It is armed
 * by the first call and looks again when it fires, so new commands never push it
 * back. `retry` also spaces loads of scripts that somebody flushes all the time.
 *
 * The scripts are a megabyte, which a Redis that syncs its file between reads
 * takes in slowly. Had all of them one deadline, every attempt might fail at the
 * same place, for ever; so each has its own, which begins with the answer to the
 * one before.
 *
 * Any callback to the owner may free the connection: each event from the loop
 * holds a reference until it returns, and `state` says FREED afterwards. */
#include "adapters/redis.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "adapters/redis_calls.h"
#include "adapters/redis_dial.h"
#include "adapters/redis_greeting.h"
#include "adapters/redis_link.h"
#include "adapters/timer.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/mem.h"

#define BACKOFF_MS      50
#define BACKOFF_CAP_MS  2000
#define SLOW_MS         2000
#define SLOW_CAP_MS     10000
#define STABLE_MS       5000 /* a connection that held so long resets both */
#define RELOAD_EVERY_MS 100  /* scripts are not loaded more often */
#define LOG_REPEAT_MS   60000

enum state {
    WAITING,
    RESOLVING,
    CONNECTING,
    GREETING,
    UP,
    RELOADING,
    LEAVING,
    FREED,
};

struct redis {
    struct uv_loop_s *loop;
    struct redis_config config;
    enum state state;
    unsigned holds; /* the owner, and each event on the stack */

    struct redis_dial dial;
    struct redis_link *link; /* owned, from CONNECTING on */
    struct timer *retry;     /* owned */
    struct timer *deadline;  /* owned */
    bool overdue; /* the oldest call is; its reply may be waiting to be read */

    struct redis_calls calls;
    struct redis_greeting greeting;
    const char **argv; /* owned, n_args: room to put EVALSHA sha 0 in front */
    size_t *len;       /* owned, likewise */
    size_t n_args;

    struct backoff fast;
    struct backoff slow;
    bool leave_slowly; /* how to go from LEAVING, and why */
    char leave_why[200];
    uint64_t up_ms; /* when it came up last; 0 never */
    uint64_t reloaded_ms;
    uint64_t greeted_ms; /* last answer of a greeting or a load of scripts */
    uint64_t reconnects;
    bool announced; /* on_up was called, on_down not yet */
    struct log_limit log_limit;
    struct log_limit reload_limit;
    char logged[512]; /* the last failure that was logged */
    char text[320];   /* for status lines */
};

static void lose(struct redis *r, bool slow, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

static void hold(struct redis *r)
{
    r->holds++;
}

static void release(struct redis *r)
{
    if (--r->holds > 0)
        return;
    free(r->argv);
    free(r->len);
    free(r);
}

/* ---- calls under way ---- */

static uint64_t now_ms(const struct redis *r)
{
    return uv_now(r->loop);
}

static int send_call(struct redis *r, int argc, const char *const *argv,
                     const size_t *len, redis_on_reply cb, void *arg)
{
    if (redis_link_send(r->link, argc, argv, len) < 0)
        return -1;
    redis_calls_push(&r->calls, redis_calls_size(argc, len), now_ms(r), cb,
                     arg);
    if (!timer_active(r->deadline))
        timer_start(r->deadline, r->config.timeout_ms, 0);
    return 0;
}

/* Sends what the greeting has to say. When that fails, on_broken follows. */
static void send_greeting(struct redis *r)
{
    const char *argv[REDIS_GREETING_ARGS];
    size_t len[REDIS_GREETING_ARGS];
    int argc;

    while ((argc = redis_greeting_next(&r->greeting, argv)) > 0) {
        for (int i = 0; i < argc; i++)
            len[i] = strlen(argv[i]);
        if (send_call(r, argc, argv, len, NULL, NULL) < 0)
            return;
    }
}

/* The outcome of all of them is unknown. */
static void abandon_calls(struct redis *r)
{
    while (r->calls.n > 0) {
        struct redis_pending p = redis_calls_pop(&r->calls);

        if (p.cb)
            p.cb(p.arg, REDIS_UNKNOWN, NULL);
    }
}

/* ---- going down ---- */

/* Says it at once when it is new, and now and then while it lasts. */
static void log_failure(struct redis *r, const char *text)
{
    uint64_t held = 0;
    bool fresh = strcmp(text, r->logged) != 0;

    if (fresh)
        r->log_limit = (struct log_limit){0};
    if (!log_allow(&r->log_limit, LOG_REPEAT_MS, &held))
        return;
    snprintf(r->logged, sizeof(r->logged), "%s", text);
    if (held)
        log_warn("redis", "%s (%llu more times)", text,
                 (unsigned long long)held);
    else
        log_warn("redis", "%s", text);
}

static void log_loss(struct redis *r, const char *why)
{
    char address[ADDRESS_HOST_MAX + 16];
    char text[sizeof(r->logged)];

    address_format(&r->config.address, address, sizeof(address));
    if (r->state < UP)
        snprintf(text, sizeof(text), "cannot connect to %s: %s", address, why);
    else
        snprintf(text, sizeof(text),
                 "lost connection: %s, %zu commands unanswered", why,
                 redis_calls_owners(&r->calls));
    log_failure(r, text);
}

static void go_down(struct redis *r, const char *why)
{
    if (!r->announced)
        return;
    r->announced = false;
    r->config.on_down(r->config.arg, why);
}

static void close_link(struct redis *r)
{
    redis_dial_stop(&r->dial);
    redis_link_close(r->link);
    r->link = NULL;
    timer_stop(r->deadline);
    r->overdue = false;
}

static void retry_later(struct redis *r, bool slow, const char *what,
                        const char *why)
{
    unsigned ms = backoff_next_ms(slow ? &r->slow : &r->fast);

    snprintf(r->text, sizeof(r->text), "%s: %s, retry in %u %s", what, why,
             ms < 1000 ? ms : (ms + 500) / 1000, ms < 1000 ? "ms" : "s");
    timer_start(r->retry, ms, 0);
}

static void lose(struct redis *r, bool slow, const char *fmt, ...)
{
    const char *what = r->state < UP ? "not connected" : "lost";
    char why[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    log_loss(r, why);
    if (r->state >= UP && now_ms(r) - r->up_ms >= STABLE_MS) {
        backoff_reset(&r->fast);
        backoff_reset(&r->slow);
    }
    close_link(r);
    r->state = WAITING;
    retry_later(r, slow, what, why);
    abandon_calls(r);
    if (r->state == FREED)
        return;
    go_down(r, why);
}

/* ---- coming up ---- */

static void on_ready(struct redis *r)
{
    char address[ADDRESS_HOST_MAX + 16];
    bool reloaded = r->state == RELOADING;
    uint64_t held;
    const char *no;

    r->state = UP;
    snprintf(r->text, sizeof(r->text), "connected");
    timer_stop(r->deadline);
    if (!reloaded) {
        if (r->up_ms)
            r->reconnects++;
        r->up_ms = now_ms(r);
    }
    no = r->config.on_up(r->config.arg, &r->greeting.info);
    if (r->state != UP)
        return;
    if (no) {
        r->state = GREETING; /* for the log: it never was of use */
        lose(r, false, "%s", no);
        return;
    }
    r->announced = true;
    r->logged[0] = '\0';
    if (reloaded && !log_allow(&r->reload_limit, LOG_REPEAT_MS, &held))
        return;
    address_format(&r->config.address, address, sizeof(address));
    log_info("redis",
             reloaded ? "%s: scripts loaded again (%s, %s)"
                      : "connected to %s (%s, %s)",
             address, r->greeting.info.version,
             r->greeting.info.is_primary ? "primary" : "replica");
}

static void on_own_reply(struct redis *r, const struct redis_value *v)
{
    char why[200];
    enum redis_greeting_result result;

    if (r->state == LEAVING)
        return;
    r->greeted_ms = now_ms(r);
    result = redis_greeting_take(&r->greeting, v, why, sizeof(why));
    switch (result) {
    case REDIS_GREETING_GOES_ON:
        if (r->state == GREETING)
            timer_start(r->deadline, r->config.connect_timeout_ms, 0);
        break;
    case REDIS_GREETING_DONE:
        on_ready(r);
        break;
    case REDIS_GREETING_FAILED:
    case REDIS_GREETING_REFUSED:
        lose(r, result == REDIS_GREETING_REFUSED, "%s", why);
        break;
    }
}

/* ---- replies to the owner's calls ---- */

static void leave(struct redis *r, bool slow, const char *text, size_t len)
{
    r->state = LEAVING;
    timer_stop(r->retry);
    r->leave_slowly = slow;
    snprintf(r->leave_why, sizeof(r->leave_why), "%.*s", (int)len, text);
    snprintf(r->text, sizeof(r->text), "leaving: %s", r->leave_why);
}

static void load_scripts(struct redis *r)
{
    r->reloaded_ms = now_ms(r);
    redis_greeting_begin_scripts(&r->greeting);
    send_greeting(r);
}

/* Scripts that are gone again right after a load must not make a storm of
 * loads. A reconnect would be no cure: its backoff is longer than events are
 * held. */
static void reload(struct redis *r)
{
    uint64_t since = now_ms(r) - r->reloaded_ms;

    if (r->reloaded_ms && since < RELOAD_EVERY_MS)
        timer_start(r->retry, RELOAD_EVERY_MS - since, 0);
    else
        load_scripts(r);
}

/* Only sets the state, so that calls made by the callback are refused. */
static enum redis_outcome take_error(struct redis *r, const char *text,
                                     size_t len)
{
    const struct redis_error *e = redis_error_find(text, len);

    switch (e->remedy) {
    case REDIS_REMEDY_NONE:
        break;
    case REDIS_REMEDY_RELOAD:
        if (r->state == UP && r->config.n_scripts > 0) {
            r->state = RELOADING;
            snprintf(r->text, sizeof(r->text), "loading scripts again");
        }
        break;
    case REDIS_REMEDY_RECONNECT:
    case REDIS_REMEDY_RECONNECT_SLOW:
        if (r->state != LEAVING)
            leave(r, e->remedy == REDIS_REMEDY_RECONNECT_SLOW, text, len);
        break;
    }
    return e->outcome;
}

static void on_owner_reply(struct redis *r, struct redis_pending p,
                           const struct redis_value *v)
{
    enum state before = r->state;
    enum redis_outcome outcome = REDIS_OK;

    if (redis_value_type(v) == REDIS_T_ERROR) {
        size_t len;
        const char *text = redis_value_str(v, &len);

        outcome = take_error(r, text, len);
    }
    p.cb(p.arg, outcome, v);
    if (r->state == before || r->state == FREED)
        return;
    if (r->state == LEAVING) {
        go_down(r, r->leave_why);
        return;
    }
    go_down(r, "scripts are being loaded again");
    if (r->state == RELOADING)
        reload(r);
}

static void on_reply(void *arg, const struct redis_value *v)
{
    struct redis *r = arg;
    struct redis_pending p = redis_calls_pop(&r->calls);

    hold(r);
    r->overdue = false;
    if (p.cb)
        on_owner_reply(r, p, v);
    else
        on_own_reply(r, v);
    if (r->state == LEAVING && r->calls.n == 0)
        lose(r, r->leave_slowly, "%s", r->leave_why);
    release(r);
}

/* ---- connecting ---- */

static void on_open(void *arg)
{
    struct redis *r = arg;

    hold(r);
    r->state = GREETING;
    snprintf(r->text, sizeof(r->text), "greeting");
    redis_greeting_begin(&r->greeting, &r->config);
    send_greeting(r);
    release(r);
}

/* While connecting, the host may have another address. */
static void on_broken(void *arg, const char *why)
{
    struct redis *r = arg;
    char next_why[128] = "";

    hold(r);
    redis_link_close(r->link);
    r->link = NULL;
    if (r->state == CONNECTING && r->config.address.kind != ADDRESS_UNIX)
        r->link = redis_dial_next(&r->dial, next_why, sizeof(next_why));
    if (!r->link)
        lose(r, false, "%s", next_why[0] ? next_why : why);
    release(r);
}

static const struct redis_link_events link_events = {on_open, on_reply,
                                                     on_broken};

static void connect_unix(struct redis *r)
{
    char why[128];

    r->state = CONNECTING;
    r->link = redis_link_open_unix(r->loop, r->config.address.path,
                                   &link_events, r, why, sizeof(why));
    if (!r->link)
        lose(r, false, "%s", why);
}

static void on_resolved(void *arg, const char *why)
{
    struct redis *r = arg;
    char next_why[128] = "";

    hold(r);
    r->state = CONNECTING;
    if (!why)
        r->link = redis_dial_next(&r->dial, next_why, sizeof(next_why));
    if (!r->link)
        lose(r, false, "%s", why ? why : next_why);
    release(r);
}

static void on_retry(void *arg)
{
    struct redis *r = arg;
    const struct address *a = &r->config.address;

    hold(r);
    if (r->state == RELOADING) {
        load_scripts(r);
        release(r);
        return;
    }
    snprintf(r->text, sizeof(r->text), "connecting");
    timer_start(r->deadline, r->config.connect_timeout_ms, 0);
    if (a->kind == ADDRESS_UNIX) {
        connect_unix(r);
    } else if (a->kind == ADDRESS_TLS && !r->config.tls) {
        lose(r, true, "this build has no TLS");
    } else {
        r->state = RESOLVING;
        redis_dial_resolve(&r->dial, r->config.connect_timeout_ms);
    }
    release(r);
}

/* What takes so long on the way up. */
static const char *doing(const struct redis *r)
{
    if (r->state == RESOLVING)
        return "resolving its name";
    if (r->state == CONNECTING)
        return "connecting";
    return redis_link_in_handshake(r->link) ? "the TLS handshake" : "greeting";
}

/* Since when the next answer is awaited: scripts are all sent at once, and no
 * call of the owner is older than an answer to these. */
static uint64_t waiting_since_ms(const struct redis *r)
{
    uint64_t oldest_ms = redis_calls_oldest_ms(&r->calls);

    return oldest_ms > r->greeted_ms ? oldest_ms : r->greeted_ms;
}

static void on_deadline(void *arg)
{
    struct redis *r = arg;
    uint64_t age;

    if (r->state < UP) {
        hold(r);
        lose(r, false, "%s took more than %u ms", doing(r),
             r->config.connect_timeout_ms);
        release(r);
        return;
    }
    if (r->calls.n == 0)
        return;
    age = now_ms(r) - waiting_since_ms(r);
    if (age < r->config.timeout_ms) {
        timer_start(r->deadline, r->config.timeout_ms - age, 0);
    } else if (!r->overdue) {
        /* We may have been stopped ourselves: read once more first. */
        r->overdue = true;
        timer_start(r->deadline, 0, 0);
    } else {
        hold(r);
        lose(r, false, "no answer within %u ms", r->config.timeout_ms);
        release(r);
    }
}

/* ---- the owner's side ---- */

struct redis *redis_new(struct uv_loop_s *loop, const struct redis_config *c)
{
    struct redis *r = mem_zalloc(sizeof(*r));

    r->loop = loop;
    r->config = *c;
    r->dial = (struct redis_dial){.loop = loop,
                                  .address = &r->config.address,
                                  .tls = c->tls,
                                  .events = &link_events,
                                  .on_resolved = on_resolved,
                                  .arg = r};
    r->state = WAITING;
    r->holds = 1;
    r->retry = timer_new(loop, on_retry, r);
    r->deadline = timer_new(loop, on_deadline, r);
    redis_calls_init(&r->calls);
    backoff_init(&r->fast, BACKOFF_MS, BACKOFF_CAP_MS);
    backoff_init(&r->slow, SLOW_MS, SLOW_CAP_MS);
    snprintf(r->text, sizeof(r->text), "connecting");
    timer_start(r->retry, 0, 0);
    return r;
}

void redis_free(struct redis *r)
{
    if (!r)
        return;
    assert(r->state != FREED);
    close_link(r);
    r->state = FREED;
    timer_free(r->retry);
    timer_free(r->deadline);
    abandon_calls(r);
    release(r);
}

int redis_call(struct redis *r, int argc, const char *const *argv,
               const size_t *len, redis_on_reply cb, void *arg)
{
    if (r->state != UP)
        return REDIS_NOT_CONNECTED;
    if (redis_calls_full(&r->calls, redis_calls_size(argc, len)))
        return REDIS_BUSY;
    return send_call(r, argc, argv, len, cb, arg) < 0 ? REDIS_NOT_CONNECTED : 0;
}

static void reserve_args(struct redis *r, size_t n)
{
    if (n <= r->n_args)
        return;
    r->n_args = n;
    r->argv = mem_realloc(r->argv, n * sizeof(*r->argv));
    r->len = mem_realloc(r->len, n * sizeof(*r->len));
}

int redis_script(struct redis *r, const struct redis_script *s, int argc,
                 const char *const *argv, const size_t *len, redis_on_reply cb,
                 void *arg)
{
    const char *head[] = {"EVALSHA", s->sha, "0"};

    reserve_args(r, (size_t)argc + 3);
    for (int i = 0; i < 3; i++) {
        r->argv[i] = head[i];
        r->len[i] = strlen(head[i]);
    }
    if (argc > 0) {
        memcpy(r->argv + 3, argv, (size_t)argc * sizeof(*argv));
        memcpy(r->len + 3, len, (size_t)argc * sizeof(*len));
    }
    return redis_call(r, argc + 3, r->argv, r->len, cb, arg);
}

bool redis_is_up(const struct redis *r)
{
    return r->state == UP;
}

bool redis_is_connected(const struct redis *r)
{
    return r->state == UP || r->state == RELOADING;
}

const char *redis_state_text(const struct redis *r)
{
    return r->text;
}

uint64_t redis_reconnects(const struct redis *r)
{
    return r->reconnects;
}

size_t redis_in_flight(const struct redis *r)
{
    return r->calls.n;
}
