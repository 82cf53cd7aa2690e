/* SPDX-License-Identifier: MIT */
/* Events on their way into Redis.
 *
 * Happy path: submit → READY → in a batch, SENT → answered. A pair that Redis
 * does not know: SENT → LOOKUP → READY with a base → SENT → answered. While most
 * pairs are such, a new one is looked up first, and sent once. Where the number
 * of an owner's edges is limited, its list is loaded first: SENT → LIST → READY.
 *
 * Failure modes: the batch was not executed (RETRY: its pairs go back to the
 * front, in order); outcome unknown (its pairs stay as they are until Redis would
 * refuse what is still on its way, then every event of it is told so; so nothing
 * comes behind what was answered later); PostgreSQL away (the base is "assume");
 * Redis away (READY ones wait HOLD_MS, then are refused). A lookup that took too
 * long is refused by the script, which answers MISS once more; one that was begun
 * before Redis was lost is dropped here, since a Redis rolled back has forgotten
 * what happened since. */
#include "services/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "services/doubts.h"
#include "services/engine.h"
#include "services/lists.h"
#include "services/lookup.h"
#include "services/recall.h"

#define BATCH_EVENTS 128 /* events in one script call */
#define BATCH_LISTED 64  /* the same, when each changes lists, too */
#define MAX_BATCHES  4   /* script calls under way */
#define HOLD_MS      500 /* how long events wait for a Redis that is away */
#define RETRY_MS     10  /* after LOADING, BUSY and the like */
#define BASE_MAX     80
#define RATE_ONE     65536u /* miss_rate: all */
#define PROBE_EVERY  16     /* so many new pairs ask Redis first all the same */
#define HEARD_MS     1000 /* how old Redis' last time may be for a lookup first */

/* Codes of event.lua. */
enum {
    CODE_SAME,
    CODE_CHANGED,
    CODE_MISS,
    CODE_FUTURE,
    CODE_BAD,
    CODE_FULL,
    CODE_REFUSED,
    CODE_LIST_FIRST,
    CODE_LIMIT
};

struct event {
    struct list node;
    ingest_on_done cb;
    void *arg;
    int64_t at_us;
    int status;
};

enum pair_state { PAIR_READY, PAIR_SENT, PAIR_LOOKUP, PAIR_LIST };

struct pair {
    struct map_node map_node; /* key: owner, a space, member */
    struct list node;         /* in ready, or in its batch */
    struct ingest *ingest;    /* ref */
    struct list events;       /* in order of arrival */
    enum pair_state state;
    size_t n_events;
    int n_sent;             /* events of it in the batch under way */
    int64_t missed_us;      /* Redis' time when it answered MISS */
    unsigned missed_epoch;  /* of the batch that answered MISS or LIST_FIRST */
    uint64_t waiting_since; /* monotonic ms: first not executed; 0 */
    bool unlimited;         /* its owner's list cannot be loaded */
    char base[BASE_MAX];
    size_t owner_len;
    size_t member_len;
    char key[];
};

struct batch {
    struct doubt doubt;    /* while its outcome is unknown */
    struct ingest *ingest; /* ref */
    struct list pairs;     /* SENT, in order */
    unsigned epoch;        /* when it was sent */
    int n_events;
};

struct ingest {
    const struct engine *engine; /* ref */
    struct lookup *lookup;       /* ref */
    struct lists *lists;         /* ref; NULL for a kind without */
    struct timer *turn;          /* owned: sends at the end of this turn */
    struct timer *hold;          /* owned: refuses after HOLD_MS */
    struct doubts *doubts;       /* owned: batches of unknown outcome */
    struct map pairs;
    struct list ready; /* pairs to be sent, in order */
    struct args args;
    size_t n_events; /* all not answered */
    size_t n_ready;  /* events of READY pairs */
    int batches;     /* under way */
    bool open;
    unsigned epoch;       /* moves when Redis is lost: it may come back older */
    unsigned miss_rate;   /* of pairs sent without a base, moving average */
    unsigned n_new;       /* pairs, for the probes */
    int64_t heard_us;     /* Redis' time in its last answer */
    unsigned heard_epoch; /* and when that was */
    uint64_t heard_ms;
    uint64_t closed_since_ms;
    char why[160];
    struct log_limit limit;
};

