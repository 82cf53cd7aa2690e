/* SPDX-License-Identifier: MIT */
/* What the daemon wants to know from Redis' INFO. Pure. */
#ifndef CORE_REDIS_INFO_H
#define CORE_REDIS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct redis_info {
    char run_id[48];
    char replid[48];
    char version[32];
    char maxmemory_policy[32]; /* "" where the server does not tell */
    int64_t used_memory;       /* bytes */
    int64_t maxmemory;         /* bytes; 0 no limit */
    int64_t evicted_keys;      /* since it was started */
    bool is_primary;
    bool aof_enabled;
    bool loading; /* still reading its data from disk */
};

/* Reads the reply to INFO (all default sections). 0, or -1 when run_id,
 * redis_version or role are missing or a value cannot be one: then it is not
 * an INFO reply, and *info_r is all zero. */
MUST_CHECK int redis_parse_info(const char *text, size_t len,
                                struct redis_info *info_r);
/* Why it may not be used (static), or NULL. */
const char *redis_info_objection(const struct redis_info *info);

#endif
