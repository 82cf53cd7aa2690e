/* SPDX-License-Identifier: MIT */
/* LIKERS, LIKEDPOSTS. */
#include "services/commands.h"

#include "services/likers.h"

static void run(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv, enum likers_side side,
                const char *what)
{
    const struct engine *e = &c->like->engine;
    const struct page_rules rules = {
        .id_type = likers_entry_type(e, side),
        .count_max = e->options->like_page_max,
        .count_option = "like.page_max",
    };
    struct likers_query q = {.side = side};

    if (!request_id(rq, likers_key_type(e, side), what, &argv[1], &q.id))
        return;
    if (page_args_parse(&q.args, &rules, argc - 2, argv + 2,
                        request_reply(rq)) == 0)
        likers_run(c->likers, rq, &q);
    else
        request_done(rq);
}

void cmd_likers(struct commands *c, struct request *rq, int argc,
                const struct resp_arg *argv)
{
    run(c, rq, argc, argv, LIKERS_OF_POST, "post");
}

void cmd_likedposts(struct commands *c, struct request *rq, int argc,
                    const struct resp_arg *argv)
{
    run(c, rq, argc, argv, LIKERS_OF_USER, "user");
}
