/* SPDX-License-Identifier: MIT */
/* LIKE, UNLIKE, LIKED, LIKECOUNT. */
#include "services/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "core/metrics.h"
#include "services/counts.h"
#include "services/ingest.h"
#include "services/states.h"

struct id_key {
    char text[ID_KEY_MAX];
    size_t len;
};

/* False when an error was put and the request is done. */
static bool read_id(struct request *rq, enum id_type type, const char *what,
                    const struct resp_arg *arg, struct id_key *id_r)
{
    char shown[RESP_SHOW_MAX];
    const char *why;

    if (id_parse(type, arg->data, arg->len, id_r->text, &id_r->len, &why) == 0)
        return true;
    resp_error(request_reply(rq), "ERR invalid %s id '%s': %s", what,
               resp_show(arg, shown), why);
    request_done(rq);
    return false;
}

/* `why` with its code. */
static void reply_failed(struct request *rq, const char *why)
{
    if (strncmp(why, "TRYAGAIN", 8) == 0)
        metric_add(M_OVERLOADS, 1);
    resp_error(request_reply(rq), "%s", why);
    request_done(rq);
}

/* ---- LIKE and UNLIKE ---- */

struct event_call {
    struct commands *commands; /* ref */
    struct request *rq;
    bool with_count;
    bool changed;
    size_t post_len;
    char post[];
};

static void put_event_error(struct buf *b, enum ingest_result result,
                            const char *text)
{
    switch (result) {
    case INGEST_FUTURE:
        resp_error(b, "ERR AT is more than 60 seconds in the future");
        break;
    case INGEST_BAD:
        resp_error(b, "ERR not recorded: %s", text);
        break;
    case INGEST_FULL:
        if (strncmp(text, "OOM", 3) == 0)
            resp_error(b, "OOM not recorded: Redis is at its maxmemory");
        else
            resp_error(b, "UNAVAILABLE not recorded: %s", text);
        break;
    case INGEST_UNAVAILABLE:
        resp_error(b, "UNAVAILABLE not recorded: %s", text);
        break;
    default:
        resp_error(b, "UNKNOWN outcome not known, send it again: %s", text);
        break;
    }
}

/* The event is recorded, so this cannot be an error: without a total it is
 * null. */
static void on_count(void *arg, const int64_t *totals, const char *why)
{
    struct event_call *call = arg;
    struct buf *b = request_reply(call->rq);

    (void)why;
    resp_array(b, 2);
    resp_int(b, call->changed);
    if (totals)
        resp_int(b, totals[0]);
    else
        resp_null(b, request_proto(call->rq));
    request_done(call->rq);
    free(call);
}

static void on_event(void *arg, enum ingest_result result, const char *text)
{
    struct event_call *call = arg;
    struct buf *b = request_reply(call->rq);
    struct session *s = request_session(call->rq);

    if (s)
        s->writes--;
    call->changed = result == INGEST_CHANGED;
    if (result > INGEST_CHANGED) {
        put_event_error(b, result, text);
    } else if (call->with_count) {
        struct counts_owner post = {call->post, call->post_len};

        counts_get(call->commands->counts, &post, 1, on_count, call);
        return;
    } else {
        resp_int(b, call->changed);
    }
    request_done(call->rq);
    free(call);
}

struct event_options {
    int64_t at_us; /* -1 none */
    bool with_count;
};

/* False when an error was put and the request is done. */
static bool read_options(struct request *rq, int argc,
                         const struct resp_arg *argv, struct event_options *o)
{
    char shown[RESP_SHOW_MAX];

    o->at_us = -1;
    for (int i = 3; i < argc; i++) {
        if (resp_arg_is(&argv[i], "WITHCOUNT")) {
            o->with_count = true;
        } else if (!resp_arg_is(&argv[i], "AT")) {
            resp_error(request_reply(rq),
                       "ERR unknown option '%s': expected AT unix-time or "
                       "WITHCOUNT",
                       resp_show(&argv[i], shown));
            request_done(rq);
            return false;
        } else if (++i == argc) {
            resp_error(request_reply(rq), "ERR AT without a time: expected "
                                          "Unix seconds behind it");
            request_done(rq);
            return false;
        } else if (num_parse_time_us(argv[i].data, argv[i].len, &o->at_us)) {
            resp_error(request_reply(rq),
                       "ERR invalid time '%s': expected Unix seconds, "
                       "decimals allowed",
                       resp_show(&argv[i], shown));
            request_done(rq);
            return false;
        }
    }
    return true;
}