/* ---- events and pairs ---- */

static void queue_metric(const struct ingest *in)
{
    metric_set(metric_of(M_QUEUE_EVENTS_LIKE, (int)in->engine->kind->index),
               (double)in->n_events);
}

/* Or may have been. Its hash says so for long, unless somebody takes that. */
static void pair_changed(struct ingest *in, const struct pair *p)
{
    const struct recall_pair pair = {p->key, p->owner_len,
                                     p->key + p->owner_len + 1, p->member_len};

    recall_forget(in->engine->recall, &pair);
}

static void event_done(struct ingest *in, struct pair *p, struct event *ev,
                       enum ingest_result result, const char *text)
{
    const struct edge_kind *k = in->engine->kind;

    if (result == INGEST_CHANGED)
        metric_add(k->m_changed[ev->status], 1);
    else if (result == INGEST_SAME)
        metric_add(k->m_same[ev->status], 1);
    else
        metric_add(k->m_error[ev->status], 1);
    if (result != INGEST_SAME)
        pair_changed(in, p);
    list_remove(&ev->node);
    p->n_events--;
    in->n_events--;
    queue_metric(in);
    ev->cb(ev->arg, result, text);
    free(ev);
}

static struct event *event_of(struct list *node)
{
    return LIST_ENTRY(node, struct event, node);
}

/* What the script is told of a pair that nobody looked up. */
static void base_reset(struct pair *p)
{
    bool assume = engine_lookup_mode(p->ingest->engine) == LOOKUP_OPTIMISTIC;

    p->unlimited = false;
    snprintf(p->base, sizeof(p->base), "%s", assume ? "a" : "");
}

static void pair_free(struct ingest *in, struct pair *p)
{
    map_remove(&in->pairs, &p->map_node);
    free(p);
}

static void pair_ready(struct ingest *in, struct pair *p, bool front)
{
    p->state = PAIR_READY;
    p->n_sent = 0;
    in->n_ready += p->n_events;
    if (front)
        list_push_front(&in->ready, &p->node);
    else
        list_push_back(&in->ready, &p->node);
}

/* All its events get one answer. */
static void pair_fail(struct ingest *in, struct pair *p,
                      enum ingest_result result, const char *text)
{
    LIST_FOREACH_SAFE(it, &p->events)
        event_done(in, p, event_of(it), result, text);
    pair_free(in, p);
}

static void schedule(struct ingest *in, uint64_t ms)
{
    if (in->open && !list_empty(&in->ready) && !timer_active(in->turn))
        timer_start(in->turn, ms, 0);
}

/* ---- lookups ---- */

static void on_lookup(void *arg, const struct lookup_state *state)
{
    struct pair *p = arg;
    struct ingest *in = p->ingest;

    if (state) {
        snprintf(p->base, sizeof(p->base), "%lld %d %lld %lld",
                 (long long)p->missed_us, state->status,
                 (long long)state->mtime_us, (long long)state->ctime_us);
    } else {
        snprintf(p->base, sizeof(p->base), "a");
        metric_add(M_EVENTS_ASSUMED, 1);
    }
    pair_ready(in, p, false);
    schedule(in, 0);
}

static void pair_look_up(struct ingest *in, struct pair *p)
{
    p->state = PAIR_LOOKUP;
    p->n_sent = 0;
    if (engine_lookup_mode(in->engine) == LOOKUP_STRICT &&
        lookup_submit(in->lookup, p->key, p->owner_len,
                      p->key + p->owner_len + 1, p->member_len, on_lookup,
                      p) == 0)
        return;
    on_lookup(p, NULL);
}

static void miss_rate_move(struct ingest *in, bool miss)
{
    in->miss_rate -= in->miss_rate / 64;
    if (miss)
        in->miss_rate += RATE_ONE / 64;
}

