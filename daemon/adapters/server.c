/* SPDX-License-Identifier: MIT */
/* The server's lifetime, its limits, and its place in the loop.
 *
 * Once a turn, before the loop sleeps, the clients with something to do are
 * looked at: whatever finished their replies (a read, a backend's answer, a
 * timer) in that turn, it leaves in one write. */
#include "adapters/server_internal.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "core/metrics.h"

/* Descriptors that clients never get, besides other_fds: those of the loop, log,
 * Redis, reconnects, look-ups of names, the few more admin clients. (Out of
 * descriptors, libuv accepts and closes without a word.) */
#define RESERVED_FDS 32
#define TICK_MS      1000

static void on_turn(uv_prepare_t *turn)
{
    struct server *s = turn->data;
    struct list *node;

    s->n_turns++;
    LIST_FOREACH(listener, &s->listeners)
        listener_turn(LIST_ENTRY(listener, struct listener, node));
    server_fit_memory(s);
    while ((node = list_pop_front(&s->ready))) {
        client_turn(LIST_ENTRY(node, struct client, ready_node));
        server_fit_memory(s);
    }
    metric_set(M_CLIENT_MEMORY, (double)s->memory);
}

static void on_tick(uv_timer_t *tick)
{
    struct server *s = tick->data;

    LIST_FOREACH_SAFE(node, &s->clients)
        client_check_time(LIST_ENTRY(node, struct client, node));
}

/* The soft limit is raised as far as needed and allowed. */
static rlim_t raise_fd_limit(rlim_t wanted)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
        return wanted;
    if (rl.rlim_cur < wanted && rl.rlim_cur < rl.rlim_max) {
        struct rlimit more = rl;

        more.rlim_cur = wanted < rl.rlim_max ? wanted : rl.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            rl = more;
    }
    return rl.rlim_cur;
}

static void fit_max_clients(struct server *s)
{
    int64_t wanted = s->config.limits.max_clients;
    rlim_t others = RESERVED_FDS + (rlim_t)s->config.limits.other_fds;
    rlim_t have = raise_fd_limit((rlim_t)wanted + others);
    bool enough = have >= (rlim_t)wanted + others;

    s->max_clients = wanted;
    if (!enough)
        s->max_clients = have > others ? (int64_t)(have - others) : 1;
    metric_set(M_CLIENTS_MAX, (double)s->max_clients);
    if (enough)
        return;
    log_warn("server",
             "max_clients lowered from %lld to %lld: RLIMIT_NOFILE is %llu",
             (long long)wanted, (long long)s->max_clients,
             (unsigned long long)have);
}

/* Which of the two sets of request limits it is, the parser's errors say. */
static void take_limits(struct server *s, const struct server_limits *limits)
{
    s->config.limits = *limits;
    s->config.limits.request.unauthenticated = false;
    s->config.limits.unauthenticated.unauthenticated = true;
    fit_max_clients(s);
}

struct server *server_new(struct uv_loop_s *loop, const struct server_config *c)
{
    struct server *s = mem_zalloc(sizeof(*s));

    s->loop = loop;
    s->config = *c;
    list_init(&s->listeners);
    list_init(&s->clients);
    list_init(&s->ready);
    list_init(&s->spare);
    for (size_t i = 0; i < MEMORY_CLASSES; i++) {
        list_init(&s->by_memory[false][i]);
        list_init(&s->by_memory[true][i]);
    }
    s->scratch = mem_alloc(SERVER_READ_BYTES);
    take_limits(s, &c->limits);
    uv_prepare_init(loop, &s->turn);
    s->turn.data = s;
    uv_prepare_start(&s->turn, on_turn);
    uv_timer_init(loop, &s->tick);
    s->tick.data = s;
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    s->n_handles = 2;
    return s;
}

void server_set_limits(struct server *s, const struct server_limits *limits)
{
    take_limits(s, limits);
    LIST_FOREACH(node, &s->clients)
        client_mark_ready(LIST_ENTRY(node, struct client, node));
}

size_t server_pending(const struct server *s)
{
    return s->n_pending;
}

int server_port(const struct server *s, int index)
{
    LIST_FOREACH(node, &s->listeners) {
        const struct listener *l = LIST_ENTRY(node, struct listener, node);

        if (!l->is_unix && index-- == 0)
            return listener_port(l);
    }
    return -1;
}

void server_stop_listening(struct server *s)
{
    LIST_FOREACH_SAFE(node, &s->listeners)
        listener_close(LIST_ENTRY(node, struct listener, node));
}

void server_finish_clients(struct server *s)
{
    LIST_FOREACH_SAFE(node, &s->clients) {
        struct client *c = LIST_ENTRY(node, struct client, node);

        if (c->state == CLIENT_LINGERING)
            client_close(c, END_LEFT);
        else
            client_drain(c);
    }
}

void server_release(struct server *s)
{
    if (!s->freed || s->n_handles > 0 || s->n_pending > 0)
        return;
    free(s->scratch);
    free(s);
}

void server_handle_closed(struct server *s)
{
    s->n_handles--;
    server_release(s);
}

static void on_own_closed(uv_handle_t *handle)
{
    server_handle_closed(handle->data);
}

void server_free(struct server *s)
{
    if (!s)
        return;
    s->freed = true;
    server_stop_listening(s);
    LIST_FOREACH_SAFE(node, &s->clients)
        client_close(LIST_ENTRY(node, struct client, node), END_LEFT);
    request_free_spare(s);
    uv_close((uv_handle_t *)&s->turn, on_own_closed);
    uv_close((uv_handle_t *)&s->tick, on_own_closed);
}
