/* SPDX-License-Identifier: MIT */
/* TLS to Redis: certificates from files, and connections that use them. This is
 * redis_tls.c where hiredis has TLS (1.0 and newer), else redis_tls_none.c. */
#ifndef ADAPTERS_REDIS_TLS_H
#define ADAPTERS_REDIS_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/compiler.h"

struct redisContext;
struct redis_tls;
struct ssl_st;

/* Files are PEM; "" is none. All are copied. */
struct redis_tls_config {
    const char *ca;   /* whom to trust; none: whom the system trusts */
    const char *cert; /* ours, with what leads from it to its CA, or none */
    const char *key;  /* of cert: both or none */
    /* The host name or IP address that the server's certificate must be for. */
    const char *name;
};

/* Reads the files, and so blocks. NULL with the option of the file that cannot
 * be used, its name and the reason appended to why. */
MUST_CHECK struct redis_tls *redis_tls_new(const struct redis_tls_config *c,
                                           struct buf *why);
/* After the last link; NULL is allowed. */
void redis_tls_free(struct redis_tls *t);
/* Reads them again, for the connections to come. 0, or -1 with the reason
 * appended to why; then those read before stay. */
MUST_CHECK int redis_tls_reload(struct redis_tls *t, struct buf *why);

/* For redis_link.c only. */

/* Makes TLS of a connection that has only just begun to connect: its handshake
 * goes on with what hiredis reads and writes. The session belongs to the
 * context then. NULL with the reason in why. */
MUST_CHECK struct ssl_st *redis_tls_start(const struct redis_tls *t,
                                          struct redisContext *c, char *why,
                                          size_t size);
bool redis_tls_is_open(const struct ssl_st *session); /* handshake done */
/* Before each call of hiredis: OpenSSL takes what anybody in this thread left
 * in its queue of errors for its own. */
void redis_tls_forget_errors(void);
/* After a failure, while the session is still there: whether OpenSSL knows the
 * reason, which is then in why. */
MUST_CHECK bool redis_tls_failure(const struct redis_tls *t,
                                  const struct ssl_st *session, char *why,
                                  size_t size);

#endif