static void heard(struct ingest *in, unsigned epoch, int64_t redis_us)
{
    in->heard_us = redis_us;
    in->heard_epoch = epoch;
    in->heard_ms = clock_monotonic_ms();
}

/* When Redis is to refuse what is sent now, by its own clock. That may already be
 * further than we know, never less: so it refuses before we give up. */
static int64_t deadline_us(const struct ingest *in, uint64_t now_ms)
{
    uint64_t ms =
        now_ms - in->heard_ms + (uint64_t)in->engine->options->redis_timeout_ms;

    return in->heard_us + (int64_t)ms * 1000;
}

/* Whether a new pair is better looked up before Redis is asked. The lookup is
 * then as if Redis had answered MISS when it was last heard. */
static bool lookup_first(struct ingest *in)
{
    return engine_lookup_mode(in->engine) == LOOKUP_STRICT &&
           in->miss_rate > RATE_ONE / 2 && in->open &&
           in->heard_epoch == in->epoch && in->heard_us > 0 &&
           clock_monotonic_ms() - in->heard_ms < HEARD_MS &&
           ++in->n_new % PROBE_EVERY != 0 && pg_is_up(in->engine->pg);
}

static void pair_begin(struct ingest *in, struct pair *p)
{
    if (!lookup_first(in)) {
        pair_ready(in, p, false);
        return;
    }
    p->missed_us = in->heard_us;
    p->missed_epoch = in->epoch;
    pair_look_up(in, p);
}

/* ---- lists, where the number of edges is limited ---- */

/* With PostgreSQL away the limit cannot be known, and events are taken. While
 * Redis may not be used they wait for it, and the list is asked for again. */
static void on_list(void *arg, const char *why)
{
    struct pair *p = arg;
    struct ingest *in = p->ingest;

    if (why && in->open && strncmp(why, "UNAVAILABLE", 11) != 0) {
        pair_fail(in, p, INGEST_TRYAGAIN, why);
        return;
    }
    p->unlimited = why && in->open;
    pair_ready(in, p, false);
    schedule(in, 0);
}

static void pair_load_list(struct ingest *in, struct pair *p)
{
    p->state = PAIR_LIST;
    p->n_sent = 0;
    if (lists_load(in->lists, LIST_FOLLOW, p->key, p->owner_len, 0, on_list,
                   p) != 0)
        pair_fail(in, p, INGEST_TRYAGAIN,
                  "TRYAGAIN not recorded: too many lists are being loaded");
}

/* ---- answers ---- */

static enum ingest_result result_of(int64_t code)
{
    switch (code) {
    case CODE_SAME:
        return INGEST_SAME;
    case CODE_CHANGED:
        return INGEST_CHANGED;
    case CODE_FUTURE:
        return INGEST_FUTURE;
    case CODE_BAD:
        return INGEST_BAD;
    case CODE_FULL:
    case CODE_REFUSED:
        return INGEST_FULL;
    case CODE_LIMIT:
        return INGEST_LIMIT;
    default:
        return INGEST_UNKNOWN;
    }
}

/* Hands the codes to the events of the pair that were sent. Returns
 * CODE_CHANGED, or CODE_MISS or CODE_LIST_FIRST when not all are answered. */
static int pair_answers(struct ingest *in, struct pair *p,
                        const struct redis_value *v, size_t *i,
                        const char *text)
{
    int open = CODE_CHANGED;
    int n = p->n_sent;

    LIST_FOREACH_SAFE(it, &p->events) {
        enum ingest_result result;
        int64_t code;

        if (n-- == 0)
            break;
        code = redis_value_int(redis_value_at(v, (*i)++));
        if (code == CODE_MISS || code == CODE_LIST_FIRST) {
            open = (int)code;
            continue;
        }
        result = result_of(code);
        event_done(in, p, event_of(it), result,
                   result >= INGEST_BAD ? text : "");
    }
    return open;
}

