/* SPDX-License-Identifier: MIT */
/* Pages of the lists of follows. */
#ifndef SERVICES_PAGES_H
#define SERVICES_PAGES_H

#include "core/list_names.h"
#include "services/commands.h"
#include "services/page_args.h"

enum page_filter {
    PAGE_ALL,
    PAGE_MUTUALS, /* only those who follow the user */
    PAGE_COMMON   /* only those whom `other` follows */
};

struct page_query {
    enum list_side side;
    enum page_filter filter; /* then args has no viewer */
    struct id_key user;
    struct id_key other;
    struct page_args args;
};

/* Entries that are looked through for a page with a filter. */
#define PAGE_CURSOR_WALK 10000

/* Replies to the request; q is copied. Holds at most follow.page_max entries at
 * a time, one more step of the list, and reads no more of it than the page
 * needs. */
void pages_run(struct commands *c, struct request *rq,
               const struct page_query *q);

#endif
