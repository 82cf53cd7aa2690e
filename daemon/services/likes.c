/* SPDX-License-Identifier: MIT */
/* LIKE, UNLIKE, LIKED, LIKECOUNT. */
#include "services/commands.h"

#include <stdlib.h>

#include "base/mem.h"
#include "services/counts.h"
#include "services/events.h"
#include "services/states.h"

/* ---- LIKE and UNLIKE ---- */

static const struct event_verb verbs[] = {
    {.kind = EDGE_LIKE, .status = 0, .may_count = true, .object = "post"},
    {.kind = EDGE_LIKE, .status = 1, .may_count = true, .object = "post"},
};

void cmd_like(struct commands *c, struct request *rq, int argc,
              const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, &verbs[1]);
}

void cmd_unlike(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, &verbs[0]);
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

    if (!request_id(rq, c->like->engine.member_type, "user", &argv[1], &user))
        return;
    st = states_new(&c->like->engine, c->like->lookup, (size_t)argc - 2);
    for (int i = 2; i < argc; i++) {
        if (!request_id(rq, c->like->engine.owner_type, "post", &argv[i],
                        &post)) {
            states_free(st);
            return;
        }
        states_add(st, post.text, post.len, user.text, user.len);
    }
    states_get(st, rq, on_states, rq);
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
    while (i < n && request_id(rq, c->like->engine.owner_type, "post",
                               &argv[i + 1], &ids[i])) {
        posts[i] = (struct counts_owner){ids[i].text, ids[i].len};
        i++;
    }
    if (i == n) {
        call = mem_alloc(sizeof(*call));
        *call = (struct count_call){rq, n};
        counts_get(c->counts, rq, posts, n, on_counts, call);
    }
    free(ids);
    free(posts);
}
