/* SPDX-License-Identifier: MIT */
/* The listeners of the daemon for RESP. */
#include "daemon_internal.h"

#include <stdio.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "services/client_list.h"

/* All of one request: a full list of ids, or one argument of full length; not
 * both, which could be 64 MiB for each client. */
static size_t max_request(const struct options *o)
{
    enum { LEAST = 1 << 20, ROOM = 1 << 16, PER_ID = 64 };
    int64_t max = o->max_arg_bytes + ROOM;

    if (max < o->max_args * PER_ID)
        max = o->max_args * PER_ID;
    return max < LEAST ? LEAST : (size_t)max;
}

/* A unix socket has a lock file; a name may stand for two addresses. */
static int64_t other_fds(const struct options *o)
{
    return o->pg_connections + http_max_connections() +
           2 * (o->listen.n + o->admin_listen.n);
}

struct server_limits daemon_limits(const struct options *o)
{
    return (struct server_limits){
        .max_clients = o->max_clients,
        .other_fds = other_fds(o),
        .max_client_memory = o->max_client_memory,
        .max_pipeline = o->max_pipeline,
        .output_soft_bytes = o->output_soft_bytes,
        .output_hard_bytes = o->output_hard_bytes,
        .idle_timeout_s = o->idle_timeout_s,
        .max_requests_before_auth = o->max_requests_before_auth,
        .auth_timeout_s = o->auth_timeout_s,
        .socket_mode = (int)o->socket_mode,
        .admin_socket_mode = (int)o->admin_socket_mode,
        .socket_group = o->socket_group,
        .admin_socket_group = o->admin_socket_group,
        .request =
            {
                .max_args = (size_t)o->max_args,
                .max_arg_bytes = (size_t)o->max_arg_bytes,
                .max_inline = 65536,
                .max_request = max_request(o),
            },
        .unauthenticated =
            {
                .max_args = 10,
                .max_arg_bytes = 16384,
                .max_inline = 16384,
                .max_request = 200000,
            },
    };
}

int daemon_server_start(struct daemon *d)
{
    struct server_config config = {
        .limits = daemon_limits(d->options),
        .on_open = commands_on_open,
        .must_wait = commands_must_wait,
        .on_request = commands_on_request,
        .arg = &d->commands,
    };

    d->auth = auth_new(&d->loop, d->password, &d->options->auth_delay_ms);
    d->commands = (struct commands){
        .services = d->services,
        .like = &d->services[EDGE_LIKE],
        .follow = &d->services[EDGE_FOLLOW],
        .counts = d->counts,
        .likers = d->likers,
        .lists = d->list_loads,
        .pages = d->pages,
        .follow_counts = d->follow_counts,
        .adopt = d->adopt,
        .verify = d->verify,
        .auth = d->auth,
        .config_path = d->path,
        .started_ms = clock_monotonic_ms(),
    };
    snprintf(d->commands.run_id, sizeof(d->commands.run_id), "%016llx%016llx",
             (unsigned long long)random_u64(),
             (unsigned long long)random_u64());
    d->server = server_new(&d->loop, &config);
    d->commands.server = d->server;
    d->commands.client_list = client_list_new(&d->loop, d->server);
    return daemon_listen(d);
}
