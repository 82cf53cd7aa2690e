/* SPDX-License-Identifier: MIT */
/* Host name → numeric addresses.
 *
 * Happy path: uv_getaddrinfo on libuv's thread pool → on_found → callback.
 * Failure modes: the name is unknown (callback with the reason); the deadline
 * passes or the caller cancels (the request lives on without a listener: the
 * thread may still be inside getaddrinfo, and its memory goes when that
 * returns). */
#include "adapters/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <uv.h>

#include "adapters/timer.h"
#include "base/mem.h"

struct resolve {
    uv_getaddrinfo_t req;
    bool in_lookup;      /* the request is libuv's: it frees this at its end */
    struct timer *timer; /* owned; the deadline, or the answer known at once */
    resolve_cb cb;       /* NULL: nobody is to be told any more */
    void *arg;
    struct resolve_result result; /* what on_timer answers */
};

static void end(struct resolve *r)
{
    r->cb = NULL;
    timer_free(r->timer);
    r->timer = NULL;
    if (r->in_lookup)
        uv_cancel((uv_req_t *)&r->req); /* works while it is still queued */
    else
        free(r);
}

static void on_timer(void *arg)
{
    struct resolve *r = arg;
    struct resolve_result result = r->result;
    resolve_cb cb = r->cb;
    void *cb_arg = r->arg;

    end(r);
    cb(cb_arg, &result);
}

static void add_address(struct resolve_result *out, const struct addrinfo *ai)
{
    char *text = out->addresses[out->n];

    if (out->n == RESOLVE_MAX)
        return;
    if (getnameinfo(ai->ai_addr, ai->ai_addrlen, text, RESOLVE_ADDRESS_MAX,
                    NULL, 0, NI_NUMERICHOST) == 0)
        out->n++;
}

static void on_found(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct resolve *r = CONTAINER_OF(req, struct resolve, req);
    struct resolve_result result = {.n = 0};
    resolve_cb cb = r->cb;
    void *arg = r->arg;

    for (struct addrinfo *ai = list; ai; ai = ai->ai_next)
        add_address(&result, ai);
    if (result.n == 0)
        snprintf(result.why, sizeof(result.why), "%s",
                 status < 0 ? uv_strerror(status) : "no address");
    uv_freeaddrinfo(list);
    r->in_lookup = false;
    end(r);
    if (cb)
        cb(arg, &result);
}

static bool is_numeric(const char *host)
{
    struct in6_addr addr; /* large enough for both families */

    return strlen(host) < RESOLVE_ADDRESS_MAX &&
           (inet_pton(AF_INET, host, &addr) == 1 ||
            inet_pton(AF_INET6, host, &addr) == 1);
}

/* 0, or -1 when the answer is in r->result already. */
static int start_lookup(struct resolve *r, struct uv_loop_s *loop,
                        const char *host, int port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct resolve_result *result = &r->result;
    char service[16];
    int status;

    if (is_numeric(host)) {
        result->n = 1;
        snprintf(result->addresses[0], RESOLVE_ADDRESS_MAX, "%s", host);
        return -1;
    }
    snprintf(service, sizeof(service), "%d", port);
    status = uv_getaddrinfo(loop, &r->req, on_found, host, service, &hints);
    if (status < 0) {
        snprintf(result->why, sizeof(result->why), "%s", uv_strerror(status));
        return -1;
    }
    r->in_lookup = true;
    return 0;
}

struct resolve *resolve_start(struct uv_loop_s *loop, const char *host,
                              int port, unsigned timeout_ms, resolve_cb cb,
                              void *arg)
{
    struct resolve *r = mem_zalloc(sizeof(*r));

    r->cb = cb;
    r->arg = arg;
    r->timer = timer_new(loop, on_timer, r);
    if (start_lookup(r, loop, host, port) < 0) {
        timer_start(r->timer, 0, 0);
        return r;
    }
    snprintf(r->result.why, sizeof(r->result.why), "no answer within %u ms",
             timeout_ms);
    timer_start(r->timer, timeout_ms, 0);
    return r;
}

void resolve_cancel(struct resolve *r)
{
    if (r)
        end(r);
}
