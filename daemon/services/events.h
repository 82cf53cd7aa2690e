/* SPDX-License-Identifier: MIT */
/* What the commands that make or take back an edge have in common: LIKE,
 * UNLIKE, FOLLOW, UNFOLLOW. Actor first, then what it is about, then options. */
#ifndef SERVICES_EVENTS_H
#define SERVICES_EVENTS_H

#include <stdbool.h>

#include "services/commands.h"

struct event_verb {
    enum edge_index kind;
    int status;          /* 1 makes the edge, 0 takes it back */
    bool actor_is_owner; /* of the edge; else its member */
    bool may_count;      /* takes WITHCOUNT */
    const char *object;  /* what the second id is, in messages */
    const char *to_self; /* error when it is the actor; NULL: it may be */
};

void event_command(struct commands *c, struct request *rq, int argc,
                   const struct resp_arg *argv, const struct event_verb *verb);

#endif
