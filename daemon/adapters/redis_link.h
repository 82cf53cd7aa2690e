/* SPDX-License-Identifier: MIT */
/* One connection to Redis, from connect to close, without any policy: what to
 * send, how long to wait and when to connect again is redis.c's business.
 * redis_link.c is the only file that names hiredis, but for its TLS
 * (redis_tls.c).
 *
 * Replies come in the order of the commands. No event is delivered before the
 * function that causes it has returned, none while hiredis holds a context that
 * is going away, and none after redis_link_close(). */
#ifndef ADAPTERS_REDIS_LINK_H
#define ADAPTERS_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct uv_loop_s;
struct redis_link;
struct redis_tls;
struct redis_value;

struct redis_link_events {
    void (*on_open)(void *arg); /* connected; a TLS handshake may follow */
    /* The answer to the oldest command not yet answered. */
    void (*on_reply)(void *arg, const struct redis_value *value);
    /* It failed: nothing more comes; redis_link_close() is still needed. */
    void (*on_broken)(void *arg, const char *why);
};

/* Starts connecting; nothing may be sent before on_open. NULL with the reason
 * in why. `events` outlives the link, and so does tls, which is NULL for
 * plaintext; ip is numeric. */
MUST_CHECK struct redis_link *
redis_link_open_unix(struct uv_loop_s *loop, const char *path,
                     const struct redis_link_events *events, void *arg,
                     char *why, size_t size);
MUST_CHECK struct redis_link *
redis_link_open_tcp(struct uv_loop_s *loop, const char *ip, int port,
                    const struct redis_tls *tls,
                    const struct redis_link_events *events, void *arg,
                    char *why, size_t size);
/* Memory goes later. May be called from any of its events; NULL is allowed. */
void redis_link_close(struct redis_link *l);

/* Whether a TLS handshake is still under way. */
bool redis_link_in_handshake(const struct redis_link *l);

/* Queues one command; everything is copied. 0, or -1 when the connection is
 * going away (then on_broken comes). */
MUST_CHECK int redis_link_send(struct redis_link *l, int argc,
                               const char *const *argv, const size_t *len);

#endif
