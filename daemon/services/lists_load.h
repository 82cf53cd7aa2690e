/* SPDX-License-Identifier: MIT */
/* One load of one list, from wherever its mark stands to its end. (lists.h is
 * for those who want a list; this is for lists.c.) */
#ifndef SERVICES_LISTS_LOAD_H
#define SERVICES_LISTS_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "core/list_names.h"

struct engine;
struct lookup;
struct load;

/* What loads share, and whom they tell. */
struct loader {
    const struct engine *engine; /* ref */
    struct lookup *lookup;       /* ref */
    struct log_limit limit;      /* of failures */
    /* More rows are there, `members` in all: load_go_on or load_free must
     * follow, now. */
    void (*on_step)(void *arg, int64_t members);
    /* load_free must follow. `why` NULL: all is there; else an error reply,
     * valid until then. */
    void (*on_end)(void *arg, const char *why);
};

/* Goes on from where the list's mark stands; tells nothing before this
 * returns. */
struct load *load_new(struct loader *loader, enum list_side side,
                      const char *user, size_t len, void *arg);
void load_go_on(struct load *l);
/* When the last call came from it, or no backend can answer it any more. */
void load_free(struct load *l);

#endif