static void submit(struct commands *c, struct request *rq,
                   const struct id_key *user, const struct id_key *post,
                   int status, const struct event_options *o)
{
    struct event_call *call = mem_alloc(sizeof(*call) + post->len);
    char why[200];
    int rc;

    call->commands = c;
    call->rq = rq;
    call->with_count = o->with_count;
    call->post_len = post->len;
    memcpy(call->post, post->text, post->len);
    rc = ingest_submit(c->like->ingest, post->text, post->len, user->text,
                       user->len, status, o->at_us, on_event, call);
    if (rc == 0) {
        request_session(rq)->writes++;
        return;
    }
    free(call);
    if (rc == INGEST_OVERLOAD)
        snprintf(why, sizeof(why),
                 "TRYAGAIN not recorded: too many events are waiting");
    else
        snprintf(why, sizeof(why), "UNAVAILABLE not recorded: %s",
                 ingest_why(c->like->ingest));
    reply_failed(rq, why);
}

static void event_command(struct commands *c, struct request *rq, int argc,
                          const struct resp_arg *argv, int status)
{
    struct event_options o = {0};
    struct id_key user;
    struct id_key post;

    if (read_id(rq, c->like->engine.member_type, "user", &argv[1], &user) &&
        read_id(rq, c->like->engine.owner_type, "post", &argv[2], &post) &&
        read_options(rq, argc, argv, &o))
        submit(c, rq, &user, &post, status, &o);
}

void cmd_like(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, 1);
}

void cmd_unlike(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, 0);
}

/* ---- LIKED ---- */

static void on_states(void *arg, const uint8_t *states, size_t n,
                      const char *why)
{
    struct request *rq = arg;
    struct buf *b = request_reply(rq);

    if (!states) {
        reply_failed(rq, why);
        return;
    }
    resp_array(b, n);
    for (size_t i = 0; i < n; i++)
        resp_int(b, states[i]);
    request_done(rq);
}

void cmd_liked(struct commands *c, struct request *rq, int argc,
               const struct resp_arg *argv)
{
    struct states *st;
    struct id_key user;
    struct id_key post;

    if (!read_id(rq, c->like->engine.member_type, "user", &argv[1], &user))
        return;
    st = states_new(&c->like->engine, c->like->lookup, (size_t)argc - 2);
    for (int i = 2; i < argc; i++) {
        if (!read_id(rq, c->like->engine.owner_type, "post", &argv[i], &post)) {
            states_free(st);
            return;
        }
        states_add(st, post.text, post.len, user.text, user.len);
    }
    states_get(st, on_states, rq);
}

/* ---- LIKECOUNT ---- */

struct count_call {
    struct request *rq;
    size_t n;
};

static void on_counts(void *arg, const int64_t *totals, const char *why)
{
    struct count_call *call = arg;
    struct buf *b = request_reply(call->rq);

    if (totals) {
        resp_array(b, call->n);
        for (size_t i = 0; i < call->n; i++)
            resp_int(b, totals[i]);
        request_done(call->rq);
    } else {
        reply_failed(call->rq, why);
    }
    free(call);
}

void cmd_likecount(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv)
{
    size_t n = (size_t)argc - 1;
    struct id_key *ids;
    struct counts_owner *posts;
    struct count_call *call;
    size_t i = 0;

    if (n > COUNTS_MAX) {
        resp_error(request_reply(rq), "ERR too many posts: expected at most %d",
                   COUNTS_MAX);
        request_done(rq);
        return;
    }
    ids = mem_alloc(n * sizeof(*ids));
    posts = mem_alloc(n * sizeof(*posts));
    while (i < n && read_id(rq, c->like->engine.owner_type, "post",
                            &argv[i + 1], &ids[i])) {
        posts[i] = (struct counts_owner){ids[i].text, ids[i].len};
        i++;
    }
    if (i == n) {
        call = mem_alloc(sizeof(*call));
        *call = (struct count_call){rq, n};
        counts_get(c->counts, posts, n, on_counts, call);
    }
    free(ids);
    free(posts);
}
