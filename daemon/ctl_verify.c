/* SPDX-License-Identifier: MIT */
/* likesyncctl verify: has Redis compared with PostgreSQL, and says what differs.
 * Its exit status: 0 nothing, 1 something did, 2 it could not be told. */
#include <stdio.h>
#include <string.h>

#include "ctl.h"

static const struct {
    const char *part;
    const char *shown;
} parts[] = {
    {"counts", "counts in PostgreSQL"}, {"counters", "counters of posts"},
    {"totals", "totals of posts"},      {"hashes", "hashes"},
    {"lists", "lists of follows"},      {"unsynced", "sets of unsynced"},
};

static int64_t number(const struct resp_value *v, const char *part,
                      const char *what)
{
    char name[64];

    snprintf(name, sizeof(name), "%s_%s", part, what);
    return ctl_field(v, name);
}

static int64_t sum(const struct resp_value *v, const char *what)
{
    int64_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        n += number(v, parts[i].part, what);
    return n;
}

static void says(const struct resp_value *v, struct buf *out)
{
    buf_printf(out, "%lld looked at, %lld different",
               (long long)sum(v, "looked"), (long long)sum(v, "different"));
}

static void print_examples(const struct resp_value *v)
{
    for (size_t i = 0; i + 1 < v->n_items; i += 2) {
        if (!v->items[i].str || strcmp(v->items[i].str, "example") != 0)
            continue;
        ctl_print_plain(stdout, v->items[i + 1].str ? v->items[i + 1].str : "");
        printf("\n");
    }
}

static void print_summary(const struct resp_value *v)
{
    print_examples(v);
    printf("%-22s %12s %12s%s\n", "", "looked at", "different",
           ctl_field(v, "repair") ? "       mended" : "");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        printf("%-22s %12lld %12lld", parts[i].shown,
               (long long)number(v, parts[i].part, "looked"),
               (long long)number(v, parts[i].part, "different"));
        if (ctl_field(v, "repair"))
            printf(" %12lld", (long long)number(v, parts[i].part, "mended"));
        printf("\n");
    }
    if (ctl_field(v, "unsettled") > 0)
        printf("%lld changed all the time: run it again to know of them\n",
               (long long)ctl_field(v, "unsettled"));
}

int verb_verify(struct ctl *ctl)
{
    const char *start[] = {"VERIFY", "START", "REPAIR"};
    const struct ctl_job job = {start, ctl->given & CTL_OPT_REPAIR ? 3 : 2,
                                "verifying", says};
    struct buf json = {0};
    struct resp_value v;
    int rc = ctl_job_run(ctl, &job, &v);

    if (rc != 0)
        return rc;
    if (ctl->given & CTL_OPT_JSON) {
        ctl_json_map(&json, &v, "example", "examples");
        ctl_json_print(&json);
    } else {
        print_summary(&v);
    }
    if (!ctl_job_is(&v, "done"))
        rc = ctl_job_unfinished(ctl, &v);
    else if (sum(&v, "different") > 0)
        rc = EXIT_DIFFERENT;
    resp_value_free(&v);
    return rc;
}
