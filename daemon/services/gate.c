/* SPDX-License-Identifier: MIT */
#include "services/gate.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/metrics.h"

#define WHY_FULL   "TRYAGAIN too many reads are waiting"
#define WHY_CLOSED "UNAVAILABLE the daemon stops"

struct gate {
    struct gate_limits limits;
    struct list waiting; /* passes */
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
    list_init(&g->waiting);
    g->max_wait_ms = max_wait_ms;
    return g;
}

static bool has_room(const struct gate *g, const struct gate_pass *p)
{
    return g->open_bytes == 0 ||
           g->open_bytes + p->cost <= g->limits.open_bytes;
}

static void take_out(struct gate *g, struct gate_pass *p)
{
    list_remove(&p->node);
    g->n_waiting--;
    g->waiting_bytes -= p->cost;
}

/* One by one from here, also those that leave or enter from inside on_turn. */
static void let_in(struct gate *g)
{
    if (g->calling)
        return;
    g->calling = true;
    while (!list_empty(&g->waiting)) {
        struct gate_pass *p =
            LIST_ENTRY(g->waiting.next, struct gate_pass, node);
        bool late =
            clock_monotonic_ms() - p->since_ms > (uint64_t)*g->max_wait_ms;

        if (!g->closed && !late && !has_room(g, p))
            break;
        take_out(g, p);
        if (g->closed) {
            p->on_turn(p->arg, WHY_CLOSED);
        } else if (late) {
            p->on_turn(p->arg, WHY_FULL);
        } else {
            g->open_bytes += p->cost;
            p->on_turn(p->arg, NULL);
        }
    }
    g->calling = false;
    metric_set(M_READS_WAITING, metric_get(M_READS_WAITING) +
                                    (double)g->n_waiting - (double)g->n_shown);
    g->n_shown = g->n_waiting;
}

void gate_enter(struct gate *g, struct gate_pass *p, size_t cost,
                gate_on_turn on_turn, void *arg)
{
    p->cost = cost;
    p->since_ms = clock_monotonic_ms();
    p->on_turn = on_turn;
    p->arg = arg;
    if (g->n_waiting > 0 && g->waiting_bytes + cost > g->limits.waiting_bytes) {
        p->on_turn(p->arg, WHY_FULL);
        return;
    }
    list_push_back(&g->waiting, &p->node);
    g->n_waiting++;
    g->waiting_bytes += cost;
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
    free(g);
}
