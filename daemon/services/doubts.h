/* SPDX-License-Identifier: MIT */
/* Calls to Redis whose outcome is unknown. What was sent may still be on its way,
 * when the connection is long gone, and Redis would do it after what was sent
 * later. So each carries a deadline, after which Redis refuses it, and its outcome
 * is not told before: then it has happened, or never will. */
#ifndef SERVICES_DOUBTS_H
#define SERVICES_DOUBTS_H

#include <stdint.h>

#include "base/list.h"

struct uv_loop_s;
struct doubts;

/* Part of a call. */
struct doubt {
    struct list node;
    uint64_t until_ms; /* monotonic */
};

/* Until when that is, of a call that is sent at now_ms with a deadline timeout_ms
 * later. */
uint64_t doubt_until_ms(uint64_t now_ms, uint64_t timeout_ms);

/* on_end: Redis will not do it any more; the doubt is the callee's again. */
struct doubts *doubts_new(struct uv_loop_s *loop,
                          void (*on_end)(void *arg, struct doubt *d),
                          void *arg);
/* on_end for those that are left, though it is too early. */
void doubts_free(struct doubts *ds);
/* on_end follows, never before this returns. */
void doubts_add(struct doubts *ds, struct doubt *d);

#endif
