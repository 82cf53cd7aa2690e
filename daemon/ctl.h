/* SPDX-License-Identifier: MIT */
/* What the verbs of likesyncctl share. */
#ifndef CTL_H
#define CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl_conn.h"

#define CTL_SOCKET      "unix:/run/likesyncd/admin.sock"
#define CTL_PROGRESS_MS 200
#define CTL_BAR         30

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    /* of verify */
    EXIT_DIFFERENT = 1,
    EXIT_UNKNOWN = 2
};

struct ctl {
    const char *where;         /* ref */
    const char *arg;           /* ref: of the verb; NULL: none */
    const char *password_file; /* ref; NULL: none */
    char *password;            /* owned; NULL: none */
    unsigned given;            /* CTL_OPT_ of the options that were given */
    bool compares; /* 1 is EXIT_DIFFERENT, so a failure is EXIT_UNKNOWN */
    int64_t timeout_ms;
    int64_t interval_ms;
    int64_t count; /* 0: not given */
    struct ctl_conn conn;
    struct buf why;
};

/* ---- ctl_table.c: verbs and options ---- */

#define CTL_OPT_SOCKET   (1u << 0)
#define CTL_OPT_PASSWORD (1u << 1)
#define CTL_OPT_TIMEOUT  (1u << 2)
#define CTL_OPT_COUNT    (1u << 3)
#define CTL_OPT_INTERVAL (1u << 4)
#define CTL_OPT_JSON     (1u << 5)
#define CTL_OPT_REPAIR   (1u << 6)
#define CTL_OPT_YES      (1u << 7)
#define CTL_OPT_VERSION  (1u << 8)
#define CTL_OPT_HELP     (1u << 9)

struct ctl_option {
    unsigned flag; /* CTL_OPT_ */
    int letter;    /* 0: none */
    const char *name;
    const char *arg; /* NULL: none */
    const char *help;
};

struct ctl_verb {
    const char *name; /* one word or two */
    const char *arg;  /* for people; "" none, "[...]" may be left out */
    unsigned options; /* CTL_OPT_ besides those of all verbs */
    int (*run)(struct ctl *ctl);
    const char *summary;
    const char *help;   /* more, in whole sentences; "" nothing */
    const char *status; /* exit statuses, unless they are the usual ones */
};

extern const struct ctl_option ctl_options[];
extern const size_t ctl_option_count;
extern const struct ctl_verb ctl_verbs[];
extern const size_t ctl_verb_count;

/* What the statuses are where a verb says nothing else. */
extern const char ctl_status[];
/* Those that all verbs have. */
#define CTL_OPT_ALL                                                            \
    (CTL_OPT_SOCKET | CTL_OPT_PASSWORD | CTL_OPT_VERSION | CTL_OPT_HELP)

/* Whether the words begin the verb's name; how many of them it has. */
int ctl_verb_words(const struct ctl_verb *verb, int n, char *const *words);
/* For --help. */
void ctl_print_help(void);
void ctl_print_verb_help(const struct ctl_verb *verb);

/* ---- ctl_ask.c ---- */

/* Says why; the exit status. */
int ctl_fail(struct ctl *ctl);
/* One request and its reply. 0, or -1 with the reason in why: an error reply is one,
 * too. */
MUST_CHECK int ctl_ask_on(struct ctl_conn *conn, int n,
                          const char *const *words, struct resp_value *v_r,
                          struct buf *why);
/* The same on the connection of all verbs; not 0 when it failed, which was then said. */
MUST_CHECK int ctl_ask(struct ctl *ctl, int n, const char *const *words,
                       struct resp_value *v_r);
/* Of a reply that is a map: NULL, 0, or "", where there is no such field; and -1
 * for one that is null. */
const struct resp_value *ctl_find(const struct resp_value *v, const char *name);
int64_t ctl_field(const struct resp_value *v, const char *name);
const char *ctl_text(const struct resp_value *v, const char *name);
/* Over the one before, and to the end of the line, which may have been longer. */
void ctl_draw_bar(const char *what, int full, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* As utf8_put_plain() makes it: what comes from backends, ids and reasons hold whatever
 * others put there, and must not steer the terminal. */
void ctl_print_plain(FILE *f, const char *text);
/* A UTC time as people read it; "" for 0. */
#define CTL_TIME_MAX 32
void ctl_time(int64_t us, char out[CTL_TIME_MAX]);

/* ---- ctl_json.c ---- */

/* A map of texts and numbers, without what is nested in it. What stands in it more
 * than once under the name `repeated` becomes a list `plural`. */
void ctl_json_map(struct buf *out, const struct resp_value *v,
                  const char *repeated, const char *plural);
/* The same of a map, and in it a list of maps under that name. */
void ctl_json_list(struct buf *out, const struct resp_value *v,
                   const char *name);
/* With a newline; the buffer is empty then. */
void ctl_json_print(struct buf *out);

/* ---- ctl_job.c ---- */

/* A job of the daemon: `start[0]` also takes STATUS and STOP. */
struct ctl_job {
    const char *const *start; /* ref */
    int n_start;
    const char *doing; /* ref */
    void (*says)(const struct resp_value *v, struct buf *out);
};

/* Starts it and shows how far it is until it has ended. 0 and its last status, or
 * the exit status: what failed was said. */
MUST_CHECK int ctl_job_run(struct ctl *ctl, const struct ctl_job *job,
                           struct resp_value *v_r);
bool ctl_job_is(const struct resp_value *v, const char *state);
/* Says why it is not done; the exit status. */
int ctl_job_unfinished(struct ctl *ctl, const struct resp_value *v);

/* ---- verbs, by file ---- */

/* ctl_adopt.c */
int verb_adopt(struct ctl *ctl);
/* ctl_config.c */
int verb_config(struct ctl *ctl);
/* ctl_deadletter.c */
int verb_deadletter_list(struct ctl *ctl);
int verb_deadletter_retry(struct ctl *ctl);
int verb_deadletter_drop(struct ctl *ctl);
/* ctl_drain.c */
int verb_drain(struct ctl *ctl);
/* ctl_status.c */
int verb_ping(struct ctl *ctl);
int verb_pause(struct ctl *ctl);
int verb_resume(struct ctl *ctl);
int verb_status(struct ctl *ctl);
/* ctl_top.c */
int verb_top(struct ctl *ctl);
/* ctl_verify.c */
int verb_verify(struct ctl *ctl);

#endif
