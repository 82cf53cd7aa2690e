/* SPDX-License-Identifier: MIT */
/* Pages of the lists of likes: who likes a post, what a user likes. */
#ifndef SERVICES_LIKERS_H
#define SERVICES_LIKERS_H

#include <stdbool.h>

#include "services/commands.h"
#include "services/likers_rows.h"
#include "services/page_args.h"

struct likers;

struct likers_query {
    enum likers_side side;
    struct id_key id; /* of the post, or the user */
    struct page_args args;
};

/* `pages`: the gate of pages of several steps (ref). */
struct likers *likers_new(const struct engine *e, struct gate *pages);
/* No page may be under way. */
void likers_free(struct likers *l);
/* Whether PostgreSQL has the indexes; where it has not, it is asked again by each
 * page. */
void likers_set_indexed(struct likers *l, bool indexed);

/* Replies to the request; q is copied. Holds at most like.page_max entries at a
 * time and one step more. */
void likers_run(struct likers *l, struct request *rq,
                const struct likers_query *q);

#endif
