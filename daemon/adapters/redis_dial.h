/* SPDX-License-Identifier: MIT */
/* From the configured address to a link that connects: a unix socket at once, a
 * host by resolving it and trying its addresses, each once per attempt. */
#ifndef ADAPTERS_REDIS_DIAL_H
#define ADAPTERS_REDIS_DIAL_H

#include <stddef.h>

#include "adapters/redis_link.h"
#include "adapters/resolve.h"
#include "base/compiler.h"
#include "core/address.h"

struct redis_dial {
    struct uv_loop_s *loop;
    const struct address *address;          /* ref */
    const struct redis_tls *tls;            /* ref; NULL: plaintext */
    const struct redis_link_events *events; /* ref; of the links */
    /* The host has been resolved, or not (then with the reason): redis_dial_next
     * gives the links. */
    void (*on_resolved)(void *arg, const char *why);
    void *arg; /* ref; of the events and of on_resolved */

    struct resolve *resolve; /* owned, while resolving */
    struct resolve_result addresses;
    size_t tried;          /* of these, in this attempt */
    unsigned next_address; /* goes on from one attempt to the next */
};

/* A new attempt: on_resolved follows, never before this returns. Not for unix
 * sockets. */
void redis_dial_resolve(struct redis_dial *d, unsigned timeout_ms);
void redis_dial_stop(struct redis_dial *d);
/* A link to the next address, or NULL when there is none left; then why, where
 * it is not empty, says what was wrong with the last one. */
MUST_CHECK struct redis_link *redis_dial_next(struct redis_dial *d, char *why,
                                              size_t size);

#endif
