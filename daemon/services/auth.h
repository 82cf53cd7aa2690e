/* SPDX-License-Identifier: MIT */
/* Who gets in: AUTH, HELLO's AUTH, and what is open without. */
#ifndef SERVICES_AUTH_H
#define SERVICES_AUTH_H

#include <stdbool.h>

#include "services/commands.h"

/* A session as it begins, also again by RESET. */
void auth_open(const struct commands *c, struct session *s);
/* Lets the client in when both are right. If not, the error is answered, the
 * request is finished now or later, and rq must not be touched: false. */
MUST_CHECK bool auth_try(struct commands *c, struct request *rq,
                         const struct resp_arg *user,
                         const struct resp_arg *password);
/* To what needs a client that is in. */
void reply_no_auth(struct request *rq);
/* The same to HELLO, which says how. */
void reply_hello_no_auth(struct request *rq);

#endif
