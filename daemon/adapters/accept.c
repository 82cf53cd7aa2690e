/* SPDX-License-Identifier: MIT */
/* New clients: taken in, or refused in Redis' words when there are too many. */
#include "adapters/server_internal.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/metrics.h"

#define ADMIN_EXTRA_CLIENTS 8 /* operators get in when the server is full */
#define ACCEPTS_PER_TURN    16
#define LOG_INTERVAL_MS     10000

static const char refusal[] = "-ERR max number of clients reached\r\n";

static struct client *client_new(struct listener *l)
{
    struct server *s = l->server;
    struct client *c = mem_zalloc(sizeof(*c));

    c->server = s;
    c->state = CLIENT_CLOSED;
    c->active_ms = uv_now(s->loop);
    c->authed_ms = c->active_ms;
    list_init(&c->node);
    list_init(&c->ready_node);
    list_init(&c->memory_node);
    list_init(&c->requests);
    resp_parser_init(&c->parser);
    if (l->is_unix)
        uv_pipe_init(s->loop, &c->u.pipe, 0);
    else
        uv_tcp_init(s->loop, &c->u.tcp);
    c->u.handle.data = c;
    c->write.data = c;
    s->n_handles++;
    return c;
}

static void format_address(const struct sockaddr_storage *ss, char *out,
                           size_t size)
{
    const struct sockaddr_in6 *in6 = (const void *)ss;
    const struct sockaddr_in *in = (const void *)ss;
    char name[64] = "?";

    if (ss->ss_family == AF_INET6) {
        uv_ip6_name(in6, name, sizeof(name));
        snprintf(out, size, "[%s]:%d", name, ntohs(in6->sin6_port));
    } else {
        uv_ip4_name(in, name, sizeof(name));
        snprintf(out, size, "%s:%d", name, ntohs(in->sin_port));
    }
}

static void format_peer(const struct listener *l, const struct client *c,
                        char *out, size_t size)
{
    struct sockaddr_storage ss;
    int len = sizeof(ss);

    if (l->is_unix)
        snprintf(out, size, "%s:0", l->path);
    else if (uv_tcp_getpeername(&c->u.tcp, (struct sockaddr *)&ss, &len) < 0)
        snprintf(out, size, "?:0");
    else
        format_address(&ss, out, size);
}

/* On a unix socket both ends have the socket's path, as in Redis. */
void server_local_address(const struct client *c, char *out, size_t size)
{
    struct sockaddr_storage ss;
    int len = sizeof(ss);

    if (c->u.handle.type == UV_NAMED_PIPE)
        snprintf(out, size, "%s", c->session.addr);
    else if (uv_tcp_getsockname(&c->u.tcp, (struct sockaddr *)&ss, &len) < 0)
        snprintf(out, size, "?:0");
    else
        format_address(&ss, out, size);
}

static void client_open(struct listener *l, struct client *c)
{
    struct server *s = l->server;

    c->session.id = ++s->last_id;
    c->session.admin = l->admin;
    c->session.is_unix = l->is_unix;
    c->session.proto = 2;
    c->session.created_ms = clock_monotonic_ms();
    format_peer(l, c, c->session.addr, sizeof(c->session.addr));
    list_push_back(&s->clients, &c->node);
    s->n_clients++;
    metric_add(M_CLIENTS_ACCEPTED, 1);
    metric_set(M_CLIENTS, (double)s->n_clients);
    s->config.on_open(s->config.arg, &c->session);
    client_start(c);
    client_count_memory(c);
}

static void client_refuse(struct listener *l, struct client *c)
{
    struct server *s = l->server;
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)refusal, sizeof(refusal) - 1);
    uint64_t held;

    metric_add(M_CLIENTS_REFUSED, 1);
    if (log_allow(&s->log_refused, LOG_INTERVAL_MS, &held))
        log_warn("server",
                 "client refused: %zu clients are connected (max_clients %lld; "
                 "%llu more since the last such line)",
                 s->n_clients, (long long)s->max_clients,
                 (unsigned long long)held);
    uv_try_write(&c->u.stream, &b, 1);
    uv_close(&c->u.handle, client_on_closed);
}

static void client_accept(struct listener *l)
{
    struct server *s = l->server;
    struct client *c = client_new(l);
    int64_t max = s->max_clients + (l->admin ? ADMIN_EXTRA_CLIENTS : 0);

    if (uv_accept(&l->u.stream, &c->u.stream) < 0)
        uv_close(&c->u.handle, client_on_closed);
    else if (s->n_clients >= (size_t)max)
        client_refuse(l, c);
    else
        client_open(l, c);
}

/* Clients may come and go faster than they are taken in, and libuv accepts as
 * long as some wait. One that we do not take makes it stop. */
void listener_on_client(struct listener *l)
{
    if (l->n_accepted++ < ACCEPTS_PER_TURN)
        client_accept(l);
}

void listener_turn(struct listener *l)
{
    bool left = l->n_accepted > ACCEPTS_PER_TURN;

    l->n_accepted = 0;
    if (left)
        listener_on_client(l);
}
