/* SPDX-License-Identifier: MIT */
/* One step of the way through a list of likes: what is not synced, then the
 * rows. */
#ifndef SERVICES_LIKERS_STEP_H
#define SERVICES_LIKERS_STEP_H

#include "services/gate.h"
#include "services/likers_rows.h"

/* Entries of one step. */
#define LIKERS_STEP 500

/* `why`: an error reply, or NULL: rows.entries, rows.more. */
typedef void (*likers_on_step)(void *arg, const char *why);

/* Zero-initialised but for those in the first part. */
struct likers_step {
    struct request *rq; /* ref: whom it is for */
    const char *id;     /* ref: key form of the post or user */
    size_t len;
    bool oldest_first;
    struct likers_pos pos; /* moves behind the last entry */
    likers_on_step cb;
    void *arg;

    struct likers_rows rows; /* with engine and side */
    int64_t n;               /* entries that are wanted */
    struct gate_pass pass;
    struct args script;
};

void likers_step_free(struct likers_step *s);
/* The next entries, at most n, which is at most LIKERS_STEP. Exactly one
 * callback, perhaps before this returns; not while one is under way. */
void likers_step_next(struct likers_step *s, int64_t n);
/* The key form of entry i, and its time. */
const char *likers_step_id(const struct likers_step *s, size_t i,
                           size_t *len_r);
int64_t likers_step_time_us(const struct likers_step *s, size_t i);

#endif
