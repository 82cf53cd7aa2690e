/* SPDX-License-Identifier: MIT */
/* Who likes a post, or what a user likes: a run of rows, read in one snapshot
 * together with the rows of the pairs that may not be in PostgreSQL yet, and
 * merged with these. */
#ifndef SERVICES_LIKERS_ROWS_H
#define SERVICES_LIKERS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "services/engine.h"

enum likers_side {
    LIKERS_OF_POST, /* users */
    LIKERS_OF_USER  /* posts */
};

/* What is behind this entry; `any`: all. */
struct likers_pos {
    bool any;
    int64_t time_us;
    char id[ID_KEY_MAX]; /* key form */
    size_t len;
};

struct likers_entry {
    int64_t time_us;
    size_t at; /* of the key form, in `ids` */
    size_t len;
};

struct likers_pair;

/* Zero-initialised but for the first two. */
struct likers_rows {
    const struct engine *engine; /* ref */
    enum likers_side side;
    struct likers_pair *pairs; /* owned: not synced, by their other id */
    size_t n_pairs;
    size_t cap_pairs;
    struct likers_entry *entries; /* owned; in order once they are merged */
    size_t n;
    size_t cap;
    bool more; /* there are more behind them */
    struct buf ids;
    struct buf bytes; /* of the parameters */
    struct pg_param params[5];
    struct pg_stmt stmt;
};

void likers_rows_clear(struct likers_rows *r);
void likers_rows_free(struct likers_rows *r);
/* The types of the id that is asked for, and of the ids in the list. */
enum id_type likers_key_type(const struct engine *e, enum likers_side side);
enum id_type likers_entry_type(const struct engine *e, enum likers_side side);

/* A pair as its hash has it; no id has no row either and is left out. */
void likers_rows_add(struct likers_rows *r, const char *id, size_t len,
                     int64_t status, int64_t mtime_us);
/* Makes stmt: enough rows of the post or user behind `pos` for n entries, and
 * whether there are more. */
void likers_rows_ask(struct likers_rows *r, const char *id, size_t len,
                     const struct likers_pos *pos, bool oldest_first,
                     int64_t n);
/* Takes its result and merges: entries and `more` are as one history of the
 * events has them. 0, or -1: an id is of another type. */
MUST_CHECK int likers_rows_read(struct likers_rows *r,
                                const struct pg_result *result,
                                const struct likers_pos *pos, bool oldest_first,
                                int64_t n);

#endif
