/* SPDX-License-Identifier: MIT */
/* Asking the daemon, and saying what came of it. */
#include "ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

#define ANSWER_MS 10000

int ctl_fail(struct ctl *ctl)
{
    const char *why = buf_cstr(&ctl->why);
    bool locked = strncmp(why, "NOAUTH", 6) == 0;

    fputs("likesyncctl: ", stderr);
    ctl_print_plain(stderr, why);
    fprintf(stderr, "%s\n",
            locked ? " (give the password by --password-file FILE)" : "");
    return ctl->compares ? EXIT_UNKNOWN : EXIT_FAILED;
}

int ctl_ask_on(struct ctl_conn *conn, int n, const char *const *words,
               struct resp_value *v_r, struct buf *why)
{
    int rc;

    if (ctl_send(conn, n, words, why) != 0)
        return -1;
    rc = ctl_read(conn, ANSWER_MS, v_r, why);
    if (rc == 0)
        buf_puts(why, "no answer within 10 s");
    if (rc <= 0)
        return -1;
    if (v_r->type != RESP_T_ERROR)
        return 0;
    buf_puts(why, v_r->str);
    resp_value_free(v_r);
    return -1;
}

int ctl_ask(struct ctl *ctl, int n, const char *const *words,
            struct resp_value *v_r)
{
    if (ctl_ask_on(&ctl->conn, n, words, v_r, &ctl->why) != 0)
        return ctl_fail(ctl);
    return EXIT_DONE;
}

const struct resp_value *ctl_find(const struct resp_value *v, const char *name)
{
    for (size_t i = 0; i + 1 < v->n_items; i += 2)
        if (v->items[i].str && strcmp(v->items[i].str, name) == 0)
            return &v->items[i + 1];
    return NULL;
}

int64_t ctl_field(const struct resp_value *v, const char *name)
{
    const struct resp_value *found = ctl_find(v, name);

    if (!found)
        return 0;
    return found->type == RESP_T_NULL ? -1 : found->num;
}

const char *ctl_text(const struct resp_value *v, const char *name)
{
    const struct resp_value *found = ctl_find(v, name);

    return found && found->str ? found->str : "";
}

void ctl_draw_bar(const char *what, int full, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "\r%s [%.*s%*s] ", what, full,
            "##############################", CTL_BAR - full, "");
    ctl_print_plain(stderr, text);
    fputs("\033[K", stderr);
}

void ctl_print_plain(FILE *f, const char *text)
{
    struct buf plain = {0};

    utf8_put_plain(&plain, text, SIZE_MAX);
    fputs(buf_cstr(&plain), f);
    buf_free(&plain);
}

void ctl_time(int64_t us, char out[CTL_TIME_MAX])
{
    time_t seconds = (time_t)(us / 1000000);
    struct tm tm;

    out[0] = '\0';
    if (us > 0 && gmtime_r(&seconds, &tm))
        strftime(out, CTL_TIME_MAX, "%Y-%m-%d %H:%M:%S UTC", &tm);
}
