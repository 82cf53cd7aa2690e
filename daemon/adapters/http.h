/* SPDX-License-Identifier: MIT */
/* A few GET routes on libmicrohttpd, driven by the loop (no threads). */
#ifndef ADAPTERS_HTTP_H
#define ADAPTERS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "core/address.h"

struct uv_loop_s;
struct http;

struct http_route {
    const char *path;
    const char *content_type;
    const char
        *policy; /* Content-Security-Policy; NULL: nothing may be loaded */
    /* On a loopback address not to be read by the pages of others: who asks for
     * it by a name, but for localhost, gets 421. */
    bool guarded;
    /* Fills body; returns the HTTP status. Other than 200 it is plain text. */
    int (*render)(void *arg, struct buf *body);
};

/* How many connections at a time: 64, fewer where descriptors are few. Where it
 * does not listen on loopback one host has no more than half of them. */
unsigned http_max_connections(void);

/* Listens on a TCP address (numeric host or `localhost`). The descriptor, or -1
 * with the reason in why. */
MUST_CHECK int http_listen(const struct address *a, struct buf *why);
/* Serves what comes to fd, which listens, and is its own then. NULL with the
 * reason in why. routes outlives it. Each connection is idle at most 10 s, and an
 * answer is asked for and taken within HTTP_PEER_MAX_MS. */
struct http *http_new(struct uv_loop_s *loop, int fd,
                      const struct http_route *routes, size_t n_routes,
                      void *arg, struct buf *why);
void http_free(struct http *h); /* NULL is allowed */
/* The port it listens on (the address may have asked for any, 0); -1 unknown. */
int http_port(const struct http *h);

#endif
