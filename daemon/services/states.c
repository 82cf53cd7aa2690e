/* SPDX-License-Identifier: MIT */
/* Happy path: state.lua for all pairs (in pieces of PAIRS_PER_CALL, PIECES at a
 * time) → a lookup for those that Redis does not know → callback. Failure
 * modes: Redis away or PostgreSQL away while needed, too much under way: the
 * whole is refused. */
#include "services/states.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "services/engine.h"
#include "services/gate.h"
#include "services/lookup.h"

#define PAIRS_PER_CALL 250
#define PIECES         8
/* What goes to Redis and back, about. */
#define COST           256
#define PAIR_COST      64

struct pair {
    struct states *states; /* ref */
    size_t owner_at;       /* offset of owner, then member, in ids */
    size_t owner_len;
    size_t member_len;
    int64_t mtime_us; /* of what Redis has */
    int status;       /* the same; -1 nothing */
};

/* One script call. */
struct piece {
    struct states *states; /* ref */
    size_t from;
    size_t to;
};

struct states {
    const struct engine *engine; /* ref */
    struct lookup *lookup;       /* ref */
    struct buf ids;
    struct pair *pairs; /* owned */
    size_t n;
    struct gate_pass pass;
    size_t sent;     /* pairs that Redis was asked for */
    size_t pieces;   /* calls under way */
    size_t waiting;  /* calls and lookups under way, and one while sending */
    uint8_t *result; /* owned */
    const char *why; /* static: an error reply; NULL: all is well */
    states_on_done cb;
    void *arg;
};

static void done_one(struct states *s)
{
    if (--s->waiting > 0)
        return;
    s->cb(s->arg, s->why ? NULL : s->result, s->n, s->why);
    gate_leave(s->engine->reads, &s->pass);
    states_free(s);
}

static void on_lookup(void *arg, const struct lookup_state *state)
{
    struct pair *p = arg;
    struct states *s = p->states;
    size_t i = (size_t)(p - s->pairs);

    if (!state)
        s->why = "UNAVAILABLE PostgreSQL did not answer";
    else if (p->status >= 0 && p->mtime_us >= state->mtime_us)
        s->result[i] = (uint8_t)p->status;
    else
        s->result[i] = (uint8_t)state->status;
    done_one(s);
}

static void ask_postgres(struct states *s, struct pair *p)
{
    const char *owner = s->ids.data + p->owner_at;
    int rc;

    if (s->why)
        return;
    rc = lookup_submit(s->lookup, owner, p->owner_len, owner + p->owner_len,
                       p->member_len, on_lookup, p);
    if (rc == 0)
        s->waiting++;
    else if (rc == LOOKUP_FULL)
        s->why = "TRYAGAIN too many lookups are waiting";
    else
        s->why = "UNAVAILABLE PostgreSQL is away and Redis does not know all "
                 "of these";
}

static void read_state(struct states *s, size_t i, const struct redis_value *v)
{
    struct pair *p = &s->pairs[i];
    const char *text;
    uint64_t mtime;
    size_t len;

    if (redis_value_type(v) == REDIS_T_INT && redis_value_int(v) < 2) {
        s->result[i] = (uint8_t)redis_value_int(v);
        return;
    }
    text = redis_value_str(v, &len); /* "status mtime", or 2 */
    if (len > 2 && num_parse_u64(text + 2, len - 2, &mtime) == 0) {
        p->status = text[0] == '1';
        p->mtime_us = (int64_t)mtime;
    }
    ask_postgres(s, p);
}

static void send_pieces(struct states *s);

static void on_piece(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct piece *piece = arg;
    struct states *s = piece->states;

    if (outcome == REDIS_OK && redis_value_len(v) == piece->to - piece->from) {
        for (size_t i = piece->from; i < piece->to; i++)
            read_state(s, i, redis_value_at(v, i - piece->from));
    } else {
        s->why = "UNAVAILABLE Redis did not answer";
    }
    free(piece);
    s->pieces--;
    send_pieces(s);
    done_one(s);
}

static void send_piece(struct states *s, struct args *args)
{
    struct piece *piece = mem_alloc(sizeof(*piece));
    size_t from = s->sent;
    size_t to = from + PAIRS_PER_CALL < s->n ? from + PAIRS_PER_CALL : s->n;
    int rc;

    *piece = (struct piece){s, from, to};
    args_clear(args);
    for (size_t i = from; i < to; i++) {
        const struct pair *p = &s->pairs[i];
        const char *owner = s->ids.data + p->owner_at;

        args_put(args, owner, p->owner_len);
        args_put(args, owner + p->owner_len, p->member_len);
    }
    /* Until the generation is raised, a Redis that came back older would be
     * believed. */
    rc = s->engine->open
             ? args_send(args, s->engine, SCRIPT_STATE, on_piece, piece)
             : REDIS_NOT_CONNECTED;
    if (rc == 0) {
        s->sent = to;
        s->pieces++;
        s->waiting++;
        return;
    }
    s->why = rc == REDIS_BUSY ? "TRYAGAIN Redis has too much to do"
                              : "UNAVAILABLE Redis is away";
    free(piece);
}

static void send_pieces(struct states *s)
{
    struct args args = {0};

    while (s->sent < s->n && s->pieces < PIECES && !s->why)
        send_piece(s, &args);
    args_free(&args);
}

struct states *states_new(const struct engine *e, struct lookup *lookup,
                          size_t n_max)
{
    struct states *s = mem_zalloc(sizeof(*s));

    s->engine = e;
    s->lookup = lookup;
    s->pairs = mem_alloc(n_max * sizeof(*s->pairs));
    s->result = mem_zalloc(n_max);
    return s;
}

void states_add(struct states *s, const char *owner, size_t owner_len,
                const char *member, size_t member_len)
{
    s->pairs[s->n++] = (struct pair){
        .states = s,
        .owner_at = s->ids.len,
        .owner_len = owner_len,
        .member_len = member_len,
        .status = -1,
    };
    buf_append(&s->ids, owner, owner_len);
    buf_append(&s->ids, member, member_len);
}

static void on_turn(void *arg, const char *why)
{
    struct states *s = arg;

    if (why) {
        s->cb(s->arg, NULL, s->n, why);
        states_free(s);
        return;
    }
    s->waiting = 1;
    send_pieces(s);
    done_one(s);
}

void states_get(struct states *s, states_on_done cb, void *arg)
{
    s->cb = cb;
    s->arg = arg;
    gate_enter(s->engine->reads, &s->pass, COST + s->n * PAIR_COST + s->ids.len,
               on_turn, s);
}

void states_free(struct states *s)
{
    buf_free(&s->ids);
    free(s->pairs);
    free(s->result);
    free(s);
}
