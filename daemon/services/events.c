/* SPDX-License-Identifier: MIT */
/* From a request to the ingest of its kind, and what that says back. */
#include "services/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/num.h"
#include "core/hottest.h"
#include "core/metrics.h"
#include "services/counts.h"
#include "services/ingest.h"

struct event_call {
    struct commands *commands;     /* ref */
    const struct service *service; /* ref */
    struct request *rq;
    bool with_count;
    bool changed;
    size_t owner_len;
    char owner[];
};

struct event_options {
    int64_t at_us; /* -1 none */
    bool with_count;
};

/* ---- the answer ---- */

static void put_full(struct buf *b, const char *text)
{
    if (strncmp(text, "OOM", 3) == 0)
        resp_error(b, "OOM not recorded: Redis is at its maxmemory");
    else
        resp_error(b, "UNAVAILABLE not recorded: %s", text);
}

static void put_limit(struct buf *b, const struct options *o)
{
    resp_error(b,
               "ERR not recorded: the user already follows %lld others or more "
               "(follow.max_following)",
               (long long)o->follow_max_following);
}

static void put_event_error(struct buf *b, const struct options *o,
                            enum ingest_result result, const char *text)
{
    switch (result) {
    case INGEST_FUTURE:
        resp_error(b, "ERR AT is more than 60 seconds in the future");
        break;
    case INGEST_BAD:
        resp_error(b, "ERR not recorded: %s", text);
        break;
    case INGEST_LIMIT:
        put_limit(b, o);
        break;
    case INGEST_FULL:
        put_full(b, text);
        break;
    case INGEST_TRYAGAIN:
        metric_add(M_OVERLOADS, 1);
        resp_error(b, "%s", text);
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
    if (fault_variant("refused_recorded")) {
        result = INGEST_TRYAGAIN;
        text = "TRYAGAIN a variant of tests";
    }
    call->changed = result == INGEST_CHANGED;
    if (result > INGEST_CHANGED) {
        put_event_error(b, call->service->engine.options, result, text);
    } else if (call->with_count) {
        struct counts_owner owner = {call->owner, call->owner_len};

        counts_get(call->commands->counts, call->rq, &owner, 1, on_count, call);
        return;
    } else {
        resp_int(b, call->changed);
    }
    request_done(call->rq);
    free(call);
}

/* ---- the request ---- */

static bool refuse_option(struct request *rq, const struct event_verb *verb,
                          const struct resp_arg *arg)
{
    char shown[RESP_SHOW_MAX];

    resp_error(request_reply(rq), "ERR unknown option '%s': expected AT %s",
               resp_show(arg, shown),
               verb->may_count ? "unix-time or WITHCOUNT" : "unix-time");
    request_done(rq);
    return false;
}

/* The time behind AT; `arg` NULL: there is nothing behind it. */
static bool read_at(struct request *rq, const struct resp_arg *arg,
                    int64_t *at_us_r)
{
    char shown[RESP_SHOW_MAX];

    if (arg && num_parse_time_us(arg->data, arg->len, at_us_r) == 0)
        return true;
    if (!arg)
        resp_error(request_reply(rq), "ERR AT without a time: expected "
                                      "Unix seconds behind it");
    else
        resp_error(request_reply(rq),
                   "ERR invalid time '%s': expected Unix seconds, decimals "
                   "allowed",
                   resp_show(arg, shown));
    request_done(rq);
    return false;
}

/* False when an error was put and the request is done; so all that read. */
static bool read_options(struct request *rq, int argc,
                         const struct resp_arg *argv,
                         const struct event_verb *verb, struct event_options *o)
{
    o->at_us = -1;
    for (int i = 3; i < argc; i++) {
        if (verb->may_count && resp_arg_is(&argv[i], "WITHCOUNT")) {
            o->with_count = true;
        } else if (!resp_arg_is(&argv[i], "AT")) {
            return refuse_option(rq, verb, &argv[i]);
        } else {
            i++;
            if (!read_at(rq, i < argc ? &argv[i] : NULL, &o->at_us))
                return false;
        }
    }
    return true;
}

static bool is_allowed(struct request *rq, const struct event_verb *verb,
                       const struct id_key *actor, const struct id_key *object)
{
    if (!verb->to_self || actor->len != object->len ||
        memcmp(actor->text, object->text, actor->len) != 0)
        return true;
    resp_error(request_reply(rq), "%s", verb->to_self);
    request_done(rq);
    return false;
}

static void submit(struct commands *c, struct request *rq,
                   const struct event_verb *verb, const struct id_key *owner,
                   const struct id_key *member, const struct event_options *o)
{
    const struct service *s = &c->services[verb->kind];
    struct event_call *call = mem_alloc(sizeof(*call) + owner->len);
    char why[200];
    int rc;

    call->commands = c;
    call->service = s;
    call->rq = rq;
    call->with_count = o->with_count;
    call->owner_len = owner->len;
    memcpy(call->owner, owner->text, owner->len);
    rc = ingest_submit(s->ingest, owner->text, owner->len, member->text,
                       member->len, verb->status, o->at_us, on_event, call);
    if (rc == 0) {
        request_session(rq)->writes++;
        hottest_add(s->engine.hottest, owner->text, owner->len);
        return;
    }
    free(call);
    if (rc == INGEST_OVERLOAD)
        snprintf(why, sizeof(why),
                 "TRYAGAIN not recorded: too many events are waiting");
    else
        snprintf(why, sizeof(why), "UNAVAILABLE not recorded: %s",
                 ingest_why(s->ingest));
    reply_failed(rq, why);
}

void event_command(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv, const struct event_verb *verb)
{
    const struct engine *e = &c->services[verb->kind].engine;
    bool by_owner = verb->actor_is_owner;
    struct event_options o = {0};
    struct id_key actor;
    struct id_key object;

    if (request_id(rq, by_owner ? e->owner_type : e->member_type, "user",
                   &argv[1], &actor) &&
        request_id(rq, by_owner ? e->member_type : e->owner_type, verb->object,
                   &argv[2], &object) &&
        read_options(rq, argc, argv, verb, &o) &&
        is_allowed(rq, verb, &actor, &object))
        submit(c, rq, verb, by_owner ? &actor : &object,
               by_owner ? &object : &actor, &o);
}
