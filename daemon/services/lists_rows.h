/* SPDX-License-Identifier: MIT */
/* The rows of a list, LISTS_STEP at a time, for lists_load.c. */
#ifndef SERVICES_LISTS_ROWS_H
#define SERVICES_LISTS_ROWS_H

#include <stddef.h>

#include "adapters/pg.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "core/list_names.h"

struct args;
struct engine;
struct rows;

struct rows *rows_new(const struct engine *e, enum list_side side,
                      const char *user, size_t len);
/* Not while a query is under way. */
void rows_free(struct rows *q);

/* Asks for the rows behind a mark's pos ("s": the first). As pg_submit; or
 * negative: that is no pos. */
MUST_CHECK int rows_ask(struct rows *q, const struct buf *pos, pg_on_done cb,
                        void *arg);
/* The mark's pos once these rows are in the list, appended; then the rows as
 * list_load.lua has them. 0, or -1: an id is of another type. */
MUST_CHECK int rows_put_pos(const struct rows *q, const struct pg_result *r,
                            struct buf *out);
MUST_CHECK int rows_put(const struct rows *q, const struct pg_result *r,
                        struct args *out);

#endif
