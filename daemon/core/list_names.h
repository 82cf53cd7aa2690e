/* SPDX-License-Identifier: MIT */
/* The key names of a user's two lists, from the templates [keys] follow and
 * fans: what stands before and behind the user's id. */
#ifndef CORE_LIST_NAMES_H
#define CORE_LIST_NAMES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/compiler.h"

/* What stands beside a list, with its key behind it (lua/lists.lua). */
#define LIST_MARK     "likesync:list:"
#define LIST_UNSYNCED "likesync:unsynced:"

enum list_side {
    LIST_FOLLOW, /* those whom the user follows */
    LIST_FANS    /* those who follow the user */
};

struct list_names {
    char *pre[2]; /* owned; by enum list_side */
    char *post[2];
};

/* Each template holds "{user}" once. */
void list_names_init(struct list_names *n, const char *follow,
                     const char *fans);
void list_names_free(struct list_names *n);

/* Appends the key of the user's list (id in key form). */
void list_key_put(const struct list_names *n, enum list_side side,
                  const char *user, size_t len, struct buf *out);
/* The id in a key: a ref into it. 0, or -1 when the key does not fit; whether it
 * is a valid id is the caller's to check. */
MUST_CHECK int list_key_parse(const struct list_names *n, enum list_side side,
                              const char *key, size_t len, const char **user_r,
                              size_t *len_r);
/* Appends the pattern for SCAN MATCH. */
void list_key_glob(const struct list_names *n, enum list_side side,
                   struct buf *out);

#endif
