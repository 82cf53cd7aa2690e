/* SPDX-License-Identifier: MIT */
/* Rows that PostgreSQL refused, as they stand in sync_dead_letter: reads them, and
 * keeps the newest few for a page that is looked at often, and their number in a
 * metric. */
#ifndef SERVICES_DEAD_LETTERS_H
#define SERVICES_DEAD_LETTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "adapters/pg.h"
#include "core/resp.h"

struct engine;
struct dead_letters;

/* More of them are not counted. */
#define DEAD_LETTERS_COUNTED 10000

/* ---- the newest ---- */

#define DEAD_LETTERS_RECENT 5

struct dead_letter {
    int64_t id;
    int64_t refused_us; /* Unix time */
    char *what;         /* owned: "LIKE 7 42", "COUNT +5 42" */
    char *sqlstate;     /* owned; "": the daemon itself refused it */
    char *reason;       /* owned */
};

struct dead_letters_recent {
    bool known;    /* PostgreSQL has answered */
    char *why;     /* owned; why the last question failed, NULL if it did not */
    int64_t total; /* DEAD_LETTERS_COUNTED + 1 when there are more */
    int n;
    struct dead_letter items[DEAD_LETTERS_RECENT];
};

struct dead_letters *dead_letters_new(const struct engine *e);
/* The connections must be freed before. */
void dead_letters_free(struct dead_letters *d);
/* As of the last answer; asks anew, at most every 10 s. Good until the loop runs
 * again. */
const struct dead_letters_recent *dead_letters_recent(struct dead_letters *d);

/* ---- for the command ---- */

/* One row of the answer; texts are refs into it, empty where there is none. */
struct dead_letter_row {
    int64_t id;
    struct resp_arg kind;
    char verb[32]; /* LIKE, UNFOLLOW, COUNT +5, MALFORMED */
    struct resp_arg user;
    struct resp_arg other; /* post or followee */
    int64_t event_us;      /* 0: none */
    int64_t refused_us;
    struct resp_arg sqlstate;
    struct resp_arg reason; /* its first 500 characters */
};

struct dead_letters_query {
    struct pg_job job; /* cb and arg are the caller's to set */
    struct pg_stmt stmts[2];
    struct pg_param params[2];
    char numbers[2][8];
};

/* Newest first: n from this id on. */
void dead_letters_ask(struct dead_letters_query *q, const struct engine *e,
                      int64_t from_id, int64_t n);
void dead_letters_row(const struct pg_result *r, int row,
                      struct dead_letter_row *row_r);
int64_t dead_letters_total(const struct pg_result *r);
/* The event in one line. */
void dead_letter_what(const struct dead_letter_row *row, struct buf *out);

#endif
