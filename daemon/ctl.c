/* SPDX-License-Identifier: MIT */
/* likesyncctl: one row of the verb table for each thing it does. */
#include "ctl.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"
#include "core/secret.h"

#define DEFAULT_SOCKET "unix:/run/likesyncd/admin.sock"
#define ANSWER_MS      10000
#define NO_ANSWER      "no answer within 10 s"

int ctl_fail(struct ctl *ctl)
{
    const char *why = buf_cstr(&ctl->why);
    bool locked = strncmp(why, "NOAUTH", 6) == 0;

    fprintf(stderr, "likesyncctl: %s%s\n", why,
            locked ? " (give the password by --password-file FILE)" : "");
    return ctl->compares ? EXIT_UNKNOWN : EXIT_FAILED;
}

int ctl_ask(struct ctl *ctl, int n, const char *const *words,
            struct resp_value *v_r)
{
    int rc;

    if (ctl_send(&ctl->conn, n, words, &ctl->why) != 0)
        return ctl_fail(ctl);
    rc = ctl_read(&ctl->conn, ANSWER_MS, v_r, &ctl->why);
    if (rc == 0)
        buf_puts(&ctl->why, NO_ANSWER);
    if (rc <= 0)
        return ctl_fail(ctl);
    if (v_r->type != RESP_T_ERROR)
        return EXIT_DONE;
    buf_puts(&ctl->why, v_r->str);
    resp_value_free(v_r);
    return ctl_fail(ctl);
}

static const struct resp_value *find(const struct resp_value *v,
                                     const char *name)
{
    for (size_t i = 0; i + 1 < v->n_items; i += 2)
        if (v->items[i].str && strcmp(v->items[i].str, name) == 0)
            return &v->items[i + 1];
    return NULL;
}

int64_t ctl_field(const struct resp_value *v, const char *name)
{
    const struct resp_value *found = find(v, name);

    return found ? found->num : 0;
}

const char *ctl_text(const struct resp_value *v, const char *name)
{
    const struct resp_value *found = find(v, name);

    return found && found->str ? found->str : "";
}

void ctl_draw_bar(const char *what, int full, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "\r%s [%.*s%*s] %s\033[K", what, full,
            "##############################", CTL_BAR - full, "", text);
}

static int print_simple(struct ctl *ctl, int n, const char *const *words)
{
    struct resp_value v;

    if (ctl_ask(ctl, n, words, &v) != 0)
        return EXIT_FAILED;
    printf("%s\n", v.str ? v.str : "");
    resp_value_free(&v);
    return EXIT_DONE;
}

static int verb_ping(struct ctl *ctl)
{
    const char *words[] = {"PING"};

    return print_simple(ctl, 1, words);
}

static int verb_pause(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "PAUSE"};

    return print_simple(ctl, 2, words);
}

static int verb_resume(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "RESUME"};

    return print_simple(ctl, 2, words);
}

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
    time_t seconds = (time_t)(us / 1000000);
    struct tm tm;
    char text[32] = "nothing yet";

    if (us > 0 && gmtime_r(&seconds, &tm))
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm);
    printf("%-*.*s %s\n", NAME_WIDTH, (int)strlen(name) - 3, name, text);
}

static void print_field(const char *name, const struct resp_value *value)
{
    if (value->type != RESP_T_INT)
        printf("%-*s %s\n", NAME_WIDTH, name, value->str ? value->str : "");
    else if (is_time(name))
        print_time(name, value->num);
    else
        printf("%-*s %lld\n", NAME_WIDTH, name, (long long)value->num);
}

static int verb_status(struct ctl *ctl)
{
    const char *words[] = {"FLUSHER", "STATUS"};
    struct resp_value v;

    if (ctl_ask(ctl, 2, words, &v) != 0)
        return EXIT_FAILED;
    for (size_t i = 0; i + 1 < v.n_items; i += 2)
        print_field(v.items[i].str ? v.items[i].str : "?", &v.items[i + 1]);
    resp_value_free(&v);
    return EXIT_DONE;
}

/* ---- drain ---- */

