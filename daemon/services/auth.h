/* SPDX-License-Identifier: MIT */
/* Who gets in: AUTH, HELLO's AUTH, and what is open without.
 *
 * A wrong password is answered late, and until then nothing else of that client
 * is looked at: a pipeline of guesses takes its time one after another. A right
 * one is answered at once. */
#ifndef SERVICES_AUTH_H
#define SERVICES_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "adapters/server.h"

struct auth;

/* Without a password ("") anybody is in. `delay_ms` (ref) may change. */
struct auth *auth_new(struct uv_loop_s *loop, const char *password,
                      const int64_t *delay_ms);
/* Answers what waits, and delays no more. */
void auth_stop(struct auth *a);
/* The same, and frees it; NULL is allowed. */
void auth_free(struct auth *a);

/* A session as it begins, also again by RESET. */
void auth_open(const struct auth *a, struct session *s);
/* Lets the client in when both are right. If not, the error is answered, the
 * request is finished now or later, and rq must not be touched: false. */
MUST_CHECK bool auth_try(struct auth *a, struct request *rq,
                         const struct resp_arg *user,
                         const struct resp_arg *password);
/* To what needs a client that is in. */
void reply_no_auth(struct request *rq);
/* The same to HELLO, which says how. */
void reply_hello_no_auth(struct request *rq);

#endif
