/* SPDX-License-Identifier: MIT */
/* What the verbs of likesyncctl share. */
#ifndef CTL_H
#define CTL_H

#include <stdint.h>

#include "ctl_conn.h"

#define CTL_PROGRESS_MS 200
#define CTL_BAR         30

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct ctl {
    const char *where; /* ref */
    const char *arg;   /* ref: of the verb; NULL: none */
    int64_t timeout_ms;
    struct ctl_conn conn;
    struct buf why;
};

/* Says why; the exit status. */
int ctl_fail(struct ctl *ctl);
/* One request and its reply; not 0 when it failed, which was then said. */
MUST_CHECK int ctl_ask(struct ctl *ctl, int n, const char *const *words,
                       struct resp_value *v_r);
/* Of a reply that is a map: 0, or "", where there is no such field. */
int64_t ctl_field(const struct resp_value *v, const char *name);
const char *ctl_text(const struct resp_value *v, const char *name);
/* Over the one before, and to the end of the line, which may have been longer. */
void ctl_draw_bar(const char *what, int full, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* ctl_adopt.c */
int verb_adopt(struct ctl *ctl);

#endif
