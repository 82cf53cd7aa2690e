/* SPDX-License-Identifier: MIT */
/* Looks at the sessions there are. */
#include "adapters/server_internal.h"

#include <stdio.h>

static struct client *client_of(const struct session *s)
{
    return CONTAINER_OF((void *)(uintptr_t)s, struct client, session);
}

size_t server_clients(const struct server *s)
{
    return s->n_clients;
}

int64_t server_max_clients(const struct server *s)
{
    return s->max_clients;
}

/* New clients are put last, so ids rise along the list. */
size_t server_sessions_after(struct server *s, uint64_t id, size_t max,
                             void (*fn)(void *arg, const struct session *),
                             void *arg)
{
    size_t n = 0;

    LIST_FOREACH(node, &s->clients) {
        const struct client *c = LIST_ENTRY(node, struct client, node);

        if (n == max)
            break;
        if (c->session.id <= id)
            continue;
        fn(arg, &c->session);
        n++;
    }
    return n;
}

const struct session *server_session_by_id(struct server *s, uint64_t id)
{
    LIST_FOREACH(node, &s->clients) {
        const struct client *c = LIST_ENTRY(node, struct client, node);

        if (c->session.id == id)
            return &c->session;
    }
    return NULL;
}

void session_usage(const struct session *s, struct session_usage *u_r)
{
    const struct client *c = client_of(s);
    size_t queued = uv_stream_get_write_queue_size(&c->u.stream);

    *u_r = (struct session_usage){
        .fd = -1,
        .is_unix = c->u.handle.type == UV_NAMED_PIPE,
        .closing = c->state == CLIENT_DRAINING || c->state == CLIENT_LINGERING,
        .reads = c->state == CLIENT_READING,
        .writes = c->sending.len > 0,
        .idle_ms = uv_now(c->server->loop) - c->active_ms,
        .in_bytes = c->in.len,
        .in_free_bytes = c->in.cap - c->in.len,
        .out_bytes = c->out.len + queued,
        .held_requests = c->n_requests,
        .held_bytes = c->held_bytes,
        .memory_bytes = c->memory,
    };
    uv_fileno(&c->u.handle, &u_r->fd);
    server_local_address(c, u_r->local_addr, sizeof(u_r->local_addr));
}
