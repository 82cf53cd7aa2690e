/* SPDX-License-Identifier: MIT */
/* A job of the daemon: starts it, shows how far it is, and waits for its end.
 * SIGINT and SIGTERM end the job first. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"

#define LINE_S 10 /* between two lines where there is no terminal */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int ask_ok(struct ctl *ctl, int n, const char *const *words)
{
    struct resp_value v;
    int rc = ctl_ask(ctl, n, words, &v);

    if (rc == 0)
        resp_value_free(&v);
    return rc;
}

bool ctl_job_is(const struct resp_value *v, const char *state)
{
    return strcmp(ctl_text(v, "state"), state) == 0;
}

static void draw(const struct ctl_job *job, const struct resp_value *v,
                 const char *says)
{
    int64_t total = ctl_field(v, "total");
    int64_t scanned = ctl_field(v, "scanned");
    int full = ctl_job_is(v, "done") ? CTL_BAR : 0;

    if (full == 0 && total > 0)
        full = (int)((CTL_BAR - 1) * scanned / total);
    ctl_draw_bar(job->doing, full, "%s: %s", ctl_text(v, "phase"), says);
}

static void print_line(const struct resp_value *v, const char *says)
{
    int64_t total = ctl_field(v, "total");

    fprintf(stderr, "%s: %lld%%, ", ctl_text(v, "phase"),
            total > 0 ? (long long)(100 * ctl_field(v, "scanned") / total) : 0);
    ctl_print_plain(stderr, says);
    fputc('\n', stderr);
}

static void show(const struct ctl_job *job, const struct resp_value *v,
                 bool terminal, time_t *line_at)
{
    const char *why = ctl_text(v, "why");
    struct buf says = {0};

    job->says(v, &says);
    if (why[0])
        buf_printf(&says, ": %s", why);
    if (terminal) {
        draw(job, v, buf_cstr(&says));
    } else if (time(NULL) >= *line_at) {
        print_line(v, buf_cstr(&says));
        *line_at = time(NULL) + LINE_S;
    }
    buf_free(&says);
}

static int wait_end(struct ctl *ctl, const struct ctl_job *job,
                    struct resp_value *v_r)
{
    const char *status[] = {job->start[0], "STATUS"};
    const char *stop[] = {job->start[0], "STOP"};
    const struct timespec pause = {.tv_nsec = CTL_PROGRESS_MS * 1000000L};
    bool terminal = isatty(STDERR_FILENO);
    time_t line_at = time(NULL) + LINE_S;
    int rc;

    while ((rc = ctl_ask(ctl, 2, status, v_r)) == 0) {
        show(job, v_r, terminal, &line_at);
        if (!ctl_job_is(v_r, "running"))
            break;
        resp_value_free(v_r);
        if (interrupted && (rc = ask_ok(ctl, 2, stop)) != 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (terminal)
        fputc('\n', stderr);
    return rc;
}

int ctl_job_run(struct ctl *ctl, const struct ctl_job *job,
                struct resp_value *v_r)
{
    int rc;

    catch_signals();
    rc = ask_ok(ctl, job->n_start, job->start);
    return rc != 0 ? rc : wait_end(ctl, job, v_r);
}

int ctl_job_unfinished(struct ctl *ctl, const struct resp_value *v)
{
    const char *why = ctl_text(v, "why");

    buf_printf(&ctl->why, "%s%s%s: run it again to go on", ctl_text(v, "state"),
               why[0] ? ": " : "", why);
    return ctl_fail(ctl);
}
