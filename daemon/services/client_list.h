/* SPDX-License-Identifier: MIT */
/* CLIENT LIST. With many clients it takes its time in pieces, one list after
 * another, so that it neither holds the loop nor fills memory. */
#ifndef SERVICES_CLIENT_LIST_H
#define SERVICES_CLIENT_LIST_H

#include "base/buf.h"

struct client_list;
struct server;
struct session;
struct uv_loop_s;

struct client_list *client_list_new(struct uv_loop_s *loop,
                                    struct server *server);
/* Lists under way are answered with an error. NULL is allowed. */
void client_list_free(struct client_list *l);
/* A client's line, in Redis' words as far as we have the thing. */
void client_list_put(struct buf *b, const struct session *s);

#endif
