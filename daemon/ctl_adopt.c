/* SPDX-License-Identifier: MIT */
/* likesyncctl adopt: has a graph taken over, and says what was done. */
#include <stdio.h>

#include "ctl.h"

static void says(const struct resp_value *v, struct buf *out)
{
    buf_printf(out, "%lld taken over, %lld known",
               (long long)ctl_field(v, "adopted"),
               (long long)ctl_field(v, "known"));
}

static void print_summary(const struct resp_value *v)
{
    static const struct {
        const char *field;
        const char *shown;
    } rows[] = {
        {"keys", "keys looked at"}, {"edges", "edges found"},
        {"adopted", "taken over"},  {"known", "already known"},
        {"refused", "refused"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        printf("%-15s %lld\n", rows[i].shown,
               (long long)ctl_field(v, rows[i].field));
    if (ctl_text(v, "example")[0]) {
        printf("for example: ");
        ctl_print_plain(stdout, ctl_text(v, "example"));
        printf("\n");
    }
}

int verb_adopt(struct ctl *ctl)
{
    const char *start[] = {"ADOPT", "START", ctl->arg};
    const struct ctl_job job = {start, 3, "adopting", says};
    struct resp_value v;
    int rc = ctl_job_run(ctl, &job, &v);

    if (rc != 0)
        return rc;
    print_summary(&v);
    if (!ctl_job_is(&v, "done"))
        rc = ctl_job_unfinished(ctl, &v);
    resp_value_free(&v);
    return rc;
}
