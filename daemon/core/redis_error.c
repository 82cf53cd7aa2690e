/* SPDX-License-Identifier: MIT */
/* The table of Redis' error words that are not simply the caller's fault. MOVED
 * and ASK are: a cluster needs another client, and no retry helps. */
#include "core/redis_error.h"

#include <string.h>

#include "base/compiler.h"

static const struct redis_error errors[] = {
    {"NOSCRIPT", REDIS_RETRY, REDIS_REMEDY_RELOAD},
    {"LOADING", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"BUSY", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"UNKILLABLE", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"MASTERDOWN", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"TRYAGAIN", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"ERR max number of clients", REDIS_RETRY, REDIS_REMEDY_NONE},
    {"OOM", REDIS_FULL, REDIS_REMEDY_NONE},
    {"MISCONF", REDIS_FULL, REDIS_REMEDY_NONE},
    {"NOREPLICAS", REDIS_FULL, REDIS_REMEDY_NONE},
    {"READONLY", REDIS_AWAY, REDIS_REMEDY_RECONNECT},
    {"NOAUTH", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW},
    {"WRONGPASS", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW},
    {"NOPERM", REDIS_AWAY, REDIS_REMEDY_RECONNECT_SLOW},
};

static const struct redis_error other_error = {NULL, REDIS_ERROR,
                                               REDIS_REMEDY_NONE};

const struct redis_error *redis_error_find(const char *text, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        size_t n = strlen(errors[i].prefix);

        if (len < n || memcmp(text, errors[i].prefix, n) != 0)
            continue;
        if (len == n || text[n] == ' ')
            return &errors[i];
    }
    return &other_error;
}
