/* SPDX-License-Identifier: MIT */
/* Scripts of a kind, and their arguments. */
#include "services/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "services/lua.h"

static const struct {
    enum script_id id;
    const char *name;
    const char *body;
} script_table[] = {
    {SCRIPT_EVENT, "event", lua_event},
    {SCRIPT_CLAIM, "claim", lua_claim},
    {SCRIPT_RELOAD, "reload", lua_reload},
    {SCRIPT_ADOPT, "adopt", lua_adopt},
    {SCRIPT_ACK, "ack", lua_ack},
    {SCRIPT_ACK_ORPHANS, "ack_orphans", lua_ack_orphans},
    {SCRIPT_TICK, "tick", lua_tick},
    {SCRIPT_RECOVER, "recover", lua_recover},
    {SCRIPT_STATE, "state", lua_state},
    {SCRIPT_COUNTS, "counts", lua_counts},
    {SCRIPT_COUNTS_KEEP, "counts_keep", lua_counts_keep},
    {SCRIPT_MERGE, "merge", lua_merge},
    {SCRIPT_ADOPT_HASHES, "adopt_hashes", lua_adopt_hashes},
    {SCRIPT_LIKERS, "likers", lua_likers},
    {SCRIPT_VERIFY_COUNTERS, "verify_counters", lua_verify_counters},
    {SCRIPT_VERIFY_BASES, "verify_bases", lua_verify_bases},
    {SCRIPT_VERIFY_PAIRS, "verify_pairs", lua_verify_pairs},
    {SCRIPT_LIST_BEGIN, "list_begin", lua_list_begin},
    {SCRIPT_LIST_LOAD, "list_load", lua_list_load},
    {SCRIPT_ADOPT_LIST, "adopt_list", lua_adopt_list},
    {SCRIPT_PAGE, "page", lua_page},
    {SCRIPT_FOLLOW_COUNTS, "follow_counts", lua_follow_counts},
};

bool engine_keeps_sets(const struct engine *e)
{
    return e->kind->index == EDGE_LIKE && e->options->like_lists;
}

int engine_scripts_make(const struct engine *e)
{
    bool has_lists = e->kind->has_lists;
    int n = has_lists ? SCRIPT_COUNT : SCRIPT_LIST_BEGIN;

    for (int i = 0; i < n; i++) {
        struct redis_script *s = &e->scripts[script_table[i].id];
        const char *const parts[] = {
            engine_keeps_sets(e) ? "local UNSYNCED_SETS = true\n"
                                 : "local UNSYNCED_SETS = false\n",
            fault_edit(lua_common),
            has_lists ? lua_lists : "",
            lua_rows,
            fault_edit(script_table[i].body),
            NULL,
        };

        s->name = script_table[i].name;
        s->source = edge_script(e->kind, e->lists, parts);
        s->sha[0] = '\0';
    }
    return n;
}

void engine_scripts_free(struct redis_script *scripts, int n)
{
    for (int i = 0; i < n; i++)
        free((char *)(uintptr_t)scripts[i].source);
}

enum lookup_mode engine_lookup_mode(const struct engine *e)
{
    const struct options *o = e->options;
    int64_t mode[EDGE_COUNT] = {
        [EDGE_LIKE] = o->like_lookup,
        [EDGE_FOLLOW] = o->follow_lookup,
    };

    return (enum lookup_mode)mode[e->kind->index];
}

void args_put(struct args *a, const char *s, size_t len)
{
    if (a->n == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 64;
        a->ends = mem_realloc(a->ends, (size_t)a->cap * sizeof(*a->ends));
    }
    buf_append(&a->text, s, len);
    a->ends[a->n++] = a->text.len;
}

void args_put_str(struct args *a, const char *s)
{
    args_put(a, s, strlen(s));
}

void args_put_i64(struct args *a, int64_t v)
{
    args_put(a, "", 0);
    buf_put_i64(&a->text, v);
    a->ends[a->n - 1] = a->text.len;
}

struct resp_arg args_at(const struct args *a, size_t i)
{
    size_t from = i ? a->ends[i - 1] : 0;

    return (struct resp_arg){a->text.data + from, a->ends[i] - from};
}

void args_clear(struct args *a)
{
    a->n = 0;
    buf_clear(&a->text, 64 * 1024);
}

void args_free(struct args *a)
{
    buf_free(&a->text);
    free(a->ends);
    memset(a, 0, sizeof(*a));
}

/* argv and lengths, pointing into the text; freed by the caller. */
static void args_spread(const struct args *a, const char ***argv_r,
                        size_t **len_r)
{
    const char **argv = mem_alloc((size_t)(a->n + 1) * sizeof(*argv));
    size_t *len = mem_alloc((size_t)(a->n + 1) * sizeof(*len));
    size_t start = 0;

    for (int i = 0; i < a->n; i++) {
        argv[i] = a->text.data + start;
        len[i] = a->ends[i] - start;
        start = a->ends[i];
    }
    *argv_r = argv;
    *len_r = len;
}

int args_send(struct args *a, const struct engine *e, enum script_id id,
              redis_on_reply cb, void *arg)
{
    const char **argv;
    size_t *len;
    int rc;

    if (!e->redis)
        return REDIS_NOT_CONNECTED;
    args_spread(a, &argv, &len);
    rc = redis_script(e->redis, &e->scripts[id], a->n, argv, len, cb, arg);
    free(argv);
    free(len);
    return rc;
}

int args_ask(struct args *a, const struct engine *e, enum script_id id,
             redis_on_reply cb, void *arg)
{
    return e->open ? args_send(a, e, id, cb, arg) : REDIS_NOT_CONNECTED;
}

int args_call(struct args *a, const struct engine *e, redis_on_reply cb,
              void *arg)
{
    const char **argv;
    size_t *len;
    int rc;

    if (!e->redis)
        return REDIS_NOT_CONNECTED;
    args_spread(a, &argv, &len);
    rc = redis_call(e->redis, a->n, argv, len, cb, arg);
    free(argv);
    free(len);
    return rc;
}

/* A Redis that is there and may be used will be: its scripts are being loaded, or
 * its generation is being raised. */
const char *engine_redis_why(const struct engine *e, int rc)
{
    if (rc == REDIS_BUSY)
        return "TRYAGAIN Redis has too much to do";
    if (e->redis && redis_is_connected(e->redis) &&
        !redis_info_objection(e->redis_info))
        return "TRYAGAIN Redis is being made ready";
    return "UNAVAILABLE Redis is away";
}

const char *engine_reply_why(enum redis_outcome outcome)
{
    return outcome == REDIS_RETRY ? "TRYAGAIN Redis is busy"
                                  : "UNAVAILABLE Redis did not answer";
}

const char *engine_pg_why(int rc)
{
    return rc == PG_BUSY ? "TRYAGAIN PostgreSQL has too much to do"
                         : "UNAVAILABLE PostgreSQL is away";
}
