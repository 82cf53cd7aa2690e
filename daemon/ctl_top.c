/* SPDX-License-Identifier: MIT */
/* likesyncctl top: rates, backlog and lag as they change; in a terminal over the whole
 * screen, which also waits for a daemon that is away, otherwise line by line. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "core/edge.h"
#include "ctl.h"
#include "ctl_screen.h"

#define SLICE_MS  100 /* between two looks for a key, while an answer is due */
#define ANSWER_MS 10000

struct sample {
    struct resp_value v; /* owned */
    uint64_t at_ms;      /* monotonic; 0: there is none */
};

struct top {
    struct ctl *ctl; /* ref */
    bool live;
    bool connected;
    struct sample now;
    struct sample before;
};

static void forget(struct sample *s)
{
    if (s->at_ms > 0)
        resp_value_free(&s->v);
    *s = (struct sample){0};
}

static void take(struct top *t, const struct resp_value *v)
{
    forget(&t->before);
    t->before = t->now;
    t->now = (struct sample){*v, clock_monotonic_ms()};
}

/* ---- figures ---- */

/* Per second, of a count that goes up; -1: not known. */
static int64_t rate(const struct top *t, const char *name)
{
    int64_t ms = (int64_t)(t->now.at_ms - t->before.at_ms);
    int64_t more = ctl_field(&t->now.v, name) - ctl_field(&t->before.v, name);

    if (t->before.at_ms == 0 || ms == 0 || more < 0) /* it was started anew */
        return -1;
    return (more * 1000 + ms / 2) / ms;
}

/* Of a kind, or of all when it is "". */
static void name_of(const char *kind, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", kind, kind[0] ? "_" : "", name);
}

static int64_t field_of(const struct top *t, const char *kind, const char *name)
{
    char full[64];

    name_of(kind, name, full, sizeof(full));
    return ctl_field(&t->now.v, full);
}

static int64_t rate_of(const struct top *t, const char *kind, const char *name)
{
    char full[64];

    name_of(kind, name, full, sizeof(full));
    return rate(t, full);
}

#define FIGURE_MAX 32

/* With a comma at each thousand; negative: "-". */
static const char *grouped(int64_t v, char out[FIGURE_MAX])
{
    char digits[24];
    size_t n = (size_t)snprintf(digits, sizeof(digits), "%" PRId64, v);
    size_t at = 0;

    if (v < 0)
        return "-";
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static const char *plain(int64_t v, char out[FIGURE_MAX])
{
    if (v < 0)
        return "-";
    snprintf(out, FIGURE_MAX, "%" PRId64, v);
    return out;
}

static const char *seconds(int64_t ms, char out[FIGURE_MAX])
{
    if (ms < 0)
        return "-";
    snprintf(out, FIGURE_MAX, "%" PRId64 ".%02d", ms / 1000,
             (int)(ms % 1000 / 10));
    return out;
}

/* ---- the screen ---- */

enum figure { FIGURE_RATE, FIGURE_COUNT, FIGURE_SECONDS };

static const struct {
    const char *shown;
    const char *field;
    enum figure figure;
} rows[] = {
    {"events per second", "events", FIGURE_RATE},
    {"rows that wait", "rows_dirty", FIGURE_COUNT},
    {"posts and users that wait", "owners_dirty", FIGURE_COUNT},
    {"the same on record", "owners_on_record", FIGURE_COUNT},
    {"batches on record", "batches_on_record", FIGURE_COUNT},
    {"tables behind by (s)", "lag_ms", FIGURE_SECONDS},
};

static void put_cell(const struct top *t, struct buf *out, const char *kind,
                     size_t row)
{
    const char *field = rows[row].field;
    char text[FIGURE_MAX];

    switch (rows[row].figure) {
    case FIGURE_RATE:
        buf_printf(out, " %13s", grouped(rate_of(t, kind, field), text));
        break;
    case FIGURE_COUNT:
        buf_printf(out, " %13s", grouped(field_of(t, kind, field), text));
        break;
    case FIGURE_SECONDS:
        buf_printf(out, " %13s", seconds(field_of(t, kind, field), text));
        break;
    }
}

static void put_table(const struct top *t, struct buf *out)
{
    buf_printf(out, "%-26s %13s", "", "all");
    for (int kind = 0; kind < EDGE_COUNT; kind++)
        buf_printf(out, " %13s", edge_kinds[kind]->name);
    buf_putc(out, '\n');
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
        buf_printf(out, "%-26s", rows[row].shown);
        put_cell(t, out, "", row);
        for (int kind = 0; kind < EDGE_COUNT; kind++)
            put_cell(t, out, edge_kinds[kind]->name, row);
        buf_putc(out, '\n');
    }
}

static void put_since(struct buf *out, int64_t s)
{
    if (s >= 86400)
        buf_printf(out, "%" PRId64 " d %d h", s / 86400,
                   (int)(s % 86400 / 3600));
    else if (s >= 3600)
        buf_printf(out, "%d h %d min", (int)(s / 3600), (int)(s % 3600 / 60));
    else
        buf_printf(out, "%d min %d s", (int)(s / 60), (int)(s % 60));
}

static void put_backend(struct buf *out, const char *name, const char *text)
{
    buf_puts(out, name);
    utf8_put_plain(out, text, SIZE_MAX);
    buf_putc(out, '\n');
}

