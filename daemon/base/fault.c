/* SPDX-License-Identifier: MIT */
/* Points at which a test kills the process, or lets it hang. */
#include "base/fault.h"

#ifdef LIKESYNCD_FAULTS

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"

/* The passage of `name` that spec means; 0 when that is not named. */
static uint64_t named_passage(const char *spec, const char *name)
{
    size_t len = strcspn(spec, ":");
    uint64_t n = 1;

    if (strlen(name) != len || strncmp(spec, name, len) != 0)
        return 0;
    if (spec[len] == ':') {
        const char *number = spec + len + 1;

        if (num_parse_u64(number, strlen(number), &n) < 0 || n == 0) {
            log_error("fault", "%s: expected name:n", spec);
            abort();
        }
    }
    return n;
}

/* Is this the passage that spec names, or one after it? */
static bool is_due(const char *spec, const char *name, uint64_t *passages)
{
    uint64_t due = spec ? named_passage(spec, name) : 0;

    return due && ++*passages >= due;
}

void fault_point(const char *name)
{
    static uint64_t to_hang; /* passages of the one point that is named */
    static uint64_t to_die;

    while (is_due(getenv("LIKESYNCD_HANG"), name, &to_hang))
        pause();
    if (is_due(getenv("LIKESYNCD_FAULT"), name, &to_die))
        raise(SIGKILL);
}

#endif
