/* SPDX-License-Identifier: MIT */
/* What the services of one kind of edge share: the kind, its scripts, and the
 * backends. Filled in by the composition; all pointers are refs but the
 * scripts' sources. */
#ifndef SERVICES_ENGINE_H
#define SERVICES_ENGINE_H

#include <stdbool.h>

#include "adapters/pg.h"
#include "adapters/redis.h"
#include "core/edge.h"
#include "core/options.h"
#include "core/resp.h"

/* One row of the table in engine.c each. */
enum script_id {
    SCRIPT_EVENT,
    SCRIPT_CLAIM,
    SCRIPT_RELOAD,
    SCRIPT_ADOPT,
    SCRIPT_ACK,
    SCRIPT_ACK_ORPHANS,
    SCRIPT_TICK,
    SCRIPT_RECOVER,
    SCRIPT_STATE,
    SCRIPT_COUNTS,
    SCRIPT_COUNTS_KEEP,
    SCRIPT_MERGE,
    SCRIPT_ADOPT_HASHES,
    SCRIPT_LIKERS,
    SCRIPT_VERIFY_COUNTERS,
    SCRIPT_VERIFY_BASES,
    SCRIPT_VERIFY_PAIRS,
    /* of kinds with lists: */
    SCRIPT_LIST_BEGIN,
    SCRIPT_LIST_LOAD,
    SCRIPT_ADOPT_LIST,
    SCRIPT_PAGE,
    SCRIPT_FOLLOW_COUNTS,
    SCRIPT_COUNT
};

struct gate;
struct hottest;
struct recall;
struct redis_info;

struct engine {
    const struct edge_kind *kind;
    enum id_type owner_type;
    enum id_type member_type;
    const struct list_names *lists; /* ref; NULL for a kind without */
    struct uv_loop_s *loop;
    const struct options *options;
    struct redis *redis;
    bool open; /* Redis may be used (recovery.h) */
    const struct redis_info *redis_info;
    struct pg *pg;
    struct gate *reads;
    struct recall *recall;
    struct hottest *hottest;      /* owners, by events */
    struct redis_script *scripts; /* ref: SCRIPT_COUNT of them */
    char instance[32]; /* this process, in batch ids and the ledger */
};

/* Whether Redis keeps sets of what is not synced, per owner and per member. */
bool engine_keeps_sets(const struct engine *e);

/* Fills in e->scripts and returns how many there are, at most SCRIPT_COUNT;
 * engine_scripts_free frees their sources. */
int engine_scripts_make(const struct engine *e);
void engine_scripts_free(struct redis_script *scripts, int n);

/* What to do about a state that Redis does not know. */
enum lookup_mode engine_lookup_mode(const struct engine *e);

/* ---- script arguments ---- */

struct args {
    struct buf text;
    size_t *ends; /* owned: where each argument ends in text */
    int n;
    int cap;
};

void args_put(struct args *a, const char *s, size_t len);
void args_put_str(struct args *a, const char *s);
void args_put_i64(struct args *a, int64_t v);
/* The i-th: a ref into the text, until more is put. */
struct resp_arg args_at(const struct args *a, size_t i);
void args_clear(struct args *a);
void args_free(struct args *a);
/* As redis_script; the arguments stay and may be sent again. Without a
 * connection object (the daemon ends): REDIS_NOT_CONNECTED. */
MUST_CHECK int args_send(struct args *a, const struct engine *e,
                         enum script_id id, redis_on_reply cb, void *arg);
/* The same for what a client reads: while Redis may not be used, also
 * REDIS_NOT_CONNECTED. Until the generation is raised, a Redis that came back
 * older would be believed. */
MUST_CHECK int args_ask(struct args *a, const struct engine *e,
                        enum script_id id, redis_on_reply cb, void *arg);
/* As redis_call: the first argument is the command. */
MUST_CHECK int args_call(struct args *a, const struct engine *e,
                         redis_on_reply cb, void *arg);

/* The error reply to a client whose read could not be sent: what the functions
 * above, or pg_submit, returned. */
const char *engine_redis_why(const struct engine *e, int rc);
const char *engine_pg_why(int rc);
/* The same of a read that Redis did not answer as it should have. */
const char *engine_reply_why(enum redis_outcome outcome);

#endif