static void put_state(const struct top *t, struct buf *out)
{
    const struct resp_value *v = &t->now.v;
    char through[CTL_TIME_MAX];

    buf_printf(out, "likesyncd %s, instance %s, up ", ctl_text(v, "version"),
               ctl_text(v, "instance"));
    put_since(out, ctl_field(v, "uptime_s"));
    buf_printf(out, "\n\nflusher         %s\n", ctl_text(v, "flusher"));
    put_backend(out, "redis           ", ctl_text(v, "redis"));
    put_backend(out, "postgres        ", ctl_text(v, "postgres"));
    ctl_time(ctl_field(v, "synced_through_us"), through);
    buf_printf(out, "synced through  %s\n\n",
               through[0] ? through : "nothing yet");
}

static void put_rest(const struct top *t, struct buf *out)
{
    char text[FIGURE_MAX];

    buf_printf(out, "\nrows written per second %s, ",
               grouped(rate(t, "rows_written"), text));
    buf_printf(out, "clients %s, ",
               grouped(ctl_field(&t->now.v, "clients"), text));
    buf_printf(out, "dead letters since the start %s\n",
               grouped(ctl_field(&t->now.v, "dead_letters"), text));
}

static void draw(struct top *t)
{
    struct buf out = {0};

    if (!t->connected) {
        buf_puts(&out, "NO ANSWER: ");
        utf8_put_plain(&out, buf_cstr(&t->ctl->why), SIZE_MAX);
        buf_puts(&out, "; what follows is from before\n");
    }
    if (t->now.at_ms > 0) {
        put_state(t, &out);
        put_table(t, &out);
        put_rest(t, &out);
    }
    buf_puts(&out, "\nq or Ctrl-C ends");
    screen_draw(&out);
    buf_free(&out);
}

/* ---- lines ---- */

static void print_head(void)
{
    printf("%-23s %10s %10s %10s %10s %8s  %s\n", "time", "events/s", "rows/s",
           "waiting", "on record", "lag s", "state");
}

static void print_backend(const char *name, const char *text)
{
    if (strncmp(text, "connected", 9) == 0)
        return;
    printf("; %s: ", name);
    ctl_print_plain(stdout, text);
}

static void print_line(const struct top *t)
{
    const struct resp_value *v = &t->now.v;
    char now[CTL_TIME_MAX], text[FIGURE_MAX];

    ctl_time(clock_realtime_us(), now);
    printf("%s %10s", now, plain(rate(t, "events"), text));
    printf(" %10s", plain(rate(t, "rows_written"), text));
    printf(" %10s", plain(ctl_field(v, "rows_dirty"), text));
    printf(" %10s", plain(ctl_field(v, "owners_on_record"), text));
    printf(" %8s  %s", seconds(ctl_field(v, "lag_ms"), text),
           ctl_text(v, "flusher"));
    print_backend("redis", ctl_text(v, "redis"));
    print_backend("postgres", ctl_text(v, "postgres"));
    printf("\n");
    fflush(stdout);
}

/* ---- asking ---- */

/* 1 an answer; 0 the user wants to end; -1 with the reason in why. */
static int wait_answer(struct top *t, struct resp_value *v_r)
{
    struct ctl *ctl = t->ctl;

    for (int ms = 0; ms < ANSWER_MS; ms += SLICE_MS) {
        int rc = ctl_read(&ctl->conn, SLICE_MS, v_r, &ctl->why);

        if (rc != 0)
            return rc;
        if (t->live && screen_wait(0) == SCREEN_QUIT)
            return 0;
    }
    buf_puts(&ctl->why, "no answer within 10 s");
    return -1;
}

/* As above. */
static int ask(struct top *t)
{
    const char *words[] = {"FLUSHER", "STATUS"};
    struct ctl *ctl = t->ctl;
    struct resp_value v = {0};
    int rc;

    buf_clear(&ctl->why, 256);
    if (!t->connected &&
        ctl_connect(&ctl->conn, ctl->where, ctl->password, &ctl->why) != 0)
        return -1;
    rc = ctl_send(&ctl->conn, 2, words, &ctl->why);
    rc = rc == 0 ? wait_answer(t, &v) : rc;
    if (rc > 0 && v.type == RESP_T_ERROR) {
        buf_puts(&ctl->why, v.str);
        resp_value_free(&v);
        rc = -1;
    }
    if (rc > 0)
        take(t, &v);
    else
        ctl_close(&ctl->conn);
    t->connected = rc > 0;
    return rc;
}

static void sleep_ms(int64_t ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static int run_lines(struct top *t)
{
    for (int64_t n = 0;; n++) {
        if (ask(t) < 0)
            return ctl_fail(t->ctl);
        if (n == 0)
            print_head();
        else
            print_line(t);
        if (t->ctl->count > 0 && n == t->ctl->count)
            return EXIT_DONE;
        sleep_ms(t->ctl->interval_ms);
    }
}

/* 0, or -1 with the reason in why: a daemon that never answered is not waited for. */
static int run_screen(struct top *t)
{
    enum screen_event event;

    do {
        int rc = ask(t);

        if (rc == 0)
            return 0;
        if (rc < 0 && t->now.at_ms == 0)
            return -1;
        do {
            draw(t);
            event = screen_wait((int)t->ctl->interval_ms);
        } while (event == SCREEN_RESIZED);
    } while (event != SCREEN_QUIT);
    return 0;
}

int verb_top(struct ctl *ctl)
{
    struct top t = {.ctl = ctl, .connected = true};
    int rc = EXIT_DONE;

    t.live = ctl->count == 0 && screen_open();
    if (t.live) {
        rc = run_screen(&t);
        screen_close();
        rc = rc == 0 ? EXIT_DONE : ctl_fail(ctl);
    } else {
        rc = run_lines(&t);
    }
    forget(&t.now);
    forget(&t.before);
    return rc;
}
