/* SPDX-License-Identifier: MIT */
/* A few GET routes on libmicrohttpd, driven by the loop (no threads). */
#ifndef ADAPTERS_HTTP_H
#define ADAPTERS_HTTP_H

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
    /* Fills body; returns the HTTP status. */
    int (*render)(void *arg, struct buf *body);
};

/* How many connections at a time: 64, fewer where descriptors are few. */
unsigned http_max_connections(void);

/* Listens on a TCP address (numeric host or `localhost`). NULL with the reason
 * in why. routes outlives it. Each connection is idle at most 10 s. */
struct http *http_new(struct uv_loop_s *loop, const struct address *a,
                      const struct http_route *routes, size_t n_routes,
                      void *arg, struct buf *why);
void http_free(struct http *h); /* NULL is allowed */
/* The port it listens on (the address may have asked for any, 0); -1 unknown. */
int http_port(const struct http *h);

#endif
