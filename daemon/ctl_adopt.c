/* SPDX-License-Identifier: MIT */
/* likesyncctl adopt: starts the job, shows how far it is, and says what it did.
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

    if (ctl_ask(ctl, n, words, &v) != 0)
        return EXIT_FAILED;
    resp_value_free(&v);
    return EXIT_DONE;
}

static int ask_status(struct ctl *ctl, struct resp_value *v_r)
{
    const char *words[] = {"ADOPT", "STATUS"};

    return ctl_ask(ctl, 2, words, v_r);
}

static bool is_state(const struct resp_value *v, const char *state)
{
    return strcmp(ctl_text(v, "state"), state) == 0;
}

static void draw(const struct resp_value *v)
{
    int64_t total = ctl_field(v, "total");
    int64_t scanned = ctl_field(v, "scanned");
    const char *why = ctl_text(v, "why");
    int full = is_state(v, "done") ? CTL_BAR : 0;

    if (full == 0 && total > 0)
        full = (int)((CTL_BAR - 1) * scanned / total);
    ctl_draw_bar("adopting", full, "%s: %lld taken over, %lld known%s%s",
                 ctl_text(v, "phase"), (long long)ctl_field(v, "adopted"),
                 (long long)ctl_field(v, "known"), why[0] ? ": " : "", why);
}

static void print_line(const struct resp_value *v)
{
    int64_t total = ctl_field(v, "total");
    const char *why = ctl_text(v, "why");

    fprintf(stderr, "%s: %lld%%, %lld taken over, %lld known%s%s\n",
            ctl_text(v, "phase"),
            total > 0 ? (long long)(100 * ctl_field(v, "scanned") / total) : 0,
            (long long)ctl_field(v, "adopted"),
            (long long)ctl_field(v, "known"), why[0] ? ": " : "", why);
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
    if (ctl_text(v, "example")[0])
        printf("for example: %s\n", ctl_text(v, "example"));
}

/* Until the job has ended; its last status. */
static int wait_end(struct ctl *ctl, struct resp_value *v_r)
{
    const char *stop[] = {"ADOPT", "STOP"};
    const struct timespec pause = {.tv_nsec = CTL_PROGRESS_MS * 1000000L};
    bool terminal = isatty(STDERR_FILENO);
    time_t line_at = time(NULL) + LINE_S;
    int rc;

    while ((rc = ask_status(ctl, v_r)) == 0) {
        if (terminal)
            draw(v_r);
        else if (time(NULL) >= line_at) {
            print_line(v_r);
            line_at = time(NULL) + LINE_S;
        }
        if (!is_state(v_r, "running"))
            break;
        resp_value_free(v_r);
        if (interrupted && ask_ok(ctl, 2, stop) != 0)
            return EXIT_FAILED;
        nanosleep(&pause, NULL);
    }
    if (terminal)
        fputc('\n', stderr);
    return rc;
}

int verb_adopt(struct ctl *ctl)
{
    const char *start[] = {"ADOPT", "START", ctl->arg};
    struct resp_value v;
    int rc = EXIT_FAILED;

    catch_signals();
    if (ask_ok(ctl, 3, start) != 0 || wait_end(ctl, &v) != 0)
        return EXIT_FAILED;
    print_summary(&v);
    if (is_state(&v, "done")) {
        rc = EXIT_DONE;
    } else {
        buf_printf(&ctl->why, "%s%s%s: run it again to go on",
                   ctl_text(&v, "state"), ctl_text(&v, "why")[0] ? ": " : "",
                   ctl_text(&v, "why"));
        ctl_fail(ctl);
    }
    resp_value_free(&v);
    return rc;
}
