/* SPDX-License-Identifier: MIT */
/* What an error reply of Redis means for the command and for the connection,
 * by its first word. Pure. */
#ifndef CORE_REDIS_ERROR_H
#define CORE_REDIS_ERROR_H

#include <stddef.h>

enum redis_outcome {
    REDIS_OK,      /* value is the reply */
    REDIS_ERROR,   /* error reply, text in value: the command was refused or
                      failed for a reason of its own (ERR, WRONGTYPE, ...) */
    REDIS_RETRY,   /* not executed, will work soon: NOSCRIPT (scripts are being
                      loaded again), LOADING, BUSY, MASTERDOWN, TRYAGAIN; send
                      again, in the original order, after on_up or a pause */
    REDIS_FULL,    /* not executed: OOM, MISCONF, NOREPLICAS; text in value */
    REDIS_AWAY,    /* not executed: READONLY, NOAUTH, WRONGPASS, NOPERM; the
                      connection is being dropped */
    REDIS_UNKNOWN, /* the connection broke or timed out before the answer */
};

/* What the connection does about it. */
enum redis_remedy {
    REDIS_REMEDY_NONE,
    REDIS_REMEDY_RELOAD,         /* load the scripts again */
    REDIS_REMEDY_RECONNECT,      /* there may be another primary by then */
    REDIS_REMEDY_RECONNECT_SLOW, /* somebody has to change the settings */
};

struct redis_error {
    const char *prefix; /* one or more whole words; NULL: any other error */
    enum redis_outcome outcome;
    enum redis_remedy remedy;
};

/* The row for an error text (without its '-'); never NULL. */
const struct redis_error *redis_error_find(const char *text, size_t len);

#endif
