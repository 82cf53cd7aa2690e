/* SPDX-License-Identifier: MIT */
/* Lets so much through at a time: reads that would overfill the queues of the
 * backends wait here, and what cannot even wait is refused. Clients take turns,
 * and a client's own reads come in order: whoever asks for much at once waits
 * longer for it, and nobody else does. */
#ifndef SERVICES_GATE_H
#define SERVICES_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct gate;
struct gate_line;
struct request;

/* `why` NULL: it is your turn, and gate_leave must follow. Else an error reply
 * that says why not. */
typedef void (*gate_on_turn)(void *arg, const char *why);

/* Zero-initialised; lives in whatever goes through. */
struct gate_pass {
    struct list node;       /* in its line */
    struct list age_node;   /* among all that wait */
    struct gate_line *line; /* ref */
    struct request *rq;     /* ref */
    size_t cost;
    uint64_t since_ms;
    gate_on_turn on_turn;
    void *arg;
};

/* Bytes under way and waiting; one that costs more may go alone. Of what may
 * wait, a client gets no more than it leaves free: half of it when it is alone,
 * a third when there are two such, and there is always some left for others. */
struct gate_limits {
    size_t open_bytes;
    size_t waiting_bytes;
};

/* Of what goes to the backends and back at a time. Events share the connection
 * to Redis and wait behind it, so it is no more than keeps all busy: some 1,700
 * pairs. */
#define GATE_READS ((struct gate_limits){(size_t)1 << 17, (size_t)32 << 20})
/* Of replies that are made in several steps. */
#define GATE_PAGES ((struct gate_limits){(size_t)16 << 20, (size_t)32 << 20})

/* What waits longer than max_wait_ms (ref: it may change) is refused. */
struct gate *gate_new(struct gate_limits limits, const int64_t *max_wait_ms);
/* Refuses all that waits and all that comes. */
void gate_close(struct gate *g);
/* Nothing may be inside any more. */
void gate_free(struct gate *g);

/* Exactly one on_turn, perhaps before this returns; rq, whose client it is for,
 * is not done before that. When that client goes, its reads are refused. */
void gate_enter(struct gate *g, struct gate_pass *p, struct request *rq,
                size_t cost, gate_on_turn on_turn, void *arg);
void gate_leave(struct gate *g, struct gate_pass *p);

#endif