static void batch_answers(struct ingest *in, struct batch *b,
                          const struct redis_value *v)
{
    const char *text = "";
    size_t i = 1;
    size_t len;

    heard(in, b->epoch, redis_value_int(redis_value_at(v, 0)));
    if (redis_value_len(v) > (size_t)b->n_events + 1)
        text =
            redis_value_str(redis_value_at(v, (size_t)b->n_events + 1), &len);
    LIST_FOREACH_SAFE(it, &b->pairs) {
        struct pair *p = LIST_ENTRY(it, struct pair, node);
        int open = pair_answers(in, p, v, &i, text);

        list_remove(&p->node);
        p->waiting_since = 0;
        if (!p->base[0])
            miss_rate_move(in, open == CODE_MISS);
        if (open == CODE_MISS) {
            p->missed_us = in->heard_us;
            p->missed_epoch = b->epoch;
            pair_look_up(in, p);
        } else if (open == CODE_LIST_FIRST) {
            p->missed_epoch = b->epoch; /* what it was sent with still holds */
            pair_load_list(in, p);
        } else if (list_empty(&p->events)) {
            pair_free(in, p);
        } else {
            base_reset(p);
            pair_ready(in, p, false);
        }
    }
}

/* The events that were sent are answered; later ones of the same pairs go on. */
static void batch_fail(struct ingest *in, struct batch *b,
                       enum ingest_result result, const char *text)
{
    LIST_FOREACH_SAFE(it, &b->pairs) {
        struct pair *p = LIST_ENTRY(it, struct pair, node);

        list_remove(&p->node);
        LIST_FOREACH_SAFE(ev, &p->events) {
            if (p->n_sent-- == 0)
                break;
            event_done(in, p, event_of(ev), result, text);
        }
        if (list_empty(&p->events))
            pair_free(in, p);
        else
            pair_ready(in, p, false);
    }
}

/* Not executed: back to the front, in order. A pair that has waited too long is
 * refused. */
static void batch_again(struct ingest *in, struct batch *b)
{
    uint64_t now = clock_monotonic_ms();
    struct list back;

    list_init(&back);
    LIST_FOREACH_SAFE(it, &b->pairs) {
        struct pair *p = LIST_ENTRY(it, struct pair, node);

        list_remove(&p->node);
        if (!p->waiting_since)
            p->waiting_since = now;
        if (now - p->waiting_since >
            (uint64_t)in->engine->options->redis_timeout_ms)
            pair_fail(in, p, INGEST_UNAVAILABLE, "Redis is busy");
        else
            list_push_front(&back, &p->node); /* reversed twice */
    }
    LIST_FOREACH_SAFE(it, &back) {
        struct pair *p = LIST_ENTRY(it, struct pair, node);

        list_remove(&p->node);
        pair_ready(in, p, true);
    }
}

static void script_failed(struct ingest *in, struct batch *b, const char *text)
{
    uint64_t held;

    if (log_allow(&in->limit, 1000, &held))
        log_error("ingest",
                  "the event script failed: %s (%d events, %llu more)", text,
                  b->n_events, (unsigned long long)held);
    batch_fail(in, b, INGEST_UNKNOWN, "the event script failed");
}

/* Refused for its time. If it was us, or the clock of Redis, that stood still or
 * jumped, then we know better now. */
static void batch_late(struct ingest *in, struct batch *b, int64_t redis_us)
{
    heard(in, b->epoch, redis_us);
    batch_again(in, b);
}

/* Whatever of it is still on its way will be refused. */
static void on_certain(void *arg, struct doubt *doubt)
{
    struct ingest *in = arg;
    struct batch *b = CONTAINER_OF(doubt, struct batch, doubt);

    batch_fail(in, b, INGEST_UNKNOWN, "Redis did not answer");
    free(b);
    schedule(in, 0);
}

