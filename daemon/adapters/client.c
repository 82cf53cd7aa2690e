/* SPDX-License-Identifier: MIT */
/* One client of the server.
 *
 * Happy path: a read fills the server's scratch buffer, is parsed in place and
 * dispatched; only an incomplete rest is kept. Finished replies gather in `out`
 * and leave together in one write before the loop sleeps.
 *
 * Failure modes: too many requests under way or too much unsent output → not
 * read until half of it is gone (PAUSED). More than the hard limit unsent →
 * closed. End of input, QUIT or a protocol error → the replies under way leave
 * (DRAINING), then closed; but who may still be sending is heard for a while
 * (LINGERING). Read or write error, an attack → closed at once. */
#include "adapters/server_internal.h"

#include "core/metrics.h"

#define OUT_KEEP_BYTES   1024 /* memory that an idle client keeps */
#define IN_KEEP_BYTES    4096
#define PARSER_KEEP_ARGS 64

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);

static bool is_read(enum client_state state)
{
    return state == CLIENT_READING || state == CLIENT_LINGERING;
}

void client_set_state(struct client *c, enum client_state state)
{
    enum client_state old = c->state;

    c->state = state;
    if (is_read(state))
        uv_read_start(&c->u.stream, on_alloc, on_read);
    else if (is_read(old))
        uv_read_stop(&c->u.stream);
}

void client_mark_ready(struct client *c)
{
    if (c->state != CLIENT_CLOSED && list_empty(&c->ready_node))
        list_push_back(&c->server->ready, &c->ready_node);
}

void client_drain(struct client *c)
{
    if (c->state == CLIENT_READING || c->state == CLIENT_PAUSED)
        client_set_state(c, CLIENT_DRAINING);
    client_mark_ready(c);
}

static size_t client_unsent(const struct client *c)
{
    size_t queued = uv_stream_get_write_queue_size(&c->u.stream);

    return c->out.len + c->held_bytes + queued;
}

/* ---- requests ---- */

/* Not read for a while when too much of it is under way. */
static bool client_pause(struct client *c)
{
    const struct server_limits *l = &c->server->config.limits;

    if (c->n_requests >= (size_t)l->max_pipeline)
        metric_add(M_CLIENTS_PAUSED_PIPELINE, 1);
    else if (client_unsent(c) > (size_t)l->output_soft_bytes)
        metric_add(M_CLIENTS_PAUSED_OUTPUT, 1);
    else
        return false;
    client_set_state(c, CLIENT_PAUSED);
    client_mark_ready(c);
    return true;
}

static void client_broken(struct client *c)
{
    static const enum client_end ends[] = {
        [RESP_FAULT_PROTOCOL] = END_PROTOCOL,
        [RESP_FAULT_ARGS] = END_ARGS,
        [RESP_FAULT_ARG_BYTES] = END_ARG_BYTES,
        [RESP_FAULT_REQUEST] = END_REQUEST,
    };
    struct request *rq = request_new(c);

    c->end = ends[c->parser.fault];
    resp_error(&rq->reply, "ERR %s", c->parser.why);
    request_close_after(rq);
    request_done(rq);
}

/* Guessing passwords, or just noise. */
static void client_refuse_unauthenticated(struct client *c)
{
    struct request *rq = request_new(c);

    c->end = END_BEFORE_AUTH;
    resp_error(&rq->reply,
               "NOAUTH Authentication required, and not done in %lld requests "
               "(server.max_requests_before_auth)",
               (long long)c->server->config.limits.max_requests_before_auth);
    request_close_after(rq);
    request_done(rq);
}

static bool client_may_ask(struct client *c)
{
    if (c->session.authed) {
        c->n_before_auth = 0;
        return true;
    }
    return ++c->n_before_auth <=
           c->server->config.limits.max_requests_before_auth;
}

static void client_dispatch(struct client *c)
{
    const struct server_config *config = &c->server->config;

    metric_add(M_REQUESTS, 1);
    if (!client_may_ask(c)) {
        client_refuse_unauthenticated(c);
        return;
    }
    config->on_request(config->arg, request_new(c), c->parser.argc,
                       c->parser.argv);
}

static bool client_must_wait(const struct client *c)
{
    const struct server_config *config = &c->server->config;

    return c->n_requests > 0 && config->must_wait &&
           config->must_wait(config->arg, &c->session, &c->parser.argv[0]);
}

/* One request from data[0..len). Returns how much of it is used up, 0 when
 * there is none, it has to wait or the client is no longer read. */
static size_t client_parse_one(struct client *c, const char *data, size_t len)
{
    const struct server_limits *l = &c->server->config.limits;
    const struct resp_limits *limits =
        c->session.authed ? &l->request : &l->unauthenticated;

    switch (resp_parse(&c->parser, limits, data, len)) {
    case RESP_REQUEST:
        if (client_must_wait(c)) {
            c->barrier = true;
            client_set_state(c, CLIENT_PAUSED);
            return 0;
        }
        client_dispatch(c);
        return c->parser.used;
    case RESP_EMPTY:
        return c->parser.used;
    case RESP_BROKEN:
        client_broken(c);
        return 0;
    case RESP_ATTACK:
        client_close(c, END_ATTACK);
        return 0;
    case RESP_MORE:
        break;
    }
    return 0;
}

