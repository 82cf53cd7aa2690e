/* SPDX-License-Identifier: MIT */
/* What is said to Redis before the first command of the owner, and again, the
 * scripts only, after NOSCRIPT. All of it goes out in one pipeline and is
 * answered in order; the first answer that is not as it should be ends it. */
#ifndef ADAPTERS_REDIS_GREETING_H
#define ADAPTERS_REDIS_GREETING_H

#include <stddef.h>

#include "adapters/redis.h"
#include "base/compiler.h"

#define REDIS_GREETING_ARGS 3

struct redis_greeting {
    const struct redis_config *config; /* ref; its scripts get their sha */
    size_t asked;                      /* the next step to be sent */
    size_t answered;                   /* the next step to be answered */
    char db[16];
    struct redis_info info;
};

enum redis_greeting_result {
    REDIS_GREETING_GOES_ON,
    REDIS_GREETING_DONE,
    REDIS_GREETING_FAILED,
    REDIS_GREETING_REFUSED, /* somebody has to change the settings */
};

/* From the start; config outlives it. */
void redis_greeting_begin(struct redis_greeting *g,
                          const struct redis_config *config);
/* Only the scripts, of which there must be one. */
void redis_greeting_begin_scripts(struct redis_greeting *g);
/* The next command to send: its number of arguments, 0 when all are sent. */
int redis_greeting_next(struct redis_greeting *g,
                        const char *argv[REDIS_GREETING_ARGS]);
/* Takes the next answer; says in why what failed. */
MUST_CHECK enum redis_greeting_result
redis_greeting_take(struct redis_greeting *g, const struct redis_value *v,
                    char *why, size_t size);

#endif
