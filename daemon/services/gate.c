/* SPDX-License-Identifier: MIT */
#include "services/gate.h"

#include <stdbool.h>
#include <stdlib.h>

#include "adapters/server.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/metrics.h"

#define WHY_FULL   "TRYAGAIN too many reads are waiting"
#define WHY_CLOSED "UNAVAILABLE the daemon stops"
#define WHY_GONE   "UNAVAILABLE the client has gone"

/* What waits of one client; there is none when nothing does. */
struct gate_line {
    struct map_node map_node; /* key: client */
    struct list node;         /* in gate->lines */
    struct list passes;       /* in order */
    size_t bytes;
    uint64_t client;
};

struct gate {
    struct gate_limits limits;
    struct map by_client; /* lines */
    struct list lines;    /* the same, by whose turn it is */
    struct list waiting;  /* passes, by age */
    size_t n_waiting;
    size_t n_shown; /* the same, as it stands in the metric of all gates */
    size_t waiting_bytes;
    size_t open_bytes;          /* of those let through */
    const int64_t *max_wait_ms; /* ref */
    bool closed;
    bool calling; /* let_in is on the stack */
};

struct gate *gate_new(struct gate_limits limits, const int64_t *max_wait_ms)
{
    struct gate *g = mem_zalloc(sizeof(*g));

    g->limits = limits;
    list_init(&g->lines);
    list_init(&g->waiting);
    g->max_wait_ms = max_wait_ms;
    return g;
}

/* ---- lines ---- */

/* NULL: nothing of this client waits. */
static struct gate_line *line_find(const struct gate *g, uint64_t client)
{
    struct map_node *node =
        map_find(&g->by_client, (const char *)&client, sizeof(client));

    return node ? CONTAINER_OF(node, struct gate_line, map_node) : NULL;
}

/* It is its turn last. */
static struct gate_line *line_new(struct gate *g, uint64_t client)
{
    struct gate_line *l = mem_zalloc(sizeof(*l));

    l->client = client;
    list_init(&l->passes);
    list_push_back(&g->lines, &l->node);
    map_insert(&g->by_client, &l->map_node, (const char *)&l->client,
               sizeof(l->client));
    return l;
}

static void line_free(struct gate *g, struct gate_line *l)
{
    list_remove(&l->node);
    map_remove(&g->by_client, &l->map_node);
    free(l);
}

static void put_in(struct gate *g, struct gate_line *l, struct gate_pass *p)
{
    p->line = l;
    list_push_back(&l->passes, &p->node);
    l->bytes += p->cost;
    list_push_back(&g->waiting, &p->age_node);
    g->n_waiting++;
    g->waiting_bytes += p->cost;
}

static void take_out(struct gate *g, struct gate_pass *p)
{
    list_remove(&p->node);
    p->line->bytes -= p->cost;
    list_remove(&p->age_node);
    g->n_waiting--;
    g->waiting_bytes -= p->cost;
    if (list_empty(&p->line->passes))
        line_free(g, p->line);
}

/* ---- turns ---- */

static bool has_room(const struct gate *g, const struct gate_pass *p)
{
    return g->open_bytes == 0 ||
           g->open_bytes + p->cost <= g->limits.open_bytes;
}

static bool is_late(const struct gate *g, const struct gate_pass *p)
{
    return clock_monotonic_ms() - p->since_ms > (uint64_t)*g->max_wait_ms;
}

/* The one to look at: the oldest when it is late, else whose turn it is. */
static struct gate_pass *next_pass(const struct gate *g)
{
    struct gate_pass *oldest =
        LIST_ENTRY(g->waiting.next, struct gate_pass, age_node);
    struct gate_line *l = LIST_ENTRY(g->lines.next, struct gate_line, node);

    if (is_late(g, oldest))
        return oldest;
    return LIST_ENTRY(l->passes.next, struct gate_pass, node);
}

/* NULL: it may go in when there is room. */
static const char *why_not(const struct gate *g, const struct gate_pass *p)
{
    if (g->closed)
        return WHY_CLOSED;
    if (!request_session(p->rq))
        return WHY_GONE;
    return is_late(g, p) ? WHY_FULL : NULL;
}

/* And its line's turn is over. */
static void open_for(struct gate *g, struct gate_pass *p)
{
    list_remove(&p->line->node);
    list_push_back(&g->lines, &p->line->node);
    take_out(g, p);
    g->open_bytes += p->cost;
}

/* One by one from here, also those that leave or enter from inside on_turn. */
static void let_in(struct gate *g)
{
    if (g->calling)
        return;
    g->calling = true;
    while (!list_empty(&g->waiting)) {
        struct gate_pass *p = next_pass(g);
        const char *why = why_not(g, p);

        if (!why && !has_room(g, p))
            break;
        if (why)
            take_out(g, p);
        else
            open_for(g, p);
        p->on_turn(p->arg, why);
    }
    g->calling = false;
    metric_set(M_READS_WAITING, metric_get(M_READS_WAITING) +
                                    (double)g->n_waiting - (double)g->n_shown);
    g->n_shown = g->n_waiting;
}

/* Whether it may wait: see gate_limits. `l` NULL: it is the first of a line. */
static bool may_wait(const struct gate *g, const struct gate_line *l,
                     size_t cost)
{
    size_t limit = g->limits.waiting_bytes;
    size_t left = limit > g->waiting_bytes ? limit - g->waiting_bytes : 0;

    return g->n_waiting == 0 || (l ? l->bytes : 0) + cost <= left;
}

void gate_enter(struct gate *g, struct gate_pass *p, struct request *rq,
                size_t cost, gate_on_turn on_turn, void *arg)
{
    const struct session *s = request_session(rq);
    struct gate_line *l = s ? line_find(g, s->id) : NULL;

    p->rq = rq;
    p->cost = cost;
    p->since_ms = clock_monotonic_ms();
    p->on_turn = on_turn;
    p->arg = arg;
    if (!s || !may_wait(g, l, cost)) {
        p->on_turn(p->arg, s ? WHY_FULL : WHY_GONE);
        return;
    }
    put_in(g, l ? l : line_new(g, s->id), p);
    let_in(g);
}

void gate_leave(struct gate *g, struct gate_pass *p)
{
    g->open_bytes -= p->cost;
    let_in(g);
}

void gate_close(struct gate *g)
{
    g->closed = true;
    let_in(g);
}

void gate_free(struct gate *g)
{
    map_free(&g->by_client);
    free(g);
}
