/* SPDX-License-Identifier: MIT */
/* What the clients hold, all together within max_client_memory.
 *
 * What one holds is a sum of a few sizes, taken after each read and each turn
 * and when a reply has to wait; the total follows by the difference. Clients
 * are kept in classes by powers of two, so that one of the biggest is found
 * without a search; among the equals of a class it is the one that came first.
 * Admin clients go last: they may be there to mend things. */
#include "adapters/server_internal.h"

#define LEAST_CLASS_SHIFT 14 /* below 16 KiB all are alike */

static unsigned class_of(size_t bytes)
{
    unsigned n = 0;

    for (bytes >>= LEAST_CLASS_SHIFT; bytes > 0; bytes >>= 1)
        n++;
    return n < MEMORY_CLASSES ? n : MEMORY_CLASSES - 1;
}

static size_t measure(const struct client *c)
{
    return sizeof(*c) + resp_parser_bytes(&c->parser) + c->in.cap + c->out.cap +
           c->sending.cap + c->held_memory +
           c->n_requests * sizeof(struct request);
}

void client_uncount_memory(struct client *c)
{
    c->server->memory -= c->memory;
    c->memory = 0;
    list_remove(&c->memory_node);
}

void client_count_memory(struct client *c)
{
    struct server *s = c->server;
    size_t bytes;
    unsigned n;

    if (c->state == CLIENT_CLOSED)
        return;
    bytes = measure(c);
    s->memory += bytes - c->memory;
    c->memory = bytes;
    n = class_of(bytes);
    if (n == c->memory_class && !list_empty(&c->memory_node))
        return;
    c->memory_class = n;
    list_remove(&c->memory_node);
    list_push_back(&s->by_memory[c->session.admin][n], &c->memory_node);
}

static struct client *biggest(struct server *s)
{
    for (int admin = 0; admin < 2; admin++) {
        for (int i = MEMORY_CLASSES - 1; i >= 0; i--) {
            struct list *class = &s->by_memory[admin][i];

            if (!list_empty(class))
                return LIST_ENTRY(class->next, struct client, memory_node);
        }
    }
    return NULL;
}

/* Not put off until libuv's close callback: in a turn with many clients that
 * would be too late. A write under way no longer looks at its bytes. */
static void free_buffers(struct client *c)
{
    resp_parser_free(&c->parser);
    buf_free(&c->in);
    buf_free(&c->out);
    buf_free(&c->sending);
}

void server_fit_memory(struct server *s)
{
    struct client *c;

    while (s->memory > (size_t)s->config.limits.max_client_memory &&
           (c = biggest(s))) {
        client_close(c, END_MEMORY);
        free_buffers(c);
    }
}
