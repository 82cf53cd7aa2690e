/* SPDX-License-Identifier: MIT */
/* likesyncctl status, ping, pause, resume: one request each. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

static int print_simple(struct ctl *ctl, int n, const char *const *words)
{
    struct resp_value v;

    if (ctl_ask(ctl, n, words, &v) != 0)
        return EXIT_FAILED;
    ctl_print_plain(stdout, v.str ? v.str : "");
    printf("\n");
    resp_value_free(&v);
    return EXIT_DONE;
}

int verb_ping(struct ctl *ctl)
{
    const char *words[] = {"PING"};

    return print_simple(ctl, 1, words);
}

int verb_pause(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "PAUSE"};

    return print_simple(ctl, 2, words);
}

int verb_resume(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "RESUME"};

    return print_simple(ctl, 2, words);
}

/* ---- status ---- */

#define TIME_NAME  "synced_through_us" /* ends the names of times */
#define NAME_WIDTH 25

static bool is_time(const char *name)
{
    size_t n = strlen(name);
    size_t end = sizeof(TIME_NAME) - 1;

    return n >= end && strcmp(name + n - end, TIME_NAME) == 0;
}

/* The name loses its unit. */
static void print_time(const char *name, int64_t us)
{
    char text[CTL_TIME_MAX];

    ctl_time(us, text);
    printf("%-*.*s %s\n", NAME_WIDTH, (int)strlen(name) - 3, name,
           text[0] ? text : "nothing yet");
}

static void print_field(const char *name, const struct resp_value *value)
{
    if (value->type == RESP_T_INT && is_time(name)) {
        print_time(name, value->num);
        return;
    }
    printf("%-*s ", NAME_WIDTH, name);
    if (value->type == RESP_T_INT)
        printf("%lld", (long long)value->num);
    else if (value->type == RESP_T_NULL)
        printf("unknown");
    else
        ctl_print_plain(stdout, value->str ? value->str : "");
    printf("\n");
}

static void print_fields(const struct resp_value *v)
{
    for (size_t i = 0; i + 1 < v->n_items; i += 2)
        print_field(v->items[i].str ? v->items[i].str : "?", &v->items[i + 1]);
}

int verb_status(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "STATUS"};
    struct buf json = {0};
    struct resp_value v;

    if (ctl_ask(ctl, 2, words, &v) != 0)
        return EXIT_FAILED;
    if (ctl->given & CTL_OPT_JSON) {
        ctl_json_map(&json, &v, NULL, NULL);
        ctl_json_print(&json);
    } else {
        print_fields(&v);
    }
    resp_value_free(&v);
    return EXIT_DONE;
}
