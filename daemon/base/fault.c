/* SPDX-License-Identifier: MIT */
/* Points at which a test kills the process. */
#include "base/fault.h"

#ifdef LIKESYNCD_FAULTS

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"

/* The passage at which `name` is to die; 0 when it is not named. */
static uint64_t fatal_passage(const char *spec, const char *name)
{
    size_t len = strcspn(spec, ":");
    uint64_t n = 1;

    if (strlen(name) != len || strncmp(spec, name, len) != 0)
        return 0;
    if (spec[len] == ':') {
        const char *number = spec + len + 1;

        if (num_parse_u64(number, strlen(number), &n) < 0 || n == 0) {
            log_error("fault", "LIKESYNCD_FAULT=%s: expected name:n", spec);
            abort();
        }
    }
    return n;
}

void fault_point(const char *name)
{
    static uint64_t passages; /* of the one point that is named */
    const char *spec = getenv("LIKESYNCD_FAULT");
    uint64_t fatal = spec ? fatal_passage(spec, name) : 0;

    if (!fatal || ++passages < fatal)
        return;
    raise(SIGKILL);
}

#endif
