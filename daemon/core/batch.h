/* SPDX-License-Identifier: MIT */
/* A batch of claimed edges on its way to PostgreSQL: rows, deltas of counters
 * without rows, and the arrays that are sent. Pure. */
#ifndef CORE_BATCH_H
#define CORE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "core/ids.h"

/* As row_put in lua/rows.lua has them. */
enum { ROW_MALFORMED = -1, ROW_MISSING = -2 };

struct batch_row {
    const char *owner; /* refs: into the batch's own memory; key form */
    const char *member;
    uint32_t owner_len;
    uint32_t member_len;
    int64_t mtime_us;
    int64_t ctime_us;
    int64_t pg_mtime_us; /* what PostgreSQL holds after the write */
    int64_t pg_ctime_us; /* the same, when it was read back; else 0 */
    int8_t status;       /* 0, 1, ROW_MALFORMED, ROW_MISSING */
    int8_t pg_status;
    bool foreign; /* others wrote it: to be looked up first */
    bool dead;    /* went to the dead letters */
};

struct batch_orphan {
    const char *owner; /* ref: into the batch's own memory; key form */
    uint32_t owner_len;
    int64_t delta;
};

#define BATCH_ID_MAX 64

struct batch {
    char id[BATCH_ID_MAX];
    char taker[48];         /* with whom it is (lua/common.lua, taker_of); "" */
    int64_t claimed_us;     /* the ledger's claimed_at */
    int64_t read_us;        /* Redis' time when rows were read last */
    struct batch_row *rows; /* owned */
    size_t n_rows;
    size_t cap_rows;
    struct batch_orphan *orphans; /* owned */
    size_t n_orphans;
    size_t cap_orphans;
    struct batch_chunk *chunks; /* owned: the bytes of the ids */
};

void batch_init(struct batch *b, const char *id);
void batch_free(struct batch *b);
/* Forgets rows and orphans. */
void batch_reset(struct batch *b);

/* Adds a copy; the row's other fields are zero. */
struct batch_row *batch_add(struct batch *b, const char *owner,
                            size_t owner_len, const char *member,
                            size_t member_len);
/* One owner's first only: HSCAN may bring a field twice. */
void batch_add_orphan(struct batch *b, const char *owner, size_t owner_len,
                      int64_t delta);

/* Sorts by owner, then member (id_compare), rows that can be written first, and
 * drops what is there twice, keeping the one with the newer time. Returns how
 * many can be written: status 0 or 1 and ids of their type. */
size_t batch_sort(struct batch *b, enum id_type owner_type,
                  enum id_type member_type);

/* What of a row goes into an array. */
enum batch_column {
    BATCH_OWNER,
    BATCH_MEMBER,
    BATCH_STATUS,
    BATCH_CTIME,
    BATCH_MTIME
};

/* Appends rows [from, to) as PostgreSQL's binary array; `type` is used for ids.
 * With `foreign_only`, only rows marked foreign. Returns the array's oid. */
uint32_t batch_put_array(const struct batch *b, size_t from, size_t to,
                         enum batch_column column, enum id_type type,
                         bool foreign_only, struct buf *out);
size_t batch_count_foreign(const struct batch *b, size_t from, size_t to);

#endif
