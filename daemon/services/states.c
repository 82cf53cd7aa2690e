/* SPDX-License-Identifier: MIT */
/* Happy path: state.lua for all pairs (in pieces of PAIRS_PER_CALL, PIECES at a
 * time) → those that Redis does not know: what is recalled of them, and one
 * query for the rest (or one for so many as it takes) → callback. Failure
 * modes: Redis away or PostgreSQL away while needed, too much under way: the
 * whole is refused. */
#include "services/states.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "services/engine.h"
#include "services/gate.h"
#include "services/lookup.h"
#include "services/recall.h"

#define PAIRS_PER_CALL 250
#define PIECES         8
/* What goes to Redis and back, about. */
#define COST           256
#define PAIR_COST      64

struct pair {
    struct states *states; /* ref */
    struct pair *next;     /* ref: in missing */
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
    size_t sent;    /* pairs that Redis was asked for */
    size_t pieces;  /* calls under way */
    size_t waiting; /* calls and lookups under way, and one while sending */
    struct pair *missing; /* ref: to be looked up */
    size_t n_missing;
    uint64_t asked_us; /* monotonic: the first lookup; 0 none yet */
    uint8_t *result;   /* owned */
    const char *why;   /* static: an error reply; NULL: all is well */
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

static struct recall_pair ids_of(const struct pair *p)
{
    const char *owner = p->states->ids.data + p->owner_at;

    return (struct recall_pair){owner, p->owner_len, owner + p->owner_len,
                                p->member_len};
}

/* The newer of what Redis and PostgreSQL have. */
static void settle(struct pair *p, const struct lookup_state *row)
{
    size_t i = (size_t)(p - p->states->pairs);
    bool newer = p->status >= 0 && p->mtime_us >= row->mtime_us;

    p->states->result[i] = (uint8_t)(newer ? p->status : row->status);
}

static void on_lookup(void *arg, const struct lookup_state *state)
{
    struct pair *p = arg;
    struct states *s = p->states;
    struct recall_pair ids = ids_of(p);

    if (state) {
        recall_put(s->engine->recall, s->asked_us, &ids, state);
        settle(p, state);
    } else {
        s->why = "UNAVAILABLE PostgreSQL did not answer";
    }
    done_one(s);
}

static void ask_postgres(struct states *s, struct pair *p)
{
    struct recall_pair ids = ids_of(p);
    int rc = lookup_submit(s->lookup, ids.owner, ids.owner_len, ids.member,
                           ids.member_len, on_lookup, p);

    if (rc == 0)
        s->waiting++;
    else if (rc == LOOKUP_FULL)
        s->why = "TRYAGAIN too many lookups are waiting";
    else
        s->why = "UNAVAILABLE PostgreSQL is away and Redis does not know all "
                 "of these";
}

/* All at once, so that they are one query. */
static void ask_for_missing(struct states *s)
{
    if (!s->asked_us)
        s->asked_us = clock_monotonic_us();
    for (struct pair *p = s->missing; p && !s->why; p = p->next)
        ask_postgres(s, p);
    s->missing = NULL;
    s->n_missing = 0;
}

/* Not where Redis may take away the hash of what was changed since. */
static bool is_recalled(const struct states *s, struct pair *p)
{
    const struct engine *e = s->engine;
    struct recall_pair ids = ids_of(p);
    struct lookup_state row;

    if (strncmp(e->redis_info->maxmemory_policy, "volatile-", 9) == 0 ||
        !recall_get(e->recall, clock_monotonic_us(), &ids, &row))
        return false;
    settle(p, &row);
    return true;
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
    if (is_recalled(s, p))
        return;
    p->next = s->missing;
    s->missing = p;
    s->n_missing++;
}

static void read_piece(struct states *s, const struct piece *piece,
                       const struct redis_value *v)
{
    size_t n = piece->to - piece->from;
    const char *history;
    size_t len;

    history = redis_value_str(redis_value_at(v, n), &len);
    recall_history(s->engine->recall, clock_monotonic_us(), history, len);
    for (size_t i = 0; i < n; i++)
        read_state(s, piece->from + i, redis_value_at(v, i));
}

static void send_pieces(struct states *s);

static void on_piece(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct piece *piece = arg;
    struct states *s = piece->states;

    if (outcome == REDIS_OK &&
        redis_value_len(v) == piece->to - piece->from + 1)
        read_piece(s, piece, v);
    else
        s->why = engine_reply_why(outcome);
    free(piece);
    s->pieces--;
    send_pieces(s);
    /* Nothing more comes, or no further piece is sure to fit in. */
    if (s->pieces == 0 || s->n_missing > LOOKUP_PAIRS - PAIRS_PER_CALL)
        ask_for_missing(s);
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
    rc = args_ask(args, s->engine, SCRIPT_STATE, on_piece, piece);
    if (rc == 0) {
        s->sent = to;
        s->pieces++;
        s->waiting++;
        return;
    }
    s->why = engine_redis_why(s->engine, rc);
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

void states_get(struct states *s, struct request *rq, states_on_done cb,
                void *arg)
{
    s->cb = cb;
    s->arg = arg;
    gate_enter(s->engine->reads, &s->pass, rq,
               COST + s->n * PAIR_COST + s->ids.len, on_turn, s);
}

void states_free(struct states *s)
{
    buf_free(&s->ids);
    free(s->pairs);
    free(s->result);
    free(s);
}
