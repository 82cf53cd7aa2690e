/* SPDX-License-Identifier: MIT */
/* How clients end: whatever the reason, it is counted once, and what a limit
 * has done is in the log.
 *
 * A TCP socket that is closed with something unread resets the connection, and the
 * last reply may get lost on its way. So where the end is ours (QUIT, an error after
 * which nothing is read), it first closes one half, and throws away what still comes
 * until the client goes, within bounds. */
#include "adapters/server_internal.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "core/metrics.h"

#define DRAIN_TIMEOUT_MS 60000 /* without progress; also without idle_timeout */
#define LINGER_MS        2000  /* or up to a tick more */
#define LINGER_BYTES     (1024u * 1024u)
#define LOG_INTERVAL_MS  10000

/* NULL: nothing to log. */
static const char *const why[END_COUNT] = {
    [END_OUTPUT] = "it does not read its replies (server.output_hard_bytes)",
    [END_MEMORY] = "all hold too much, it most (server.max_client_memory)",
    [END_BEFORE_AUTH] =
        "too many requests before AUTH (server.max_requests_before_auth)",
    [END_AUTH_TIMEOUT] = "no AUTH in time (server.auth_timeout)",
    [END_ARGS] = "too many arguments (server.max_args)",
    [END_ARG_BYTES] = "too long an argument (server.max_arg_bytes)",
    [END_REQUEST] = "too long a line or a request",
    [END_PROTOCOL] = "what it sends is not RESP",
    [END_ATTACK] = "it speaks HTTP, perhaps an attack through a browser",
};

static void log_end(struct client *c, enum client_end end)
{
    uint64_t held;

    if (!why[end] ||
        !log_allow(&c->server->log_ended[end], LOG_INTERVAL_MS, &held))
        return;
    log_warn("server",
             "client closed: %s (id %llu, %s, holds %zu bytes; %llu more since "
             "the last such line)",
             why[end], (unsigned long long)c->session.id, c->session.addr,
             c->memory, (unsigned long long)held);
}

void client_on_closed(uv_handle_t *handle)
{
    struct client *c = handle->data;
    struct server *s = c->server;

    resp_parser_free(&c->parser);
    buf_free(&c->in);
    buf_free(&c->out);
    buf_free(&c->sending);
    free(c);
    server_handle_closed(s);
}

static void tell_end(struct client *c, enum client_end end)
{
    if (c->end != END_LEFT) /* said before; the last replies have gone */
        end = c->end;
    metric_add(metric_of(M_CLIENTS_CLOSED_LEFT, (int)end), 1);
    log_end(c, end);
}

void client_close(struct client *c, enum client_end end)
{
    struct server *s = c->server;

    if (c->state == CLIENT_CLOSED)
        return;
    if (c->state != CLIENT_LINGERING)
        tell_end(c, end);
    client_set_state(c, CLIENT_CLOSED);
    list_remove(&c->node);
    list_remove(&c->ready_node);
    client_uncount_memory(c);
    s->n_clients--;
    metric_set(M_CLIENTS, (double)s->n_clients);
    request_detach_all(c);
    uv_close(&c->u.handle, client_on_closed);
}

void client_finish(struct client *c)
{
    uv_os_fd_t fd;

    if (!c->lingers || uv_fileno(&c->u.handle, &fd) < 0) {
        client_close(c, END_LEFT);
        return;
    }
    tell_end(c, END_LEFT);
    c->active_ms = uv_now(c->server->loop);
    client_set_state(c, CLIENT_LINGERING);
    if (shutdown(fd, SHUT_WR) < 0)
        client_close(c, END_LEFT);
}

void client_linger_on(struct client *c, ssize_t nread)
{
    if (nread > 0)
        c->lingered_bytes += (size_t)nread;
    if ((nread < 0 && nread != UV_ENOBUFS) || c->lingered_bytes > LINGER_BYTES)
        client_close(c, END_LEFT);
}

static bool is_idle(const struct client *c, uint64_t now)
{
    const struct server_limits *l = &c->server->config.limits;
    uint64_t limit_ms = (uint64_t)l->idle_timeout_s * 1000;

    if (c->state == CLIENT_DRAINING &&
        (limit_ms == 0 || limit_ms > DRAIN_TIMEOUT_MS))
        limit_ms = DRAIN_TIMEOUT_MS;
    return limit_ms > 0 && c->n_requests == 0 && now - c->active_ms >= limit_ms;
}

static bool is_late_to_auth(struct client *c, uint64_t now)
{
    uint64_t limit_ms =
        (uint64_t)c->server->config.limits.auth_timeout_s * 1000;

    if (c->session.authed)
        c->authed_ms = now;
    return limit_ms > 0 && now - c->authed_ms >= limit_ms;
}

void client_check_time(struct client *c)
{
    uint64_t now = uv_now(c->server->loop);

    if (c->state == CLIENT_LINGERING) {
        if (now - c->active_ms >= LINGER_MS)
            client_close(c, END_LEFT);
    } else if (is_late_to_auth(c, now)) {
        client_close(c, END_AUTH_TIMEOUT);
    } else if (is_idle(c, now)) {
        client_close(c, END_IDLE);
    }
}
