/* SPDX-License-Identifier: MIT */
/* The options of a page: [RANGE start stop | CURSOR c] [COUNT n] [ASC|DESC]
 * [WITHTIMES] [VIEWER v]. A cursor is "0" at the start and at the end, else
 * "time_id": the entry (its time as Redis prints it, its id in key form) behind
 * which the next page begins. Pure. */
#ifndef SERVICES_PAGE_ARGS_H
#define SERVICES_PAGE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/ids.h"
#include "core/resp.h"

#define CURSOR_TIME_MAX 32

enum page_order { PAGE_NEWEST_FIRST, PAGE_OLDEST_FIRST };

struct page_args {
    bool by_cursor; /* else by range; without either: all of it */
    int64_t start;  /* as ZRANGE counts */
    int64_t stop;
    char time[CURSOR_TIME_MAX]; /* of the cursor; empty: from the start on */
    size_t time_len;
    char member[ID_KEY_MAX];
    size_t member_len;
    int64_t count; /* 0 not given */
    enum page_order order;
    bool with_times;
    bool has_viewer;
    char viewer[ID_KEY_MAX];
    size_t viewer_len;
};

struct page_rules {
    enum id_type id_type; /* of the entries */
    bool may_view;        /* VIEWER is an option, a user's id: */
    enum id_type viewer_type;
    int64_t count_max;
    const char *count_option; /* the option that sets it, for messages */
};

/* 0, or -1 with an error put into `reply`. */
MUST_CHECK int page_args_parse(struct page_args *p,
                               const struct page_rules *rules, int argc,
                               const struct resp_arg *argv, struct buf *reply);

#endif
