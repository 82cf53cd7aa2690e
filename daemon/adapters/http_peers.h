/* SPDX-License-Identifier: MIT */
/* Who is connected by HTTP, and until when an answer has to be taken: a byte now
 * and then, which is not idle, holds no place for long. It knows sockets only. */
#ifndef ADAPTERS_HTTP_PEERS_H
#define ADAPTERS_HTTP_PEERS_H

#include <stdint.h>

#include "base/list.h"

struct http_peer;
struct sockaddr;

struct http_peers {
    struct list list; /* of struct http_peer, the first is due first */
};

/* From a peer's connect, or its last answer, until the end of the next one. */
#define HTTP_PEER_MAX_MS 15000

void http_peers_init(struct http_peers *peers);
/* Free it before fd is closed. */
struct http_peer *http_peer_new(struct http_peers *peers, int fd);
void http_peer_free(struct http_peer *p);
/* How many come from the same host. */
unsigned http_peers_from(const struct http_peers *peers,
                         const struct sockaddr *host);
/* An answer was taken to its end. */
void http_peer_served(struct http_peers *peers, struct http_peer *p);
/* Shuts down the connections of those who are late: whoever polls their sockets
 * sees that. Milliseconds until the next one is; UINT64_MAX: there is none. */
uint64_t http_peers_expire(struct http_peers *peers);

#endif
