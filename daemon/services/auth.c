/* SPDX-License-Identifier: MIT */
/* Passwords and their commands, with Redis' replies (Redis 7.0: acl.c). */
#include "services/auth.h"

#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "core/secret.h"
#include "services/commands.h"

/* More than that: the oldest is answered early, so that clients that come, guess
 * and go cannot fill the memory. */
#define REFUSALS_MAX    65536
#define LOG_INTERVAL_MS 10000

struct auth {
    struct timer *timer;     /* owned; runs while there are refusals */
    const int64_t *delay_ms; /* ref */
    struct list refusals;    /* oldest first */
    size_t n_refusals;
    bool stopped;
    struct log_limit log;
    size_t len; /* of the password; 0 none */
    char password[SECRET_MAX];
};

/* A wrong password that is not answered yet. */
struct refusal {
    struct list node;
    struct request *rq;
    uint64_t since_ms;
};

/* ---- refusals ---- */

static void set_count(struct auth *a, size_t n)
{
    a->n_refusals = n;
    metric_set(M_AUTH_REFUSALS, (double)n);
}

static void answer(struct auth *a, struct refusal *r)
{
    struct session *s = request_session(r->rq);

    list_remove(&r->node);
    set_count(a, a->n_refusals - 1);
    if (s)
        s->refused = false;
    request_done(r->rq);
    free(r);
}

static void on_due(void *arg)
{
    struct auth *a = arg;
    uint64_t now = clock_monotonic_ms();

    LIST_FOREACH_SAFE(node, &a->refusals) {
        struct refusal *r = LIST_ENTRY(node, struct refusal, node);
        uint64_t due = r->since_ms + (uint64_t)*a->delay_ms;

        if (due > now) {
            timer_start(a->timer, due - now, 0);
            return;
        }
        answer(a, r);
    }
}

static void answer_later(struct auth *a, struct request *rq)
{
    struct refusal *r = mem_zalloc(sizeof(*r));

    r->rq = rq;
    r->since_ms = clock_monotonic_ms();
    request_session(rq)->refused = true;
    list_push_back(&a->refusals, &r->node);
    set_count(a, a->n_refusals + 1);
    if (a->n_refusals > REFUSALS_MAX)
        answer(a, LIST_ENTRY(a->refusals.next, struct refusal, node));
    if (!timer_active(a->timer))
        timer_start(a->timer, (uint64_t)*a->delay_ms, 0);
}

static void refuse(struct auth *a, struct request *rq)
{
    const struct session *s = request_session(rq);
    uint64_t held;

    metric_add(M_AUTH_FAILURES, 1);
    if (log_allow(&a->log, LOG_INTERVAL_MS, &held))
        log_warn("auth",
                 "wrong password or user (id %llu, %s; %llu more since the "
                 "last such line)",
                 (unsigned long long)s->id, s->addr, (unsigned long long)held);
    resp_error(request_reply(rq), "WRONGPASS invalid username-password pair or "
                                  "user is disabled.");
    if (a->stopped || *a->delay_ms == 0)
        request_done(rq);
    else
        answer_later(a, rq);
}

/* ---- life ---- */

struct auth *auth_new(struct uv_loop_s *loop, const char *password,
                      const int64_t *delay_ms)
{
    struct auth *a = mem_zalloc(sizeof(*a));

    a->timer = timer_new(loop, on_due, a);
    a->delay_ms = delay_ms;
    list_init(&a->refusals);
    a->len = strlen(password);
    memcpy(a->password, password, a->len);
    return a;
}

void auth_stop(struct auth *a)
{
    a->stopped = true;
    timer_stop(a->timer);
    LIST_FOREACH_SAFE(node, &a->refusals)
        answer(a, LIST_ENTRY(node, struct refusal, node));
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    auth_stop(a);
    timer_free(a->timer);
    explicit_bzero(a->password, sizeof(a->password));
    free(a);
}

/* ---- passwords ---- */

/* Whoever may open an admin socket is trusted: its file says who. */
void auth_open(const struct auth *a, struct session *s)
{
    s->authed = a->len == 0 || (s->admin && s->is_unix);
}

/* Goes over all bytes that a password may have, so that the time tells neither
 * where the two differ nor how long ours is. */
static bool is_password(const struct auth *a, const struct resp_arg *given)
{
    char padded[SECRET_MAX] = {0};
    unsigned differ = a->len != given->len;

    memcpy(padded, given->data,
           given->len < sizeof(padded) ? given->len : sizeof(padded));
    for (size_t i = 0; i < sizeof(padded); i++)
        differ |= (unsigned char)(padded[i] ^ a->password[i]);
    return differ == 0;
}

/* Without a password anybody is `default`, as in Redis. */
bool auth_try(struct auth *a, struct request *rq, const struct resp_arg *user,
              const struct resp_arg *password)
{
    bool is_default = user->len == 7 && memcmp(user->data, "default", 7) == 0;
    bool good = a->len == 0 || is_password(a, password);

    if (is_default && good) {
        request_session(rq)->authed = true;
        return true;
    }
    refuse(a, rq);
    return false;
}

void cmd_auth(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    static const struct resp_arg user_default = {"default", 7};
    const struct resp_arg *user = argc == 3 ? &argv[1] : &user_default;

    if (argc > 3) {
        resp_error(request_reply(rq), "ERR syntax error");
        request_done(rq);
    } else if (argc == 2 && c->auth->len == 0) {
        resp_error(request_reply(rq),
                   "ERR AUTH <password> called without any password configured "
                   "for the default user. Are you sure your configuration is "
                   "correct?");
        request_done(rq);
    } else if (auth_try(c->auth, rq, user, &argv[argc - 1])) {
        reply_ok(rq);
    }
}

void reply_no_auth(struct request *rq)
{
    resp_error(request_reply(rq), "NOAUTH Authentication required.");
    request_done(rq);
}

void reply_hello_no_auth(struct request *rq)
{
    resp_error(request_reply(rq),
               "NOAUTH HELLO must be called with the client already "
               "authenticated, otherwise the HELLO <proto> AUTH <user> "
               "<pass> option can be used to authenticate the client and "
               "select the RESP protocol version at the same time");
    request_done(rq);
}
