/* SPDX-License-Identifier: MIT */
/* FOLLOW, UNFOLLOW, RELATION, FOLLOWCOUNT, and the lists: FOLLOWING, FOLLOWERS,
 * MUTUALS, COMMON. */
#include "services/commands.h"

#include <stdlib.h>

#include "base/mem.h"
#include "services/events.h"
#include "services/follow_counts.h"
#include "services/pages.h"
#include "services/relations.h"

static enum id_type user_type(const struct commands *c)
{
    return c->follow->engine.owner_type;
}

/* ---- FOLLOW and UNFOLLOW ---- */

#define TO_SELF "ERR user and other are the same: nobody follows oneself"

static const struct event_verb verbs[] = {
    {EDGE_FOLLOW, 0, true, false, "user", TO_SELF},
    {EDGE_FOLLOW, 1, true, false, "user", TO_SELF},
};

void cmd_follow(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, &verbs[1]);
}

void cmd_unfollow(struct commands *c, struct request *rq, int argc,
                  const struct resp_arg *argv)
{
    event_command(c, rq, argc, argv, &verbs[0]);
}

/* ---- RELATION ---- */

static void on_relations(void *arg, const uint8_t *codes, size_t n,
                         const char *why)
{
    struct request *rq = arg;
    struct buf *b = request_reply(rq);

    if (!codes) {
        reply_failed(rq, why);
        return;
    }
    resp_array(b, n);
    for (size_t i = 0; i < n; i++)
        resp_int(b, codes[i]);
    request_done(rq);
}

void cmd_relation(struct commands *c, struct request *rq, int argc,
                  const struct resp_arg *argv)
{
    struct relations *r;
    struct id_key user;
    struct id_key other;

    if (!request_id(rq, user_type(c), "user", &argv[1], &user))
        return;
    r = relations_new(c->follow, user.text, user.len, (size_t)argc - 2);
    for (int i = 2; i < argc; i++) {
        if (!request_id(rq, user_type(c), "user", &argv[i], &other)) {
            relations_free(r);
            return;
        }
        relations_add(r, other.text, other.len);
    }
    relations_get(r, rq, on_relations, rq);
}

/* ---- FOLLOWCOUNT ---- */

static void on_counts(void *arg, const struct follow_count *counts, size_t n,
                      const char *why)
{
    struct request *rq = arg;
    struct buf *b = request_reply(rq);

    if (!counts) {
        reply_failed(rq, why);
        return;
    }
    resp_array(b, n);
    for (size_t i = 0; i < n; i++) {
        resp_array(b, 2);
        resp_int(b, counts[i].of[LIST_FOLLOW]);
        resp_int(b, counts[i].of[LIST_FANS]);
    }
    request_done(rq);
}

void cmd_followcount(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv)
{
    struct args users = {0};
    struct id_key user;

    if (argc - 1 > FOLLOW_COUNTS_MAX) {
        resp_error(request_reply(rq), "ERR too many users: expected at most %d",
                   FOLLOW_COUNTS_MAX);
        request_done(rq);
        return;
    }
    for (int i = 1; i < argc; i++) {
        if (!request_id(rq, user_type(c), "user", &argv[i], &user)) {
            args_free(&users);
            return;
        }
        args_put(&users, user.text, user.len);
    }
    follow_counts_get(c->follow_counts, rq, &users, on_counts, rq);
}

/* ---- lists ---- */

/* The ids are read; argv[first] is the first option. */
static void run(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv, int first, struct page_query *q)
{
    const struct page_rules rules = {
        .id_type = user_type(c),
        .may_view = q->filter == PAGE_ALL,
        .viewer_type = user_type(c),
        .count_max = c->follow->engine.options->follow_page_max,
        .count_option = "follow.page_max",
    };

    if (page_args_parse(&q->args, &rules, argc - first, argv + first,
                        request_reply(rq)) == 0)
        pages_run(c, rq, q);
    else
        request_done(rq);
}

static void run_list(struct commands *c, struct request *rq, int argc,
                     const struct resp_arg *argv, enum list_side side,
                     enum page_filter filter)
{
    struct page_query q = {.side = side, .filter = filter};

    if (request_id(rq, user_type(c), "user", &argv[1], &q.user))
        run(c, rq, argc, argv, 2, &q);
}

void cmd_following(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv)
{
    run_list(c, rq, argc, argv, LIST_FOLLOW, PAGE_ALL);
}

void cmd_followers(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv)
{
    run_list(c, rq, argc, argv, LIST_FANS, PAGE_ALL);
}

void cmd_mutuals(struct commands *c, struct request *rq, int argc,
                 const struct resp_arg *argv)
{
    run_list(c, rq, argc, argv, LIST_FOLLOW, PAGE_MUTUALS);
}

void cmd_common(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    struct page_query q = {.side = LIST_FOLLOW, .filter = PAGE_COMMON};

    if (request_id(rq, user_type(c), "user", &argv[1], &q.user) &&
        request_id(rq, user_type(c), "user", &argv[2], &q.other))
        run(c, rq, argc, argv, 3, &q);
}