static void on_batch(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct batch *b = arg;
    struct ingest *in = b->ingest;
    size_t len;
    bool pause = false;

    in->batches--;
    switch (outcome) {
    case REDIS_OK:
        if (redis_value_len(v) > (size_t)b->n_events)
            batch_answers(in, b, v);
        else if (redis_value_len(v) == 1)
            batch_late(in, b, redis_value_int(redis_value_at(v, 0)));
        else
            script_failed(in, b, "short reply");
        break;
    case REDIS_RETRY:
        batch_again(in, b);
        pause = true;
        break;
    case REDIS_FULL:
        batch_fail(in, b, INGEST_FULL, redis_value_str(v, &len));
        break;
    case REDIS_ERROR:
        script_failed(in, b, redis_value_str(v, &len));
        break;
    case REDIS_AWAY:
        batch_fail(in, b, INGEST_UNAVAILABLE, "Redis refused the connection");
        break;
    case REDIS_UNKNOWN:
        doubts_add(in->doubts, &b->doubt);
        return;
    }
    free(b);
    schedule(in, pause ? RETRY_MS : 0);
}

/* ---- sending ---- */

static void put_event(struct args *a, const struct pair *p,
                      const struct event *ev)
{
    const char *plus = p->unlimited ? "+" : "";
    char op[32];

    if (ev->at_us >= 0)
        snprintf(op, sizeof(op), "%d%s@%lld", ev->status, plus,
                 (long long)ev->at_us);
    else
        snprintf(op, sizeof(op), "%d%s", ev->status, plus);
    args_put(a, p->key, p->owner_len);
    args_put(a, p->key + p->owner_len + 1, p->member_len);
    args_put_str(a, op);
    args_put_str(a, p->base);
}

static size_t batch_max(const struct ingest *in)
{
    return in->lists ? BATCH_LISTED : BATCH_EVENTS;
}

/* Moves READY pairs into a batch until it is full. */
static struct batch *batch_fill(struct ingest *in)
{
    struct batch *b = mem_zalloc(sizeof(*b));
    uint64_t now_ms = clock_monotonic_ms();

    b->ingest = in;
    b->doubt.until_ms =
        doubt_until_ms(now_ms, (uint64_t)in->engine->options->redis_timeout_ms);
    b->epoch = in->epoch;
    list_init(&b->pairs);
    args_clear(&in->args);
    args_put_i64(&in->args, in->engine->options->cache_ttl_s);
    args_put_i64(&in->args, in->engine->kind->has_lists
                                ? in->engine->options->follow_max_following
                                : 0);
    args_put_i64(&in->args, deadline_us(in, now_ms));
    while ((size_t)b->n_events < batch_max(in) && !list_empty(&in->ready)) {
        struct list *node = list_pop_front(&in->ready);
        struct pair *p = LIST_ENTRY(node, struct pair, node);

        in->n_ready -= p->n_events;
        p->state = PAIR_SENT;
        if (p->missed_epoch != in->epoch)
            base_reset(p);
        LIST_FOREACH(it, &p->events) {
            if ((size_t)b->n_events >= batch_max(in))
                break;
            put_event(&in->args, p, event_of(it));
            p->n_sent++;
            b->n_events++;
        }
        list_push_back(&b->pairs, &p->node);
    }
    return b;
}

/* False when Redis takes no more now. */
static bool batch_send(struct ingest *in)
{
    struct batch *b = batch_fill(in);

    if (args_send(&in->args, in->engine, SCRIPT_EVENT, on_batch, b) == 0) {
        in->batches++;
        return true;
    }
    batch_again(in, b);
    free(b);
    schedule(in, RETRY_MS);
    return false;
}

/* At once when none is under way; else full batches only. */
static void on_turn(void *arg)
{
    struct ingest *in = arg;

    while (in->open && !list_empty(&in->ready) && in->batches < MAX_BATCHES &&
           (in->batches == 0 || in->n_ready >= batch_max(in)))
        if (!batch_send(in))
            break;
    queue_metric(in);
}

/* ---- public ---- */

static void refuse_ready(struct ingest *in)
{
    while (!list_empty(&in->ready)) {
        struct list *node = list_pop_front(&in->ready);
        struct pair *p = LIST_ENTRY(node, struct pair, node);

        in->n_ready -= p->n_events;
        pair_fail(in, p, INGEST_UNAVAILABLE, in->why);
    }
}

