/* SPDX-License-Identifier: MIT */
/* The members of a list of which Redis may know more than PostgreSQL, or less, in
 * parts of LISTS_STEP with their rows, for lists_load.c: as long as
 * overlay_wants_scan, send the call and hand in its reply; else overlay_lookup,
 * overlay_put, and overlay_next once the part is in the list. */
#ifndef SERVICES_LISTS_OVERLAY_H
#define SERVICES_LISTS_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "core/list_names.h"

struct args;
struct engine;
struct lookup;
struct overlay;
struct redis_value;

/* An error reply. */
#define LISTS_PG_AWAY                                                          \
    "UNAVAILABLE PostgreSQL is away and Redis does not have the whole list"

/* `why` NULL: all rows of the part are known; else an error reply (static). */
typedef void (*overlay_on_rows)(void *arg, const char *why);

struct overlay *overlay_new(const struct engine *e, struct lookup *lookup,
                            enum list_side side, const char *user, size_t len);
/* Not while a lookup is under way. */
void overlay_free(struct overlay *o);

/* From the first member on: those that are not synced, and those that the list
 * has already. */
void overlay_reset(struct overlay *o, bool unsynced, bool listed);
bool overlay_wants_scan(const struct overlay *o);
void overlay_put_scan(const struct overlay *o, struct args *out);
/* The reply. 0, or -1: it is none of that call. */
MUST_CHECK int overlay_scanned(struct overlay *o, const struct redis_value *v);
/* Exactly one callback, perhaps before this returns. */
void overlay_lookup(struct overlay *o, overlay_on_rows cb, void *arg);
/* No members come behind this part, which may be empty. */
bool overlay_is_last(const struct overlay *o);
/* The part, as list_load.lua has rows. */
void overlay_put(const struct overlay *o, struct args *out);
void overlay_next(struct overlay *o);

#endif