static size_t client_parse(struct client *c, const char *data, size_t len)
{
    size_t pos = 0;

    while (c->state == CLIENT_READING) {
        size_t used;

        if (client_pause(c) || pos == len)
            break;
        used = client_parse_one(c, data + pos, len - pos);
        if (used == 0)
            break;
        pos += used;
    }
    return pos;
}

/* Gives memory back that a burst has left. */
static void client_trim(struct client *c)
{
    struct buf rest = {0};

    if (c->in.len == 0) {
        buf_clear(&c->in, 0);
        if (c->parser.cap > PARSER_KEEP_ARGS) {
            resp_parser_free(&c->parser);
            resp_parser_init(&c->parser);
        }
    } else if (c->in.cap > IN_KEEP_BYTES && c->in.cap / 4 > c->in.len) {
        buf_append(&rest, c->in.data, c->in.len);
        buf_free(&c->in);
        c->in = rest;
    }
}

static void client_parse_kept(struct client *c)
{
    buf_consume(&c->in, client_parse(c, c->in.data, c->in.len));
    if (c->state == CLIENT_DRAINING || c->state == CLIENT_CLOSED)
        buf_clear(&c->in, 0);
    client_trim(c);
}

static void client_take(struct client *c, const char *data, size_t len)
{
    size_t used;

    c->active_ms = uv_now(c->server->loop);
    if (c->in.len > 0) {
        buf_append(&c->in, data, len);
        client_parse_kept(c);
        return;
    }
    used = client_parse(c, data, len);
    if (used < len && (c->state == CLIENT_READING || c->state == CLIENT_PAUSED))
        buf_append(&c->in, data + used, len - used);
    client_trim(c);
}

/* ---- reading and writing ---- */

void client_start(struct client *c)
{
    client_set_state(c, CLIENT_READING);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct client *c = handle->data;
    struct server *s = c->server;

    (void)suggested;
    if (c->read_turn == s->n_turns) {
        *buf = uv_buf_init(NULL, 0); /* on_read gets UV_ENOBUFS */
        return;
    }
    c->read_turn = s->n_turns;
    *buf = uv_buf_init(s->scratch, SERVER_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct client *c = stream->data;

    if (c->state == CLIENT_LINGERING) {
        client_linger_on(c, nread);
    } else if (nread > 0) {
        client_take(c, buf->base, (size_t)nread);
        client_count_memory(c);
        server_fit_memory(c->server);
    } else if (nread == UV_EOF) {
        client_drain(c);
    } else if (nread < 0 && nread != UV_ENOBUFS) {
        client_close(c, END_LEFT);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct client *c = write->data;

    if (c->state == CLIENT_CLOSED)
        return;
    if (status < 0) {
        client_close(c, END_LEFT);
        return;
    }
    buf_clear(&c->sending, OUT_KEEP_BYTES);
    c->active_ms = uv_now(c->server->loop);
    client_mark_ready(c);
}

/* What the kernel does not take now is left to one write at a time. */
static void client_send_rest(struct client *c, size_t sent)
{
    struct buf empty = c->sending;
    uv_buf_t rest;

    c->sending = c->out;
    c->out = empty;
    rest =
        uv_buf_init(c->sending.data + sent, (unsigned)(c->sending.len - sent));
    if (uv_write(&c->write, &c->u.stream, &rest, 1, on_written) < 0)
        client_close(c, END_LEFT);
}

static void client_send(struct client *c)
{
    uv_buf_t all;
    int sent;

    if (c->sending.len > 0 || c->out.len == 0)
        return;
    all = uv_buf_init(c->out.data, (unsigned)c->out.len);
    sent = uv_try_write(&c->u.stream, &all, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        client_close(c, END_LEFT);
        return;
    }
    if (sent > 0)
        c->active_ms = uv_now(c->server->loop);
    if (sent > 0 && (size_t)sent == c->out.len)
        buf_clear(&c->out, OUT_KEEP_BYTES);
    else
        client_send_rest(c, sent > 0 ? (size_t)sent : 0);
}

/* Reads on, first what was read before, once half of the load is gone. */
static void client_resume(struct client *c)
{
    const struct server_limits *l = &c->server->config.limits;

    if (c->n_requests > (size_t)l->max_pipeline / 2 ||
        client_unsent(c) > (size_t)l->output_soft_bytes / 2 ||
        (c->barrier && c->n_requests > 0))
        return;
    c->barrier = false;
    client_set_state(c, CLIENT_READING);
    client_parse_kept(c);
}

void client_turn(struct client *c)
{
    client_send(c);
    if (c->state == CLIENT_CLOSED)
        return;
    if (client_unsent(c) > (size_t)c->server->config.limits.output_hard_bytes)
        client_close(c, END_OUTPUT);
    else if (c->state == CLIENT_PAUSED)
        client_resume(c);
    else if (c->state == CLIENT_DRAINING && c->n_requests == 0 &&
             client_unsent(c) == 0)
        client_finish(c);
    client_count_memory(c);
}