/* Posts and users that still have something unsynced; negative with the reason in why. */
static int64_t left_to_drain(struct ctl_conn *watch, struct buf *why)
{
    const char *words[] = {"FLUSHER", "STATUS"};
    struct resp_value v;
    int64_t left;
    int rc;

    if (ctl_send(watch, 2, words, why) != 0)
        return -1;
    rc = ctl_read(watch, ANSWER_MS, &v, why);
    if (rc == 0)
        buf_puts(why, NO_ANSWER);
    if (rc <= 0)
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

static int verb_drain(struct ctl *ctl)
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

/* ---- command line ---- */

static const struct {
    const char *name;
    const char *arg; /* what it wants; "" nothing */
    int (*run)(struct ctl *ctl);
    const char *help;
} verbs[] = {
    {"status", "", verb_status, "how things stand"},
    {"drain", "", verb_drain, "wait until all that was acked is in PostgreSQL"},
    {"pause", "", verb_pause, "stop flushing (events are still taken)"},
    {"resume", "", verb_resume, "flush again"},
    {"adopt", "follows|likes", verb_adopt,
     "take over what an app wrote into Redis itself; counters of\n"
     "                       posts that hold totals must be deleted first"},
    {"verify", "", verb_verify,
     "compare Redis with PostgreSQL, and counts with rows; with\n"
     "                       --repair mend what differs"},
    {"ping", "", verb_ping, "is the daemon alive"},
};

static void usage(void)
{
    fputs("usage: likesyncctl [-s ADDRESS] [-t MS] VERB\n\n", stdout);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        printf("  %-6s %-13s %s\n", verbs[i].name, verbs[i].arg, verbs[i].help);
    fputs("\n"
          "  -s, --socket ADDRESS  admin listener: a path, unix:PATH or\n"
          "                        tcp:HOST:PORT (" DEFAULT_SOCKET ")\n"
          "  -t, --timeout MS      for drain, 1 to 3600000 (30000)\n"
          "      --password-file FILE\n"
          "                        password for a tcp: address, or "
          "credential:NAME\n"
          "      --repair          for verify\n"
          "      --version         print the version\n"
          "      --help            print this\n\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage; of verify 0 nothing "
          "differs,\n1 something did, 2 that could not be told.\n",
          stdout);
}

/* What is wrong has been said; all of the help would hide it. */
static int wrong_usage(void)
{
    fputs("likesyncctl --help says more\n", stderr);
    return EXIT_USAGE;
}

static const struct option long_options[] = {
    {"socket", required_argument, NULL, 's'},
    {"timeout", required_argument, NULL, 't'},
    {"password-file", required_argument, NULL, 'p'},
    {"repair", no_argument, NULL, 'r'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Negative: go on; otherwise the exit status. */
static int parse(struct ctl *ctl, int argc, char **argv)
{
    int c;

    while ((c = getopt_long(argc, argv, "s:t:", long_options, NULL)) != -1) {
        switch (c) {
        case 's':
            ctl->where = optarg;
            break;
        case 't':
            if (num_parse_i64(optarg, strlen(optarg), &ctl->timeout_ms) == 0 &&
                ctl->timeout_ms >= 1 && ctl->timeout_ms <= 3600000)
                break;
            fprintf(stderr,
                    "likesyncctl: --timeout %s: expected milliseconds from 1 "
                    "to 3600000\n",
                    optarg);
            return EXIT_USAGE;
        case 'p':
            ctl->password_file = optarg;
            break;
        case 'r':
            ctl->repair = true;
            break;
        case 'v':
            printf("likesyncctl %s\n", LIKESYNCD_VERSION);
            return EXIT_DONE;
        case 'h':
            usage();
            return EXIT_DONE;
        default:
            return wrong_usage();
        }
    }
    if (argc - optind == 1 || argc - optind == 2) {
        ctl->arg = argv[optind + 1]; /* or the NULL at the end */
        return -1;
    }
    fprintf(stderr, "likesyncctl: expected one verb\n");
    return wrong_usage();
}

/* Whether the verb has its argument, if any, and no other. */
static bool arg_fits(const struct ctl *ctl, const char *name, const char *arg)
{
    if ((arg[0] != '\0') == (ctl->arg != NULL))
        return true;
    if (arg[0])
        fprintf(stderr, "likesyncctl: %s: expected %s\n", name, arg);
    else
        fprintf(stderr, "likesyncctl: expected one verb\n");
    return false;
}

static int read_password(struct ctl *ctl)
{
    int rc;

    if (!ctl->password_file)
        return 0;
    rc = secret_read(ctl->password_file, &ctl->password, &ctl->why);
    if (rc == SECRET_EXPOSED) {
        fprintf(stderr, "likesyncctl: %s\n", buf_cstr(&ctl->why));
        buf_clear(&ctl->why, 0);
    }
    return rc;
}

static int run(struct ctl *ctl, const char *name)
{
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, name) != 0)
            continue;
        if (!arg_fits(ctl, name, verbs[i].arg))
            return wrong_usage();
        if (verbs[i].run == verb_verify)
            ctl->compares = true;
        else if (ctl->repair) {
            fprintf(stderr, "likesyncctl: --repair is for verify\n");
            return wrong_usage();
        }
        if (read_password(ctl) < 0 ||
            ctl_connect(&ctl->conn, ctl->where, ctl->password, &ctl->why) != 0)
            return ctl_fail(ctl);
        rc = verbs[i].run(ctl);
        ctl_close(&ctl->conn);
        return rc;
    }
    fprintf(stderr, "likesyncctl: unknown verb '%s'\n", name);
    return wrong_usage();
}

int main(int argc, char **argv)
{
    struct ctl ctl = {.where = DEFAULT_SOCKET, .timeout_ms = 30000};
    int rc = parse(&ctl, argc, argv);

    if (rc < 0)
        rc = run(&ctl, argv[optind]);
    secret_free(ctl.password);
    buf_free(&ctl.why);
    return rc;
}