static void on_hold(void *arg)
{
    struct ingest *in = arg;

    if (in->open)
        return;
    refuse_ready(in);
    timer_start(in->hold, HOLD_MS / 5, 0); /* pairs that come from lookups */
}

struct ingest *ingest_new(const struct engine *e, struct lookup *lookup,
                          struct lists *lists)
{
    struct ingest *in = mem_zalloc(sizeof(*in));

    in->engine = e;
    in->lookup = lookup;
    in->lists = lists;
    in->turn = timer_new(e->loop, on_turn, in);
    in->hold = timer_new(e->loop, on_hold, in);
    in->doubts = doubts_new(e->loop, on_certain, in);
    list_init(&in->ready);
    snprintf(in->why, sizeof(in->why), "not connected to Redis yet");
    return in;
}

void ingest_free(struct ingest *in)
{
    if (!in)
        return;
    doubts_free(in->doubts);
    refuse_ready(in);
    timer_free(in->turn);
    timer_free(in->hold);
    args_free(&in->args);
    map_free(&in->pairs);
    free(in);
}

void ingest_open(struct ingest *in)
{
    in->open = true;
    timer_stop(in->hold);
    schedule(in, 0);
}

void ingest_close(struct ingest *in, const char *why)
{
    if (in->open || !in->closed_since_ms)
        in->closed_since_ms = clock_monotonic_ms();
    in->open = false;
    in->epoch++;
    snprintf(in->why, sizeof(in->why), "%s", why);
    timer_start(in->hold, HOLD_MS, 0);
}

void ingest_heard(struct ingest *in, int64_t redis_us)
{
    heard(in, in->epoch, redis_us);
}

static struct pair *pair_new(struct ingest *in, const char *owner,
                             size_t owner_len, const char *member,
                             size_t member_len)
{
    struct pair *p = mem_zalloc(sizeof(*p) + owner_len + member_len + 2);

    p->ingest = in;
    list_init(&p->events);
    list_init(&p->node);
    p->owner_len = owner_len;
    p->member_len = member_len;
    memcpy(p->key, owner, owner_len);
    p->key[owner_len] = ' ';
    memcpy(p->key + owner_len + 1, member, member_len);
    base_reset(p);
    map_insert(&in->pairs, &p->map_node, p->key, owner_len + 1 + member_len);
    return p;
}

static struct pair *pair_get(struct ingest *in, const char *owner,
                             size_t owner_len, const char *member,
                             size_t member_len, bool *new_r)
{
    char key[2 * ID_KEY_MAX + 1];
    struct map_node *node;

    memcpy(key, owner, owner_len);
    key[owner_len] = ' ';
    memcpy(key + owner_len + 1, member, member_len);
    node = map_find(&in->pairs, key, owner_len + 1 + member_len);
    *new_r = !node;
    if (node)
        return CONTAINER_OF(node, struct pair, map_node);
    return pair_new(in, owner, owner_len, member, member_len);
}

int ingest_submit(struct ingest *in, const char *owner, size_t owner_len,
                  const char *member, size_t member_len, int status,
                  int64_t at_us, ingest_on_done cb, void *arg)
{
    struct event *ev;
    struct pair *p;
    bool is_new;

    if (!in->open && clock_monotonic_ms() - in->closed_since_ms >= HOLD_MS)
        return INGEST_AWAY;
    if (in->n_events >= (size_t)in->engine->options->max_queue)
        return INGEST_OVERLOAD;
    p = pair_get(in, owner, owner_len, member, member_len, &is_new);
    ev = mem_alloc(sizeof(*ev));
    *ev =
        (struct event){.cb = cb, .arg = arg, .at_us = at_us, .status = status};
    list_push_back(&p->events, &ev->node);
    p->n_events++;
    in->n_events++;
    if (is_new)
        pair_begin(in, p);
    else if (p->state == PAIR_READY)
        in->n_ready++;
    schedule(in, 0);
    return 0;
}

const char *ingest_why(const struct ingest *in)
{
    return in->why;
}

size_t ingest_pending(const struct ingest *in)
{
    return in->n_events;
}
