/* SPDX-License-Identifier: MIT */
/* Requests and the order of their replies. Each writes into a buffer of its
 * own; when the oldest of a client is done, it and the done ones behind it move
 * to the client's output. */
#include "adapters/server_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

#define SPARE_MAX        1024
#define SPARE_REPLY_KEEP 256

static struct request *request_take(struct server *s)
{
    struct list *node = list_pop_front(&s->spare);
    struct request *rq;

    if (node) {
        s->n_spare--;
        return LIST_ENTRY(node, struct request, node);
    }
    rq = mem_zalloc(sizeof(*rq));
    list_init(&rq->node);
    rq->server = s;
    return rq;
}

static void request_put(struct request *rq)
{
    struct server *s = rq->server;

    if (s->freed || s->n_spare >= SPARE_MAX) {
        buf_free(&rq->reply);
        free(rq);
        return;
    }
    buf_clear(&rq->reply, SPARE_REPLY_KEEP);
    list_push_front(&s->spare, &rq->node);
    s->n_spare++;
}

struct request *request_new(struct client *c)
{
    struct request *rq = request_take(c->server);

    rq->client = c;
    rq->proto = c->session.proto;
    rq->timing = H_REQUEST_OTHER;
    rq->since_us = clock_monotonic_us();
    rq->done = false;
    rq->close_after = false;
    list_push_back(&c->requests, &rq->node);
    c->n_requests++;
    c->server->n_pending++;
    return rq;
}

void request_free_spare(struct server *s)
{
    struct list *node;

    while ((node = list_pop_front(&s->spare))) {
        struct request *rq = LIST_ENTRY(node, struct request, node);

        buf_free(&rq->reply);
        free(rq);
    }
    s->n_spare = 0;
}

void request_detach_all(struct client *c)
{
    struct list *node;

    while ((node = list_pop_front(&c->requests))) {
        struct request *rq = LIST_ENTRY(node, struct request, node);

        rq->client = NULL;
        if (rq->done)
            request_put(rq);
    }
    c->n_requests = 0;
    c->held_bytes = 0;
    c->held_memory = 0;
}

/* Moves the reply out of a request that is the oldest and done. */
static void request_emit(struct client *c, struct request *rq)
{
    list_remove(&rq->node);
    c->n_requests--;
    c->held_bytes -= rq->reply.len;
    c->held_memory -= rq->reply.cap;
    buf_append(&c->out, rq->reply.data, rq->reply.len);
    request_put(rq);
}

/* Ends at one that is not done, or whose reply is the last one of the client. */
static void request_emit_done(struct client *c)
{
    bool last = false;

    LIST_FOREACH_SAFE(node, &c->requests) {
        struct request *rq = LIST_ENTRY(node, struct request, node);

        if (!rq->done)
            break;
        last = rq->close_after;
        request_emit(c, rq);
        if (last)
            break;
    }
    if (last)
        request_detach_all(c);
    client_mark_ready(c);
}

void request_done(struct request *rq)
{
    struct server *s = rq->server;
    struct client *c = rq->client;

    assert(!rq->done);
    rq->done = true;
    histogram_observe(rq->timing, clock_monotonic_us() - rq->since_us);
    s->n_pending--;
    if (!c) {
        request_put(rq);
        server_release(s);
        return;
    }
    c->held_bytes += rq->reply.len;
    c->held_memory += rq->reply.cap;
    if (c->requests.next == &rq->node) {
        request_emit_done(c);
        return;
    }
    client_count_memory(c);
    if (c->held_bytes > (size_t)s->config.limits.output_hard_bytes)
        client_mark_ready(c);
}

void request_close_after(struct request *rq)
{
    rq->close_after = true;
    if (!rq->client)
        return;
    rq->client->lingers = true;
    client_drain(rq->client);
}

struct session *request_session(struct request *rq)
{
    return rq->client ? &rq->client->session : NULL;
}

void request_set_class(struct request *rq, enum histogram_id timing)
{
    rq->timing = timing;
}

int request_proto(const struct request *rq)
{
    return rq->proto;
}

struct buf *request_reply(struct request *rq)
{
    return &rq->reply;
}
