/* SPDX-License-Identifier: MIT */
/* Which address comes next. An attempt that fails goes on with the address after
 * the last one tried, so that one which swallows everything costs one attempt,
 * not all of them. */
#include "adapters/redis_dial.h"

static void on_resolved(void *arg, const struct resolve_result *result)
{
    struct redis_dial *d = arg;

    d->resolve = NULL;
    d->addresses = *result;
    d->on_resolved(d->arg, result->n ? NULL : result->why);
}

void redis_dial_resolve(struct redis_dial *d, unsigned timeout_ms)
{
    d->addresses.n = 0;
    d->tried = 0;
    d->resolve = resolve_start(d->loop, d->address->host, d->address->port,
                               timeout_ms, on_resolved, d);
}

void redis_dial_stop(struct redis_dial *d)
{
    resolve_cancel(d->resolve);
    d->resolve = NULL;
}

struct redis_link *redis_dial_next(struct redis_dial *d, char *why, size_t size)
{
    const struct resolve_result *a = &d->addresses;
    struct redis_link *link = NULL;

    why[0] = '\0';
    while (!link && d->tried < a->n) {
        const char *ip = a->addresses[d->next_address++ % a->n];

        d->tried++;
        link = redis_link_open_tcp(d->loop, ip, d->address->port, d->tls,
                                   d->events, d->arg, why, size);
    }
    return link;
}
