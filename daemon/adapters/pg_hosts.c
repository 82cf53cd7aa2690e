/* SPDX-License-Identifier: MIT */
/* Resolves the hosts of a conninfo one after the other.
 *
 * libpq tries its hosts in their order and has no deadline of its own when it
 * does not block, so one that is silent keeps it from the next. Whoever has
 * waited in vain begins with another one (`first`). */
#include "adapters/pg_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/resolve.h"
#include "base/mem.h"

static void next(struct pg_hosts *h);

static void add(struct pg_hosts *h, const char *address)
{
    if (h->n++ > 0) {
        buf_putc(&h->host, ',');
        buf_putc(&h->hostaddr, ',');
        buf_putc(&h->port, ',');
    }
    buf_append(&h->host, h->name_next, strcspn(h->name_next, ","));
    buf_puts(&h->hostaddr, address);
    buf_append(&h->port, h->port_next, strcspn(h->port_next, ","));
}

/* On to the next name; a single port stands for all of them. */
static void advance(struct pg_hosts *h)
{
    const char *comma = strchr(h->name_next, ',');
    const char *port_comma = strchr(h->port_next, ',');

    h->name_next = comma ? comma + 1 : NULL;
    if (port_comma)
        h->port_next = port_comma + 1;
}

static void on_resolved(void *arg, const struct resolve_result *result)
{
    struct pg_hosts *h = arg;

    h->lookup = NULL;
    for (size_t i = 0; i < result->n; i++)
        add(h, result->addresses[i]);
    if (result->n == 0)
        snprintf(h->why, sizeof(h->why), "%.*s: %s",
                 (int)strcspn(h->name_next, ","), h->name_next, result->why);
    advance(h);
    next(h);
}

static void lookup(struct pg_hosts *h)
{
    char *name = mem_strndup(h->name_next, strcspn(h->name_next, ","));

    h->lookup = resolve_start(h->loop, name, 0, h->timeout_ms, on_resolved, h);
    free(name);
}

/* "a,b,c" by 1 is "b,c,a". */
static void rotate(struct buf *list, unsigned by)
{
    struct buf rotated = {.len = 0};
    const char *text = buf_cstr(list), *rest = text;

    while (by-- > 0)
        rest = strchr(rest, ',') + 1;
    buf_puts(&rotated, rest);
    if (rest != text) {
        buf_putc(&rotated, ',');
        buf_append(&rotated, text, (size_t)(rest - text) - 1);
    }
    buf_cstr(&rotated);
    buf_free(list);
    *list = rotated;
}

static void next(struct pg_hosts *h)
{
    while (h->name_next) {
        /* Empty, a directory or an abstract socket: nothing to look up. */
        if (!strchr(",/@", *h->name_next)) {
            lookup(h);
            return;
        }
        add(h, "");
        advance(h);
    }
    if (h->n == 0) {
        h->cb(h->arg, h->why);
        return;
    }
    rotate(&h->host, h->first % h->n);
    rotate(&h->hostaddr, h->first % h->n);
    rotate(&h->port, h->first % h->n);
    h->cb(h->arg, NULL);
}

void pg_hosts_start(struct pg_hosts *h, struct uv_loop_s *loop,
                    const char *names, const char *ports, unsigned first,
                    unsigned timeout_ms, pg_hosts_cb cb, void *arg)
{
    memset(h, 0, sizeof(*h));
    h->loop = loop;
    h->cb = cb;
    h->arg = arg;
    h->first = first;
    h->timeout_ms = timeout_ms;
    h->names = mem_strdup(names);
    h->ports = mem_strdup(ports ? ports : "");
    h->name_next = h->names;
    h->port_next = h->ports;
    next(h);
}

static unsigned count(const char *list)
{
    unsigned n = 1;

    while ((list = strchr(list, ',')) != NULL) {
        list++;
        n++;
    }
    return n;
}

static void give(const struct pg_hosts *h, struct buf *list, const char *text)
{
    if (!text || count(text) != h->n)
        return;
    buf_puts(list, text);
    rotate(list, h->first % h->n);
}

void pg_hosts_given(struct pg_hosts *h, const char *names,
                    const char *addresses, const char *ports, unsigned first)
{
    memset(h, 0, sizeof(*h));
    h->first = first;
    h->n = count(addresses);
    give(h, &h->host, names);
    give(h, &h->hostaddr, addresses);
    give(h, &h->port, ports);
}

void pg_hosts_cancel(struct pg_hosts *h)
{
    resolve_cancel(h->lookup);
    free(h->names);
    free(h->ports);
    buf_free(&h->host);
    buf_free(&h->hostaddr);
    buf_free(&h->port);
    memset(h, 0, sizeof(*h));
}
