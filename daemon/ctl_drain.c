/* SPDX-License-Identifier: MIT */
/* likesyncctl drain: waits until all is in PostgreSQL, with a bar. */
#include "ctl.h"

#include <stdio.h>
#include <unistd.h>

/* Posts and users that still have something unsynced; negative with the reason in why. */
static int64_t left_to_drain(struct ctl_conn *watch, struct buf *why)
{
    const char *words[] = {"FLUSHER", "STATUS"};
    struct resp_value v;
    int64_t left;

    if (ctl_ask_on(watch, 2, words, &v, why) != 0)
        return -1;
    left = ctl_field(&v, "owners_dirty") + ctl_field(&v, "owners_on_record");
    resp_value_free(&v);
    return left;
}

/* Full only when it is done. */
static void draw_bar(int64_t left, int64_t most, bool done)
{
    int full = done ? CTL_BAR : 0;

    if (!done && most > 0)
        full = (int)((CTL_BAR - 1) * (most - left) / most);
    ctl_draw_bar("draining", full, "%lld posts and users left",
                 (long long)left);
}

/* The figures of STATUS are those of the last tick, so the first are asked for
 * when the drain has had time for one. */
static int drain_wait(struct ctl *ctl, struct ctl_conn *watch,
                      struct resp_value *v_r)
{
    bool terminal = isatty(STDERR_FILENO);
    int64_t most = 0;
    int rc;

    while ((rc = ctl_read(&ctl->conn, CTL_PROGRESS_MS, v_r, &ctl->why)) == 0) {
        int64_t left = left_to_drain(watch, &ctl->why);

        if (left < 0) {
            rc = -1;
            break;
        }
        most = left > most ? left : most;
        if (terminal)
            draw_bar(left, most, false);
    }
    if (terminal && rc > 0 && v_r->type != RESP_T_ERROR)
        draw_bar(0, most, true);
    if (terminal)
        fputc('\n', stderr);
    return rc;
}

int verb_drain(struct ctl *ctl)
{
    char timeout[24];
    const char *words[] = {"FLUSHER", "DRAIN", timeout};
    struct ctl_conn watch;
    struct resp_value v = {0};
    int rc;

    snprintf(timeout, sizeof(timeout), "%lld", (long long)ctl->timeout_ms);
    if (ctl_connect(&watch, ctl->where, ctl->password, &ctl->why) != 0)
        return ctl_fail(ctl);
    rc = ctl_send(&ctl->conn, 3, words, &ctl->why);
    if (rc == 0)
        rc = drain_wait(ctl, &watch, &v);
    ctl_close(&watch);
    if (rc <= 0)
        return ctl_fail(ctl);
    if (v.type == RESP_T_ERROR) {
        buf_puts(&ctl->why, v.str);
        rc = ctl_fail(ctl);
    } else {
        printf("all is durable\n");
        rc = EXIT_DONE;
    }
    resp_value_free(&v);
    return rc;
}
