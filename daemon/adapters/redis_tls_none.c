/* SPDX-License-Identifier: MIT */
/* TLS to Redis in a build whose hiredis has none: nothing can be loaded, so no
 * link ever gets as far as a session. */
#include "adapters/redis_tls.h"

#include <stdio.h>

static const char none[] = "this build has no TLS support for Redis";

struct redis_tls *redis_tls_new(const struct redis_tls_config *c,
                                struct buf *why)
{
    (void)c;
    buf_puts(why, none);
    return NULL;
}

void redis_tls_free(struct redis_tls *t)
{
    (void)t;
}

int redis_tls_reload(struct redis_tls *t, struct buf *why)
{
    (void)t;
    buf_puts(why, none);
    return -1;
}

struct ssl_st *redis_tls_start(const struct redis_tls *t,
                               struct redisContext *c, char *why, size_t size)
{
    (void)t;
    (void)c;
    snprintf(why, size, "%s", none);
    return NULL;
}

bool redis_tls_is_open(const struct ssl_st *session)
{
    (void)session;
    return false;
}

void redis_tls_forget_errors(void)
{
}

bool redis_tls_failure(const struct redis_tls *t, const struct ssl_st *session,
                       char *why, size_t size)
{
    (void)t;
    (void)session;
    (void)why;
    (void)size;
    return false;
}
